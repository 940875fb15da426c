"""What a hostile or broken peer sends: a clear answer or a closed connection, and no other client notices.

Each test has a well-behaved client beside the bad one, which the same broker continues to serve.
"""

import itertools
import json
import os
import resource
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, encode
from tests.broker.bad_frames import PULL, SEND, frame
from tests.broker.serving import Peer, batch, serving

CODE = RequestCode


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path / "store") as running:
        yield running


# ---------------------------------------------------------------- frames


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack(">I", 0x7FFF_FFFF) + b"x",
        struct.pack(">I", 0xFFFF_FFFF),
        struct.pack(">I", 16_777_213) + b"x",
        struct.pack(">I", 0),
        struct.pack(">I", 3) + b"abc",
        struct.pack(">II", 8, 0x00FF_FFFF) + b"abcd",
        struct.pack(">II", 8, 0x0000_0005) + b"abcd",
        frame(b"{}", kind=2),
        frame(b"{}", kind=255),
        frame(b"{"),
        frame(b"[]"),
        frame(b"null"),
        frame(b'"text"'),
        frame(b'{"code":"x"}'),
        frame(b'{"code":1.5}'),
        frame(b'{"code":10,"opaque":99999999999}'),
        frame(b'{"code":10,"extFields":[]}'),
        frame(b'{"code":10,"extFields":{"a":{}}}'),
        frame(b'{"code":10,"remark":7}'),
        frame(b"\xff\xfe"),
        frame(b"{" * 5000),
        frame(b"\x00\x0a\x00", kind=1),
        frame(struct.pack(">hBhiii", 10, 0, 407, 1, 0, 999), kind=1),
        frame(struct.pack(">hBhiiii", 10, 0, 407, 1, 0, 0, -5), kind=1),
        frame(struct.pack(">hBhiiii", 10, 0, 407, 1, 0, 0, 6) + b"\x7f\xff\0\0\0\0", kind=1),
        frame(b"\x93\x01\x02", kind=77),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n",
        b"\x16\x03\x01\x00\x05hello",
        b"\0" * 64,
    ],
    ids=lambda raw: raw[:24].hex(),
)
async def test_bytes_that_are_no_frame_end_their_connection_only(
    broker: Broker, good: Peer, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is buffered for an announced length beyond the limit; the log says who and why."""
    async with await Peer.at(broker) as bad:
        bad.writer.write(raw)
        assert await bad.ended()
    assert "connection closed" in caplog.text


async def test_half_a_frame_waits_without_harm(broker: Broker, good: Peer) -> None:
    """A connection that stops within a frame costs its bytes, no more, and ends with the peer."""
    async with await Peer.at(broker) as bad:
        bad.writer.write(struct.pack(">II", 1000, 400) + b'{"code":310')
        await bad.writer.drain()
        assert (await good.produce("T", b"meanwhile")).code == ResponseCode.SUCCESS


async def test_one_byte_at_a_time_is_served(broker: Broker, good: Peer) -> None:
    async with await Peer.at(broker) as slow:
        raw = encode(RemotingCommand(310, SEND, b"slow", opaque=9))
        for byte in raw:
            slow.writer.write(bytes([byte]))
            await slow.writer.drain()
        assert (await slow.answer(9)).code == ResponseCode.SUCCESS


async def test_requests_before_a_bad_frame_are_carried_out(broker: Broker, good: Peer) -> None:
    """Sends that came whole are stored; the garbage behind them ends the connection."""
    before = broker.parts.messages.store.appends.put_count
    async with await Peer.at(broker) as bad:
        for opaque in range(5):
            bad.writer.write(encode(RemotingCommand(310, SEND, b"x", opaque=opaque)))
        await bad.writer.drain()
        for opaque in range(5):
            assert (await bad.answer(opaque)).code == ResponseCode.SUCCESS
        bad.writer.write(b"\xff" * 32)
        assert await bad.ended()
    assert broker.parts.messages.store.appends.put_count == before + 5


async def test_announced_gigabytes_are_not_allocated(broker: Broker, good: Peer) -> None:
    """200 connections each announce a frame just below the limit and send little."""
    peers = [await Peer.at(broker) for _ in range(200)]
    before = _resident()
    for peer in peers:
        peer.writer.write(struct.pack(">I", 16_777_000) + b"x" * 1000)
        await peer.writer.drain()
    assert (await good.produce("T")).code == ResponseCode.SUCCESS
    assert _resident() - before < 64 << 20
    for peer in peers:
        await peer.close()


def _resident() -> int:
    with open(f"/proc/{os.getpid()}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


async def test_answers_that_nobody_reads_do_not_pile_up(broker: Broker, good: Peer) -> None:
    """A peer that pulls without reading is not read from any more; others are served."""
    for _ in range(4):
        await good.produce("T", b"x" * 200_000)
    async with await Peer.at(broker) as deaf:
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        before = _resident()
        pull = {**PULL, "maxMsgBytes": "1000000"}
        raw = b"".join(encode(RemotingCommand(11, pull, opaque=n)) for n in range(2000))
        deaf.writer.write(raw)
        for _ in range(20):
            assert (await good.produce("T")).code == ResponseCode.SUCCESS
        assert _resident() - before < 128 << 20


# ---------------------------------------------------------------- codes and fields


@pytest.mark.parametrize("code", [-1, 0, 1, 999, 9999, 2**31 - 1, 13, 27, 209])
async def test_an_unknown_code_gets_rocketmqs_answer(broker: Broker, good: Peer, code: int) -> None:
    """wire.md 1.7."""
    answer = await good.ask(code, {})
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == f" request type {code} not supported"


BAD_NUMBERS = ["", "x", "1.5", "-9223372036854775809", "99999999999999999999", "1e3", "0x10"]


@pytest.mark.parametrize("field", ["d", "e", "f", "g", "h", "j"])
async def test_a_send_with_a_number_that_is_none_is_refused(
    broker: Broker, good: Peer, field: str
) -> None:
    """Whichever number it is: an error code and a remark, nothing stored, the connection stays."""
    before = broker.parts.messages.store.appends.put_count
    sends = [(310, b"x")]
    if field in "efg":
        sends.append(
            (320, batch((b"x", b"")))
        )  # a batch's messages have their own flag, and no count
    for value, (code, body) in itertools.product(BAD_NUMBERS, sends):
        answer = await good.ask(code, {**SEND, field: value}, body)
        if answer.code == ResponseCode.SUCCESS:
            # An optional field that is no number is no field; the queues of a topic that is there
            # no client asks.
            assert field == "d" or (field == "j" and not value.lstrip("-").isdigit())
            before += 1
            continue
        assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.MESSAGE_ILLEGAL), answer
        assert answer.remark
        assert broker.parts.messages.store.appends.put_count == before


@pytest.mark.parametrize("field", sorted(SEND.keys() - {"i"}))
async def test_a_send_without_a_field_is_refused_or_does_not_need_it(
    broker: Broker, good: Peer, field: str
) -> None:
    ext = {name: value for name, value in SEND.items() if name != field}
    answer = await good.ask(310, ext, b"x")
    if field in "acd":
        return  # who sends and from what a topic is made are not asked when the topic is there
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert repr(field) in (answer.remark or "")


async def test_any_request_without_fields_or_body_is_survived(broker: Broker, good: Peer) -> None:
    """Every code there is, with nothing in it and with garbage in it: an answer, and others are served."""
    async with await Peer.at(broker) as bad:
        for code in RequestCode:
            garbage: list[tuple[dict[str, str] | None, bytes]]
            garbage = [(None, b""), ({}, b"\xff{"), ({"topic": "../x", "group": "\0"}, b"[[[[")]
            for ext, body in garbage:
                opaque = bad.send(int(code), ext, body)
                assert (await bad.answer(opaque)).opaque == opaque
            assert (await good.produce("T")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "changed",
    [
        {"queueOffset": "-9223372036854775808"},
        {"queueOffset": "9223372036854775807"},
        {"maxMsgNums": "2147483647"},
        {"maxMsgNums": "-1"},
        {"queueId": "-2147483648"},
        {"sysFlag": "-1"},
        {"sysFlag": "2147483647"},
        {"suspendTimeoutMillis": "-1", "sysFlag": "6"},
        {"commitOffset": "9223372036854775807", "sysFlag": "5"},
        {"subVersion": "-5"},
        {"subscription": "a||" * 5000},
        {"subscription": "(" * 300, "expressionType": "SQL92"},
        {"subscription": "a = 'x' AND " * 2000 + "b", "expressionType": "SQL92"},
        {"expressionType": "NONSENSE"},
        {"consumerGroup": "../../etc/passwd"},
        {"consumerGroup": "g" * 5000},
        {"topic": "../../etc/passwd"},
        {"topic": "T" * 100_000},
        {"topic": ""},
    ],
    ids=lambda changed: ",".join(f"{k}={v[:12]}" for k, v in changed.items()),
)
async def test_a_pull_with_odd_values_is_answered(
    broker: Broker, good: Peer, changed: dict[str, str]
) -> None:
    """By some code, quickly, and nothing outside the store is touched."""
    answer = await good.ask(CODE.PULL_MESSAGE, {**PULL, **changed})
    assert answer.is_response
    assert (await good.ask(CODE.PULL_MESSAGE, PULL)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("offset", [(1 << 63) - 1, 1 << 63, (1 << 64) - 1, 10**30])
async def test_no_offset_is_kept_that_java_could_not_read(
    broker: Broker, good: Peer, offset: int
) -> None:
    """One such number in the table, and RocketMQ could not read the offsets of any group."""
    fits = offset < 1 << 63
    commit = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": offset}
    assert ((await good.ask(CODE.UPDATE_CONSUMER_OFFSET, commit)).code == 0) is fits
    carries = {**PULL, "consumerGroup": "p", "sysFlag": "5", "commitOffset": str(offset)}
    assert ((await good.ask(CODE.PULL_MESSAGE, carries)).code == 0) is fits
    odd = {**commit, "consumerGroup": "q", "queueId": offset, "commitOffset": 1}
    assert (await good.ask(CODE.UPDATE_CONSUMER_OFFSET, odd)).code != 0
    kept = broker.parts.tables.offsets.offsets
    both = {"T@g": {0: offset}, "T@p": {0: offset}} if fits else {}
    assert {key: queues for key, queues in kept.items() if queues} == both


@pytest.mark.parametrize("way", ["filter", "client", "group", "retries", "topic", "queues"])
async def test_half_a_character_ends_no_table(tmp_path: Path, way: str) -> None:
    r"""JSON may say \ud800, which no UTF-8 file can hold: the table was not saved, and the broker ended."""
    half = "\ud800"
    group = {"groupName": "g", "attributes": {half: half}, "more": half}
    asked = {
        "filter": (CODE.HEART_BEAT, _member(asks=f"a = '{half}'")),
        "client": (CODE.HEART_BEAT, _member(client=half)),
        "group": (CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group),
        "retries": (CODE.HEART_BEAT, _member(group=half)),
        "topic": (CODE.UPDATE_AND_CREATE_TOPIC_LIST, {"topicConfigList": [{"topicName": half}]}),
        "queues": (
            CODE.LOCK_BATCH_MQ,
            {
                "consumerGroup": half,
                "clientId": half,
                "mqSet": [{"topic": half, "brokerName": half, "queueId": 0}],
            },
        ),
    }
    code, body = asked[way]
    for mode in ("compatible", "isolate"):
        folder = tmp_path / mode
        settings: dict[str, Any] = {"flush_consumer_offset_interval": 20, "group_mode": mode}
        async with serving(folder, **settings) as broker, await Peer.at(broker) as good:
            async with await Peer.at(broker) as bad:
                await bad.ask(code, {}, json.dumps(body).encode())
                await good.heartbeat("other", {"T": "*"}, client_id="c2")
            for _ in range(3):
                assert (await good.produce("T")).code == ResponseCode.SUCCESS
        # The stop has saved all tables.
        for file in (folder / "config").glob("*.json"):
            fastjson.loads(file.read_bytes())
        async with serving(folder) as broker, await Peer.at(broker) as good:
            assert (await good.produce("T")).code == ResponseCode.SUCCESS


def _member(*, group: str = "g", client: str = "c", asks: str = "a IS NULL") -> dict[str, Any]:
    return {
        "clientID": client,
        "producerDataSet": [{"groupName": group}],
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [
                    {"topic": "T", "subString": asks, "expressionType": "SQL92", "subVersion": 1}
                ],
            }
        ],
    }


async def test_names_with_paths_in_them_make_no_files(
    broker: Broker, good: Peer, tmp_path: Path
) -> None:
    """Send, pull, heartbeat, offsets, locks, send-back, topics and groups of administration."""
    evil = "../../evil"
    await good.produce(evil)
    await good.pull("g", evil, 0, sys_flag=4, subscription="*")
    await good.pull(evil, "T", 0, sys_flag=4, subscription="*")
    await good.heartbeat(evil, {evil: "*"}, producer=evil)
    offset = {"consumerGroup": evil, "topic": evil, "queueId": 0, "commitOffset": 1}
    await good.ask(CODE.UPDATE_CONSUMER_OFFSET, offset)
    await good.ask(CODE.CONSUMER_SEND_MSG_BACK, {"offset": 0, "group": evil, "delayLevel": 0})
    topic = {"topic": evil, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1}
    await good.ask(
        CODE.UPDATE_AND_CREATE_TOPIC,
        {**topic, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False},
    )
    await good.ask(CODE.DELETE_TOPIC_IN_BROKER, {"topic": evil})
    await good.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"../../evil"}')
    assert _names(tmp_path) == {"store"}
    assert not [name for name in _names(tmp_path, "**/*") if "evil" in name]


def _names(folder: Path, pattern: str = "*") -> set[str]:
    return {path.name for path in folder.glob(pattern)}


async def test_a_property_text_of_odd_shape_is_stored_or_refused(
    broker: Broker, good: Peer
) -> None:
    """Separators alone, nothing but names, very long names, the reserved names without a value."""
    for text in (
        "\x01",
        "\x02",
        "\x01\x01\x01",
        "\x02\x02\x02\x02",
        "a",
        "DELAY\x01",
        "DELAY\x01\x02",
        "TRAN_MSG\x01",
        "WAIT\x01",
        "TAGS\x01",
        "TAGS\x01\x02TAGS\x01t",
        "KEYS\x01" + " " * 5000,
        "UNIQ_KEY\x01",
        "\u4e2d\u6587\x01\U0001f600",
        "x\x01" + "y" * 32_700,
    ):
        answer = await good.ask(310, {**SEND, "i": text}, b"x")
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL)
    assert (await good.ask(CODE.PULL_MESSAGE, {**PULL, "maxMsgNums": "1000"})).code == 0


async def test_the_broker_never_unpacks_a_compressed_body(broker: Broker, good: Peer) -> None:
    """Trap 18: a bomb is a body like any other to the broker."""
    import zlib

    bomb = zlib.compress(b"\0" * (64 << 20))
    answer = await good.ask(310, {**SEND, "f": "769"}, bomb)
    assert answer.code == ResponseCode.SUCCESS
    before = _resident()
    await good.ask(CODE.PULL_MESSAGE, PULL)
    assert _resident() - before < 16 << 20
