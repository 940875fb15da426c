"""Schedules in the broker: each time is sent once, through stops, kills and promotions."""

import base64
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pocketmq.admin.schedules import Schedule
from pocketmq.broker.broker import Broker
from pocketmq.broker.readiness import health
from pocketmq.model.message_codec import properties_to_dict
from pocketmq.model.names import SCHEDULE_CHANGES_TOPIC
from pocketmq.model.record import read_record
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import PocketRequestCode
from pocketmq.store import StoreNotWriteable
from pocketmq.testing import AdvancingClock, ServerProcess
from tests.broker.pairs import caught_up, copied, pair
from tests.broker.serving import Peer, body_of, serving
from tests.kit.waiting import until

DAY_MS = 86_400_000
C = PocketRequestCode


@pytest.fixture
def clock() -> AdvancingClock:
    return AdvancingClock()


@asynccontextmanager
async def running(
    folder: Path, clock: AdvancingClock, **how: Any
) -> AsyncIterator[tuple[Broker, Peer]]:
    async with serving(folder, clock=clock, **how) as broker, await Peer.at(broker) as peer:
        yield broker, peer


async def create(
    peer: Peer, name: str = "s", *, topic: str = "T", replace: str = "false", **plan: Any
) -> RemotingCommand:
    ext = {"topic": topic, "name": name, "replace": replace}
    return await peer.ask(
        C.CREATE_SCHEDULE, ext, json.dumps({"cron": "0 0 * * *", **plan}).encode()
    )


async def change(peer: Peer, act: str, name: str = "s", topic: str = "T") -> RemotingCommand:
    return await peer.ask(C.CHANGE_SCHEDULE, {"topic": topic, "name": name, "act": act})


async def listed(peer: Peer, **of: str) -> list[Any]:
    found: list[Any] = body_of(await peer.ask(C.GET_SCHEDULES, of))["schedules"]
    return found


def turn(broker: Broker, clock: AdvancingClock, days: float = 0) -> None:
    """Let time pass, and the broker do what is due."""
    clock.advance(days=days)
    while broker.parts.services.schedules.step() == 0:
        pass


def sent(broker: Broker, topic: str = "T") -> list[dict[str, str]]:
    """The properties of a topic's messages, in the order of the log."""
    store = broker.parts.messages.store
    places = [
        place
        for name, queue_id in store.queues(topic)
        for place, _, _ in store.entries(name, queue_id, 0, 10_000)
    ]
    found = []
    for place in sorted(places):
        data = store.record_at(place)
        assert data is not None
        found.append(properties_to_dict(bytes(read_record(data).properties)))
    return found


def sent_times(broker: Broker, name: str = "s") -> list[int]:
    return [
        int(each["SCHEDULE_TIME"]) for each in sent(broker) if each.get("SCHEDULE_NAME") == name
    ]


async def test_a_schedule_sends_its_message_at_each_time(
    tmp_path: Path, clock: AdvancingClock
) -> None:
    async with running(tmp_path, clock) as (broker, peer):
        await peer.produce("T", b"first")
        body = base64.b64encode(b"run").decode()
        made = body_of(
            await create(
                peer, body=body, tags="a", keys="k", properties={"p": "q"}, timeZone="Europe/Berlin"
            )
        )
        assert made["nextMs"] > clock.now_ms() - 1
        for _ in range(3):
            turn(broker, clock, days=1)
        found = sent(broker)[1:]
        times = sent_times(broker)
        assert times[0] == made["nextMs"]
        assert [int(each["SCHEDULE_NEXT"]) for each in found[:-1]] == times[1:]
        assert len({each["UNIQ_KEY"] for each in found}) == len(times) == 3
        assert {(each["TAGS"], each["KEYS"], each["p"]) for each in found} == {("a", "k", "q")}
        [row] = await listed(peer)
        assert (row["fired"], row["lastMs"], row["bodySize"]) == (3, times[-1], 3)
        assert "body" not in row
        [whole] = await listed(peer, name="s")
        assert base64.b64decode(whole["body"]) == b"run"
        store = broker.parts.messages.store
        counts = [store.max_offset("T", each) for each in range(8)]
        assert 3 in counts or 4 in counts, "one queue keeps their order"


