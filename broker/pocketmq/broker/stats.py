"""BrokerStats: messages put and got, by topic, queue and group. Source: BrokerStatsManager, StatsItem,
StoreStatsService, BrokerStats, RocketMQ 4.9.7; wire.md 2.9.

1. The hot paths only add to plain counters: one `PutCounter` per queue, one `GetCounter` per queue and
   group. RocketMQ's items (TOPIC_PUT_NUMS ...) are sums over them, computed when queried or sampled.
2. An item is sampled every 10 s (7 points kept), every 10 min (7) and every hour (25). A window's sum is its
   last point less its first; the very first point is an artificial zero one period before the second.
   A tick looks at PIECE figures at most: those of many thousand queues are sampled over several ticks.
3. Whole-broker rates are sampled every second and kept for 10 minutes; all of them are three numbers,
   for 10, 60 and 600 s, from the first second on (tools read them as numbers).
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from operator import add
from typing import ClassVar, NamedTuple

from pocketmq.broker.latencies import Latencies
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

# Messages and their bytes are counted by the same calls, and kept in one item: there may be a million.
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
# Items that are sums over counters; each other is one counter's.
_SUMS = frozenset((_TOPIC_PUT, BROKER_PUT_NUMS, _GROUP_GET, BROKER_GET_NUMS))

_SECOND = 1_000
# A record's size has 31 bits.
_POWERS = 32
_RATE_POINTS = 601
_PERIODS = (10, 60, 600)
PIECE = 8_192
# What making an item costs, in figures.
_NEW_ITEM = 8


class PutCounter:
    """Messages put into one queue: count, bytes, and how many followed the first of a batch (so that a
    single message costs three additions). sizes: of its topic's messages, by the powers of two that they
    do not exceed.
    """

    __slots__ = ("batched", "nums", "size", "sizes")

    def __init__(self, sizes: list[int]) -> None:
        self.nums = self.size = self.batched = 0
        self.sizes = sizes

    @property
    def calls(self) -> int:
        """Return the number of requests."""
        return self.nums - self.batched


class GetCounter:
    """Messages that one group got from one queue: count, bytes, pulls, and ms spent in those pulls."""

    __slots__ = ("calls", "latency_ms", "nums", "size")

    def __init__(self) -> None:
        self.nums = self.size = self.calls = self.latency_ms = 0


class Window(NamedTuple):
    """An item over a period: sum of its values, per second, per call."""

    sum: int
    tps: float
    avgpt: float

    def to_json(self) -> dict[str, float]:
        """Return it as VIEW_BROKER_STATS_DATA does."""
        return {"avgpt": self.avgpt, "sum": self.sum, "tps": self.tps}


_NO_WINDOWS: "tuple[array[int], ...]" = (array("q"),) * 3


class _Item:
    """The samples of one item (invariant 2): minute, hour, day.

    A sample is the time, one or two values and how often these were added to, all in one row with the other
    samples: most items are idle, and there may be a million.
    """

    __slots__ = ("_fields", "windows")
    PERIODS_MS: ClassVar[tuple[int, ...]] = (10_000, 600_000, 3_600_000)
    POINTS = (7, 7, 25)

    def __init__(self, counted: tuple[int, ...]) -> None:
        """counted: one as it will be sampled."""
        self._fields = 1 + len(counted)
        # A tuple is small, and a window begins seldom.
        self.windows: tuple[array[int], ...] = _NO_WINDOWS

    def sample(self, window: int, now_ms: int, counted: tuple[int, ...]) -> None:
        """counted: the values, then the times."""
        points = self.windows[window]
        if not points:
            points = array("q", (now_ms - self.PERIODS_MS[window], *[0] * len(counted)))
            self.windows = (*self.windows[:window], points, *self.windows[window + 1 :])
        points.append(now_ms)
        points.extend(counted)
        if len(points) > self._fields * self.POINTS[window]:
            del points[: self._fields]

    def view(self, window: int, place: int) -> Window:
        """Return one value over one window."""
        points, fields = self.windows[window], self._fields
        if not points:
            return Window(0, 0.0, 0.0)
        first, last = points[:fields], points[-fields:]
        total, times, ms = (
            last[1 + place] - first[1 + place],
            last[-1] - first[-1],
            last[0] - first[0],
        )
        return Window(total, total * 1000 / ms if ms else 0.0, total / times if times else 0.0)


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
        self.put: dict[tuple[str, int], PutCounter] = {}
        self.sizes: dict[str, list[int]] = {}
        self.got: dict[tuple[str, str, int], GetCounter] = {}
        self.sent_back: dict[tuple[str, str], int] = {}
        self._items: dict[tuple[str, str], _Item] = {}
        # What is to be sampled, and the sampling that is under way.
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
        found = self.put.get((topic, queue_id))
        if found is None:
            sizes = self.sizes.setdefault(topic, [0] * _POWERS)
            found = self.put[topic, queue_id] = PutCounter(sizes)
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
        self.put = {key: counter for key, counter in self.put.items() if key[0] != topic}
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
        for name, key, counted in self._parts():
            if name in _SUMS:
                old = sums.get((name, key))
                sums[name, key] = counted if old is None else tuple(map(add, old, counted))
                left -= 1
            else:
                left -= self._note(windows, (name, key), counted)
            if left <= 0:
                left = PIECE
                yield
        for item, counted in sums.items():
            left -= self._note(windows, item, counted)
            if left <= 0:
                left = PIECE
                yield

    def _note(self, windows: list[int], item: tuple[str, str], counted: tuple[int, ...]) -> int:
        """Sample one item. Returns: what that costs, in figures."""
        now, cost = self._clock.now_ms(), 1
        found = self._items.get(item)
        if found is None:
            found = self._items[item] = _Item(counted)
            cost += _NEW_ITEM
        for window in windows:
            found.sample(window, now, counted)
        return cost

    def _sum(self, wanted: tuple[str, str]) -> tuple[int, ...] | None:
        """Return an item's present values and times (invariant 1); None if none was ever counted."""
        words = None if wanted[0].startswith("BROKER_") else frozenset(wanted[1].split("@"))
        found = [counted for *item, counted in self._parts(words) if tuple(item) == wanted]
        return tuple(map(sum, zip(*found, strict=True))) if found else None

    def _parts(
        self, words: frozenset[str] | None = None
    ) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        """Yield name, key, and values with times. words: only of topics among them."""
        for topic, queue_id in list(self.put):
            put = self.put.get((topic, queue_id))
            if put is None or (words is not None and topic not in words):
                continue
            yield _TOPIC_PUT, topic, (put.nums, put.size, put.calls)
            yield _QUEUE_PUT, f"{topic}@{queue_id}", (put.nums, put.size, put.calls)
            yield BROKER_PUT_NUMS, self._cluster, (put.nums, 0)
        for group, topic, queue_id in list(self.got):
            got = self.got.get((group, topic, queue_id))
            if got is None or (words is not None and topic not in words):
                continue
            counted = (got.nums, got.size, got.calls)
            yield _GROUP_GET, f"{topic}@{group}", counted
            yield GROUP_GET_LATENCY, f"{queue_id}@{topic}@{group}", (got.latency_ms, got.calls)
            yield _QUEUE_GET, f"{topic}@{queue_id}@{group}", counted
            yield BROKER_GET_NUMS, self._cluster, (got.nums, 0)
        for (group, topic), count in list(self.sent_back.items()):
            yield SNDBCK_PUT_NUMS, f"{topic}@{group}", (count, count)

    # ------------------------------------------------------------ asking

    def windows(self, name: str, key: str) -> tuple[Window, Window, Window] | None:
        """Return (minute, hour, day) of an item; None if nothing was ever counted for it."""
        name, place = _PLACES.get(name, (name, 0))
        item = self._items.get((name, key))
        if item is None or not all(item.windows):
            found = self._sum((name, key))
            if found is None:
                return None
            # An item samples each of its windows when it is made, as in RocketMQ.
            item = self._items.setdefault((name, key), _Item(found))
            now = self._clock.now_ms()
            for window, points in enumerate(item.windows):
                if not points:
                    item.sample(window, now, found)
        return item.view(0, place), item.view(1, place), item.view(2, place)

    def minute_rate(self, name: str, key: str) -> float:
        """Return an item per second over the last minute, as sampled; 0 before the first sample."""
        name, place = _PLACES.get(name, (name, 0))
        item = self._items.get((name, key))
        return 0.0 if item is None else item.view(0, place).tps

    def hour_sum(self, name: str, key: str) -> int:
        """Return an item's sum over the last hour, as sampled; a minute's while the hour knows less."""
        name, place = _PLACES.get(name, (name, 0))
        item = self._items.get((name, key))
        return 0 if item is None else max(item.view(1, place).sum, item.view(0, place).sum)

    def group_get_tps(self, group: str, topic: str) -> float:
        """Return the messages that a group got per second, over the last minute."""
        found = self.windows(GROUP_GET_NUMS, f"{topic}@{group}")
        return 0.0 if found is None else found[0].tps

    def topic_put_tps(self, topic: str) -> float:
        """Return the messages put into a topic per second, over the last minute."""
        found = self.windows(TOPIC_PUT_NUMS, topic)
        return 0.0 if found is None else found[0].tps

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
