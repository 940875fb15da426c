"""Producers, lite pull, pull by hand, transactions, requests and traces against the played cluster."""

import asyncio
import zlib

import pytest

from pocketmq.client import (
    CallerError,
    ConsumeFromWhere,
    IllegalMessage,
    IllegalTopic,
    LitePullConsumer,
    Message,
    MessageQueue,
    MessageTooLarge,
    NoRoute,
    NotRunning,
    OutcomeUnknown,
    Producer,
    SendFailed,
    SendOutcomeUnknown,
    SendStatus,
    Unauthorised,
    send_all,
)
from pocketmq.client.network.instance import GroupInUse
from pocketmq.client.tracing import trace as trace_codec
from pocketmq.model.message_codec import properties_to_dict
from pocketmq.remoting import headers
from pocketmq.remoting.codes import RequestCode as RC
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from tests.client.fake_cluster import Asked, FakeCluster
from tests.client.played_options import options
from tests.client.virtual_time import LoopClock, run_virtual, until


def test_a_message_is_sent_with_the_fields_of_the_header_table() -> None:
    """S33: every field of SEND_MESSAGE_V2 is known to the table and has its value."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=4)
        async with Producer("p", **options(cluster)) as producer:
            message = Message("T", b"hello", tags="tagA", keys="k1 k2", flag=7)
            result = await producer.send(message)
        [asked] = cluster.asked(RC.SEND_MESSAGE_V2)
        assert set(asked.ext) == set("abcdefghijkmn")
        header = headers.SendMessageV2Header.parse(asked.ext)
        assert (header.producer_group, header.topic, header.default_topic) == ("p", "T", "TBW102")
        assert (header.default_topic_queue_nums, header.flag, header.sys_flag) == (4, 7, 0)
        assert (header.batch, header.unit_mode, header.bname) == (False, False, "broker-a")
        sent = properties_to_dict(header.properties or "")
        assert sent == {"TAGS": "tagA", "KEYS": "k1 k2", "UNIQ_KEY": result.msg_id}
        assert result.status is SendStatus.SEND_OK
        assert result.message_queue == MessageQueue("T", "broker-a", header.queue_id)
        assert "UNIQ_KEY" not in message.properties

    run_virtual(main)


def test_only_large_bodies_that_shrink_are_packed() -> None:
    """Above 4 KiB, zlib as Java marks it (sysFlag 0x301)."""
    import random

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        noise = random.Random(1).randbytes(5_000)
        async with Producer("p", **options(cluster)) as producer:
            for body in (b"a" * 4_095, b"a" * 4_096, noise):
                await producer.send(Message("T", body))
        small, packed, random_body = cluster.asked(RC.SEND_MESSAGE_V2)
        assert (small.ext["f"], len(small.command.body)) == ("0", 4_095)
        assert packed.ext["f"] == "769"
        assert zlib.decompress(packed.command.body) == b"a" * 4_096
        assert (random_body.ext["f"], bytes(random_body.command.body)) == ("0", noise)

    run_virtual(main)


def test_what_cannot_be_sent_is_refused_before_anything_leaves() -> None:
    """Oversized message, illegal topic, empty body, separators in properties."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        async with Producer("p", max_message_size=100, **options(cluster)) as producer:
            with pytest.raises(MessageTooLarge, match="101 bytes, but the limit is 100"):
                await producer.send(Message("T", bytes(101)))
            with pytest.raises(IllegalMessage, match="no body"):
                await producer.send(Message("T", b""))
            with pytest.raises(CallerError, match="must be bytes, not 'text'"):
                await producer.send(Message("T", "text"))  # type: ignore[arg-type]
            with pytest.raises(IllegalTopic):
                await producer.send(Message("a/b", b"x"))
            with pytest.raises(IllegalMessage, match="character 1 or 2"):
                await producer.send(Message("T", b"x", properties={"a": "b\x01c"}))
            with pytest.raises(IllegalMessage, match="32767"):
                await producer.send(Message("T", b"x", properties={"a": "b" * 32_767}))
        assert cluster.asked(RC.SEND_MESSAGE_V2) == []
        with pytest.raises(NotRunning, match="not started"):
            await producer.send(Message("T", b"x"))

    run_virtual(main)


