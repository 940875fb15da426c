"""What docs/grpc.md says to be other than at the proxy: each point has a test, here or elsewhere."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import ClientType, Code, FilterType, MessageType, Permission
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.clock import ManualClock
from tests.grpc.asking import Asking, asking
from tests.grpc.front_site import ack, front, message, receive, receiving, send

_PAGE = Path(__file__).parents[2] / "docs" / "grpc.md"
_FRONT, _SDKS, _HERE = "tests.grpc.test_front", "tests.interop.test_grpc_sdks", __name__
_CALLS, _RECEIVES = "tests.grpc.test_front_calls", "tests.grpc.test_receives"
# How each point of the page begins, and what shows it.
SHOWN = {
    "A topic without": (_RECEIVES, "test_what_cannot_be_stored_is_refused_with_its_code"),
    "A client is served": (_FRONT, "test_a_message_comes_as_it_was_sent_and_is_acknowledged"),
    "A transaction is found": (_HERE, "test_a_transaction_is_ended_late_and_once"),
    "A wrong filter": (_HERE, "test_what_is_wrong_is_told_by_its_own_code_and_in_time"),
    "Messages that could": (
        _RECEIVES,
        "test_unread_messages_come_again_without_an_attempt",
    ),
    "`PullMessage`": (_CALLS, "test_a_queue_is_read_from_an_offset_on"),
    "Waiting times": (_HERE, "test_what_is_wrong_is_told_by_its_own_code_and_in_time"),
    "The certificate": (_SDKS, "test_tls_is_spoken_on_the_port_of_plain_text"),
    "A member is told": (_FRONT, "test_members_are_told_when_their_group_is_changed"),
    "A transaction that was ended": (_HERE, "test_a_transaction_is_ended_late_and_once"),
    "A group that is not configured": (_HERE, "test_a_group_is_made_where_that_is_allowed"),
    "A route numbers": (_HERE, "test_a_route_numbers_queues_as_they_are"),
    "A handle whose message": (
        _RECEIVES,
        "test_the_invisible_time_is_changed_and_the_old_handle_ends",
    ),
    "A handle that comes": (_HERE, "test_what_is_given_up_later_is_the_message_itself"),
    '"Hand to a member"': (
        "tests.grpc.test_members",
        "test_direct_consumption_returns_the_members_answer",
    ),
    "Bodies that": (
        "tests.grpc.test_receive_strange",
        "test_bodies_that_are_too_large_together_come_all_the_same",
    ),
    "A dead letter names": (
        _RECEIVES,
        "test_a_dead_letter_names_the_first_message",
    ),
    "A producer is asked": (_HERE, "test_a_transaction_is_ended_late_and_once"),
    "Any `x-mq-language`": (_HERE, "test_what_a_client_says_of_itself_is_not_believed"),
    "The signature": (_FRONT, "test_accounts_are_those_of_the_classic_wire"),
    "Lite topics are": ("tests.grpc.test_lite", "test_a_subscription_begins_where_it_says"),
}


def test_each_point_of_the_page_has_a_test() -> None:
    _, _, section = _PAGE.read_text(encoding="utf-8").partition("## What differs from the proxy\n")
    points = re.findall(r"^- (.*)", section.partition("\n## ")[0], re.MULTILINE)
    begun = [[start for start in SHOWN if point.startswith(start)] for point in points]
    assert [starts[:1] for starts in begun] == [[start] for start in SHOWN]
    for module, name in SHOWN.values():
        assert callable(getattr(importlib.import_module(module), name))


async def test_a_transaction_is_ended_late_and_once(tmp_path: Path) -> None:
    """Its producer has not named the topic, and is asked; a minute later the answer counts."""
    clock = ManualClock()
    settings: dict[str, Any] = {"clock": clock, "transaction_time_out": 0}
    async with front(tmp_path, {"X": "TRANSACTION"}, **settings) as (broker, server):
        async with asking(server.address) as client:
            stream, _ = await client.talk(classes["Settings"](publishing={}))
            sent = await send(client, message("X", message_type=MessageType.TRANSACTION))
            await broker.parts.services.check.check()
            await client.until(lambda: len(client.answers[stream].messages) == 2)
            clock.advance_ms(60_000)
            end = classes["EndTransactionRequest"](
                topic={"name": "X"}, transaction_id=sent.entries[0].transaction_id, resolution=1
            )
            assert (await client.ask("EndTransaction", end)).status.code == Code.OK
            (got,) = await receive(client, "X")
            assert await ack(client, got, topic="X") == [Code.OK]
            clock.advance_ms(60_000)
            await broker.parts.services.check.check()
            assert await receive(client, "X", wait_s=0) == []
            assert len(client.answers[stream].messages) == 2


async def test_what_is_wrong_is_told_by_its_own_code_and_in_time(tmp_path: Path) -> None:
    async with front(tmp_path) as (_, server), asking(server.address) as client:
        broken = {"type": FilterType.SQL, "expression": "colour = ("}
        [status, _] = await client.ask_stream("ReceiveMessage", receiving(filter_expression=broken))
        assert status.status.code == Code.ILLEGAL_FILTER_EXPRESSION
        asked = classes["AckMessageRequest"](group={"name": "g"}, topic={"name": "T"})
        asked.entries.add(receipt_handle="none")
        answer = await client.ask("AckMessage", asked)
        assert answer.status.code == Code.INVALID_RECEIPT_HANDLE
        # It leaves less than the five seconds that the proxy asks for.
        soon = await client.ask_stream("ReceiveMessage", receiving(), {"grpc-timeout": "550m"})
        assert soon[0].status.code == Code.MESSAGE_NOT_FOUND


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_group_is_made_where_that_is_allowed(tmp_path: Path, *, allowed: bool) -> None:
    settings: dict[str, Any] = {"auto_create_subscription_group": allowed}
    async with front(tmp_path, **settings) as (broker, server), asking(server.address) as client:
        got = await client.ask_stream("ReceiveMessage", receiving(wait_s=0, group="new"))
        code = Code.MESSAGE_NOT_FOUND if allowed else Code.CONSUMER_GROUP_NOT_FOUND
        assert got[0].status.code == code
        assert (broker.parts.tables.groups.get("new") is not None) == allowed


async def test_a_route_numbers_queues_as_they_are(tmp_path: Path) -> None:
    async with front(tmp_path) as (broker, server), asking(server.address) as client:
        broker.parts.tables.topics.update(TopicConfig("W", 1, 3))
        answer = await client.ask("QueryRoute", classes["QueryRouteRequest"](topic={"name": "W"}))
        assert [(each.id, each.permission) for each in answer.message_queues] == [
            (0, Permission.READ_WRITE),
            (1, Permission.WRITE),
            (2, Permission.WRITE),
        ]


async def test_what_is_given_up_later_is_the_message_itself(tmp_path: Path) -> None:
    async with front(tmp_path) as (_, server), asking(server.address) as client:
        for body in (b"another", b"this"):
            await send(client, message(body=body))
        [got] = [each for each in await _all(client, 2) if each.body == b"this"]
        named = {"group": {"name": "g"}, "topic": {"name": "T"}}
        change = classes["ChangeInvisibleDurationRequest"](
            **named,
            receipt_handle=got.system_properties.receipt_handle,
            invisible_duration={"seconds": 60},
        )
        handle = (await client.ask("ChangeInvisibleDuration", change)).receipt_handle
        assert len(handle.split(" ")) == 9
        give_up = classes["ForwardMessageToDeadLetterQueueRequest"](**named, receipt_handle=handle)
        answer = await client.ask("ForwardMessageToDeadLetterQueue", give_up)
        assert answer.status.code == Code.OK
        [dead] = await receive(client, "%DLQ%g", "undertaker")
        assert dead.body == b"this"


async def _all(client: Asking, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += await receive(client)
    return found


async def test_what_a_client_says_of_itself_is_not_believed(tmp_path: Path) -> None:
    async with front(tmp_path) as (broker, server), asking(server.address) as client:
        client.metadata["x-mq-language"] = "KLINGON"
        client.metadata["rpc-remote-address"] = client.metadata["x-forwarded-for"] = "9.9.9.9:9"
        settings = classes["Settings"](client_type=ClientType.SIMPLE_CONSUMER)
        settings.subscription.group.name = "g"
        await client.talk(settings)
        group = broker.parts.members.consumers.get("g")
        assert group is not None
        await send(client, message())
        [got] = await receive(client)
        assert got.system_properties.born_host.startswith("127.0.0.1:")
        [peer] = group.channels
        assert (group.channels[peer].language, peer.address.partition(":")[0]) == (
            "OTHER",
            "127.0.0.1",
        )
