"""One answer to one question from each of them: guard, console, command line, figures, administration."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pocketmq.admin import Admin
from pocketmq.admin.views.broker import cluster_view
from pocketmq.broker.figures.metrics import snapshot
from pocketmq.cli.commands.top import look, ranked
from pocketmq.cli.group_report import examine
from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageModel,
    Producer,
    PushConsumer,
)
from pocketmq.console.metrics.page import to_text
from tests.console.console_peer import Site, User, site
from tests.kit.waiting import until_async


@asynccontextmanager
async def member(running: Site, name: str, expression: str) -> AsyncIterator[PushConsumer]:
    async def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
        pass

    consumer = PushConsumer(
        "S", listener=listener, name_server=running.name_server, instance_name=name
    )
    consumer.subscribe("T", expression)
    async with consumer:
        yield consumer


async def test_tags_written_differently_agree_on_every_face(
    tmp_path: Path,
) -> None:
    """`A || B` and `B||A` let the same messages through."""
    async with site(tmp_path, group_guard_grace_time=0) as running:
        await running.user.do("PUT", "/topics/T", {"readQueues": 4, "writeQueues": 4})
        async with member(running, "one", "A || B"), member(running, "two", "B||A"):

            async def both() -> Any:
                reply = await running.user.get("/groups/S")
                found = reply.json
                if reply.status != 200 or len(found["members"]) < 2:
                    return None
                # Both have queues, so that nothing but the subscriptions could be wrong.
                owned = {row["owner"] for row in found["queues"] if row["topic"] == "T"}
                return found if len(owned - {None}) == 2 else None

            async with Producer("P", name_server=running.name_server) as producer:
                for queue in await producer.queues("T"):
                    await producer.send(Message("T", b"x", tags="A"), queue=queue)
            found = await until_async(both)
            assert found["verdict"]["agree"] is True
            assert [each["differs"] for each in found["members"]] == [[], []]
            broker = running.brokers["b"]
            assert broker.parts.members.guard.findings("S") == []
            text = to_text([snapshot(broker)]).decode()
            camps = "pocketmq_group_subscription_camps{"
            assert [line for line in text.splitlines() if line.startswith(camps)] == []
            async with Admin(name_server=running.name_server) as admin:
                [diagnosis] = await examine(admin, "S")
            kinds = {each["kind"] for each in diagnosis["symptoms"]}
            assert diagnosis["findings"] == []
            assert "GROUP_DIFFERS" not in kinds


async def test_broker_and_admin_give_the_same_track_type(
    tmp_path: Path,
) -> None:
    """A pull consumer says nothing of what it has done, broadcasting or not: RocketMQ's type is PULL."""
    async with site(tmp_path) as running:
        await running.user.do("PUT", "/topics/T", {"readQueues": 1, "writeQueues": 1})
        consumer = LitePullConsumer(
            "S", name_server=running.name_server, message_model=MessageModel.BROADCASTING
        )
        consumer.subscribe("T")
        async with (
            Producer("P", name_server=running.name_server) as producer,
            Admin(name_server=running.name_server) as admin,
            consumer,
        ):
            sent = await producer.send(Message("T", b"x"))

            async def online() -> bool:
                return running.brokers["b"].parts.members.consumers.get("S") is not None

            await until_async(online)
            told = await admin.doctor.track(msg_id=sent.offset_msg_id, group="S")
            assert told is not None
            message = await admin.messages.by_offset_id(sent.offset_msg_id)
            [computed] = await admin.messages.track(message, group="S")
            assert told["tracks"][0]["trackType"] == computed.type == "PULL"


def _words(rows: list[dict[str, Any]]) -> dict[tuple[str, str | None], str]:
    """The words of each symptom; figures, and where a lag goes, move on between two looks."""
    return {
        (each["kind"], each["topic"]): re.sub(r"[\d,.]+", "N", each["text"].partition(" behind")[0])
        for each in rows
    }