def test_a_topic_without_a_route_is_the_callers_to_fix() -> None:
    """No route; the message names the topic, the name server and the command."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), Paused=1)
        cluster.auto_create = False
        cluster.perms["Paused"] = 4
        async with Producer("p", **options(cluster)) as producer:
            with pytest.raises(NoRoute, match=r"no messages.*topic create Paused --perm rw"):
                await producer.send(Message("Paused", b"x"))
            with pytest.raises(NoRoute) as caught:
                await producer.send(Message("Missing", b"x"))
        assert isinstance(caught.value, CallerError)
        for word in ("'Missing'", "10.0.0.1:9876", "pocketmq topic create Missing"):
            assert word in str(caught.value)

    run_virtual(main)


def test_the_first_send_of_a_topic_uses_the_template_route() -> None:
    """S82: TBW102's route with four queues; the next send uses the topic's own route."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock())
        async with Producer("p", **options(cluster)) as producer:
            first = await producer.send(Message("New", b"x"))
            second = await producer.send(Message("New", b"y"))
            assert first.message_queue.queue_id < 4
            assert second.message_queue.topic == "New"
            assert len(await producer.queues("New")) == 4

    run_virtual(main)


def test_brokers_are_told_of_a_producer_whatever_it_sends_to() -> None:
    """S35, S37: before its first send, after the only one, which made the topic, and when it joins late."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock())

        def told(group: str) -> list[int]:
            return [
                beat.at_ms
                for beat in cluster.asked(RC.HEART_BEAT)
                if {"groupName": group} in beat.json["producerDataSet"]
            ]

        async with Producer("p", **options(cluster, instance_name="i")) as producer:
            await until(lambda: told("p"), within_ms=1_100)
            await producer.send(Message("New", b"x"))
            await until(lambda: len(told("p")) > 3, within_ms=91_000)
            async with Producer("late", **options(cluster, instance_name="i")):
                assert told("late")

    run_virtual(main)


def test_heartbeats_reach_brokers_without_auto_creation() -> None:
    """S37: then the topic that it sends to tells which brokers there are."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=4)
        cluster.auto_create = False
        async with Producer("p", **options(cluster)) as producer:
            await asyncio.sleep(2)
            assert not cluster.asked(RC.HEART_BEAT)
            await producer.send(Message("T", b"x"))
            await until(lambda: cluster.asked(RC.HEART_BEAT), within_ms=31_000)

    run_virtual(main)


def test_a_broker_that_is_gone_is_left_for_another() -> None:
    """Refused connection: the retry goes elsewhere; with all gone nothing was stored."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), brokers=2, T=1)
        async with Producer("p", **options(cluster)) as producer:
            cluster.brokers[0].down = True
            results = [await producer.send(Message("T", b"x")) for _ in range(4)]
            assert {each.message_queue.broker_name for each in results} == {"broker-b"}
            cluster.brokers[1].down = True
            with pytest.raises(SendFailed, match="Nothing was stored") as caught:
                await producer.send(Message("T", b"x"))
            assert [each.broker_name for each in caught.value.attempts] in (
                ["broker-a", "broker-b", "broker-a"],
                ["broker-b", "broker-a", "broker-b"],
            )

    run_virtual(main)


def test_a_send_waits_for_a_restarting_broker_in_its_timeout() -> None:
    """Unless it is told not to; what waits was never sent, so it is stored once."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        loop = asyncio.get_running_loop()

        def come_back() -> None:
            cluster.brokers[0].down = False

        async with Producer("p", **options(cluster)) as producer:
            await producer.send(Message("T", b"before"))
            cluster.brokers[0].down = True
            loop.call_later(2, come_back)
            began = loop.time()
            result = await producer.send(Message("T", b"x"))
            assert result.queue_offset == 1
            assert 2 <= loop.time() - began < 3
            cluster.brokers[0].down = True
            loop.call_later(5, come_back)
            with pytest.raises((SendFailed, SendOutcomeUnknown)):
                await producer.send(Message("T", b"x"))
            assert loop.time() - began < 6
            cluster.brokers[0].down = True
        async with Producer("q", wait_for_broker=False, **options(cluster)) as producer:
            began = loop.time()
            with pytest.raises(SendFailed):
                await producer.send(Message("T", b"x"))
            assert loop.time() == began

    run_virtual(main)


