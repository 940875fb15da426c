"""sendOnce: what a client sends twice, because an answer was lost, stands in the log once."""

import asyncio
import random
import shutil
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pocketmq import Message, Producer
from pocketmq.broker.broker import Broker
from pocketmq.broker.figures.metrics import snapshot
from pocketmq.model.message_codec import get_property, properties_to_text
from pocketmq.model.record import BATCH_COUNT_MAX, read_record
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from tests.broker.pairs import name_server
from tests.broker.serving import Peer, batch, serving
from tests.kit.lossy_proxy import LossyProxy

KEY = "0123456789ABCDEF0123456789ABCDEF"


async def send(peer: Peer, key: str = KEY, topic: str = "T", **how: Any) -> dict[str, str]:
    """What a send is answered with, without its own opaque."""
    properties = {"UNIQ_KEY": key, **how.pop("properties", {})}
    more = {"i": properties_to_text(properties)}
    answer = await peer.produce(topic, how.pop("body", b"x"), more=more, **how)
    assert answer.code == 0, answer
    return dict(answer.ext or {})


def place(answer: dict[str, str]) -> tuple[str, str, str]:
    """Where a message is; the port of its id is another one after a restart."""
    return answer["queueId"], answer["queueOffset"], answer["msgId"][16:]


def count(broker: Broker, topic: str = "T") -> int:
    store = broker.parts.messages.store
    return sum(store.max_offset(*queue) for queue in store.queues(topic))


async def set_attribute(peer: Peer, value: str, topic: str = "T") -> RemotingCommand:
    ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4}
    more = {"perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}
    attributes = {"attributes": f"+sendOnce={value}"}
    return await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**ext, **more, **attributes})


