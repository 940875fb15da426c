"""Groups by the console's API: members' own subscriptions, the guard's verdict, offsets, modes, producers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.console.console_peer import Site, site, until

from pocketmq.client import (
    ConsumeContext,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)


async def send(running: Site, topic: str, *tags: str, per_queue: bool = True) -> None:
    """Message n with tag n goes to queue n modulo 4, as in E3."""
    async with Producer("subscribe_producer", name_server=running.name_server) as producer:
        queues = await producer.queues(topic)
        for number, tag in enumerate(tags):
            message = Message(topic, f"B{number}".encode(), tags=tag, keys=f"k{number}")
            await producer.send(message, queue=queues[number % len(queues)])


@asynccontextmanager
async def member(
    running: Site, name: str, expression: str, *, group: str = "S", topic: str = "T"
) -> AsyncIterator[list[str]]:
    """A consumer; yields the bodies that it got."""
    got: list[str] = []

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
    consumer.subscribe(topic, expression)
    async with consumer:
        yield got


async def test_what_the_article_saw_on_four_screens_and_the_verdict_that_it_lacked(
    tmp_path: Path,
) -> None:
    """E3, S85, S86, S87, S88: members, status, owners and track of the experiment, by the console."""
    async with site(tmp_path) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 4, "writeQueues": 4})

        async def group() -> Any:
            reply = await user.get("/groups/S")
            return reply.json if reply.status == 200 else None

        async with member(running, "A", "tagA") as got_a:
            await until(lambda: _stored(group, "tagA"))
            async with member(running, "B", "tagB") as got_b:
                await until(lambda: _two_and_tag_b(group))
                await send(running, "T", *["tagB"] * 8)

                async def consumed() -> Any:
                    found = await group()
                    rows = [row for row in found["queues"] if row["topic"] == "T"]
                    done = [row["consumerOffset"] for row in rows] == [2, 2, 2, 2]
                    return found if done else None

                found = await until(consumed)
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
                overview = await until(lambda: _warned(user))
                assert "tagB" in overview["text"]
                listed = (await user.read("/groups", q="S", type="NORMAL"))["items"]
                assert [(each["name"], each["members"], each["differs"]) for each in listed] == [
                    ("S", 2, True)
                ]


async def _stored(group: Any, expression: str) -> bool:
    found = await group()
    return bool(found and any(each["expression"] == expression for each in found["stored"]))


async def _two_and_tag_b(group: Any) -> bool:
    found = await group()
    owners = {row["owner"] for row in found["queues"] if row["topic"] == "T"}
    have = {each["clientId"]: len(each["queues"]) for each in found["members"]}
    return (
        len(found["members"]) == 2
        and await _stored(group, "tagB")
        and min(have.values()) >= 2
        and owners is not None
    )


async def _warned(user: Any) -> Any:
    warnings = (await user.read("/overview"))["warnings"]
    return next((each for each in warnings if each["kind"] == "GROUP_DIFFERS"), None)
