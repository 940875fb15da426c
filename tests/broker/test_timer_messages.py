"""Messages for a time of their own, over real sockets: sending, recalling, refusals."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import properties_to_dict, properties_to_text
from pocketmq.model.names import TIMER_TOPIC
from pocketmq.model.recall_handle import RecallHandle
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import PocketRequestCode
from pocketmq.store import FlushFailed
from tests.broker.serving import Peer, body_of, records, serving


async def send(peer: Peer, topic: str = "T", **properties: object) -> RemotingCommand:
    text = properties_to_text({name: str(value) for name, value in properties.items()})
    return await peer.produce(topic, b"x", more={"i": text})


async def pull_until_found(peer: Peer, topic: str) -> Any:
    answer = await peer.pull("g", topic, 0, sys_flag=6, subscription="*")
    return records(answer)


async def all_taken_in(broker: Broker) -> None:
    while broker.parts.services.timer.offset_behind:
        await asyncio.sleep(0)


async def test_a_message_waits_for_its_time_and_comes_as_it_was_sent(
    broker: Broker, peer: Peer
) -> None:
    deliver_ms = time.time_ns() // 1_000_000 + 1_200
    sent = await send(peer, TIMER_DELIVER_MS=deliver_ms, UNIQ_KEY="K", TAGS="A")
    assert sent.code == 0
    assert broker.parts.messages.store.max_offset("T", 0) == 0
    assert broker.parts.messages.store.max_offset(TIMER_TOPIC, 0) == 1

    [record] = await pull_until_found(peer, "T")

    assert time.time_ns() // 1_000_000 >= deliver_ms
    assert bytes(record.body) == b"x"
    properties = properties_to_dict(record.properties)
    assert (properties["TAGS"], properties["TIMER_DELIVER_MS"]) == ("A", str(deliver_ms))
    assert int(properties["TIMER_DEQUEUE_MS"]) >= deliver_ms


async def test_what_waits_is_listed_by_its_key(broker: Broker, peer: Peer) -> None:
    for keys in ("one two", "twofold", "two"):
        await send(peer, TIMER_DELAY_SEC=60, KEYS=keys, UNIQ_KEY=keys)
    await all_taken_in(broker)
    for key, expected in (
        ("two", ["one two", "two"]),
        ("three", []),
        ("", ["one two", "two", "twofold"]),
    ):
        answer = await peer.ask(PocketRequestCode.GET_TIMERS, {"topic": "T", "key": key})
        messages = body_of(answer)["messages"]
        assert sorted(each["keys"] for each in messages) == expected


async def test_a_time_that_is_over_is_now(broker: Broker, peer: Peer) -> None:
    assert (await send(peer, TIMER_DELIVER_MS=1_000)).code == 0
    assert broker.parts.messages.store.max_offset("T", 0) == 1


async def test_a_time_too_far_ahead_or_no_time_at_all_is_refused(peer: Peer) -> None:
    for wrong in ({"TIMER_DELAY_SEC": 41 * 86_400}, {"TIMER_DELIVER_MS": "tomorrow"}):
        answer = await send(peer, **wrong)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "TIMER" in (answer.remark or "")


async def test_a_delay_level_wins(broker: Broker, peer: Peer) -> None:
    assert (await send(peer, TIMER_DELAY_SEC=1, DELAY=18)).code == 0
    assert broker.parts.messages.store.max_offset("SCHEDULE_TOPIC_XXXX", 17) == 1
    assert broker.parts.messages.store.max_offset(TIMER_TOPIC, 0) == 0


async def test_a_recalled_message_never_comes(broker: Broker, peer: Peer) -> None:
    doomed = await send(peer, TIMER_DELAY_MS=2_000, UNIQ_KEY="doomed")
    await send(peer, TIMER_DELAY_MS=3_100, UNIQ_KEY="kept")
    assert doomed.ext is not None
    handle = doomed.ext["recallHandle"]
    assert RecallHandle.decode(handle).unique_key == "doomed"

    answer = await peer.ask(
        RequestCode.RECALL_MESSAGE, {"producerGroup": "pg", "topic": "T", "recallHandle": handle}
    )

    assert (answer.code, answer.ext) == (0, {"MSG_REGION": "DefaultRegion", "msgId": "doomed"})
    [record] = await pull_until_found(peer, "T")
    assert properties_to_dict(record.properties)["UNIQ_KEY"] == "kept"
    assert broker.parts.messages.store.max_offset("T", 0) == 1


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"topic": "Other"}, "topic not match"),
        ({"broker": "other"}, "broker service not available"),
        ({"due_ms": 1_000}, "timestamp invalid"),
        ({"due_ms": 1 << 60}, "timestamp invalid"),
    ],
)
async def test_a_foreign_or_late_recall_handle_is_refused(
    peer: Peer, change: dict[str, Any], remark: str
) -> None:
    await send(peer)
    good = RecallHandle("T", "b", time.time_ns() // 1_000_000 + 60_000, "K")
    ext = {"topic": "T", "recallHandle": good._replace(**change).encode()}
    answer = await peer.ask(RequestCode.RECALL_MESSAGE, ext)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert remark in (answer.remark or "")


async def test_with_sync_flush_a_recall_is_flushed_before_its_answer(tmp_path: Path) -> None:
    store = {"flush_disk_type": "SYNC_FLUSH"}
    async with serving(tmp_path, store=store) as broker, await Peer.at(broker) as peer:
        sent = await send(peer, TIMER_DELAY_SEC=60, UNIQ_KEY="doomed")
        handle = (sent.ext or {})["recallHandle"]
        ext = {"producerGroup": "pg", "topic": "T", "recallHandle": handle}
        assert (await peer.ask(RequestCode.RECALL_MESSAGE, ext)).code == 0
        assert broker.parts.messages.store.flush_behind_size == 0
        flush: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flush.set_exception(FlushFailed("EIO"))
        broker.parts.messages.store.flushed = lambda position: flush  # type: ignore[method-assign]
        answer = await peer.ask(RequestCode.RECALL_MESSAGE, ext)
        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT


async def test_a_recall_without_a_handle_or_a_topic_is_refused(peer: Peer) -> None:
    await send(peer)
    wrong = await peer.ask(RequestCode.RECALL_MESSAGE, {"topic": "T", "recallHandle": "%%%"})
    assert wrong.code == ResponseCode.ILLEGAL_OPERATION
    none = await peer.ask(RequestCode.RECALL_MESSAGE, {"topic": "None", "recallHandle": "x"})
    assert none.code == ResponseCode.TOPIC_NOT_EXIST


async def test_recalls_can_be_forbidden(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, recall_message_enable=False) as broker,
        await Peer.at(broker) as peer,
    ):
        answer = await peer.ask(RequestCode.RECALL_MESSAGE, {"topic": "T", "recallHandle": "x"})
    assert (answer.code, answer.ext) == (
        ResponseCode.NO_PERMISSION,
        {"MSG_REGION": "DefaultRegion"},
    )


async def test_nobody_writes_into_the_waiting_room_itself(peer: Peer) -> None:
    """What stands there is delivered to the topic that it names, whatever that is."""
    answer = await send(peer, TIMER_TOPIC, REAL_TOPIC="T", REAL_QID=0, TIMER_OUT_MS=1_000)
    assert answer.code == ResponseCode.NO_PERMISSION


async def test_waiting_timers_are_counted_listed_and_recalled(broker: Broker, peer: Peer) -> None:
    now = time.time_ns() // 1_000_000
    for topic, hours in (("T", 30), ("U", 5), ("T", 70), ("T", 1)):
        at = now + hours * 3_600_000
        await send(peer, topic, TIMER_DELIVER_MS=at, UNIQ_KEY=f"{topic}{hours}")
    await all_taken_in(broker)

    async def listed(**ext: str) -> dict[str, Any]:
        return dict(fastjson.loads((await peer.ask(PocketRequestCode.GET_TIMERS, ext)).body))

    everything = await listed()
    assert everything["counts"] == {"T": 3, "U": 1}
    assert [each["msgId"] for each in everything["messages"]] == ["T1", "U5", "T30", "T70"]
    assert [each["msgId"] for each in (await listed(topic="T", count="2"))["messages"]] == [
        "T1",
        "T30",
    ]
    first = everything["messages"][0]
    assert 0 <= first["deliverTimestamp"] - (now + 3_600_000) < 1_000

    ext = {"topic": "T", "recallHandle": first["recallHandle"]}
    assert (await peer.ask(RequestCode.RECALL_MESSAGE, ext)).code == 0
    await all_taken_in(broker)
    assert [each["msgId"] for each in (await listed())["messages"]] == ["U5", "T30", "T70"]
    metrics = fastjson.loads((await peer.ask(RequestCode.GET_TIMER_METRICS, {})).body)
    assert {name: each["count"] for name, each in metrics["timingCount"].items()} == {
        "T": 2,
        "U": 1,
    }
    runtime = fastjson.loads((await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO, {})).body)
    assert runtime["table"]["timerCongestNum"] == "3"


async def test_the_check_point_is_answered(broker: Broker, peer: Peer) -> None:
    answer = await peer.ask(RequestCode.GET_TIMER_CHECK_POINT, {})
    assert (answer.code, len(answer.body)) == (0, 56)
