"""Groups by the console's API: members' own subscriptions, the guard's verdict, offsets, modes, producers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pocketmq.client import (
    ConsumeContext,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from tests.console.console_peer import Site, site
from tests.kit.waiting import until_async


async def send(running: Site, topic: str, *tags: str) -> None:
    """Message n with tag n goes to queue n modulo 4, as in E3."""
    async with Producer("subscribe_producer", name_server=running.name_server) as producer:
        queues = await producer.queues(topic)
        for number, tag in enumerate(tags):
            message = Message(topic, f"B{number}".encode(), tags=tag, keys=f"k{number}")
            await producer.send(message, queue=queues[number % len(queues)])


class Got(list[str]):
    """The bodies that a consumer got."""

    consumer: PushConsumer


@asynccontextmanager
async def member(
    running: Site, name: str, expression: str, *, group: str = "S", topic: str = "T"
) -> AsyncIterator[Got]:
    """A consumer that runs."""
    got = Got()

    async def listener(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        got.extend(each.body.decode() for each in messages)
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(
        group,
        listener=listener,
        name_server=running.name_server,
        instance_name=name,
        client_ip="127.0.0.1",
        persist_offset_interval_ms=200,
        rebalance_interval_ms=1_000,
    )
    got.consumer = consumer
    consumer.subscribe(topic, expression)
    async with consumer:
        yield got


async def test_the_api_shows_e3_on_four_screens_with_its_verdict(
    tmp_path: Path,
) -> None:
    """E3, S85, S86, S87, S88: members, status, owners and track of the experiment, by the console."""
    # A pull that finds nothing is held for a second, not fifteen, before the offset behind it is known.
    async with site(tmp_path, long_polling_enable=False) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 4, "writeQueues": 4})

        async def group() -> Any:
            reply = await user.get("/groups/S")
            return reply.json if reply.status == 200 else None

        async with member(running, "A", "tagA") as got_a:
            await until_async(lambda: _stored(group, "tagA"))
            async with member(running, "B", "tagB") as got_b:
                await until_async(lambda: _two_each(group))
                # A has told the broker anew when it gave queues up; now B is the last one to tell.
                got_b.consumer.subscribe("T", "tagB")
                await until_async(lambda: _kept_is_the_last(group))
                await send(running, "T", *["tagB"] * 8)

                async def consumed() -> Any:
                    found = await group()
                    rows = [row for row in found["queues"] if row["topic"] == "T"]
                    done = [row["consumerOffset"] for row in rows] == [2, 2, 2, 2]
                    return found if done else None

                found = await until_async(consumed)
                # S85: who is there, and what each asks for beside what the broker keeps.
                own = {
                    each["clientId"]: [s["expression"] for s in each["subscriptions"][:1]]
                    for each in found["members"]
                }
                assert own == {"127.0.0.1@A": ["tagA"], "127.0.0.1@B": ["tagB"]}
                assert [each["expression"] for each in found["stored"][:1]] == ["tagB"]
                differs = {each["clientId"]: each["differs"] for each in found["members"]}
                assert differs == {"127.0.0.1@A": ["T"], "127.0.0.1@B": []}
                # The verdict: who loses what where.
                verdict = found["verdict"]
                assert (verdict["source"], verdict["agree"]) == ("guard", False)
                losses = verdict["findings"][0]["losses"]
                assert {
                    "holder": "127.0.0.1@A",
                    "lost": "tagB",
                    "lostTo": ["127.0.0.1@B"],
                    "queueIds": [0, 1],
                } in losses
                # S86: two messages in each queue. S87: who owns which queue, offset and difference.
                status = (await user.read("/topics/T"))["status"]
                assert [(each["minOffset"], each["maxOffset"]) for each in status] == [(0, 2)] * 4
                rows = (await user.read("/topics/T/consumers"))["groups"][0]["queues"]
                assert [(row["queueId"], row["owner"], row["lag"]) for row in rows] == [
                    (0, "127.0.0.1@A", 0),
                    (1, "127.0.0.1@A", 0),
                    (2, "127.0.0.1@B", 0),
                    (3, "127.0.0.1@B", 0),
                ]
                assert sorted(got_b) == ["B2", "B3", "B6", "B7"]
                assert got_a == []
                # The overview warns, and the list shows it.
                overview = await until_async(lambda: _warned(user))
                assert "tagB" in overview["text"]
                listed = (await user.read("/groups", q="S", type="NORMAL"))["items"]
                assert [(each["group"], each["members"], each["differs"]) for each in listed] == [
                    ("S", 2, True)
                ]


async def _stored(group: Any, expression: str) -> bool:
    found = await group()
    return bool(found and any(each["expression"] == expression for each in found["stored"]))


async def _two_each(group: Any) -> bool:
    """Both members have two queues."""
    found = await group()
    return [len([q for q in m["queues"] if q["topic"] == "T"]) for m in found["members"]] == [2, 2]


async def _kept_is_the_last(group: Any) -> bool:
    """The broker keeps B's subscription, and it is newer than A's: no heartbeat of A changes that."""
    found = await group()
    [a, b, kept] = [
        next((s for s in each if s["topic"] == "T"), None)
        for each in (*(m["subscriptions"] for m in found["members"]), found["stored"])
    ]
    return bool(kept == b and b and a and b["version"] > a["version"])


async def _warned(user: Any) -> Any:
    warnings = (await user.read("/overview"))["warnings"]
    return next((each for each in warnings if each["kind"] == "GROUP_DIFFERS"), None)


async def test_offsets_are_shown_before_they_are_moved(tmp_path: Path) -> None:
    """Groups: reset by time, skip, clone, one queue; each says its steps first."""
    async with site(tmp_path) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 2, "writeQueues": 2})
        async with member(running, "A", "*") as got:
            await send(running, "T", *["tag"] * 6)

            async def all_got() -> bool:
                return len(got) == 6

            await until_async(all_got)
        step = {"topic": "T", "broker": "b"}

        async def offsets(group: str) -> list[int]:
            rows = (await user.read(f"/groups/{group}"))["queues"]
            return [row["consumerOffset"] for row in rows if row["topic"] == "T"]

        assert await offsets("S") == [3, 3]
        asked = await user.ask("POST", "/groups/S/reset", {"topic": "T", "to": "earliest"})
        assert asked["steps"] == [
            {**step, "queueId": 0, "from": 3, "to": 0},
            {**step, "queueId": 1, "from": 3, "to": 0},
        ]
        assert "skip 0 messages and consume 6 again" in asked["willDo"]
        assert await offsets("S") == [3, 3]
        done = await user.do("POST", "/groups/S/reset", {"topic": "T", "to": "earliest"})
        assert done["steps"] == asked["steps"]
        assert await offsets("S") == [0, 0]
        await user.do("POST", "/groups/S/offset", {**step, "queueId": 1, "offset": 2})
        assert await offsets("S") == [0, 2]
        await user.do("PUT", "/groups/C", {"retryMaxTimes": 3})
        await user.do("POST", "/groups/C/clone", {"topic": "T", "from": "S"})
        assert await offsets("C") == [0, 2]
        await user.do("POST", "/groups/S/skip", {"topic": "T"})
        assert await offsets("S") == [3, 3]
        for bad in ({"topic": "T", "to": "noon"}, {"topic": "T", "to": -5}, {"to": "latest"}):
            assert (await user.call("POST", "/groups/S/reset", bad)).status == 400
        nowhere = await user.call("POST", "/groups/S/reset", {"topic": "N", "to": "latest"})
        assert nowhere.status == 404


async def test_a_group_is_made_changed_given_a_mode_and_deleted(tmp_path: Path) -> None:
    """Groups: create, change, mode, delete."""
    async with site(tmp_path) as running:
        user = running.user
        assert await user.do("PUT", "/groups/G", {"retryMaxTimes": 3}) == {
            "brokers": ["b"],
            "created": True,
        }
        asked = await user.ask("PUT", "/groups/G", {"consumeEnable": False})
        assert "consumeEnable from True to False" in asked["willDo"]
        await user.do("PUT", "/groups/G", {"consumeEnable": False})
        found = await user.read("/groups/G")
        config = found["configs"][0]
        assert (config["retryMaxTimes"], config["consumeEnable"]) == (3, False)
        assert (found["online"], found["mode"]) == (False, "compatible")
        assert found["verdict"]["source"] == "none"
        for mode in ("isolate", "strict"):
            asked = await user.ask("PUT", "/groups/G/mode", {"mode": mode})
            assert asked["parameters"]["mode"] == mode
            await user.do("PUT", "/groups/G/mode", {"mode": mode})
            assert (await user.read("/groups/G"))["mode"] == mode
        await user.do("PUT", "/groups/G/mode", {"mode": None})
        found = await user.read("/groups/G")
        assert found["mode"] == "compatible"
        # The mode is an attribute: the rest of the configuration has stayed.
        assert found["configs"][0]["retryMaxTimes"] == 3
        assert (await user.call("PUT", "/groups/G/mode", {"mode": "odd"})).status == 400
        listed = await user.read("/groups", type="NORMAL")
        assert [each["group"] for each in listed["items"]] == ["G"]
        assert listed["counts"]["SYSTEM"] >= 1
        await user.do("DELETE", "/groups/G")
        assert (await user.get("/groups/G")).json["code"] == "NOT_FOUND"
        assert (await user.call("DELETE", "/groups/TOOLS_CONSUMER")).json["code"] == "FORBIDDEN"
        assert (await user.call("PUT", "/groups/a%20b", {})).json["code"] == "BAD_REQUEST"


async def test_a_member_tells_what_it_runs_and_producers_are_listed(tmp_path: Path) -> None:
    """Groups: running info with stack; producers."""
    async with site(tmp_path) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 1, "writeQueues": 1})
        async with (
            member(running, "A", "tagA || tagB"),
            Producer("P", name_server=running.name_server) as producer,
        ):
            await producer.send(Message("T", b"x"))

            async def info() -> Any:
                reply = await user.get("/groups/S/members/127.0.0.1%40A", stack="true")
                return reply.json if reply.status == 200 and reply.json["queues"] else None

            found = await until_async(info)
            assert found["queues"][0]["topic"] == "T"
            assert found["subscriptions"][0]["tags"] == ["tagA", "tagB"]
            assert found["properties"]
            assert found["stack"]
            absent = await user.get("/groups/S/members/absent")
            assert (absent.status, absent.json["code"]) == (404, "NOT_FOUND")

            async def listed() -> Any:
                return (await user.read("/producers", group="P"))["items"]

            rows = await until_async(listed)
            assert [(each["group"], each["language"]) for each in rows] == [("P", "PYTHON")]
            assert rows[0]["address"].startswith("127.0.0.1:")
            everybody = (await user.read("/producers"))["items"]
            assert "P" in {each["group"] for each in everybody}
            online = await user.call(
                "POST", "/groups/S/offset", {"topic": "T", "broker": "b", "queueId": 0, "offset": 0}
            )
            assert (online.status, online.json["code"]) == (409, "CONFLICT")


async def test_an_isolated_group_shows_sub_groups_and_no_loss(tmp_path: Path) -> None:
    """Groups: the mode's effect is seen: sub-groups with their members and subscriptions."""
    async with site(tmp_path) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 4, "writeQueues": 4})
        await user.do("PUT", "/groups/S", {})
        await user.do("PUT", "/groups/S/mode", {"mode": "isolate"})
        async with member(running, "A", "tagA") as got_a, member(running, "B", "tagB") as got_b:

            async def two() -> Any:
                found = await user.read("/groups/S")
                active = [each for each in found["subGroups"] if each["state"] == "active"]
                return found if len(active) == 2 else None

            found = await until_async(two)
            assert found["mode"] == "isolate"
            wishes = {
                each["clientIds"][0]: each["subscriptions"][0]["expression"]
                for each in found["subGroups"]
            }
            assert wishes == {"127.0.0.1@A": "tagA", "127.0.0.1@B": "tagB"}
            verdict = found["verdict"]
            assert (verdict["agree"], verdict["findings"]) == (True, [])
            assert "2 sub-groups" in verdict["text"]
            assert "Nothing is lost" in verdict["text"]

            async def owned_twice() -> Any:
                rows = (await user.read("/groups/S"))["queues"]
                owners = {row["owner"] for row in rows if row["topic"] == "T"}
                return owners == {"127.0.0.1@A, 127.0.0.1@B"}

            await send(running, "T", *["tagA", "tagB"] * 4)

            async def all_got() -> bool:
                return (len(got_a), len(got_b)) == (4, 4)

            await until_async(all_got)
            await until_async(owned_twice)
