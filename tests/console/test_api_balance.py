"""The balance of a group by the console's API: the books, what was lost and by whom, and giving it back."""

from pathlib import Path
from typing import Any

from tests.broker.serving import Peer
from tests.broker.test_balance import G, T
from tests.broker.test_redelivery import lose
from tests.console.console_peer import site
from tests.kit.waiting import until_async


async def losses(user: Any) -> bool:
    warnings = (await user.read("/overview"))["warnings"]
    return any(each["kind"] == "MESSAGES_LOST" and each["group"] == G for each in warnings)


async def test_lost_messages_are_told_and_given_back(tmp_path: Path) -> None:
    """As test_redelivery.lose: c1 asks for A while the group's filter is B, and B is wanted no more.

    Broker a does not know the group.
    """
    async with site(tmp_path, brokers=("a", "b"), isolate_keep_time=0) as running:
        async with (
            await Peer.at(running.brokers["b"]) as asker,
            await Peer.at(running.brokers["b"]) as member,
        ):
            user = running.user
            async with await Peer.at(running.brokers["b"]) as second:
                await member.heartbeat(G, {T: "A"}, client_id="c1")
                await second.heartbeat(G, {T: "B"}, client_id="c2", sub_version=2)
                refused = await user.call("POST", f"/groups/{G}/redeliver", {"state": "lost"})
                assert (refused.status, "isolate" in str(refused.json)) == (409, True)
            await lose(running.brokers["b"], asker, member, *"AAAB")
            found = await user.read(f"/groups/{G}/balance")
            assert (found["total"]["stored"], found["total"]["lost"]) == (4, 4)
            assert found["total"]["difference"] == 0
            assert [each["topic"] for each in found["topics"]] == [T]
            assert [each["state"] for each in found["states"] if each["count"]] == ["lost"]
            missed, discarded = sorted(found["losses"], key=lambda row: -row["count"])
            assert (missed["count"], discarded["count"]) == (3, 1)
            assert (missed["member"], missed["subscription"], missed["filter"]) == ("c1", "A", "B")
            assert missed["cause"] == "filtered for another member"
            assert discarded["cause"] == "discarded by the member"
            rows = await user.read(f"/groups/{G}/balance/lost", size=1)
            assert (rows["total"], rows["items"][0]["first"], rows["items"][0]["last"]) == (2, 0, 2)
            await until_async(lambda: losses(user), what="the overview tells of what was lost")
            question = await user.ask("POST", f"/groups/{G}/redeliver", {"state": "lost"})
            assert "will get 3 lost messages again" in question["willDo"]
            assert question["parameters"]["unwanted"] == 1
            assert (await user.read(f"/groups/{G}/balance"))["total"]["lost"] == 4
            done = await user.do("POST", f"/groups/{G}/redeliver", {"state": "lost"})
            assert done == {"given": 3, "left": 0, "unwanted": 1, "deleted": 0}
            after = (await user.read(f"/groups/{G}/balance"))["total"]
            assert (after["retry"], after["lost"]) == (3, 1)


async def test_mistakes_say_what_is_wrong(tmp_path: Path) -> None:
    async with site(tmp_path) as running:
        user = running.user
        unknown = await user.get("/groups/unknown/balance")
        assert (unknown.status, unknown.json["error"]) == (
            404,
            "no broker accounts for group 'unknown'",
        )
        state = await user.get("/groups/g/balance/gone")
        assert (state.status, "lost" in state.json["whatToDo"]) == (400, True)
        given = await user.call("POST", "/groups/g/redeliver", {"state": "consumed"})
        assert (given.status, given.json["whatToDo"]) == (400, "send lost or skipped")
