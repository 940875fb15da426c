"""BrokerSource: the rows of live brokers behind a table's position, pulled over the network.

1. Within a queue, rows come in order, so any prefix of them may be committed. Pieces of all queues take
   turns, so that a table's files are of few days each.
2. A broker says offsets only: whether a topic was deleted and created again shows in the last message that
   the table holds, which is pulled once more: it must be at the same place in the log.
3. No flush can be asked for: a message that a broker without synchronous flush loses with its machine's power
   may be in a table.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from pocketmq.bulk.offsets import LossRule
from pocketmq.bulk.partition import Topics
from pocketmq.bulk.rows import Read
from pocketmq.lake.columns import NAMES
from pocketmq.lake.position import Head, Mark, Position
from pocketmq.lake.source import LogWindow, Rows, by_topic
from pocketmq.model.names import TOOLS_GROUP
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import IllegalArgument, RequestRefused
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.headers import (
    GetMaxOffsetHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetHeader,
    GetMinOffsetResponseHeader,
)
from pocketmq.spark.brokers.client import BrokerClient, BrokerQueue, is_users
from pocketmq.spark.brokers.connection import BrokerAccess
from pocketmq.spark.brokers.pull import OffsetRange, PullSettings, read_ranges

_PIECE = 8192
_QUEUES_TOGETHER = 8
_SETTINGS = PullSettings(TOOLS_GROUP, "*", "TAG", 32)
Part = tuple[OffsetRange, ...]


@dataclass
class BrokerSource:
    """The brokers that name servers know."""

    access: BrokerAccess
    topics: Topics
    loss: LossRule

    def __post_init__(self) -> None:
        self.client = BrokerClient(self.access)

    def plan(self) -> "BrokerPlan":
        """Ask for the queues and their ends. Raises: IllegalArgument, RequestRefused, RemotingError."""
        named = list(self.topics.named())
        names = named or [
            topic
            for topic in self.client.topics()
            if self.topics.has(topic) and (self.topics.system or is_users(topic))
        ]
        queues: list[BrokerQueue] = []
        for topic, found in self.client.queues_of(names, Perm.READ).items():
            if named and not found:
                raise IllegalArgument(
                    f"topic {topic!r} does not exist or cannot be read: pocketmq topic list names the topics"
                )
            queues += found
        return BrokerPlan(self, queues)

    def head(self, broker: str, place: int) -> Head | None:
        return None

    def make_durable(self) -> None:
        """Do nothing (invariant 3)."""

    def close(self) -> None:
        self.client.close()


class BrokerPlan:
    """What brokers hold at one time: the queues and their bounds."""

    def __init__(self, source: BrokerSource, queues: list[BrokerQueue]) -> None:
        self._source = source
        self._bounds = dict(zip(queues, _bounds_of(source.client, queues), strict=True))

    @property
    def topics(self) -> list[str]:
        return sorted({queue.topic for queue in self._bounds})

    @property
    def reaches_end(self) -> bool:
        return True

    def work(self, positions: Mapping[str, Position]) -> list[Part]:
        """Return what is to be pulled behind the positions of the topics' tables."""
        marks = {
            queue: mark
            for queue in self._bounds
            if queue.topic in positions
            for mark in (
                positions[queue.topic].of(queue.topic, queue.broker_name).get(queue.queue_id),
            )
            if mark is not None
        }
        same = self._are_the_same(marks)
        rounds: list[list[OffsetRange]] = []
        for queue, (low, high) in self._bounds.items():
            start = self._start(queue, marks.get(queue), is_same=same.get(queue, True))
            steps = range(max(start, low), high, _PIECE)
            rounds.append([OffsetRange(queue, at, min(at + _PIECE, high)) for at in steps])
        # A part holds a queue once: its pulls are under way together.
        return [part for turn in zip_longest(*rounds) for part in _parts(turn)]

    def rows(self, part: Part) -> Iterator[Rows]:
        """Yield the rows of a part by topic; each queue's in order."""
        source = self._source
        broker = part[0].queue.broker_name
        for batch in read_ranges(source.client, part, _SETTINGS, Read(NAMES), source.loss):
            for topic, rows in by_topic(batch):
                yield Rows(topic, broker, rows)

    def windows(self, parts: list[Part]) -> list[LogWindow]:
        return [
            LogWindow(
                one.queue.broker_name, ((one,),), "queueOffset", one.start, one.end,
                (one.queue.topic,), one.queue.queue_id,
            )
            for part in parts
            for one in part
        ]  # fmt: skip

    def _start(self, queue: BrokerQueue, mark: Mark | None, *, is_same: bool) -> int:
        """Return the first offset to pull: what the table holds already is dropped by its place."""
        low, high = self._bounds[queue]
        if mark is None or not is_same or high < mark.offset:
            return low
        if mark.offset < low:
            self._source.loss.lost(
                f"topic {queue.topic}, broker {queue.broker_name}, queue {queue.queue_id}: offset "
                f"{mark.offset} is wanted, but the queue begins at {low}: {low - mark.offset} messages have "
                "been deleted"
            )
            return low
        return mark.offset

    def _are_the_same(self, marks: Mapping[BrokerQueue, Mark]) -> dict[BrokerQueue, bool]:
        """Return which queues have the message of their mark at the same place, where they have it and more
        (invariant 2).
        """
        asked: dict[str, list[OffsetRange]] = {}
        for queue, mark in marks.items():
            low, high = self._bounds[queue]
            if low < mark.offset < high:
                asked.setdefault(queue.address, []).append(
                    OffsetRange(queue, mark.offset - 1, mark.offset)
                )
        places: dict[tuple[str, str, int], int] = {}
        read = Read(("topic", "brokerName", "queueId", "commitLogOffset"))
        for ranges in asked.values():
            for batch in read_ranges(self._source.client, ranges, _SETTINGS, read, LossRule(False)):
                for row in batch.to_pylist():
                    places[row["topic"], row["brokerName"], row["queueId"]] = row["commitLogOffset"]
        return {
            queue: found == mark.place
            for queue, mark in marks.items()
            for found in (places.get((queue.topic, queue.broker_name, queue.queue_id)),)
            if found is not None
        }


def _parts(turn: Iterable[OffsetRange | None]) -> Iterator[Part]:
    """Yield pieces of different queues, of one broker each."""
    of_broker: dict[str, list[OffsetRange]] = {}
    for one in turn:
        if one is not None:
            of_broker.setdefault(one.queue.address, []).append(one)
    for pieces in of_broker.values():
        for at in range(0, len(pieces), _QUEUES_TOGETHER):
            yield tuple(pieces[at : at + _QUEUES_TOGETHER])


def _bounds_of(client: BrokerClient, queues: list[BrokerQueue]) -> Iterator[tuple[int, int]]:
    """Yield first offset and end of each queue, asked together."""
    requests = [
        (q.address, code, header(topic=q.topic, queue_id=q.queue_id))
        for code, header in (
            (RequestCode.GET_MIN_OFFSET, GetMinOffsetHeader),
            (RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader),
        )
        for q in queues
    ]
    answers = client.many(requests)
    for (address, code, _), answer in zip(requests, answers, strict=True):
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark, address, code.in_words())
    count = len(queues)
    for low, high in zip(answers[:count], answers[count:], strict=True):
        end = GetMaxOffsetResponseHeader.parse(high.ext).offset
        yield min(GetMinOffsetResponseHeader.parse(low.ext).offset, end), end