async def test_pause_resume_replace_and_delete(tmp_path: Path, clock: AdvancingClock) -> None:
    async with running(tmp_path, clock) as (broker, peer):
        await peer.produce("T", b"first")
        await create(peer, owner="me")
        assert (await change(peer, "pause")).code == 0
        assert (await change(peer, "pause")).code == 0
        turn(broker, clock, days=2)
        assert sent_times(broker) == []
        assert (await change(peer, "resume")).code == 0
        turn(broker, clock, days=1)
        assert len(sent_times(broker)) == 1, "what passed in the pause is not sent"
        again = body_of(await create(peer, owner="me"))
        assert again["fired"] == 1, "it stays as it is"
        refused = await create(peer, owner="me", cron="0 1 * * *")
        assert refused.code == ResponseCode.ILLEGAL_OPERATION
        assert "there is another schedule s already" in (refused.remark or "")
        changed = body_of(await create(peer, owner="me", cron="0 1 * * *", replace="true"))
        assert (changed["cron"], changed["fired"]) == ("0 1 * * *", 1)
        assert len(await listed(peer, owner="me")) == len(await listed(peer, topic="T")) == 1
        assert await listed(peer, owner="you") == await listed(peer, topic="U") == []
        assert (await change(peer, "delete")).code == 0
        turn(broker, clock, days=2)
        assert len(sent_times(broker)) == 1
        assert (await change(peer, "delete")).code == ResponseCode.QUERY_NOT_FOUND


async def test_one_that_never_comes_again_is_gone(tmp_path: Path, clock: AdvancingClock) -> None:
    """Messages for a time may be further ahead than timerMaxDelaySec allows."""
    async with running(tmp_path, clock) as (broker, peer):
        await peer.produce("T", b"first")
        due_ms = clock.now_ms() + 400 * DAY_MS
        await create(peer, cron=None, atMs=due_ms)
        turn(broker, clock, days=399)
        assert sent_times(broker) == []
        turn(broker, clock, days=2)
        assert sent_times(broker) == [due_ms]
        assert await listed(peer) == []


async def test_what_cannot_be_is_refused(tmp_path: Path, clock: AdvancingClock) -> None:
    async with running(tmp_path, clock, schedules_max=1, schedule_max_size=100) as (_, peer):
        await peer.produce("T", b"first")
        await peer.produce("U", b"first")

        async def why(name: str = "s", **given: Any) -> str:
            answer = await create(peer, name, **given)
            assert answer.code != ResponseCode.SUCCESS
            return answer.remark or ""

        assert "hour: 24 is not within 0-23" in await why(cron="0 24 * * *")
        assert "never comes" in await why(cron="0 0 31 4 *")
        assert "never comes" in await why(cron=None, atMs=1)
        assert "not exist" in await why(topic="None")
        assert "forbidden" in await why(topic=SCHEDULE_CHANGES_TOPIC)
        assert "1 to 255" in await why(name="")
        assert "scheduleMaxSize" in await why(tags="x" * 101)
        answer = await peer.ask(C.CREATE_SCHEDULE, {"topic": "T", "name": "s"}, body=b"\xff{")
        assert "JSON object" in (answer.remark or "")
        assert (await create(peer)).code == ResponseCode.SUCCESS
        assert "use another name" in await why(topic="U")
        assert "use another name" in ((await change(peer, "delete", topic="U")).remark or "")
        assert "not one of pause" in ((await change(peer, "stop")).remark or "")
        assert "schedulesMax" in await why(name="t")
        sent_there = await peer.produce(SCHEDULE_CHANGES_TOPIC, b"{}")
        assert sent_there.code == ResponseCode.NO_PERMISSION


