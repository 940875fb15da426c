"""Receiving messages with strange contents: they come, and cost the others nothing."""

import zlib
from pathlib import Path
from typing import Any

import pytest

from pocketmq.grpc import encode as written
from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import Code, Encoding
from pocketmq.grpc.services import receives
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.codes import RequestCode
from tests.broker.serving import Peer, batch
from tests.grpc.asking import asking
from tests.grpc.front_site import ack, front, receive

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
FIELDS = {"a": "p", "b": "Q", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "m": True}


@pytest.mark.parametrize(
    "text",
    [
        b"POP_CK\x01nonsense\x02",
        b"MY_POP_CK\x01nonsense\x02",
        b"MY_POP_CK\x01nonsense\x02POP_CK\x010 1 60000 0 1 b 3 4",
        b"POP_CK\x01\xff\x02",
    ],
)
@pytest.mark.parametrize("as_stored", [False, True], ids=["by a batch", "in the store"])
async def test_a_property_that_looks_like_a_receipt_is_no_receipt(
    tmp_path: Path, text: bytes, as_stored: bool
) -> None:
    async with front(tmp_path) as (broker, server), asking(server.address) as client:
        broker.parts.tables.topics.update(TopicConfig("Q", 1, 1))
        if as_stored:
            put = broker.parts.messages.put.put
            for body, own in ((b"0", b""), (b"1", text), (b"2", b"")):
                put("Q", 0, body, own, born_host=HOST)
        else:
            async with await Peer.at(broker) as peer:
                body = batch((b"0", b""), (b"1", text), (b"2", b""))
                answer = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, FIELDS, body)
                assert answer.code == 0
        got = await receive(client, "Q")
        assert [each.body for each in got] == [b"0", b"1", b"2"]
        assert {each.system_properties.delivery_attempt for each in got} == {1}
        assert await ack(client, *got, topic="Q") == [Code.OK] * 3
        assert len(broker.parts.services.pop.log.state) == 0


async def test_an_unwritable_message_does_not_affect_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wrong with it: the others come with their first attempt."""
    whole = written.framed_message

    def fails(record: Any, *args: Any) -> Any:
        if bytes(record.body) == b"1":
            raise ZeroDivisionError
        return whole(record, *args)

    monkeypatch.setattr(receives, "framed_message", fails)
    async with front(tmp_path) as (broker, server), asking(server.address) as client:
        broker.parts.tables.topics.update(TopicConfig("Q", 1, 1))
        for body in (b"0", b"1", b"2"):
            broker.parts.messages.put.put("Q", 0, body, b"", born_host=HOST)
        got = await receive(client, "Q")
        assert [each.body for each in got] == [b"0", b"2"]
        assert await ack(client, *got, topic="Q") == [Code.OK] * 2


@pytest.mark.parametrize("language", ["PYTHON", "HTTP"])
@pytest.mark.parametrize("in_order", [False, True])
async def test_bodies_that_are_too_large_together_come_all_the_same(
    tmp_path: Path, language: str, in_order: bool
) -> None:
    """Packed where the SDK unpacks them, else one answer after the other; with their first attempt."""
    bodies = [bytes([number]) * (3 << 20) for number in range(4)]
    async with front(tmp_path) as (broker, server), asking(server.address) as client:
        client.metadata["x-mq-language"] = language
        broker.parts.tables.topics.update(TopicConfig("Q", 1, 1))
        group = GroupConfig("g", extra={"consumeMessageOrderly": in_order})
        broker.parts.tables.groups.update(group)
        for body in bodies:
            put = broker.parts.messages.put.put
            put("Q", 0, zlib.compress(body), b"", born_host=HOST, sys_flag=1)
        found: list[bytes] = []
        counts: list[int] = []
        while len(found) < 4:
            got = await receive(client, "Q")
            for each in got:
                packed = each.system_properties.body_encoding == Encoding.GZIP
                found.append(zlib.decompress(each.body) if packed else each.body)
                assert each.system_properties.delivery_attempt == 1
            counts.append(len(got))
            assert await ack(client, *got, topic="Q") == [Code.OK] * len(got)
        assert found == bodies if in_order else sorted(found) == bodies
        assert counts == ([4] if language == "PYTHON" else [1, 1, 1, 1])


async def test_a_pull_ends_where_its_bodies_are_too_large_together(tmp_path: Path) -> None:
    bodies = [bytes([number]) * (3 << 20) for number in range(3)]
    async with front(tmp_path) as (broker, server), asking(server.address) as client:
        client.metadata["x-mq-language"] = "RUST"
        broker.parts.tables.topics.update(TopicConfig("Q", 1, 1))
        for body in bodies:
            put = broker.parts.messages.put.put
            put("Q", 0, zlib.compress(body), b"", born_host=HOST, sys_flag=1)
        for offset, body in enumerate(bodies):
            asked = classes["PullMessageRequest"](
                group={"name": "g"},
                message_queue={"topic": {"name": "Q"}, "id": 0},
                offset=offset,
                batch_size=32,
            )
            answers = await client.ask_stream("PullMessage", asked)
            assert [each.message.body for each in answers[1:-1]] == [body]
            assert answers[-1].next_offset == offset + 1
