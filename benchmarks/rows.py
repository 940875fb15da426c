"""The rows of the speed table: what is measured, and what is asked of the ratio PocketMQ / Java."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import official_load, raw_load
from benchmarks.meter import Meter
from tests.interop.brokers import RunningBroker

TOPIC = "BenchTopic"
BACKLOG_TOPIC = "BenchBacklog"
QUEUES = 8
BACKLOG_QUEUES = 4
BACKLOG_BATCH = 100


@dataclass(frozen=True)
class Effort:
    """How long and how often: --quick or the full run."""

    rounds: int
    raw_warmup_s: float
    raw_window_s: float
    official_warmup_s: int
    official_window_s: int
    backlog: int
    idle_s: float
    starts: int


QUICK = Effort(1, 1.0, 3.0, 2, 3, 300_000, 5.0, 2)
FULL = Effort(3, 1.5, 5.0, 4, 6, 1_000_000, 20.0, 3)


@dataclass(frozen=True)
class Sample:
    """One measurement of one broker. rate in messages/s; CPU seconds of the broker for 100,000 messages."""

    rate: float
    cpu: float
    p50_us: float | None = None
    p99_us: float | None = None


@dataclass(frozen=True)
class Limits:
    """Ratios PocketMQ / Java: the rate at least, all else at most. None: nothing is asked."""

    rate: float | None = None
    cpu: float | None = None
    latency: float | None = None


@dataclass(frozen=True)
class Row:
    """measure(place) for one broker; what its ratios to Java are to reach, and the aim.

    reach_compiled: where more is asked of the compiled form.
    """

    title: str
    measure: Callable[["Place"], Sample]
    reach: Limits
    aim: Limits
    reach_compiled: Limits | None = None


class Place:
    """One running broker under measurement, with the folder of its generators."""

    def __init__(self, name: str, broker: RunningBroker, folder: Path, effort: Effort) -> None:
        self.name = name
        self.broker = broker
        self.folder = folder
        self.effort = effort
        self._groups = 0

    @property
    def pid(self) -> int:
        return self.broker.process.pid

    def new_group(self) -> str:
        self._groups += 1
        return f"benchGroup{self._groups}"


def raw_send(in_flight: int, body_size: int = 128, batch: int = 0) -> Callable[[Place], Sample]:
    frames: list[raw_load.Frames] = []

    def measure(place: Place) -> Sample:
        if not frames:
            frames.append(raw_load.Frames(TOPIC, QUEUES, body_size, batch=batch))
        meter = Meter(place.pid)
        result = raw_load.send(
            place.broker.address,
            frames[0].frames,
            in_flight=in_flight,
            warmup_s=place.effort.raw_warmup_s,
            window_s=place.effort.raw_window_s,
            begins=meter.begin,
        )
        messages = result.requests * frames[0].messages_per_request
        return Sample(
            messages / result.seconds,
            meter.cpu_s / messages * 100_000,
            result.percentile_us(0.5),
            result.percentile_us(0.99),
        )

    return measure


def official_send(threads: int, body_size: int, batch: int = 0) -> Callable[[Place], Sample]:
    def measure(place: Place) -> Sample:
        meter = Meter(place.pid)
        sent = official_load.produce(
            place.folder,
            place.broker.namesrv,
            TOPIC,
            threads=threads,
            body_size=body_size,
            warmup_s=place.effort.official_warmup_s,
            window_s=place.effort.official_window_s,
            batch=batch,
            begins=meter.begin,
        )
        cpu_s = meter.cpu_s
        if sent.failures:
            raise raw_load.LoadFailed(f"{sent.failures} of {sent.requests} sends failed")
        messages = sent.requests * (batch or 1)
        return Sample(messages / sent.seconds, cpu_s / messages * 100_000, sent.p50_us, sent.p99_us)

    return measure


def official_consume(place: Place) -> Sample:
    meter = Meter(place.pid)
    # The last tenth is left out: a consumer that waits for its last queue measures its own pauses.
    messages, seconds = official_load.consume(
        place.folder,
        place.broker.namesrv,
        BACKLOG_TOPIC,
        place.new_group(),
        messages=place.effort.backlog * 9 // 10,
        begins=meter.begin,
    )
    return Sample(messages / seconds, meter.cpu_s / messages * 100_000)


def raw_pull(expression: str) -> Callable[[Place], Sample]:
    def measure(place: Place) -> Sample:
        meter = Meter(place.pid)
        result = raw_load.pull(
            place.broker.address, BACKLOG_TOPIC, BACKLOG_QUEUES, expression=expression
        )
        if result.passed < place.effort.backlog * 0.99:
            raise raw_load.LoadFailed(f"only {result.passed} messages were passed")
        return Sample(result.passed / result.seconds, meter.cpu_s / result.passed * 100_000)

    return measure


def fill(broker: RunningBroker, messages: int) -> None:
    """Add `messages` to the backlog: batches of 100, one message in a hundred tagged `rare`."""
    frames = raw_load.Frames(BACKLOG_TOPIC, BACKLOG_QUEUES, 128, batch=BACKLOG_BATCH)
    raw_load.send_count(
        broker.address, frames.frames, requests=messages // BACKLOG_BATCH, in_flight=16
    )


_OFFICIAL_REACH, _OFFICIAL_AIM = Limits(rate=1.1, cpu=0.4, latency=1.0), Limits(rate=1.4, cpu=0.3)
_BATCH_REACH, _BATCH_AIM = Limits(rate=1.0, cpu=0.9), Limits(rate=1.3, cpu=0.6)

ROWS: tuple[Row, ...] = (
    Row(
        "send, raw frames, 64 in flight, 128 B",
        raw_send(64),
        Limits(1.5, 0.65),
        Limits(2.0, 0.35),
        Limits(1.5, 0.5),
    ),
    Row(
        "send, raw frames, 512 in flight, 128 B",
        raw_send(512),
        Limits(1.3, 0.75),
        Limits(1.8, 0.4),
        Limits(1.3, 0.5),
    ),
    *(
        Row(
            f"send, official generator, {threads} thread{'s' if threads > 1 else ''}, {size}",
            official_send(threads, body_size),
            _OFFICIAL_REACH,
            _OFFICIAL_AIM,
        )
        for body_size, size in ((128, "128 B"), (1024, "1 KiB"))
        for threads in (1, 8, 64)
    ),
    Row(
        "send, official generator, batches of 16, 128 B",
        official_send(64, 128, batch=16),
        _BATCH_REACH,
        _BATCH_AIM,
    ),
    Row(
        "send, raw frames, 64 in flight, batches of 16",
        raw_send(64, batch=16),
        _BATCH_REACH,
        _BATCH_AIM,
    ),
    Row(
        "consume a backlog, official consumer",
        official_consume,
        Limits(rate=1.2, cpu=0.3),
        Limits(cpu=0.15),
    ),
    Row("consume a backlog, raw pulls", raw_pull("*"), Limits(rate=1.3, cpu=0.4), Limits(cpu=0.15)),
    Row("pull a tag that 1 % match", raw_pull("rare"), Limits(rate=2.0), Limits(rate=5.0)),
)
SYNC_ROW = Row(
    "send, SYNC_FLUSH, raw frames, 64 in flight", raw_send(64), Limits(rate=1.1), Limits(rate=1.5)
)