async def test_a_repetition_gets_the_first_answer(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        assert (await set_attribute(peer, "perhaps")).code == 1
        # Off: as in RocketMQ.
        assert await send(peer) != await send(peer)
        assert (await set_attribute(peer, "true")).code == 0
        first = await send(peer, "A" * 32, queue_id=1)
        # Whatever queue it names.
        assert await send(peer, "A" * 32, queue_id=2) == first
        assert await send(peer, "B" * 32, queue_id=1) != first
        assert count(broker) == 4
        name = "pocketmq_sends_repeated_total"
        [repeated] = [each.samples for each in snapshot(broker) if each.metric.name == name]
        assert [value for _, value in repeated] == [1]
        # Of another topic it is another message.
        assert (await set_attribute(peer, "true", "Other")).code == 0
        await send(peer, "A" * 32, topic="Other")
        assert count(broker, "Other") == 1
        assert (await set_attribute(peer, "false")).code == 0
        assert await send(peer, "A" * 32, queue_id=1) != first


async def test_batches_delays_and_half_messages(tmp_path: Path) -> None:
    async with serving(tmp_path, send_once=True) as broker, await Peer.at(broker) as peer:
        members = [(b"%d" % n, f"UNIQ_KEY\x01{n:032d}".encode()) for n in range(3)]
        how: dict[str, Any] = {"code": RequestCode.SEND_BATCH_MESSAGE, "more": {"m": "true"}}
        answers = [await peer.produce("T", batch(*members), **how) for _ in range(2)]
        assert answers[0].code == 0
        assert answers[0].ext == answers[1].ext
        # A batch with one new message is a new one.
        members[2] = (b"2", b"UNIQ_KEY\x01" + b"9" * 32)
        assert (await peer.produce("T", batch(*members), **how)).ext != answers[0].ext
        assert count(broker) == 6
        for number, properties in enumerate(({"DELAY": "5"}, {"TRAN_MSG": "true", "PGROUP": "pg"})):
            sent = [
                await send(peer, str(number) * 31, queue_id=2, properties=properties)
                for _ in range(2)
            ]
            assert sent[0] == sent[1], properties
            assert sent[0]["queueId"] == "2"
        assert (
            count(broker, "SCHEDULE_TOPIC_XXXX") == count(broker, "RMQ_SYS_TRANS_HALF_TOPIC") == 1
        )


async def test_a_message_of_the_same_key_is_another_one(tmp_path: Path) -> None:
    """A program fills one object anew; another client that guesses a key keeps nothing out."""
    half = {"TRAN_MSG": "true", "PGROUP": "pg"}
    async with serving(tmp_path, send_once=True) as broker, await Peer.at(broker) as peer:
        different: list[dict[str, Any]] = [
            {},
            {"body": b"y"},
            {"properties": {"TAGS": "t"}},
            {"properties": {"KEYS": "k"}},
        ]
        answers = [await send(peer, **how) for how in [{"properties": half}, *different]]
        assert count(broker) == len(different)
        # Each of them is known.
        assert [await send(peer, **how) for how in [{"properties": half}, *different]] == answers
        assert count(broker) == len(different)


async def end(peer: Peer, half: dict[str, str], decision: int) -> None:
    ext = {"producerGroup": "pg", "tranStateTableOffset": half["queueOffset"], "msgId": KEY}
    place = {"commitLogOffset": int(half["msgId"][16:], 16), "commitOrRollback": decision}
    answer = await peer.ask(RequestCode.END_TRANSACTION, {**ext, **place, "transactionId": KEY})
    assert answer.code == 0, answer


async def test_a_transaction_that_was_rolled_back_may_be_tried_again(tmp_path: Path) -> None:
    half: dict[str, Any] = {"properties": {"TRAN_MSG": "true", "PGROUP": "pg"}}
    folder = tmp_path / "store"
    async with serving(folder, send_once=True) as broker, await Peer.at(broker) as peer:
        first = await send(peer, **half)
        await end(peer, first, 12)
        second = await send(peer, **half)
        assert second != first
        folder = Path(shutil.copytree(folder, tmp_path / "killed"))
    async with serving(folder, send_once=True) as broker, await Peer.at(broker) as peer:
        assert place(await send(peer, **half)) == place(second)
        await end(peer, second, 8)
        assert count(broker) == 1
        # An attempt that was under way for long: it is committed.
        assert place(await send(peer, **half)) == place(second)


async def test_a_message_that_was_recalled_may_be_sent_again(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    timer: dict[str, Any] = {"properties": {"TIMER_DELAY_SEC": "3600"}}
    async with serving(folder, send_once=True) as broker, await Peer.at(broker) as peer:
        first = await send(peer, **timer)
        assert await send(peer, **timer) == first
        ext = {"topic": "T", "recallHandle": first["recallHandle"], "producerGroup": "pg"}
        assert (await peer.ask(RequestCode.RECALL_MESSAGE, ext)).code == 0
        second = await send(peer, properties={"TIMER_DELAY_SEC": "3700"})
        assert second["msgId"] != first["msgId"]
        assert await send(peer, **timer) == second
        folder = Path(shutil.copytree(folder, tmp_path / "killed"))
    async with serving(folder, send_once=True) as broker, await Peer.at(broker) as peer:
        assert place(await send(peer, **timer)) == place(second)


@pytest.mark.parametrize("properties", [{}, {"DELAY": "9"}, {"TRAN_MSG": "true", "PGROUP": "pg"}])
async def test_a_message_that_went_with_its_topic_is_no_first_copy(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    async with serving(tmp_path, send_once=True) as broker, await Peer.at(broker) as peer:
        first = await send(peer, properties=properties)
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
        assert (await set_attribute(peer, "true")).code == 0
        second = await send(peer, properties=properties)
        assert first["msgId"] != second["msgId"]
        assert await send(peer, properties=properties) == second


async def test_a_batch_that_is_stored_in_turns_is_stored_once(tmp_path: Path) -> None:
    """Its repetition comes, over another connection, before it is stored wholly."""
    members = [(b"x", b"UNIQ_KEY\x01%032d" % n) for n in range(2 * BATCH_COUNT_MAX + 1)]
    how: dict[str, Any] = {"code": RequestCode.SEND_BATCH_MESSAGE, "more": {"m": "true"}}
    async with (
        serving(tmp_path, send_once=True) as broker,
        await Peer.at(broker) as one,
        await Peer.at(broker) as other,
    ):
        # A part was stored before.
        part = batch(*members[:BATCH_COUNT_MAX])
        first = await one.produce("T", part, **how)
        answers = await asyncio.gather(
            *(peer.produce("T", batch(*members), **how) for peer in (one, other))
        )
        assert count(broker) == len(members)
        assert answers[0].ext == answers[1].ext
        assert (first.ext or {})["msgId"] in (answers[0].ext or {})["msgId"]


async def test_a_batch_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Also if its first messages are known. Those that are, in a batch with a new one, are no repetitions."""
    members = [(b"%d" % n, b"UNIQ_KEY\x01%032d" % n) for n in range(3)]
    how: dict[str, Any] = {"code": RequestCode.SEND_BATCH_MESSAGE, "more": {"m": "true"}}
    async with serving(tmp_path, send_once=True) as broker, await Peer.at(broker) as peer:
        whole = batch(*members)
        assert (await peer.produce("T", whole, **how)).code == 0
        for broken in (whole + bytes(4), whole[:-3], whole + bytes(22)):
            assert (await peer.produce("T", broken, **how)).code == 13
        assert (await peer.produce("T", batch(*members, (b"new", b"")), **how)).code == 0
        assert not broker.parts.messages.once.repeated.total()


async def test_a_start_knows_the_last_messages_whatever_their_queue(tmp_path: Path) -> None:
    """More than the window holds; of those the end is hidden from readers."""
    keys = 16
    once: dict[str, Any] = {"send_once": True, "send_once_keys": keys}
    async with serving(tmp_path, **once) as broker, await Peer.at(broker) as peer:
        sent = [await send(peer, f"{n:032d}", queue_id=n % 4) for n in range(3 * keys)]
        store = broker.parts.messages.store
        store.reads.limit.set(lambda: 0)
        broker.parts.messages.once.load()
        last = range(len(sent) - keys // 2, len(sent))
        assert [await send(peer, f"{n:032d}") for n in last] == [sent[n] for n in last]


async def test_copies_and_retry_topics_are_exempt(tmp_path: Path) -> None:
    async with serving(tmp_path, send_once=True) as broker, await Peer.at(broker) as peer:
        first = await send(peer)
        for properties in ({"ORIGIN_MESSAGE_ID": "id"}, {"RETRY_TOPIC": "T"}):
            assert await send(peer, properties=properties) != first
        await peer.heartbeat("g", {"T": "*"})
        for _ in range(2):
            await send(peer, topic="%RETRY%g")
        assert (count(broker), count(broker, "%RETRY%g")) == (3, 2)


@pytest.mark.parametrize("killed", [False, True])
async def test_the_window_is_rebuilt_from_the_log(tmp_path: Path, killed: bool) -> None:
    folder = tmp_path / "store"
    async with serving(folder, send_once=True) as broker, await Peer.at(broker) as peer:
        sent = [await send(peer, f"{n:032d}", queue_id=n % 4) for n in range(40)]
        delayed = await send(peer, "D" * 32, properties={"DELAY": "9"})
        if killed:
            folder = Path(shutil.copytree(folder, tmp_path / "killed"))
    async with serving(folder, send_once=True) as broker, await Peer.at(broker) as peer:
        again = [await send(peer, f"{n:032d}") for n in range(40)]
        again.append(await send(peer, "D" * 32, properties={"DELAY": "9"}))
        assert [place(each) for each in again] == [place(each) for each in [*sent, delayed]]
        assert count(broker) == 40


async def test_a_repetition_waits_until_the_first_copy_is_safe(tmp_path: Path) -> None:
    """A SYNC_MASTER without a slave answers neither with SEND_OK."""
    settings: dict[str, Any] = {"send_once": True, "broker_role": "SYNC_MASTER"}
    async with serving(tmp_path, **settings) as broker, await Peer.at(broker) as peer:
        more = {"i": properties_to_text({"UNIQ_KEY": KEY})}
        codes = [(await peer.produce("T", b"x", more=more)).code for _ in range(2)]
        assert (codes, count(broker)) == ([11, 11], 1)


@pytest.mark.parametrize("once", [True, False])
async def test_our_producer_over_a_network_that_loses_answers(tmp_path: Path, once: bool) -> None:
    """With sendOnce each message stands in the log once; without, the repetitions do, too."""
    total = 300
    chance = random.Random(7)
    async with name_server() as namesrv, LossyProxy(0, chance, 0.2) as proxy:
        settings: dict[str, Any] = {"namesrv_addr": namesrv, "advertised_port": proxy.port}
        async with serving(tmp_path, send_once=once, **settings) as broker:
            proxy.target = int(broker.listen_address.rpartition(":")[2])
            async with Producer("pg", name_server=namesrv, retry_times=30) as producer:
                for number in range(total):
                    result = await producer.send(Message("T", b"%d" % number))
                    assert result.status.name == "SEND_OK"
            store = broker.parts.messages.store
            keys: Counter[bytes] = Counter()
            for topic, queue_id in store.queues("T"):
                entries = store.entries(topic, queue_id, 0, 2 * total)
                bodies = []
                for position, size, _ in entries:
                    record = read_record(bytes(store.record_at(position, size) or b""))
                    keys[get_property(record.properties, b"UNIQ_KEY") or b""] += 1
                    bodies.append(int(record.body))
                assert bodies == sorted(bodies)
            assert len(keys) == total
            assert proxy.lost > 30
            doubled = keys.total() - total
            assert (doubled == 0) is once
            if once:
                assert broker.parts.messages.once.repeated["T"] > 0


def keys_of(broker: Broker, topic: str = "T") -> list[bytes]:
    store = broker.parts.messages.store
    return [
        get_property(record.properties, b"UNIQ_KEY") or b""
        for queue in store.queues(topic)
        for position, size, _ in store.entries(*queue, 0, 4_096)
        if (record := read_record(bytes(store.record_at(position, size) or b"")))
    ]


@pytest.mark.parametrize("once", [True, False])
async def test_our_producer_repeats_a_send_at_the_same_broker(tmp_path: Path, once: bool) -> None:
    """Where the route says that it recognises repetitions: another broker would store them again."""
    total, chance = 120, random.Random(3)
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(name_server())
        brokers: list[Broker] = []
        proxies: list[LossyProxy] = []
        for name in ("a", "b"):
            proxy = await stack.enter_async_context(LossyProxy(0, chance, 0.2))
            settings: dict[str, Any] = {"namesrv_addr": namesrv, "advertised_port": proxy.port}
            running = serving(tmp_path / name, broker_name=name, send_once=False, **settings)
            broker = await stack.enter_async_context(running)
            proxy.target = int(broker.listen_address.rpartition(":")[2])
            async with await Peer.at(broker) as peer:
                # The name server learns of what is set while brokers run, too.
                change = f"sendOnce={str(once).lower()}".encode()
                assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=change)).code == 0
                assert (await set_attribute(peer, "true" if once else "false")).code == 0
            brokers.append(broker)
            proxies.append(proxy)
        async with Producer("pg", name_server=namesrv, retry_times=30) as producer:
            for number in range(total):
                result = await producer.send(Message("T", b"%d" % number))
                assert result.status.name == "SEND_OK"
        keys = [key for broker in brokers for key in keys_of(broker)]
        assert len(set(keys)) == total
        assert all(each.lost > 5 for each in proxies)
        assert (len(keys) == total) is once
