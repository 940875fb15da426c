"""Metrics: the families against those of RocketMQ's own port, and the figures against real traffic."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pocketmq.broker.figures.lags import GroupLag
from pocketmq.broker.figures.metric import PIECE, Metric
from pocketmq.broker.figures.metrics import (
    NODE_LABELS,
    Family,
    metrics,
    snapshot,
    snapshot_in_pieces,
)
from pocketmq.broker.figures.metrics_groups import symptoms
from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    TransactionState,
    sync,
)
from pocketmq.client.errors import ConsumerNotOnline
from pocketmq.console.metrics.page import merged, to_text
from pocketmq.model.tables import TopicConfig
from pocketmq.testing import InProcess
from tests.broker.metrics_site import figure, scraped, shown_families
from tests.broker.serving import serving
from tests.kit.waiting import until

GOLDEN = Path(__file__).parents[1] / "golden" / "data" / "metrics" / "rocketmq-5.5.0.prom"
# What RocketMQ 5.5 shows there and we do not: pop's own figures, and what is not measured.
NOT_SHOWN = {
    "rocketmq_pop_buffer_scan_time_consume_milliseconds",
    "rocketmq_pop_checkpoint_buffer_size",
    "rocketmq_pop_offset_buffer_size",
    "rocketmq_pop_revive_lag_milliseconds",
    "rocketmq_pop_revive_latency_milliseconds",
    "rocketmq_timer_dequeue_lag",
    "rocketmq_timer_enqueue_latency_milliseconds",
    "rocketmq_timer_message_snapshot",
    "rocketmq_topic_create_execution_time_milliseconds",
}


@pytest.fixture
def server() -> Iterator[InProcess]:
    with InProcess() as server:
        yield server


# ---------------------------------------------------------------- names


def test_names_types_and_labels_are_those_of_rocketmqs_own_port() -> None:
    """conventions: observability names to keep. Judge: the text of a real broker 5.5.0."""
    shown = shown_families()
    families = {
        line.split()[2]: line.split()[3]
        for line in GOLDEN.read_text(encoding="utf-8").splitlines()
        if line.startswith("# TYPE")
    }
    assert set(families) - set(shown) - {"target_info"} <= NOT_SHOWN
    compared = 0
    for family in text_string_to_metric_families(GOLDEN.read_text(encoding="utf-8")):
        for sample in family.samples:
            metric = shown.get(family.name if family.type == "histogram" else sample.name)
            if metric is None:
                continue
            compared += 1
            assert families.get(sample.name, family.type) == metric.kind
            theirs = set(sample.labels) - {"otel_scope_name", "le"}
            assert theirs <= {*NODE_LABELS, *metric.labels}, sample.name
            # is_retry is shown by 5.3.3 where 5.5.0 leaves it out for pulls.
            assert {*NODE_LABELS, *metric.labels} - theirs <= {"is_retry"}, sample.name
    assert compared > 20


def test_every_metric_has_a_name_of_its_own_and_says_what_it_is() -> None:
    shown = [name for metric in metrics() for name in metric.shown_names]
    assert len(shown) == len(set(shown))
    for metric in metrics():
        assert metric.help
        assert metric.name.startswith(("rocketmq_", "pocketmq_"))
        assert metric.name.endswith("_total") == (metric.kind == "counter")


def test_metrics_with_units_have_old_and_new_names() -> None:
    """RocketMQ names it in the text from 5.3 on; dashboards of older ones want it without."""
    shown = shown_families()
    assert "rocketmq_consumer_lag_latency" in shown
    assert "rocketmq_consumer_lag_latency_milliseconds" in shown
    assert "rocketmq_storage_flush_behind_bytes_bytes" not in shown


# ---------------------------------------------------------------- figures


def test_messages_that_go_in_and_out_are_counted(server: InProcess) -> None:
    server.create_topic("T", queues=2)
    server.send_all("T", ["abc"] * 5)
    assert figure(server, "rocketmq_messages_in_total", topic="T") == 5
    bytes_in = figure(server, "rocketmq_throughput_in_total", topic="T")
    assert bytes_in > 5 * 3
    with _consumer(server, "g", "T"):
        server.wait_until_consumed("g", "T")
        labels = {"topic": "T", "consumer_group": "g", "is_system": "false"}
        assert figure(server, "rocketmq_messages_out_total", **labels) == 5
        assert figure(server, "rocketmq_throughput_out_total", **labels) == bytes_in
        assert (
            figure(
                server,
                "rocketmq_consumer_connections",
                consumer_group="g",
                consume_mode="push",
                language="python",
            )
            == 1
        )
        assert figure(server, "pocketmq_long_polling_requests") >= 1
    server.send_all("T", ["abc"] * 2)
    assert figure(server, "rocketmq_messages_in_total", topic="T") == 7
    node = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "pocketmq"}
    assert figure(server, "rocketmq_broker_permission", **node) == 6


async def test_connections_that_are_one_too_many_are_counted(tmp_path: Path) -> None:
    async with serving(tmp_path, max_connections_per_address=2) as broker:
        host, _, port = broker.listen_address.rpartition(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
        for reader, _ in opened[2:]:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        figures = {each.metric.name: each.samples for each in snapshot(broker)}
        assert figures["pocketmq_connections_refused_total"][0][-1] == 3
        for _, writer in opened:
            writer.close()


def test_lag_is_told_by_group_and_by_queue_with_its_age(server: InProcess) -> None:
    """Per-queue lag."""
    server.create_topic("T", queues=2)
    server.create_group("g")
    for queue_id, count in ((0, 3), (1, 1)):
        for _ in range(count):
            server.send("T", "x", queue_id=queue_id)
    queues = [row.queue for row in server.admin.topics.status("T")]
    for queue in queues:
        server.admin.groups.place("g", queue, 1 if queue.queue_id == 0 else 0)
    server.clock.advance(hours=1)
    group = {"consumer_group": "g", "topic": "T"}
    assert figure(server, "rocketmq_consumer_lag_messages", **group) == 3
    assert figure(server, "pocketmq_consumer_queue_lag_messages", **group, queue_id="0") == 2
    assert figure(server, "pocketmq_consumer_queue_lag_messages", **group, queue_id="1") == 1
    age = figure(server, "rocketmq_consumer_lag_latency", **group)
    assert 3_600_000 <= age < 7_200_000
    assert figure(server, "rocketmq_consumer_lag_latency_milliseconds", **group) >= age
    for queue in queues:
        server.admin.groups.place("g", queue, 10)
    assert figure(server, "rocketmq_consumer_lag_messages", **group) == 0
    assert figure(server, "rocketmq_consumer_lag_latency", **group) == 0


def test_what_was_pulled_and_is_not_consumed_is_in_flight(server: InProcess) -> None:
    """As RocketMQ 5 has it: in flight from commit to pull, ready from pull to end."""
    server.create_topic("T", queues=1)
    server.send_all("T", ["x"] * 3)
    held, go_on = threading.Event(), threading.Event()

    def slow(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        held.set()
        go_on.wait(60)
        return ConsumeResult.SUCCESS

    group = {"consumer_group": "g", "topic": "T"}
    inflight, ready = "rocketmq_consumer_inflight_messages", "rocketmq_consumer_ready_messages"
    with _consumer(server, "g", "T"):
        server.wait_until_consumed("g", "T")
    with _consumer(server, "g", "T", listener=slow):
        server.send_all("T", ["x"] * 2)
        assert held.wait(60)
        until(lambda: figure(server, ready, **group) == 0, "all to be pulled")
        assert figure(server, inflight, **group) == 2
        assert figure(server, "rocketmq_consumer_queueing_latency", **group) == 0
        go_on.set()
        server.wait_until_consumed("g", "T")
    # A consumer that leaves commits, and does not wait for its next turn.
    assert figure(server, inflight, **group) == 0


def test_what_waits_is_told(server: InProcess) -> None:
    server.create_topic("T")
    server.send("T", "x", delay_level=3)
    server.send("T", "x", deliver_at_ms=server.clock.now_ms() + 3_600_000)
    assert figure(server, "pocketmq_delayed_messages", level="3", delay="10s") == 1
    until(
        lambda: figure(server, "rocketmq_timing_messages", topic="T") == 1, "the timer to take it"
    )
    server.clock.advance(hours=1, seconds=2)
    assert figure(server, "pocketmq_delayed_messages", level="3") == 0
    assert figure(server, "rocketmq_timing_messages", topic="T") == 0
    assert figure(server, "rocketmq_timer_dequeue_total") == 1


def test_transactions_are_counted_by_their_end(server: InProcess) -> None:
    server.create_topic("T")
    producer = sync.TransactionProducer(
        "p", check=lambda _: TransactionState.UNKNOWN, name_server=server.namesrv
    )
    ends = iter([TransactionState.COMMIT, *[TransactionState.ROLLBACK] * 2])
    with producer:
        for _ in range(4):
            producer.send_in_transaction(
                Message("T", b"x"), lambda _: next(ends, TransactionState.UNKNOWN)
            )
        # The end of a transaction is sent without an answer.
        until(lambda: figure(server, "rocketmq_half_messages") == 1, "one that is open")
    assert figure(server, "rocketmq_commit_messages_total", topic="T") == 1
    assert figure(server, "rocketmq_rollback_messages_total", topic="T") == 2


def test_a_group_whose_members_differ_is_told(server: InProcess) -> None:
    """E3: two members, tagA then tagB; the guard's finding as figures."""
    server.create_topic("T", queues=4)
    with _consumer(server, "g", "T", "tagA"), _consumer(server, "g", "T", "tagB"):
        until(
            lambda: (
                figure(server, "pocketmq_group_subscription_camps", consumer_group="g", topic="T")
                == 2
            ),
            "the finding",
        )
        losing = "pocketmq_group_subscription_losing_queues"
        until(lambda: figure(server, losing, consumer_group="g") > 0, "queues that lose")
    until(
        lambda: "pocketmq_group_subscription_camps" not in scraped(server), "the finding to be over"
    )


