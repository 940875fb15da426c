"""Properties that only a broker writes, in messages of a client: they are not taken for the broker's."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import get_property, parse_offset_msg_id, properties_to_dict
from pocketmq.model.names import TRANS_HALF_TOPIC
from pocketmq.model.record import read_records
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.popping import Popper
from tests.broker.serving import Peer, batch, records, serving

CODE = RequestCode
RECEIPT = "0 1 60000 0 0 b 0 0"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    async with serving(tmp_path, clock=clock) as running:
        yield running


async def stored(peer: Peer, topic: str = "T", queue_id: int = 0) -> list[dict[str, str]]:
    """The properties of the messages of a queue."""
    pulled = await peer.pull("g", topic, 0, queue_id=queue_id, sys_flag=4, subscription="*")
    return [properties_to_dict(record.properties) for record in records(pulled)]


BATCH = {"a": "p", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "m": True}


@pytest.mark.parametrize(
    "own",
    [
        b"POP_CK\x01%b\x02UNIQ_KEY\x01k%d\x02TAGS\x01t\x02",
        b"UNIQ_KEY\x01k%d\x02TAGS\x01t\x02POP_CK\x01%b",
        b"UNIQ_KEY\x01k%d\x02POP_CK\x01%b\x02TAGS\x01t\x02",
    ],
    ids=["before the key", "at the end", "behind the key"],
)
async def test_a_member_of_a_batch_brings_no_receipt(peer: Peer, own: bytes) -> None:
    """On the way that takes any batch, and on that for batches that are alike."""
    await peer.produce("T")
    for _ in range(4):
        members = [
            (b"body", own.replace(b"%b", RECEIPT.encode()) % number, 0) for number in range(4)
        ]
        body = batch(*[(body, text) for body, text, _ in members])
        assert (await peer.ask(CODE.SEND_BATCH_MESSAGE, BATCH, body)).code == 0
    found = (await stored(peer))[1:]
    assert len(found) == 16
    for place, properties in enumerate(found):
        assert "POP_CK" not in properties
        assert (properties["UNIQ_KEY"], properties["TAGS"]) == (f"k{place % 4}", "t")


async def test_a_name_that_only_ends_like_the_receipts_is_the_senders(peer: Peer) -> None:
    await peer.produce("T", MY_POP_CK="mine")
    body = batch((b"body", b"MY_POP_CK\x01mine\x02"))
    await peer.ask(CODE.SEND_BATCH_MESSAGE, BATCH, body)
    assert [each["MY_POP_CK"] for each in await stored(peer)] == ["mine", "mine"]


async def test_a_reply_brings_no_receipt(peer: Peer) -> None:
    await peer.produce("T", code=CODE.SEND_REPLY_MESSAGE_V2, POP_CK=RECEIPT, KEYS="k")
    [properties] = await stored(peer)
    assert properties == {"KEYS": "k"}


async def test_what_a_half_message_says_of_its_checks_is_not_believed(
    broker: Broker, peer: Peer
) -> None:
    """A consumer that sends a transaction's message on as one of its own sends these too."""
    await peer.heartbeat("", {}, producer="pg")
    own: dict[str, Any] = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "k", "POP_CK": RECEIPT}
    old: dict[str, Any] = {"TRANSACTION_CHECK_TIMES": "99", "TRAN_PREPARED_QUEUE_OFFSET": "0"}
    await peer.produce("T", sys_flag=4, **own, **old)
    [buffer] = broker.parts.messages.store.read(TRANS_HALF_TOPIC, 0, 0, 1).buffers
    [record] = read_records(buffer)
    properties = properties_to_dict(record.properties)
    assert not properties.keys() & {*old, "POP_CK"}


async def test_a_message_sent_back_keeps_its_real_topic(broker: Broker, peer: Peer) -> None:
    """RETRY_TOPIC and ORIGIN_MESSAGE_ID are believed in a retry topic, where the consumers put them."""
    forged: dict[str, Any] = {"RETRY_TOPIC": "Other", "ORIGIN_MESSAGE_ID": "0" * 32}
    answer = await peer.produce("T", **forged)
    assert answer.ext is not None
    await peer.heartbeat("g", {"T": "*"})
    msg_id = answer.ext["msgId"]
    _, position = parse_offset_msg_id(msg_id)
    back = {"offset": position, "group": "g", "delayLevel": -1, "originMsgId": msg_id}
    assert (await peer.ask(CODE.CONSUMER_SEND_MSG_BACK, back)).code == 0
    [dead] = await stored(peer, "%DLQ%g")
    assert (dead["RETRY_TOPIC"], dead["ORIGIN_MESSAGE_ID"]) == ("T", msg_id)
    retry = "%RETRY%g"
    answer = await peer.produce(retry, **forged)
    assert answer.ext is not None
    back["offset"] = parse_offset_msg_id(answer.ext["msgId"])[1]
    assert (await peer.ask(CODE.CONSUMER_SEND_MSG_BACK, back)).code == 0
    dead = (await stored(peer, "%DLQ%g"))[1]
    assert {name: dead[name] for name in forged} == forged