async def hanging_is_no_consumption(admin: Admin, user: User) -> None:
    """40 messages were pulled, none is finished: 0 out per second on every face, and an error."""
    [diagnosis] = await examine(admin, "Stuck")
    [lag] = [each for each in diagnosis["symptoms"] if each["kind"] == "LAG"]
    assert (lag["severity"], lag["parameters"]["out"]) == ("error", 0)
    assert "0.0 out/s: never empty" in lag["text"]
    assert (await user.read("/groups/Stuck"))["out"] == 0

    async def committed() -> Any:
        rows = {each["group"]: each for each in ranked(await look(admin, False), 10)["groups"]}
        return rows["Stuck"] if rows["Stuck"]["lag"] else None

    row = await until_async(committed)
    assert (row["out"], row["emptyInS"]) == (0, "never")
    overview = await user.read("/overview")
    assert {each["group"]: each["out"] for each in overview["topGroups"]}["Stuck"] == 0
    [topic] = [each for each in overview["topTopics"] if each["topic"] == "T"]
    assert (topic["out"], topic["in"] > 0) == (0, True)
    # What members were given is called so, and nothing else is out.
    assert overview["totals"]["deliveredToday"] >= 40
    assert [each for each in overview["brokers"][0] if each.startswith("out")] == []


async def test_a_sick_group_is_sick_on_every_face_in_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One group stands still, another's messages all die; a doctor that gave the all-clear misled."""
    monkeypatch.setattr("pocketmq.broker.groups.member_reports.INTERVAL_S", 0.1)
    limits: Any = {
        "doctor_lag_max": 20,
        "doctor_stuck_time": 1_000,
        "doctor_retries_per_minute_max": 0,
    }
    async with site(tmp_path, **limits) as running:
        user = running.user
        for topic in ("T", "U"):
            await user.do("PUT", f"/topics/{topic}", {"readQueues": 1, "writeQueues": 1})
        go_on = asyncio.Event()

        async def hanging(messages: list[MessageExt], context: ConsumeContext) -> None:
            await go_on.wait()

        async def failing(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            return ConsumeResult.RECONSUME_LATER

        where = running.name_server
        stuck = PushConsumer("Stuck", listener=hanging, name_server=where)
        stuck.subscribe("T")
        dying = PushConsumer("Dying", listener=failing, name_server=where, max_reconsume_times=0)
        dying.subscribe("U")
        async with (
            Producer("P", name_server=where) as producer,
            stuck,
            dying,
            Admin(name_server=where) as admin,
            AsyncExitStack() as last,
        ):
            last.callback(go_on.set)
            for topic, count in (("T", 40), ("U", 3)):
                for _ in range(count):
                    await producer.send(Message(topic, b"x"))

            async def told() -> Any:
                found = {each["group"]: each for each in await examine(admin, None)}
                sick = {name: _words(found[name]["symptoms"]) for name in ("Stuck", "Dying")}
                wanted = {
                    "Stuck": {("MEMBER_STUCK", None), ("LAG", "T")},
                    "Dying": {("DEAD_LETTERS", None), ("FAILING", None)},
                }
                return sick if {name: set(each) for name, each in sick.items()} == wanted else None

            sick = await until_async(told)
            for name, symptoms in sick.items():
                assert _words((await user.read(f"/groups/{name}"))["warnings"]) == symptoms

            async def on_the_overview() -> bool:
                rows = (await user.read("/overview"))["warnings"]
                seen = {
                    name: _words([each for each in rows if each["subject"] == name])
                    for name in sick
                }
                return bool(seen == sick)

            await until_async(on_the_overview)
            await hanging_is_no_consumption(admin, user)
            listed = {each["group"]: each for each in (await user.read("/groups"))["items"]}
            assert (listed["Stuck"]["state"], listed["Dying"]["state"]) == ("sick", "sick")

            wanted = {(name, kind) for name, found in sick.items() for kind, _ in found}
            line = re.compile(r'pocketmq_group_symptoms{.*consumer_group="(\w+)".*symptom="(\w+)"')

            async def measured() -> bool:
                text = to_text([snapshot(running.brokers["b"])]).decode()
                return set(line.findall(text)) == wanted

            await until_async(measured)


async def test_a_full_disk_is_the_first_finding_and_told_alike(tmp_path: Path) -> None:
    """/health, `cluster list` and the overview: no `ok` where messages are refused."""
    full = {"clean_resource_interval": 100, "disk_space_warning_level_ratio": 0.0001}
    async with site(tmp_path, store=full) as running:

        async def failing() -> Any:
            found = (await running.user.http.get("/health")).json()
            return found["reasons"] if found["status"] == "failing" else None

        [reason] = await until_async(failing)
        refused = reason.removeprefix("b: ")
        assert "the store takes no messages" in refused
        async with Admin(name_server=running.name_server) as admin:
            [view] = await cluster_view(admin)
        assert view.state == refused

        async def warned() -> Any:
            found = (await running.user.read("/overview"))["warnings"]
            return found if found and found[0]["kind"] == "BROKER_FAILS" else None

        first, *others = await until_async(warned)
        assert (first["severity"], first["subject"]) == ("error", "b")
        assert first["text"] == f"broker b fails: {refused}"
        assert "DISK" not in {each["kind"] for each in others}


async def test_one_rate_and_one_today_on_every_face(tmp_path: Path) -> None:
    """Overview, broker, topic, `top`, `cluster list`: users' messages, of a minute, and since midnight.

    Internal messages are no user's, and what was stored before a restart is of today, too.
    """
    async with site(tmp_path) as running:
        await running.user.do("PUT", "/topics/T", {"readQueues": 2, "writeQueues": 2})
        async with Producer("P", name_server=running.name_server) as producer:
            for _ in range(5):
                await producer.send(Message("T", b"x"))
    async with site(tmp_path) as running:
        user = running.user
        await user.do("PUT", "/topics/U", {"readQueues": 1, "writeQueues": 1})
        async with (
            Producer("P", name_server=running.name_server) as producer,
            Admin(name_server=running.name_server) as admin,
        ):
            for topic, count in (("T", 20), ("U", 10)):
                for _ in range(count):
                    await producer.send(Message(topic, b"x"))
            # Waits in a topic of the broker's own.
            for _ in range(15):
                await producer.send(Message("T", b"later"), delay_level=18)

            async def seen() -> tuple[set[float], set[int]]:
                overview = await user.read("/overview")
                page = (await user.read("/brokers/b"))["summary"]
                [view] = await cluster_view(admin)
                [row] = overview["brokers"]
                pages = [await user.read(f"/topics/{each}") for each in "TU"]
                listed = (await user.read("/topics", q="T"))["totals"]["in"]
                now = (await look(admin, False)).topics
                rates = {
                    overview["rates"]["in"],
                    row["in"],
                    page["in"],
                    view.figures["in"],
                    sum(each["in"] for each in pages),
                    sum(rate or 0 for rate, _ in now.values()),
                    listed + pages[1]["in"],
                }
                today = {
                    overview["totals"]["inToday"],
                    row["inToday"],
                    page["inToday"],
                    sum(each["inToday"] for each in pages),
                }
                return {round(each, 1) for each in rates}, today

            async def agree() -> Any:
                rates, today = await seen()
                return (rates, today) if len(rates) == 1 and today == {35} else None

            rates, _ = await until_async(agree)
            assert min(rates) > 0


async def test_what_members_hold_before_their_first_commit_is_behind(tmp_path: Path) -> None:
    """A slow group was well, and 0 behind, until it had committed for the first time."""
    async with site(tmp_path, doctor_lag_max=20) as running:
        await running.user.do("PUT", "/topics/T", {"readQueues": 1, "writeQueues": 1})
        go_on = asyncio.Event()

        async def hanging(messages: list[MessageExt], context: ConsumeContext) -> None:
            await go_on.wait()

        where = running.name_server
        consumer = PushConsumer(
            "New",
            listener=hanging,
            name_server=where,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            persist_offset_interval_ms=600_000,
        )
        consumer.subscribe("T")
        async with (
            Producer("P", name_server=where) as producer,
            Admin(name_server=where) as admin,
            AsyncExitStack() as last,
        ):
            for _ in range(20):
                await producer.send(Message("T", b"x"))
            await last.enter_async_context(consumer)
            last.callback(go_on.set)

            async def lagging() -> Any:
                [found] = await examine(admin, "New")
                return [each for each in found["symptoms"] if each["kind"] == "LAG"]

            [lag] = await until_async(lagging)
            assert lag["parameters"]["lag"] == 20
            rows = await admin.groups.progress("New")
            assert [row for row in rows if row.queue.topic == "T"] == []
