"""readStream over live brokers; routes are queried for each batch, so new queues and brokers join.

A broker may come back with another store, whose offsets fit by chance. So the checkpoint keeps a message of
each topic that was read (see stream.py). It is looked at again when the topic has grown, and over each new
connection: as long as one stands, the store cannot have been exchanged. An idle micro-batch costs no request
more.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import InputPartition

from pocketmq.bulk.offsets import Bounds, LossRule, Offsets, QueueKey, each
from pocketmq.model.record import read_records
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import ConnectionLost, IllegalArgument, PocketMQError
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.transport.blocking import BlockingConnection
from pocketmq.spark.brokers.client import BrokerClient
from pocketmq.spark.brokers.connection import BrokerAccess
from pocketmq.spark.brokers.pull import PullSettings, pull_header
from pocketmq.spark.brokers.reader import (
    BrokerBounds,
    cut_ranges,
    group_positions,
    look_up,
    read_broker,
    settings_of,
)
from pocketmq.spark.columns import Projection
from pocketmq.spark.file_reader import warn
from pocketmq.spark.options import Options
from pocketmq.spark.positions import GROUP, filters_of, sizes_of, starting_of
from pocketmq.spark.retry import RetryPause
from pocketmq.spark.settled import sentence_first
from pocketmq.spark.stream import Batches, OffsetStream, with_latest_offset

_log = logging.getLogger("pocketmq.spark")


@sentence_first
class BrokerStream(OffsetStream):
    """A stream over the queues that the name server knows."""

    def __init__(self, options: Options, projection: Projection, cores: int) -> None:
        super().__init__(options, starting_of(options, "latest"))
        self.projection = projection
        self.cores = cores
        self.sizes = sizes_of(options)
        self.settings = settings_of(options)
        self.row_filters = filters_of(options)
        if options.commit_offsets != "none" and not options.group:
            raise IllegalArgument("commitOffsets needs option group, the group to show progress in")
        self._client = BrokerClient(BrokerAccess.of(options, planning=True))
        self._bounds: dict[QueueKey, BrokerBounds] = {}
        # By the broker's name: the connection of the last look.
        self._connected: dict[str, BlockingConnection | None] = {}

    def __reduce__(self) -> Any:
        return (make_broker_stream, (self.options, self.projection, self.cores))

    def look(self, loss: LossRule, *, must_exist: bool) -> Mapping[QueueKey, Bounds]:
        self._bounds = look_up(self._client, self.topics, self.settings, must_exist=must_exist)
        addresses = {key.broker_name: one.queue.address for key, one in self._bounds.items()}
        self._connected = {name: self._client.connected(a) for name, a in addresses.items()}
        return self._bounds

    def held_for(self, broker_name: str) -> object:
        return self._connected.get(broker_name)

    def marks(self, places: Sequence[tuple[QueueKey, int]]) -> list[list[Any] | None]:
        # Deleted and truncated queues are reported as such; another connection may lead to another broker
        # than the one that was inspected.
        there = [
            (place, one)
            for place in places
            if (one := self._bounds.get(place[0])) is not None
            and place[1] < one.max_offset
            and self._connected.get(place[0].broker_name) is not None
        ]
        single = PullSettings(self.settings.group, "*", "TAG", 1)
        answers = self._client.many(
            [
                (
                    one.queue.address,
                    RequestCode.PULL_MESSAGE,
                    pull_header(one.queue, offset, single),
                )
                for (_, offset), one in there
            ]
        )
        found: dict[tuple[QueueKey, int], list[Any]] = {}
        for ((key, offset), one), answer in zip(there, answers, strict=True):
            now = self._client.connected(one.queue.address)
            if answer.code != ResponseCode.SUCCESS or now is not self._connected[key.broker_name]:
                continue
            record = next(read_records(answer.body, check_crc=False), None)
            # A record that holds several messages is that of its first one's offset.
            if record is not None and record.queue_offset <= offset:
                # Not the position in the log: tiered and compacted messages are given with another one.
                found[key, offset] = [key.queue_id, offset, record.store_ms, record.body_crc]
        return [found.get(place) for place in places]

    def store_times(self, places: Sequence[tuple[QueueKey, int]]) -> list[int | None]:
        return [None if mark is None else mark[2] for mark in self.marks(places)]

    def may_return(self, gone: Collection[QueueKey], patience: RetryPause) -> bool:
        """Return True if queues may come back: the name server does not know those of a stopped broker."""
        away = {k.broker_name for k in gone} - self._client.brokers()
        if not away:
            return False
        name = min(away)
        patience.pause(ConnectionLost(f"broker {name} is no longer registered at the name server"))
        return True

    def initial(self, bounds: Mapping[QueueKey, Bounds], loss: LossRule) -> Offsets:
        starting = self.starting
        if starting.word == GROUP:
            found = group_positions(self._client, self._bounds, self.options.group)
            starting = replace(starting, word="earliest", offsets=found)
        return self.resolve_initial(bounds, starting, loss)

    def cut(
        self, starts: Offsets, ends: Offsets, bounds: Mapping[QueueKey, Bounds]
    ) -> Sequence[InputPartition]:
        return cut_ranges(self._bounds, starts, ends, self.sizes, self.cores)

    def mean_size(self, bounds: Bounds) -> int:
        assert isinstance(bounds, BrokerBounds)
        return bounds.mean_size()

    def warn(self, loss: LossRule) -> None:
        warn(loss)

    def show_progress(self, offsets: Offsets) -> None:
        if self.options.commit_offsets == "source":
            try:
                commit_group(self._client, self.options.group, offsets)
            except PocketMQError as error:
                # For dashboards only: the checkpoint is the truth, so the query continues.
                _log.warning(
                    "commit_offsets_failed group=%s error=%s; tried again after the next batch",
                    self.options.group,
                    error,
                )

    def read(self, partition: InputPartition | None) -> Batches:
        if partition is None or partition.value is None:
            return iter(())
        return read_broker(partition.value, self.options, self.projection, self.row_filters)

    def stop(self) -> None:
        self._client.close()


def commit_group(client: BrokerClient, group: str, offsets: Offsets) -> None:
    """Set a group's offsets in all queues that still exist."""
    queues = {
        QueueKey(q.topic, q.broker_name, q.queue_id): q
        for topic in offsets
        for q in client.queues(topic, Perm.READ)
    }
    for key, offset in each(offsets):
        if key in queues:
            client.commit_offset(queues[key], group, offset)


_BrokerStream = with_latest_offset(BrokerStream)


def make_broker_stream(options: Options, projection: Projection, cores: int) -> OffsetStream:
    """Return the reader for the running PySpark."""
    return _BrokerStream(options, projection, cores)  # type: ignore[arg-type, call-arg]