async def test_all_messages_together_are_bounded(
    tmp_path: Path, clock: AdvancingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pocketmq.broker.acts.schedules._SIZE_MAX", 100)
    async with running(tmp_path, clock) as (_, peer):
        await peer.produce("T", b"first")
        assert (await create(peer, tags="x" * 60)).code == ResponseCode.SUCCESS
        refused = await create(peer, "t", tags="x" * 60)
        assert "take 60 bytes, together they may take 100" in (refused.remark or "")
        assert (await create(peer, tags="x" * 90, replace="true")).code == ResponseCode.SUCCESS


async def test_a_topic_that_is_missing_misses_its_times(
    tmp_path: Path, clock: AdvancingClock
) -> None:
    async with running(tmp_path, clock) as (broker, peer):
        await peer.produce("T", b"first")
        await create(peer)
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
        turn(broker, clock, days=1)
        schedules = broker.parts.services.schedules
        assert schedules.missed["T"] == 1
        [finding] = health(broker).findings
        assert "its topic T takes no messages" in finding
        await peer.produce("T", b"new")
        turn(broker, clock, days=1)
        assert len(sent_times(broker)) == 1
        assert schedules.findings() == []


async def test_a_full_disk_delays_a_time(tmp_path: Path, clock: AdvancingClock) -> None:
    async with running(tmp_path, clock) as (broker, peer):
        await peer.produce("T", b"first")
        await create(peer)
        service, put = broker.parts.services.schedules, broker.parts.messages.put

        def full(*_: object, **__: object) -> None:
            raise StoreNotWriteable("the disk is full")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(put, "put", full)
            clock.advance(days=1)
            assert service.step() == broker.parts.messages.store.side_tasks.retry_ms
        turn(broker, clock)
        assert len(sent_times(broker)) == 1


@pytest.mark.parametrize(("missed", "count"), [("once", 1), ("all", 3), ("skip", 0)])
async def test_times_missed_while_the_broker_was_down(
    tmp_path: Path, clock: AdvancingClock, missed: str, count: int
) -> None:
    async with running(tmp_path, clock) as (broker, peer):
        await peer.produce("T", b"first")
        [next_ms] = [body_of(await create(peer, missed=missed))["nextMs"]]
        clock.advance((next_ms - clock.now_ms()) / 1000 - 3600)
    clock.advance(days=2, hours=2)
    async with running(tmp_path, clock) as (broker, peer):
        turn(broker, clock)
        assert len(sent_times(broker)) == count
        [row] = await listed(peer)
        turn(broker, clock, days=(row["nextMs"] - clock.now_ms()) / DAY_MS)
        assert len(sent_times(broker)) == count + 1


@pytest.mark.parametrize("when", ["before", "created", "fired"])
async def test_a_table_that_is_older_than_the_log_repeats_nothing(
    tmp_path: Path, clock: AdvancingClock, when: str
) -> None:
    """As a kill leaves it: of before the schedule, of before its firings, or of between two of them."""
    table, kept = tmp_path / "s" / "config" / "schedules.json", tmp_path / "kept.json"

    def keep(broker: Broker) -> None:
        broker.parts.tables.schedules.persist()
        shutil.copy(table, kept)

    async with running(tmp_path / "s", clock) as (broker, peer):
        await peer.produce("T", b"first")
        keep(broker)
        await create(peer)
        await create(peer, "gone")
        await create(peer, "paused")
        if when == "created":
            keep(broker)
        turn(broker, clock, days=1)
        if when == "fired":
            keep(broker)
        await change(peer, "delete", "gone")
        await change(peer, "pause", "paused")
        turn(broker, clock, days=1)
        before, rows = sent(broker), await listed(peer)
    shutil.copy(kept, table)
    (table.parent / "schedules.json.bak").unlink(missing_ok=True)
    async with running(tmp_path / "s", clock) as (broker, peer):
        turn(broker, clock)
        assert sent(broker) == before
        assert await listed(peer) == rows
        turn(broker, clock, days=1)
        assert len(sent_times(broker)) == 3


async def test_a_promoted_slave_continues_where_its_log_ends(
    tmp_path: Path, clock: AdvancingClock
) -> None:
    """The second schedule, and all firings, are younger than the tables that the slave has."""
    async with pair(tmp_path) as brokers:
        master = await brokers.master(clock=clock)
        slave = await brokers.slave(clock=clock)
        async with await Peer.at(master) as peer:
            await peer.produce("T", b"first")
            await create(peer, "old")
            await caught_up(slave, master)
            assert list(slave.parts.tables.schedules.rows) == ["old"]
            metadata = slave.parts.services.replication.metadata
            assert metadata is not None
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(metadata.copied.ours.schedules, "from_json", lambda data: None)
                await create(peer, "new")
                turn(master, clock, days=2)
                await copied(slave)
                before = sent(master)
        await brokers.stop("m")
        await slave.parts.services.replication.promote(force=True)
        assert sent(slave) == before
        assert slave.parts.tables.schedules.rows.keys() == {"old", "new"}
        turn(slave, clock, days=1)
        for name in ("old", "new"):
            assert len(sent_times(slave, name)) == len(set(sent_times(slave, name))) == 2


def test_killed_brokers_send_each_second_once(tmp_path: Path) -> None:
    """A real process that is killed while it sends; all that was missed is made up for."""
    with ServerProcess(store=str(tmp_path / "store")) as server:

        def sends_more_than(count: int) -> bool:
            return len(server.messages("T")) > count

        server.create_topic("T")
        server.admin.schedules.create(Schedule("s", "T", interval_ms=1_000, missed="all"))
        for kills in range(3):
            until(partial(sends_more_than, 3 * kills), "it sends")
            server.kill()
            server.start()
        until(partial(sends_more_than, 9), "it sends again")
        found = sorted(int(each.properties["SCHEDULE_TIME"]) for each in server.messages("T"))
        assert found == list(range(found[0], found[-1] + 1, 1_000))
