"""Batch reads of live brokers: bounds asked once in the driver, pulls in the tasks."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pocketmq.bulk.offsets import (
    LossRule,
    Offsets,
    Positions,
    QueueKey,
    each,
    ending_offset,
    lookup,
    starting_offset,
    store_at,
)
from pocketmq.bulk.planner import Filters, Sizes, Topics
from pocketmq.bulk.scanner import Read
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import IllegalArgument, Refused
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.names import TOOLS_GROUP, is_system_topic
from pocketmq.spark.broker_client import Access, BrokerClient, BrokerQueue
from pocketmq.spark.broker_pull import PullSettings, Range, first_at_time, pull_header, read_ranges
from pocketmq.spark.columns import Projection
from pocketmq.spark.file_reader import CLOCK_SLACK_MS, warn, with_pushed
from pocketmq.spark.options import Options
from pocketmq.spark.positions import (
    GROUP,
    check_batch,
    ending_of,
    filters_of,
    say_defaults,
    sizes_of,
    starting_of,
    topics_of,
)
from pocketmq.spark.pushdown import Pushable, Pushed, accept

_log = logging.getLogger("pocketmq.spark")


class BrokerBounds:
    """A queue's bounds as the broker told them when it was asked."""

    def __init__(self, client: BrokerClient, queue: BrokerQueue, settings: PullSettings) -> None:
        self.queue = queue
        self.key = QueueKey(queue.topic, queue.broker_name, queue.queue_id)
        self.min_offset = client.min_offset(queue)
        self.max_offset = max(client.max_offset(queue), self.min_offset)
        self._client = client
        self._settings = settings

    def at_time(self, ms: int) -> int | None:
        return first_at_time(
            self._client, self.queue, self.min_offset, self.max_offset, ms, self._settings
        )

    def mean_size(self) -> int:
        """Bytes of a message, by one pull from the queue's middle; 1 KiB when nothing comes."""
        if self.min_offset == self.max_offset:
            return 1
        middle = (self.min_offset + self.max_offset) // 2
        wanted = replace(self._settings, expression="*", expression_type="TAG")
        header = pull_header(self.queue, middle, wanted)
        try:
            answer = self._client.call(self.queue.address, RequestCode.PULL_MESSAGE, header)
        except Refused:
            return 1024
        count = max(1, min(self._settings.messages, self.max_offset - middle))
        return max(91, len(answer.body) // count)


@dataclass(frozen=True)
class BrokerPartition:
    """Work for one task: ranges of one broker."""

    ranges: tuple[Range, ...]


def settings_of(options: Options) -> PullSettings:
    """Raises: IllegalArgument."""
    if options.expression_type == "SQL92" and options.sub_expression.strip() in ("", "*"):
        raise IllegalArgument("expressionType=SQL92 needs option subExpression, such as a > 5")
    return PullSettings(
        options.group or TOOLS_GROUP,
        options.sub_expression.strip() or "*",
        options.expression_type,
        options.pull_batch_size,
    )


def look_up(
    client: BrokerClient, topics: Topics, settings: PullSettings, *, must_exist: bool = True
) -> dict[QueueKey, BrokerBounds]:
    """Bounds of all wanted queues.

    must_exist: raises IllegalArgument for a named topic that is not there.
    """
    named = list(topics.named())
    names = named or [t for t in client.topics() if topics.has(t) and _is_users(t, topics)]
    found: dict[QueueKey, BrokerBounds] = {}
    for topic in names:
        queues = client.queues(topic, Perm.READ)
        if not queues and named and must_exist:
            raise IllegalArgument(
                f"subscribe: there is no topic {topic!r} that can be read on {client.access.name_server}"
            )
        for queue in queues:
            key = QueueKey(topic, queue.broker_name, queue.queue_id)
            if topics.has_queue(key):
                found[key] = BrokerBounds(client, queue, settings)
    return found


# Brokers also register a topic for each broker and cluster, and groups' inner ones.
def _is_users(topic: str, topics: Topics) -> bool:
    return topics.system or not (
        is_system_topic(topic) or re.fullmatch(r".*_REPLY_TOPIC|DefaultCluster", topic)
    )


def group_positions(
    client: BrokerClient, bounds: Mapping[QueueKey, BrokerBounds], group: str
) -> Offsets:
    """Where a group stands; queues without an offset begin at their earliest."""
    offsets: Offsets = {}
    for key, one in bounds.items():
        offset = client.group_offset(one.queue, group)
        if offset is not None:
            store_at(offsets, key, offset)
    return offsets


def cut_ranges(
    bounds: Mapping[QueueKey, BrokerBounds], starts: Offsets, ends: Offsets, sizes: Sizes
) -> list[InputPartition]:
    """Ranges of queues, grouped to tasks of about partition_bytes, at least partitions_min of them."""
    ranges: dict[str, list[tuple[Range, int]]] = {}
    total = 0
    for key, end in each(ends):
        start = lookup(starts, key)
        if start is None or start >= end:
            continue
        mean = bounds[key].mean_size()
        total += mean * (end - start)
        queue = bounds[key].queue
        ranges.setdefault(queue.address, []).append((Range(queue, start, end), mean))
    step = max(1, min(sizes.partition_bytes, -(-total // max(1, sizes.partitions_min))))
    partitions: list[InputPartition] = []
    for of_broker in ranges.values():
        taken: list[Range] = []
        room = step
        for whole, mean in of_broker:
            start = whole.start
            while start < whole.end:
                count = max(1, min(whole.end - start, room // mean))
                taken.append(Range(whole.queue, start, start + count))
                start += count
                room -= count * mean
                if room < mean:
                    partitions.append(InputPartition(BrokerPartition(tuple(taken))))
                    taken, room = [], step
        if taken:
            partitions.append(InputPartition(BrokerPartition(tuple(taken))))
    return partitions


def read_broker(
    partition: BrokerPartition, options: Options, projection: Projection, filters: Filters | None
) -> Iterator[pa.RecordBatch]:
    """The rows of one task."""
    loss = LossRule(options.fail_on_data_loss)
    read = Read(
        projection.decoded,
        filters if filters is not None else Filters(),
        options.decompress,
        options.verify_crc,
        options.read_batch_bytes(),
    )
    with BrokerClient(Access.of(options)) as client:
        for batch in read_ranges(client, partition.ranges, settings_of(options), read, loss):
            yield projection.arrange(batch)
    warn(loss)


class BrokerReader(DataSourceReader):
    """One batch read of live brokers."""

    def __init__(self, options: Options, projection: Projection) -> None:
        self.options = options
        self.projection = projection
        self.pushed = Pushed()
        self.access = Access.of(options)
        self.topics = topics_of(options)
        self.starting = starting_of(options, "earliest")
        self.ending = ending_of(options)
        self.sizes = sizes_of(options)
        self.settings = settings_of(options)
        check_batch(self.starting, self.ending)

    @property
    def pushFilters(self) -> Any:
        """Spark's name; see pushdown.Pushable for why it is no method."""
        return Pushable(self._accept)

    def _accept(self, filters: list[Any]) -> list[Any]:
        self.pushed, rest = accept(filters, kafka=self.projection.kafka, by_index=True)
        return rest

    def filters(self) -> Filters | None:
        return with_pushed(filters_of(self.options), self.pushed)

    def partitions(self) -> Sequence[InputPartition]:
        if self.filters() is None:
            return []
        loss = LossRule(self.options.fail_on_data_loss)
        with BrokerClient(self.access) as client:
            bounds = look_up(client, self.topics, self.settings)
            starting: Positions = self.starting
            if starting.word == GROUP:
                found = group_positions(client, bounds, self.options.group)
                starting = replace(starting, word="earliest", offsets=found)
            brokers = {key.broker_name for key in bounds}
            starting, ending = starting.of_brokers(brokers), self.ending.of_brokers(brokers)
            say_defaults(self.topics, bounds, starting)
            check_known(bounds, starting, "startingOffsets", loss)
            check_known(bounds, ending, "endingOffsets", loss)
            starts: Offsets = {}
            ends: Offsets = {}
            for key, one in bounds.items():
                if self.pushed.has(*key):
                    start = starting_offset(one, starting, loss)
                    end = ending_offset(one, ending, loss)
                    start, end = self.pushed.narrow(one, start, end, CLOCK_SLACK_MS)
                    store_at(starts, key, start)
                    store_at(ends, key, end)
            found_partitions = cut_ranges(bounds, starts, ends, self.sizes)
        warn(loss)
        _log.info(
            "planned queues=%d partitions=%d columns=%s pushed=%s",
            len(bounds),
            len(found_partitions),
            ",".join(self.projection.decoded),
            self.pushed,
        )
        return found_partitions

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None or partition.value is None:
            return iter(())
        return read_broker(partition.value, self.options, self.projection, self.filters())


def check_known(
    bounds: Mapping[QueueKey, Any], wanted: Positions, option: str, loss: LossRule
) -> None:
    """Offsets that name a queue which is not there are a loss."""
    for key, offset in each(wanted.offsets or {}):
        if key not in bounds and offset >= 0:
            loss.lost(
                f"{option} names topic {key.topic}, broker {key.broker_name}, queue {key.queue_id}, "
                "which is not there or not selected"
            )
