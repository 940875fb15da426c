"""Who cites the balance of a group: metrics, the doctor and the plan of a release; and who pays for it."""

from pathlib import Path

import pytest

from pocketmq.admin import Admin
from pocketmq.admin.checkup import check_group
from pocketmq.admin.release import plan_release
from pocketmq.broker.broker import Broker
from pocketmq.broker.figures.metrics import snapshot
from pocketmq.client.declared_subscriptions import DeclaredSubscriptions
from tests.broker.pairs import name_server
from tests.broker.serving import Peer, records, serving
from tests.broker.test_balance import G, T, books, commit, send


async def lose_two(broker: Broker, asker: Peer) -> None:
    """Two messages of tag A are consumed, two of tag B lost."""
    async with await Peer.at(broker) as first, await Peer.at(broker) as second:
        await second.heartbeat(G, {T: "B"}, client_id="c2")
        await first.heartbeat(G, {T: "A"}, client_id="c1", sub_version=2)
        await send(asker, *"ABAB")
        records(await first.pull(G, T, 0))
        await commit(first, 4)


def scraped(broker: Broker) -> dict[str, float]:
    """The states of the group that /metrics shows."""
    [found] = [each for each in snapshot(broker) if each.metric.name == "pocketmq_group_messages"]
    return {labels[-1]: value for labels, value in found.samples if value}


@pytest.mark.parametrize("named", ["", f"another,{G}"])
async def test_metrics_show_a_group_that_is_asked_about_or_named(
    tmp_path: Path, named: str
) -> None:
    async with serving(tmp_path, balance_groups=named) as broker, await Peer.at(broker) as asker:
        await lose_two(broker, asker)
        watch = broker.parts.balances
        await watch.reckon()
        assert scraped(broker) == ({"consumed": 2, "lost": 2} if named else {})
        # Without a question nothing is read.
        assert ("ledger" in vars(watch)) is bool(named)
        assert (await books(asker))["lost"] == 2
        await watch.reckon()
        assert scraped(broker) == {"consumed": 2, "lost": 2}


async def test_the_doctor_and_the_plan_of_a_release_cite_the_books(tmp_path: Path) -> None:
    async with (
        name_server() as namesrv,
        serving(tmp_path, namesrv_addr=namesrv) as broker,
        await Peer.at(broker) as asker,
        Admin(name_server=namesrv) as admin,
    ):
        await lose_two(broker, asker)
        unasked = await check_group(admin, G, with_lost=False)
        assert "MESSAGES_LOST" not in {each.kind for each in unasked.symptoms}
        told = (await check_group(admin, G)).symptoms
        [symptom] = [each for each in told if each.kind == "MESSAGES_LOST"]
        cited = f"2 messages lost so far: pocketmq group balance {G} --list lost"
        assert (symptom.text, symptom.topic) == (cited, T)
        entry = DeclaredSubscriptions.from_json({"group": G, "subscriptions": {T: "A"}})
        [plan] = await plan_release(admin, [entry])
        assert plan.lost == 2