def test_a_time_out_leaves_the_outcome_open() -> None:
    """The broker may have stored it; all attempts stay within the time."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), brokers=2, T=1)
        asked: list[int] = []

        def deaf(request: Asked) -> RemotingCommand | None:
            asked.append(request.at_ms)
            return None

        async def never(*_: object) -> None:
            await asyncio.Event().wait()

        cluster.on(RC.SEND_MESSAGE_V2, deaf)
        cluster.answer_of_broker = never  # type: ignore[assignment]
        async with Producer("p", **options(cluster)) as producer:
            began = LoopClock().monotonic_ms()
            with pytest.raises(OutcomeUnknown, match="may have been stored"):
                await producer.send(Message("T", b"x"), timeout_ms=2_000)
            assert LoopClock().monotonic_ms() - began <= 2_001
            # The other broker gives no sign of life either: no third attempt.
            assert len(asked) == 2

    run_virtual(main)


def test_a_refused_signature_is_not_tried_elsewhere() -> None:
    """Unauthorised."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), brokers=2, T=1)
        cluster.on(
            RC.SEND_MESSAGE_V2,
            lambda asked: asked.reply(
                1, "org.apache.rocketmq.acl.common.AclException: No accessKey"
            ),
        )
        async with Producer("p", **options(cluster)) as producer:
            with pytest.raises(Unauthorised, match="credentials"):
                await producer.send(Message("T", b"x"))
        assert len(cluster.asked(RC.SEND_MESSAGE_V2)) == 1

    run_virtual(main)


def test_a_status_below_ok_is_retried_only_if_wanted() -> None:
    """wire.md 4.7: FLUSH_DISK_TIMEOUT counts as stored."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), brokers=2, T=1)

        def slow_disk(asked: Asked) -> RemotingCommand | None:
            if asked.address != "10.0.0.2:10911":
                return None
            ext = {"msgId": "x", "queueId": "0", "queueOffset": "1"}
            return asked.reply(ResponseCode.FLUSH_DISK_TIMEOUT, "", ext)

        cluster.on(RC.SEND_MESSAGE_V2, slow_disk)
        queue = MessageQueue("T", "broker-a", 0)
        async with Producer("p", **options(cluster)) as producer:
            told = await producer.send(Message("T", b"x"), queue=queue)
            assert told.status is SendStatus.FLUSH_DISK_TIMEOUT
        async with Producer("p", retry_when_not_stored_ok=True, **options(cluster)) as producer:
            for _ in range(4):
                assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK

    run_virtual(main)


def test_queues_can_be_chosen_by_hand_by_function_and_by_key() -> None:
    """To a chosen queue, by key, ordered."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=4)
        async with Producer("p", **options(cluster)) as producer:
            queues = await producer.queues("T")
            sent = await producer.send(Message("T", b"x"), queue=queues[3])
            assert sent.message_queue == queues[3]
            sent = await producer.send(Message("T", b"x"), select=lambda found: found[1])
            assert sent.message_queue == queues[1]
            keyed = [await producer.send(Message("T", b"x"), sharding_key="a") for _ in range(3)]
            assert {each.message_queue for each in keyed} == {queues[1]}
            await producer.send_oneway(Message("T", b"x"), sharding_key="a")
        last = cluster.asked(RC.SEND_MESSAGE_V2)[-1]
        assert (last.oneway, last.ext["e"]) == (True, "1")

    run_virtual(main)


