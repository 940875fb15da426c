"""Batch reads of live brokers: bounds queried once in the driver, pulls in the tasks."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pocketmq.bulk.offsets import (
    LossRule,
    Offsets,
    Positions,
    QueueKey,
    check_assigned,
    check_known,
    each,
    ending_offset,
    lookup,
    starting_offset,
    store_at,
)
from pocketmq.bulk.partition import Filters, Sizes, Topics
from pocketmq.model.names import TOOLS_GROUP
from pocketmq.model.record import RECORD_SIZE_MIN
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import IllegalArgument, RequestRefused
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.header import Header
from pocketmq.remoting.headers import (
    GetMaxOffsetHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetHeader,
    GetMinOffsetResponseHeader,
    PullMessageResponseHeader,
)
from pocketmq.spark.brokers.client import BrokerClient, BrokerQueue, is_users
from pocketmq.spark.brokers.connection import BrokerAccess
from pocketmq.spark.brokers.pull import OffsetRange, PullSettings, pull_header, read_ranges
from pocketmq.spark.brokers.times import first_at_time
from pocketmq.spark.columns import Projection, say_decoded
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
from pocketmq.spark.settled import sentence_first, settle

_log = logging.getLogger("pocketmq.spark")


# A read has two times for all queues, and a query's conditions have two.
_TIMES_TOGETHER = 4
# Messages that a plan looks at for their sizes, over all queues.
_SAMPLED = 4096
# Some 500 bytes each in the driver, and as much work of Spark's for a task.
_PARTITIONS_MAX = 100_000


class _Asked:
    """Brokers' answers about some queues, queried for all of them at once, when the first is needed."""

    def __init__(
        self, client: BrokerClient, queues: Sequence[BrokerQueue], settings: PullSettings
    ) -> None:
        self.client = client
        self.settings = settings
        self._queues = queues
        self._minima: dict[BrokerQueue, int] = {}
        self._means: dict[BrokerQueue, int] = {}
        self._times: dict[int, dict[BrokerQueue, int | None]] = {}
        self.maxima = dict(
            zip(
                queues,
                self._each(
                    RequestCode.GET_MAX_OFFSET,
                    lambda q: GetMaxOffsetHeader(topic=q.topic, queue_id=q.queue_id),
                    lambda a: GetMaxOffsetResponseHeader.parse(a.ext).offset,
                ),
                strict=True,
            )
        )

    def minimum(self, queue: BrokerQueue) -> int:
        if not self._minima:
            minima = self._each(
                RequestCode.GET_MIN_OFFSET,
                lambda q: GetMinOffsetHeader(topic=q.topic, queue_id=q.queue_id),
                lambda a: GetMinOffsetResponseHeader.parse(a.ext).offset,
            )
            self._minima = dict(zip(self._queues, minima, strict=True))
        return self._minima[queue]

    def at_time(self, queue: BrokerQueue, ms: int) -> int | None:
        """Return the first offset stored at `ms` or later, None if all are older. All queues are searched
        together, unless each comes with a time of its own.
        """
        if ms in self._times:
            return self._times[ms][queue]
        together = len(self._times) < _TIMES_TOGETHER
        spans = {
            q: (min(self.minimum(q), self.maxima[q]), self.maxima[q])
            for q in (self._queues if together else [queue])
        }
        found = first_at_time(self.client, spans, ms, self.settings)
        if together:
            self._times[ms] = found
        return found[queue]

    def mean(self, queue: BrokerQueue) -> int:
        """Return a message's mean size, bytes, by one pull from each queue's middle; 1 KiB if nothing
        comes.
        """
        if not self._means:
            used = [q for q in self._queues if self.maxima[q] > self.minimum(q)]
            count = max(1, min(self.settings.messages, _SAMPLED // max(1, len(used))))
            wanted = PullSettings(self.settings.group, "*", "TAG", count)
            middles = [(self.minimum(q) + self.maxima[q]) // 2 for q in used]
            answers = self.client.many(
                [
                    (q.address, RequestCode.PULL_MESSAGE, pull_header(q, middle, wanted))
                    for q, middle in zip(used, middles, strict=True)
                ]
            )
            self._means = dict.fromkeys(self._queues, 1024)
            for q, middle, answer in zip(used, middles, answers, strict=True):
                if answer.code == ResponseCode.SUCCESS:
                    # Of large messages a broker gives fewer than it is asked for.
                    following = PullMessageResponseHeader.parse(answer.ext).next_begin_offset
                    given = max(1, following - middle)
                    self._means[q] = max(RECORD_SIZE_MIN, len(answer.body) // given)
        return self._means[queue]

    def _each(
        self,
        code: RequestCode,
        header: Callable[[BrokerQueue], Header],
        read: Callable[[RemotingCommand], int],
    ) -> list[int]:
        answers = self.client.many([(q.address, code, header(q)) for q in self._queues])
        for queue, answer in zip(self._queues, answers, strict=True):
            if answer.code != ResponseCode.SUCCESS:
                raise RequestRefused(answer.code, answer.remark, queue.address, code.in_words())
        return [read(answer) for answer in answers]


class BrokerBounds:
    """A queue's bounds as the broker reported them."""

    def __init__(self, asked: _Asked, queue: BrokerQueue) -> None:
        self.queue = queue
        self.key = QueueKey(queue.topic, queue.broker_name, queue.queue_id)
        self.max_offset = asked.maxima[queue]
        self._asked = asked

    @property
    def min_offset(self) -> int:
        return min(self._asked.minimum(self.queue), self.max_offset)

    def at_time(self, ms: int) -> int | None:
        return self._asked.at_time(self.queue, ms)

    def mean_size(self) -> int:
        return self._asked.mean(self.queue)


@dataclass(frozen=True)
class BrokerPartition:
    """Work for one task: ranges of one broker."""

    ranges: tuple[OffsetRange, ...]


def settings_of(options: Options) -> PullSettings:
    """Return how to pull. Raises: IllegalArgument."""
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
    """Return the bounds of all wanted queues.

    must_exist: raises IllegalArgument for a named topic that does not exist.
    """
    named = list(topics.named())
    names = named or [
        t for t in client.topics() if topics.has(t) and (topics.system or is_users(t))
    ]
    found: list[BrokerQueue] = []
    for topic, queues in client.queues_of(names, Perm.READ).items():
        if not queues and named and must_exist:
            raise IllegalArgument(
                f"option {topics.option}: topic {topic!r}{client.near(topic)} does not exist or cannot be "
                f"read on {client.access.name_server}; pocketmq topic list names the topics"
            )
        for queue in queues:
            key = QueueKey(topic, queue.broker_name, queue.queue_id)
            if topics.has_queue(key):
                found.append(queue)
    if topics.assign is not None and must_exist:
        check_assigned(topics.assign, {QueueKey(q.topic, q.broker_name, q.queue_id) for q in found})
    asked = _Asked(client, found, settings)
    return {one.key: one for one in (BrokerBounds(asked, queue) for queue in found)}


def group_positions(
    client: BrokerClient, bounds: Mapping[QueueKey, BrokerBounds], group: str
) -> Offsets:
    """Return a group's offsets; queues without one begin at their earliest."""
    offsets: Offsets = {}
    found = client.group_offsets([one.queue for one in bounds.values()], group)
    for key, offset in zip(bounds, found, strict=True):
        if offset is not None:
            store_at(offsets, key, offset)
    return offsets


def cut_ranges(
    bounds: Mapping[QueueKey, BrokerBounds],
    starts: Offsets,
    ends: Offsets,
    sizes: Sizes,
    cores: int,
) -> list[InputPartition]:
    """Group ranges of queues into tasks of about partition_bytes, at least partitions_min of them.

    cores: that many tasks, if as many queues have data. Raises: IllegalArgument for more than a driver holds.
    """
    ranges: dict[str, list[tuple[OffsetRange, int]]] = {}
    total = 0
    for key, end in each(ends):
        start = lookup(starts, key)
        if start is None or start >= end:
            continue
        mean = bounds[key].mean_size()
        total += mean * (end - start)
        queue = bounds[key].queue
        ranges.setdefault(queue.address, []).append((OffsetRange(queue, start, end), mean))
    least = max(1, sizes.partitions_min, min(cores, sum(map(len, ranges.values()))))
    step = max(1, min(sizes.partition_bytes, -(-total // least)))
    if total // step > max(_PARTITIONS_MAX, least):
        raise _too_many(ranges, total // step)
    partitions: list[InputPartition] = []
    for of_broker in ranges.values():
        taken: list[OffsetRange] = []
        room = step
        for whole, mean in of_broker:
            start = whole.start
            while start < whole.end:
                # Rounded to the nearest message, the rest carried over: else few messages make one more task.
                count = max(1, min(whole.end - start, (room + mean // 2) // mean))
                taken.append(OffsetRange(whole.queue, start, start + count))
                start += count
                room -= count * mean
                if 2 * room < mean:
                    partitions.append(InputPartition(BrokerPartition(tuple(taken))))
                    taken, room = [], room + step
        if taken:
            partitions.append(InputPartition(BrokerPartition(tuple(taken))))
    return partitions


def _too_many(
    ranges: Mapping[str, list[tuple[OffsetRange, int]]], partitions: int
) -> IllegalArgument:
    each_range = [one for of_broker in ranges.values() for one in of_broker]
    longest, mean = max(each_range, key=lambda one: (one[0].end - one[0].start) * one[1])
    queue = longest.queue
    return IllegalArgument(
        f"the read would be {partitions} partitions, more than {_PARTITIONS_MAX}: raise option "
        f"maxPartitionBytes, or read less. Most is said to be in topic {queue.topic}, broker "
        f"{queue.broker_name}, queue {queue.queue_id}: {longest.start} to {longest.end}, of {mean} bytes a "
        "message. If that cannot be, the broker tells wrong offsets"
    )


def read_broker(
    partition: BrokerPartition, options: Options, projection: Projection, filters: Filters | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task."""
    settle()
    loss = LossRule(options.fail_on_data_loss)
    read = projection.read(options, filters)
    with BrokerClient(BrokerAccess.of(options)) as client:
        for batch in read_ranges(client, partition.ranges, settings_of(options), read, loss):
            yield from projection.pieces(batch)
    warn(loss)


@sentence_first
class BrokerReader(DataSourceReader):
    """One batch read of live brokers."""

    def __init__(
        self, options: Options, projection: Projection, cores: int, *, pushes: bool = False
    ) -> None:
        """cores: tasks that can run at once. pushes: whether filters of the query are accepted."""
        self.options = options
        self.pushes = pushes
        self.projection = projection
        self.cores = cores
        self.pushed = Pushed.of_text(options.conditions)
        self.access = BrokerAccess.of(options, planning=True)
        self.topics = topics_of(options)
        self.starting = starting_of(options, "earliest")
        self.ending = ending_of(options)
        self.sizes = sizes_of(options)
        self.settings = settings_of(options)
        check_batch(self.starting, self.ending)

    @property
    def pushFilters(self) -> Any:
        """Spark's name; see pushdown.Pushable for why this is not a method."""
        return Pushable(self._accept)

    def _accept(self, filters: list[Any]) -> list[Any]:
        if not self.pushes:
            return filters
        self.pushed, rest = accept(filters, self.pushed, kafka=self.projection.kafka, by_index=True)
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
            check_known(bounds, starting, "starting", loss)
            check_known(bounds, ending, "ending", loss)
            starts: Offsets = {}
            ends: Offsets = {}
            for key, one in bounds.items():
                if self.pushed.has(*key):
                    start = starting_offset(one, starting, loss)
                    end = ending_offset(one, ending, loss)
                    start, end = self.pushed.narrow(one, start, end, CLOCK_SLACK_MS)
                    store_at(starts, key, start)
                    store_at(ends, key, end)
            found_partitions = cut_ranges(bounds, starts, ends, self.sizes, self.cores)
        warn(loss)
        _log.info(
            "planned queues=%d partitions=%d columns=%s pushed=%s",
            len(bounds),
            len(found_partitions),
            ",".join(self.projection.decoded),
            self.pushed,
        )
        say_decoded(self.projection, self.options.columns)
        return found_partitions

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None or partition.value is None:
            return iter(())
        return read_broker(partition.value, self.options, self.projection, self.filters())
