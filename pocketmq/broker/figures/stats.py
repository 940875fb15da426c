"""BrokerStats: messages put and got, by topic, queue and group. Source: BrokerStatsManager, StatsItem,
StoreStatsService, BrokerStats, RocketMQ 4.9.7; wire.md 2.9.

1. The hot paths only add to plain counters: one `PutCounter` per queue, one `GetCounter` per queue and
   group. RocketMQ's items (TOPIC_PUT_NUMS ...) are sums over them, computed when queried or sampled.
2. An item is sampled every 10 s (7 points kept), every 10 min (7) and every hour (25). A window's sum is its
   last point less its first; the very first point is an artificial zero one period before the second (of
   the minute not before the broker's start: rates would be too low).
   A tick looks at PIECE figures at most: those of many thousand queues are sampled over several ticks.
   Of points with the same values the first and the last are kept, and of a window in which all are the same
   these values: most queues are idle.
3. Whole-broker rates are sampled every second and kept for 10 minutes; all of them are three numbers,
   for 10, 60 and 600 s, from the first second on (tools read them as numbers).
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from operator import add
from typing import ClassVar, NamedTuple

from pocketmq.broker.figures.latencies import Latencies
from pocketmq.remoting.clock import Clock

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"
QUEUE_GET_NUMS = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE = "QUEUE_GET_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
GROUP_GET_LATENCY = "GROUP_GET_LATENCY"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"

# Messages and their bytes are counted by the same calls, and kept in one item: there may be a million. A
# counter keeps its own.
_TOPIC_PUT = "TOPIC_PUT"
_QUEUE_PUT = "QUEUE_PUT"
_GROUP_GET = "GROUP_GET"
_QUEUE_GET = "QUEUE_GET"
# By RocketMQ's name of an item: which of ours has it, and which of that one's values it is.
_PLACES = {
    TOPIC_PUT_NUMS: (_TOPIC_PUT, 0),
    TOPIC_PUT_SIZE: (_TOPIC_PUT, 1),
    QUEUE_PUT_NUMS: (_QUEUE_PUT, 0),
    QUEUE_PUT_SIZE: (_QUEUE_PUT, 1),
    GROUP_GET_NUMS: (_GROUP_GET, 0),
    GROUP_GET_SIZE: (_GROUP_GET, 1),
    QUEUE_GET_NUMS: (_QUEUE_GET, 0),
    QUEUE_GET_SIZE: (_QUEUE_GET, 1),
}
_SECOND = 1_000
# A record's size has 31 bits.
_POWERS = 32
_RATE_POINTS = 601
_PERIODS = (10, 60, 600)
PIECE = 8_192
# Cost of making an item, in figures.
_NEW_ITEM = 8


class Window(NamedTuple):
    """An item over a period: sum of its values, per second, per call."""

    sum: int
    tps: float
    avgpt: float

    def to_json(self) -> dict[str, float]:
        """Return it as VIEW_BROKER_STATS_DATA does."""
        return {"avgpt": self.avgpt, "sum": self.sum, "tps": self.tps}


# A window without a sample, and one in which nothing changed.
_NONE: "array[int]" = array("q")
STILL: "array[int]" = array("q", (0,))


class _Item:
    """The samples of one item (invariant 2): minute, hour, day.

    A sample is the time, one or two values and how often these were added to, all in one row with the other
    samples: most items are idle, and there may be a million.
    """

    __slots__ = ("day", "hour", "minute", "still")
    PERIODS_MS: ClassVar[tuple[int, ...]] = (10_000, 600_000, 3_600_000)
    POINTS: ClassVar[tuple[int, ...]] = (7, 7, 25)
    FIELDS: ClassVar[int] = 4

    def __init__(self) -> None:
        self.minute: array[int] = _NONE
        self.hour: array[int] = _NONE
        self.day: array[int] = _NONE
        # The values of the windows that are STILL.
        self.still: tuple[int, ...] = ()

    @property
    def windows(self) -> "tuple[array[int], array[int], array[int]]":
        return self.minute, self.hour, self.day

    def sample(self, window: int, now_ms: int, counted: tuple[int, ...], boot_ms: int = 0) -> None:
        """counted: the values, then the times; boot_ms: when counting began."""
        points, fields, period = self.windows[window], len(counted) + 1, self.PERIODS_MS[window]
        if points is STILL:
            if counted == self.still:
                return
            began_ms = now_ms - period * (self.POINTS[window] - 1)
            points = array("q", (began_ms, *self.still, now_ms - period, *self.still))
            self._set(window, points)
        elif not points:
            since_boot_ms = min(max(now_ms - period, boot_ms), now_ms - _SECOND)
            began_ms = now_ms - period if window else since_boot_ms
            points = array("q", (began_ms, *[0] * len(counted)))
            self._set(window, points)
        elif (
            len(points) >= 2 * fields
            and points[-1] == counted[-1]
            and points[1 - fields] == counted[0]
            and points[1 - fields :] == points[1 - 2 * fields : -fields]
        ):
            # Nothing has changed since the last two.
            points[-fields] = now_ms
            self._forget(points, fields, window)
            began_ms = now_ms - period * (self.POINTS[window] - 1)
            if len(points) == 2 * fields and points[0] == began_ms:
                self._rest(window, counted)
            return
        points.append(now_ms)
        points.extend(counted)
        self._forget(points, fields, window)

    def _set(self, window: int, points: "array[int]") -> None:
        if window == 0:
            self.minute = points
        elif window == 1:
            self.hour = points
        else:
            self.day = points

    def _rest(self, window: int, counted: tuple[int, ...]) -> None:
        """Keep only the values of a window that is still, unless another one came to rest with others."""
        if counted == self.still or not any(points is STILL for points in self.windows):
            self.still = counted
            self._set(window, STILL)

    def _forget(self, points: "array[int]", fields: int, window: int) -> None:
        """Let a window begin with the value that it had as long ago as it reaches."""
        period, kept, now_ms = self.PERIODS_MS[window], self.POINTS[window], points[-fields]
        began_ms = now_ms - period * (kept - 1)
        # Half a period: a tick may be late.
        while len(points) > 2 * fields and points[fields] <= began_ms + period // 2:
            del points[:fields]
        if points[0] < began_ms and points[1:fields] == points[fields + 1 : 2 * fields]:
            points[0] = began_ms
        if len(points) > fields * kept:
            # The clock was set back.
            del points[:fields]

    def view(self, window: int, place: int) -> Window:
        """Return one value over one window."""
        points, fields = self.windows[window], self.FIELDS
        if len(points) < fields:
            return Window(0, 0.0, 0.0)
        first, last = points[:fields], points[-fields:]
        total, times, ms = (
            last[1 + place] - first[1 + place],
            last[-1] - first[-1],
            last[0] - first[0],
        )
        return Window(total, total * 1000 / ms if ms else 0.0, total / times if times else 0.0)


class _OneValue(_Item):
    """An item of one value."""

    __slots__ = ()
    FIELDS: ClassVar[int] = 3


class PutCounter(_Item):
    """Messages put into one queue: count, bytes, and how many followed the first of a batch (so that a
    single message costs three additions). sizes: of its topic's messages, by the powers of two that they
    do not exceed.
    """

    __slots__ = ("batched", "nums", "size", "sizes")

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.nums = self.size = self.batched = 0
        self.sizes = sizes

    @property
    def calls(self) -> int:
        """Return the number of requests."""
        return self.nums - self.batched

    @property
    def counted(self) -> tuple[int, ...]:
        """Return what is sampled."""
        return self.nums, self.size, self.nums - self.batched


class GetCounter(_Item):
    """Messages that one group got from one queue: count, bytes, pulls, and ms spent in those pulls."""

    __slots__ = ("calls", "latency", "latency_ms", "nums", "size")

    def __init__(self) -> None:
        super().__init__()
        self.nums = self.size = self.calls = self.latency_ms = 0
        self.latency = _OneValue()

    @property
    def counted(self) -> tuple[int, ...]:
        """Return what is sampled of its messages."""
        return self.nums, self.size, self.calls


class Totals(NamedTuple):
    """What the store has counted since it was opened."""

    put: int
    found: int
    miss: int
    transferred: int


class BrokerStats:
    """Owner of the counters. `tick` is called every second by the owner of the clock."""

    def __init__(self, clock: Clock, cluster: str, totals: Callable[[], Totals]) -> None:
        self._clock = clock
        self._cluster = cluster
        self._totals = totals
        self.latencies = Latencies()
        # By topic and queue id.
        self.put: dict[str, dict[int, PutCounter]] = {}
        self.sizes: dict[str, list[int]] = {}
        self.got: dict[tuple[str, str, int], GetCounter] = {}
        self.sent_back: dict[tuple[str, str], int] = {}
        self._items: dict[tuple[str, str], _Item] = {}
        # Items to sample, and the running sampling round.
        self._due: list[int] = []
        self._sampling: Iterator[None] | None = None
        self._rates: deque[tuple[int, Totals]] = deque(maxlen=_RATE_POINTS)
        now = clock.monotonic_ms()
        self._next_ms = [now + period for period in _Item.PERIODS_MS]
        self._rates.append((now, totals()))
        self.boot_ms = clock.now_ms()
        self._midnight_ms = _next_midnight(self.boot_ms)
        self.put_total_yesterday_morning = self.put_total_today_morning = 0
        self.get_total_yesterday_morning = self.get_total_today_morning = 0

    # ------------------------------------------------------------ counting

    def put_counter(self, topic: str, queue_id: int) -> PutCounter:
        """Return the counter of a queue; keep it, and add to it."""
        queues = self.put.get(topic)
        if queues is None:
            queues = self.put[topic] = {}
            self.sizes[topic] = [0] * _POWERS
        found = queues.get(queue_id)
        if found is None:
            found = queues[queue_id] = PutCounter(self.sizes[topic])
        return found

    def get_counter(self, group: str, topic: str, queue_id: int) -> GetCounter:
        """Return the counter of a group's pulls from a queue."""
        found = self.got.get((group, topic, queue_id))
        if found is None:
            found = self.got[group, topic, queue_id] = GetCounter()
        return found

    def count_sent_back(self, group: str, topic: str) -> None:
        """Count a message that was sent back for redelivery."""
        self.sent_back[group, topic] = self.sent_back.get((group, topic), 0) + 1

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a deleted topic."""
        self._sampling = None
        self.sizes.pop(topic, None)
        self.put.pop(topic, None)
        self.got = {key: counter for key, counter in self.got.items() if key[1] != topic}
        self.sent_back = {key: n for key, n in self.sent_back.items() if key[1] != topic}
        self._items = {
            key: item for key, item in self._items.items() if topic not in key[1].split("@")
        }

    def forget_group(self, group: str) -> None:
        """Drop the counters of a deleted group."""
        self._sampling = None
        self.got = {key: counter for key, counter in self.got.items() if key[0] != group}
        self.sent_back = {key: n for key, n in self.sent_back.items() if key[0] != group}
        self._items = {
            key: item for key, item in self._items.items() if key[1].split("@")[-1] != group
        }

    # ------------------------------------------------------------ sampling

    def tick(self) -> None:
        """Sample: every second the broker's rates; every 10 s, 10 min, 1 h the items; at midnight the day."""
        now = self._clock.monotonic_ms()
        totals = self._totals()
        self._rates.append((now, totals))
        for window, period in enumerate(_Item.PERIODS_MS):
            if now >= self._next_ms[window]:
                self._next_ms[window] = now + period
                if window not in self._due:
                    self._due.append(window)
        self._go_on()
        wall = self._clock.now_ms()
        if wall >= self._midnight_ms:
            self._midnight_ms = _next_midnight(wall)
            self.put_total_yesterday_morning = self.put_total_today_morning
            self.get_total_yesterday_morning = self.get_total_today_morning
            self.put_total_today_morning = totals.put
            self.get_total_today_morning = totals.transferred

    def _go_on(self) -> None:
        """Take one piece of a sampling, or begin the next one."""
        if self._sampling is None and self._due:
            due, self._due = self._due, []
            self._sampling = self._sample(due)
        if self._sampling is not None and next(self._sampling, self) is self:
            self._sampling = None

    def _sample(self, windows: list[int]) -> Iterator[None]:
        """Yields after each piece."""
        sums: dict[tuple[str, str], tuple[int, ...]] = {}
        left = PIECE
        for topic, queues in list(self.put.items()):
            for put in list(queues.values()):
                _add(sums, _TOPIC_PUT, topic, put.counted)
                _add(sums, BROKER_PUT_NUMS, self._cluster, (put.nums, 0))
                left -= self._note(put, windows, put.counted) + 2
                if left <= 0:
                    left = PIECE
                    yield
        for (group, topic, _), got in list(self.got.items()):
            _add(sums, _GROUP_GET, f"{topic}@{group}", got.counted)
            _add(sums, BROKER_GET_NUMS, self._cluster, (got.nums, 0))
            left -= self._note(got, windows, got.counted) + 2
            left -= self._note(got.latency, windows, (got.latency_ms, got.calls))
            if left <= 0:
                left = PIECE
                yield
        for (group, topic), count in self.sent_back.items():
            sums[SNDBCK_PUT_NUMS, f"{topic}@{group}"] = count, count
        for (name, key), counted in sums.items():
            left -= self._note(self._kept_item(name, key), windows, counted)
            if left <= 0:
                left = PIECE
                yield

    def _note(self, item: _Item, windows: list[int], counted: tuple[int, ...]) -> int:
        """Sample one item. Returns: what that costs, in figures."""
        now, cost = self._clock.now_ms(), 1
        for window in windows:
            if not item.windows[window]:
                cost += _NEW_ITEM
            item.sample(window, now, counted, self.boot_ms)
        return cost

    def _kept_item(self, name: str, key: str) -> _Item:
        """Return a sum item, creating it if absent."""
        item = self._items.get((name, key))
        if item is None:
            made = _Item() if name in (_TOPIC_PUT, _GROUP_GET) else _OneValue()
            item = self._items[name, key] = made
        return item

    def _item(self, name: str, key: str) -> _Item | None:
        """Return where an item's samples are; None for a sum without any, and for what is not counted."""
        counter = self._counter(name, key)
        if counter is None:
            return self._items.get((name, key))
        if isinstance(counter, GetCounter) and name == GROUP_GET_LATENCY:
            return counter.latency
        return counter

    def _counted(self, name: str, key: str) -> tuple[int, ...] | None:
        """Return an item's present values and times (invariant 1); None if none was ever counted."""
        counter = self._counter(name, key)
        if counter is None:
            return self._sum(name, key)
        if isinstance(counter, GetCounter) and name == GROUP_GET_LATENCY:
            return counter.latency_ms, counter.calls
        return counter.counted

    def _counter(self, name: str, key: str) -> PutCounter | GetCounter | None:
        """Return the counter behind an item; None for a sum over several, or if it does not exist yet."""
        if name == _QUEUE_PUT:
            topic, _, queue = key.rpartition("@")
            return self.put.get(topic, {}).get(_number(queue))
        parts = key.split("@")
        if len(parts) != 3:
            return None
        if name == _QUEUE_GET:
            topic, queue, group = parts
        elif name == GROUP_GET_LATENCY:
            queue, topic, group = parts
        else:
            return None
        return self.got.get((group, topic, _number(queue)))

    def _sum(self, name: str, key: str) -> tuple[int, ...] | None:
        """Return a sum's values and times; None if none was ever counted."""
        topic, _, group = key.partition("@")
        found: list[tuple[int, ...]] = []
        if name == _TOPIC_PUT:
            found = [put.counted for put in self.put.get(key, {}).values()]
        elif name == BROKER_PUT_NUMS and key == self._cluster:
            found = [(put.nums, 0) for queues in self.put.values() for put in queues.values()]
        elif name == _GROUP_GET:
            found = [
                got.counted for (of, on, _), got in self.got.items() if (of, on) == (group, topic)
            ]
        elif name == BROKER_GET_NUMS and key == self._cluster:
            found = [(got.nums, 0) for got in self.got.values()]
        elif name == SNDBCK_PUT_NUMS and (group, topic) in self.sent_back:
            found = [(self.sent_back[group, topic],) * 2]
        return tuple(map(sum, zip(*found, strict=True))) if found else None

    # ------------------------------------------------------------ asking

    def windows(self, name: str, key: str) -> tuple[Window, Window, Window] | None:
        """Return (minute, hour, day) of an item; None if nothing was ever counted for it."""
        name, place = _PLACES.get(name, (name, 0))
        item = self._item(name, key)
        if item is None or not all(item.windows):
            counted = self._counted(name, key)
            if counted is None:
                return None
            # An item samples each of its windows when it is made, as in RocketMQ.
            item = item or self._kept_item(name, key)
            now = self._clock.now_ms()
            for window, points in enumerate(item.windows):
                if not points:
                    item.sample(window, now, counted, self.boot_ms)
        return item.view(0, place), item.view(1, place), item.view(2, place)

    def minute(self, name: str, key: str) -> Window:
        """Return an item over the last minute; zeros if nothing was ever counted for it."""
        found = self.windows(name, key)
        return Window(0, 0.0, 0.0) if found is None else found[0]

    def hour_sum(self, name: str, key: str) -> int:
        """Return an item's sum over the last hour, as sampled; a minute's while the hour knows less."""
        name, place = _PLACES.get(name, (name, 0))
        item = self._item(name, key)
        return 0 if item is None else max(item.view(1, place).sum, item.view(0, place).sum)

    def group_get_tps(self, group: str, topic: str) -> float:
        """Return the messages that a group got per second, over the last minute."""
        return self.minute(GROUP_GET_NUMS, f"{topic}@{group}").tps

    def topic_put_tps(self, topic: str) -> float:
        """Return the messages put into a topic per second, over the last minute."""
        return self.minute(TOPIC_PUT_NUMS, topic).tps

    def rates(self, of: Callable[[Totals], int]) -> tuple[float, float, float]:
        """Return the rates per second over the last 10, 60 and 600 s (or since the start, if less)."""
        last_ms, last = self._rates[-1]
        found = []
        for seconds in _PERIODS:
            place = max(0, len(self._rates) - 1 - seconds)
            first_ms, first = self._rates[place]
            ms = last_ms - first_ms
            found.append((of(last) - of(first)) * _SECOND / ms if ms else 0.0)
        return found[0], found[1], found[2]

    def rate_text(self, of: Callable[[Totals], int]) -> str:
        """Return `rates` as GET_BROKER_RUNTIME_INFO shows them: three numbers joined by blanks."""
        return " ".join(str(rate) for rate in self.rates(of))


def _next_midnight(now_ms: int) -> int:
    """Return the wall time of the next local midnight."""
    day = datetime.fromtimestamp(now_ms / 1000).replace(hour=0, minute=0, second=0, microsecond=0)
    return int((day + timedelta(days=1)).timestamp() * 1000)


def _add(
    sums: dict[tuple[str, str], tuple[int, ...]], name: str, key: str, counted: tuple[int, ...]
) -> None:
    """Add values to an item's sum."""
    old = sums.get((name, key))
    sums[name, key] = counted if old is None else tuple(map(add, old, counted))


def _number(text: str) -> int:
    """Parse a queue id; -1 if it is not a number."""
    return int(text) if text.isdecimal() and len(text) < 12 else -1