def test_dead_letters_and_what_was_sent_back_are_counted(server: InProcess) -> None:
    server.create_topic("T")
    server.send("T", "x")

    def fails(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        # The first time later, the second time never again.
        context.delay_level = -1 if messages[0].reconsume_times else 3
        return ConsumeResult.RECONSUME_LATER

    with _consumer(server, "g", "T", listener=fails):
        server.wait_for_messages("SCHEDULE_TOPIC_XXXX", 1)
        server.clock.advance(10)
        server.wait_for_messages("%DLQ%g", 1)
    sent_back = "pocketmq_sent_back_messages_total"
    assert figure(server, sent_back, consumer_group="g", topic="T") == 2
    assert figure(server, "rocketmq_send_to_dlq_messages_total", consumer_group="g") == 1


# ---------------------------------------------------------------- bounds


def test_label_sets_beyond_the_limit_merge_and_are_counted(server: InProcess) -> None:
    """Bounded cardinality: metricsOtelCardinalityLimit, 50,000 by default."""
    for number in range(5):
        server.create_topic(f"T{number}", queues=1)
        server.send_all(f"T{number}", ["x"] * (number + 1))
    whole = scraped(server)["rocketmq_messages_in_total"]
    found = scraped(server, cardinality_limit=2)
    samples = found["rocketmq_messages_in_total"]
    assert len(samples) == 3
    assert samples[-1].labels == {"otel_metric_overflow": "true"}
    assert sum(each.value for each in samples) == sum(each.value for each in whole)
    assert found["pocketmq_metrics_overflow_series"][0].value >= 3
    assert figure(server, "pocketmq_metrics_overflow_series") == 0


def test_a_look_changes_nothing(server: InProcess) -> None:
    """Two looks without traffic between them are the same but for time and disk."""
    server.send("T", "x")

    async def both() -> tuple[object, object]:
        looks = [
            {family.metric.name: family.samples for family in snapshot(server.running)}
            for _ in range(2)
        ]
        moving = {"rocketmq_storage_message_reserve_time", "rocketmq_storage_size"}
        moving |= {"pocketmq_disk_used_ratio"}
        return tuple({k: v for k, v in look.items() if k not in moving} for look in looks)  # type: ignore[return-value]

    first, second = server.call(both())
    assert first == second


def test_others_are_served_while_many_queues_are_looked_at(server: InProcess) -> None:
    """And what changes meanwhile disturbs nothing."""
    queues, topics = 8, 1_000

    async def look() -> tuple[int, dict[str, int]]:
        tables = server.running.parts.tables
        tables.groups.find("g")
        for number in range(topics):
            tables.topics.topics[f"T{number}"] = TopicConfig(f"T{number}", queues, queues)
            for queue_id in range(queues):
                tables.offsets.place("g", f"T{number}", queue_id, 0)
        lags = server.running.parts.lags
        lags.refresh()
        while len(lags.rows) < topics:
            lags.go_on()
        running = asyncio.get_running_loop()
        turns, handle = 0, running.call_soon(int)

        def turn() -> None:
            nonlocal turns, handle
            turns += 1
            for name in (f"new{turns}", "g"):
                lags.rows[name, f"T{turns}"] = GroupLag({0: 0}, {}, 0)
            handle = running.call_soon(turn)

        handle = running.call_soon(turn)
        found = await snapshot_in_pieces(server.running)
        handle.cancel()
        return turns, {each.metric.name: len(each.samples) for each in found}

    turns, counts = server.call(look())
    assert counts["rocketmq_consumer_lag_messages"] >= topics
    assert turns >= sum(counts.values()) // PIECE


def test_no_piece_of_a_look_grows_with_groups_and_topics(server: InProcess) -> None:
    groups, topics = 50, 1_280

    async def pieces() -> tuple[int, int]:
        parts = server.running.parts
        for number in range(8 * PIECE):
            parts.lags.rows["absent", f"T{number}"] = GroupLag({}, {}, 0)
        for group in range(groups):
            parts.tables.groups.find(f"g{group}")
            for number in range(50):
                parts.lags.rows[f"g{group}", f"T{number}"] = GroupLag({}, {}, 0)
        for number in range(topics):
            parts.messages.stats.put_counter(f"T{number}", 0)
        (sizes,) = (each.spread for each in metrics() if each.name == "rocketmq_message_size")
        assert sizes is not None
        found = (symptoms(server.running), sizes(server.running))
        return tuple(sum(each is None for each in samples) for samples in found)  # type: ignore[return-value]

    of_symptoms, of_sizes = server.call(pieces())
    assert of_symptoms >= 8 + groups
    assert of_sizes >= topics / 128


def test_a_snapshot_text_leaves_no_garbage_on_the_loop(server: InProcess) -> None:
    async def look() -> tuple[int, int]:
        families = snapshot(server.running)
        before = len(families)
        assert to_text([families]).count(b"# TYPE") > before
        return before, len(families)

    before, after = server.call(look())
    assert (before > 50, after) == (True, 0)


# ---------------------------------------------------------------- health


def _consumer(
    server: InProcess, group: str, topic: str, expression: str = "*", **options: object
) -> sync.PushConsumer:
    listener = options.pop("listener", lambda messages, context: ConsumeResult.SUCCESS)
    consumer = sync.PushConsumer(
        group,
        listener=listener,  # type: ignore[arg-type]
        name_server=server.namesrv,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
    )
    consumer.subscribe(topic, expression)
    return consumer


# ---------------------------------------------------------------- what is made of them


def test_histograms_have_the_buckets_of_rocketmq(server: InProcess) -> None:
    for size in (1, 2_000, 100_000):
        server.send("Sized", os.urandom(size))
    assert len(server.messages("Sized")) == 3
    with pytest.raises(ConsumerNotOnline):
        server.admin.groups.connection("absent")
    found = scraped(server)
    sizes = {
        sample.labels["le"]: sample.value
        for sample in found["rocketmq_message_size_bucket"]
        if sample.labels["topic"] == "Sized"
    }
    assert list(sizes) == [
        *("1024.0", "4096.0", "524288.0", "1048576.0", "2097152.0", "4194304.0"),
        "+Inf",
    ]
    assert list(sizes.values()) == [1, 2, 3, 3, 3, 3, 3]
    [total] = [
        sample.value
        for sample in found["rocketmq_message_size_sum"]
        if sample.labels["topic"] == "Sized"
    ]
    assert 102_001 < total < 104_000
    for name in ("rocketmq_rpc_latency", "rocketmq_rpc_latency_milliseconds"):
        counted = {
            (sample.labels["request_code"], sample.labels["response_code"]): sample.value
            for sample in found[f"{name}_count"]
        }
        assert counted["pull_message", "success"] >= 1
        assert counted["send_message_v2", "success"] == 3
        assert counted["get_consumer_connection_list", "consumer_not_online"] == 1
        inside = [each for each in found[f"{name}_bucket"] if each.labels["le"] == "+Inf"]
        assert sum(each.value for each in inside) == sum(counted.values())


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_every_send_is_among_the_latencies(flush: str) -> None:
    """Plain ones, of which each sixteenth is looked at, batches, and those that wait for the disk."""
    with InProcess({"flushDiskType": flush}) as server:
        for number in range(40):
            server.send("Plain", b"%d" % number)
        with sync.Producer("p", name_server=server.namesrv) as producer:
            producer.send_batch([Message("Plain", b"a"), Message("Plain", b"b")])
        for _ in range(2):
            counted = {
                (sample.labels["request_code"], sample.labels["response_code"]): sample.value
                for sample in scraped(server)["rocketmq_rpc_latency_count"]
                if sample.labels["request_code"].startswith("send_")
            }
            assert counted["send_message_v2", "success"] == 40
            assert counted["send_batch_message", "success"] == 1


def test_a_hostile_name_is_one_label_on_one_line() -> None:
    """Neither for readers that split at other characters than a line feed, nor where texts are merged."""
    names = ["a\nevil 1", "a\r# HELP evil 1\r\n", "a\u2028b", "a\x1b[2J", 'a"} 7', "a\\"]
    metric = Metric("x", "gauge", "help", ("group",), lambda broker: [])
    family = Family(metric, ("group",), tuple(((name,), 1.0) for name in names))
    text = merged([to_text([[family]])])
    lines = text.decode().splitlines()
    assert len([line for line in lines if not line.startswith("#")]) == len(names)
    assert all(line.startswith(("# HELP x ", "# TYPE x ", "x{group=")) for line in lines)
    assert all(line.isprintable() for line in lines)