def test_batches_and_windows_keep_order() -> None:
    """Batches split to size; many sends under way with results in the order given."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        async with Producer("p", max_message_size=10_000, **options(cluster)) as producer:
            messages = [Message("T", bytes([number]) * 1_000) for number in range(12)]
            results = await producer.send_batch(messages)
            assert [len(each.msg_id.split(",")) for each in results] == [5, 5, 2]
            assert [each.queue_offset for each in results] == [0, 5, 10]
            sent = await send_all(producer, (Message("T", b"%d" % n) for n in range(50)), window=7)
            assert [each.queue_offset for each in sent] == list(range(12, 62))
        stored = [bytes(record.body)[:1] for record, _ in cluster.brokers[0].queue("T", 0)[:12]]
        assert stored == [bytes([number]) for number in range(12)]

    run_virtual(main)


def test_a_namespace_is_on_the_wire_and_nowhere_else() -> None:
    """Ns%T to the broker, T to the caller."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), **{"ns%T": 2})
        async with Producer("p", **options(cluster, namespace="ns")) as producer:
            sent = await producer.send(Message("T", b"x"))
            assert sent.message_queue.topic == "T"
            assert (await producer.queues("T"))[0].topic == "T"
        [asked] = cluster.asked(RC.SEND_MESSAGE_V2)
        assert (asked.ext["a"], asked.ext["b"]) == ("ns%p", "ns%T")
        first = ConsumeFromWhere.FIRST_OFFSET
        async with LitePullConsumer(
            "g", consume_from_where=first, **options(cluster, namespace="ns")
        ) as consumer:
            consumer.subscribe("T")
            [found] = await consumer.poll()
            assert (found.topic, found.body) == ("T", b"x")

    run_virtual(main)


def test_two_clients_of_one_group_need_two_instances() -> None:
    """Groups are unique within a client id; the instance ends with its last user."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        one = Producer("p", **options(cluster, instance_name="i"))
        two = Producer("p", **options(cluster, instance_name="i"))
        other = Producer("q", **options(cluster, instance_name="i"))
        async with one:
            with pytest.raises(GroupInUse, match="another group or another instance_name"):
                await two.start()
            async with other:
                await other.send(Message("T", b"x"))
            await one.send(Message("T", b"x"))
        assert len(cluster.clients) == 1

    run_virtual(main)


# ------------------------------------------------------------ traces


def test_a_producers_trace_has_javas_fields() -> None:
    """The Pub record as 4.9.7 writes it (wire.md 4.9)."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1, RMQ_SYS_TRACE_TOPIC=1)
        async with Producer("p", trace=True, **options(cluster)) as producer:
            sent = await producer.send(Message("T", b"hello", tags="t", keys="k1 k2"))
            await asyncio.sleep(1)
        [traced] = cluster.asked(RC.SEND_MESSAGE_V2, b="RMQ_SYS_TRACE_TOPIC")
        assert traced.ext["a"].startswith("_INNER_TRACE_PRODUCER-p-PRODUCE-")
        [fields] = trace_codec.parse(bytes(traced.command.body))
        assert fields[0] == "Pub"
        assert fields[2:10] == [
            "DefaultRegion",
            "p",
            "T",
            sent.msg_id,
            "t",
            "k1 k2",
            "10.0.0.2:10911",
            "5",
        ]
        assert fields[11:] == ["0", sent.offset_msg_id, "true"]
        assert properties_to_dict(traced.ext["i"])["KEYS"] == f"{sent.msg_id} k1 k2"

    run_virtual(main)


def test_trace_records_are_packed_in_order_and_come_apart_again() -> None:
    records = [
        trace_codec.sub_before(
            time_ms=1,
            region="r",
            group="g",
            request=f"R{number}",
            msg_id=f"M{number}",
            retry_times=0,
            keys="k",
            topic="T",
        )
        for number in range(20)
    ]
    packed = trace_codec.pack(records, 100)
    assert all(len(each.body) <= 100 for each in packed)
    fields = [fields for each in packed for fields in trace_codec.parse(each.body)]
    assert [each[4] for each in fields] == [f"R{number}" for number in range(20)]
