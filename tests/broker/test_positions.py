"""A position that a client names must be the beginning of a record: bytes within a body are no record."""

from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import offset_msg_id, parse_offset_msg_id, properties_to_text
from pocketmq.model.names import TRANS_HALF_TOPIC
from pocketmq.model.record import Record, body_crc, read_record, write_record
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.requests import PocketRequestCode
from tests.broker.serving import Peer, batch, records

CODE = RequestCode


async def forge(broker: Broker, peer: Peer, topic: str, properties: dict[str, str]) -> Record:
    """Send a message whose body is a whole record of `topic`; returns that record."""
    await peer.produce("Own", b"x" * 2_000)
    position = broker.parts.messages.store.commit_log_max_position
    answer = await peer.produce("Own", b"x" * 2_000)
    data = broker.parts.messages.store.record_at(position)
    assert answer.code == 0
    assert data is not None
    model = read_record(data)
    inner = position + len(data) + bytes(data).index(b"x" * 2_000)
    forged = model._replace(
        topic=topic,
        queue_id=0,
        queue_offset=0,
        position=inner,
        body=memoryview(b"paid"),
        body_crc=body_crc(b"paid"),
        properties=properties_to_text(properties).encode(),
    )
    await peer.produce("Own", write_record(forged))
    found = broker.parts.messages.store.record_at(inner)
    assert found is not None
    assert read_record(found).topic == topic, "the bytes look like a record"
    return forged


def asks(store_host: bytes, position: int) -> dict[int, dict[str, Any]]:
    """Each request that names a record by its position."""
    msg_id = offset_msg_id(store_host, position)
    return {
        CODE.VIEW_MESSAGE_BY_ID: {"offset": position},
        CODE.CONSUMER_SEND_MSG_BACK: {"offset": position, "group": "g", "delayLevel": 0},
        CODE.RESUME_CHECK_HALF_MESSAGE: {"msgId": msg_id},
        CODE.CONSUME_MESSAGE_DIRECTLY: {"consumerGroup": "g", "clientId": "c1", "msgId": msg_id},
        PocketRequestCode.GET_MESSAGE_TRACK: {"msgId": msg_id},
        CODE.END_TRANSACTION: {
            "producerGroup": "pg",
            "tranStateTableOffset": 0,
            "commitLogOffset": position,
            "commitOrRollback": 8,
            "msgId": "id",
        },
    }


@pytest.mark.parametrize("code", asks(b"\0" * 8, 0), ids=lambda code: code.name)
@pytest.mark.parametrize("topic", [TRANS_HALF_TOPIC, "Secrets"])
async def test_what_a_body_holds_is_no_record(
    broker: Broker, peer: Peer, code: int, topic: str
) -> None:
    """A half message that was never sent would be committed to any topic, and others be rolled back."""
    await peer.heartbeat("g", {"T": "*"})
    properties = {"REAL_TOPIC": "Secrets", "REAL_QID": "0", "PGROUP": "pg"}
    forged = await forge(broker, peer, topic, properties)
    before = broker.parts.messages.store.commit_log_max_position
    answer = await peer.ask(code, asks(forged.store_host, forged.position)[code])
    assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.QUERY_NOT_FOUND)
    assert broker.parts.messages.store.commit_log_max_position == before, (
        "nothing is stored because of it"
    )


async def test_the_beginning_of_a_record_is_found(broker: Broker, peer: Peer) -> None:
    """Of a message of its own, of each one of a batch, and of one that waits for its time."""
    sent = [
        await peer.produce("T"),
        await peer.produce("T", DELAY="1"),
        await peer.produce("T", batch((b"1", b""), (b"2", b"")), code=CODE.SEND_BATCH_MESSAGE),
    ]
    msg_ids = [msg_id for answer in sent for msg_id in (answer.ext or {})["msgId"].split(",")]
    assert len(msg_ids) == 4
    for msg_id in msg_ids:
        _, position = parse_offset_msg_id(msg_id)
        found = await peer.ask(CODE.VIEW_MESSAGE_BY_ID, {"offset": position})
        assert [each.position for each in records(found)] == [position]


async def test_a_check_is_resumed_only_for_half_messages(broker: Broker, peer: Peer) -> None:
    """Any other would be committed to the topic that its sender has written into it."""
    sent = await peer.produce("Own", REAL_TOPIC="Secrets", REAL_QID="0", PGROUP="pg")
    answer = await peer.ask(CODE.RESUME_CHECK_HALF_MESSAGE, sent.ext)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert broker.parts.messages.store.max_offset(TRANS_HALF_TOPIC, 0) == 0