async def test_a_pop_replaces_a_receipt_stored_in_the_message(
    broker: Broker, peer: Peer, clock: ManualClock
) -> None:
    """A store that a RocketMQ broker wrote may hold some: in members of batches they stay there."""
    host = b"\x7f\0\0\1\0\0\x2a\x9f"
    await peer.produce("T")
    text = f"POP_CK\x01{RECEIPT}\x02".encode()
    broker.parts.messages.put.put("T", 0, b"stored", text, born_host=host)
    popper = Popper(peer, clock.now_ms)
    await popper.pop()
    clock.advance_ms(60_001)
    broker.parts.services.pop.step()
    for message in await popper.pop():
        assert message.topic == "%RETRY%g_T"
        assert get_property(message.properties, b"POP_CK") == message.receipt.encode()
        assert message.receipt.split(" ")[1] == str(clock.now_ms())
        assert (await popper.ack(message)).code == 0


@pytest.mark.parametrize("text", ["soon", "1_8", " 3", "3.0", "9" * 12, "2147483648"])
async def test_a_delay_that_is_no_number_is_refused(broker: Broker, peer: Peer, text: str) -> None:
    """It was delivered at once, or at another level's time."""
    delay: dict[str, Any] = {"DELAY": text}
    for code in (CODE.SEND_MESSAGE_V2, CODE.SEND_MESSAGE_V2):
        refused = await peer.produce("T", code=code, **delay)
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert "DELAY is not a number" in (refused.remark or "")
    assert broker.parts.messages.store.appends.put_count == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"e": "1_0"},
        {"e": " 1"},
        {"g": "1_000"},
        {"g": "1 "},
        {"f": "0_0"},
        {"h": " 0"},
    ],
)
async def test_numbers_only_python_accepts_are_refused_by_each_parser(
    broker: Broker, peer: Peer, fields: dict[str, str]
) -> None:
    """Parsed, cut by the text of the one before it, and cut by place."""
    usual = {"e": "10", "g": "1000", "f": "000", "h": "00"}
    broker.parts.tables.topics.update(TopicConfig("T", 16, 16))
    usual = {name: usual[name].rjust(len(text), "0") for name, text in fields.items()}
    for round_ in range(12):
        assert (await peer.produce("T", more=usual, KEYS="k")).code == 0, round_
        refused = await peer.produce("T", more=fields, KEYS="k")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "not a number" in (refused.remark or "")
    assert broker.parts.messages.store.appends.put_count == 12


@pytest.mark.parametrize("name", ["queueId", "queueOffset", "sysFlag", "commitOffset"])
async def test_a_pull_with_a_number_of_pythons_is_refused_on_every_way(
    peer: Peer, name: str
) -> None:
    await peer.produce("T")
    pull = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "000",
        "queueOffset": "000",
        "maxMsgNums": "32",
        "sysFlag": "004",
        "commitOffset": "000",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    for _ in range(12):
        assert (await peer.ask(CODE.PULL_MESSAGE, pull)).code == 0
        refused = await peer.ask(CODE.PULL_MESSAGE, {**pull, name: "0_0"})
        assert (refused.code, "not a number" in (refused.remark or "")) == (1, True)
    signed = await peer.ask(CODE.PULL_MESSAGE, {**pull, "commitOffset": "-01"})
    assert signed.code == 0


@pytest.mark.parametrize("flag", [0x40, 0x80, 0xC0, 0xF0])
async def test_a_sender_does_not_say_that_its_body_is_an_inner_batch(peer: Peer, flag: int) -> None:
    """Consumers that unwrap it came no further."""
    await peer.produce("T")
    await peer.produce("T", b"body", sys_flag=flag | 0x300)
    await peer.ask(
        CODE.SEND_BATCH_MESSAGE, {**BATCH, "f": flag}, batch((b"body", b"KEYS\x01k\x02"))
    )
    await peer.produce("T", b"body", sys_flag=flag, code=CODE.SEND_REPLY_MESSAGE_V2)
    pulled = await peer.pull("g", "T", 0, sys_flag=4, subscription="*")
    found = [(record.sys_flag, bytes(record.body)) for record in records(pulled)][1:]
    assert found == [(0x300, b"body"), (0, b"body"), (0, b"body")]
