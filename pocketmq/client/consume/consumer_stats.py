"""ConsumerStats: a group's pull and consume rates, for GET_CONSUMER_RUNNING_INFO (S62).

Counters only grow; a sample every ten seconds gives the rates of the last minute and of the last hour.
Source: ConsumerStatsManager, ConsumeStatus, RocketMQ 4.9.7.
"""

from collections import deque
from dataclasses import astuple, dataclass
from typing import NamedTuple

SAMPLE_INTERVAL_MS = 10_000
_SAMPLES_A_MINUTE = 7
_SAMPLES_AN_HOUR = 361


@dataclass(slots=True)
class _Counters:
    pulled: int = 0
    pulls: int = 0
    pull_ms: int = 0
    ok: int = 0
    failed: int = 0
    calls: int = 0
    consume_ms: int = 0


class _Sample(NamedTuple):
    at_ms: int
    values: tuple[int, ...]


class ConsumeStatus(NamedTuple):
    """Rates per second over the last minute, times in ms; failed over the last hour."""

    pull_rt: float
    pull_tps: float
    consume_rt: float
    consume_ok_tps: float
    consume_failed_tps: float
    consume_failed_msgs: int

    def to_json(self) -> dict[str, float | int]:
        return {
            "consumeFailedMsgs": self.consume_failed_msgs,
            "consumeFailedTPS": self.consume_failed_tps,
            "consumeOKTPS": self.consume_ok_tps,
            "consumeRT": self.consume_rt,
            "pullRT": self.pull_rt,
            "pullTPS": self.pull_tps,
        }


class ConsumerStats:
    """Counters by topic. Owner: one consumer, on its event loop."""

    def __init__(self) -> None:
        self._counters: dict[str, _Counters] = {}
        self._samples: dict[str, deque[_Sample]] = {}

    def _of(self, topic: str) -> _Counters:
        found = self._counters.get(topic)
        if found is None:
            found = self._counters[topic] = _Counters()
        return found

    def pulled(self, topic: str, count: int, cost_ms: int) -> None:
        counters = self._of(topic)
        counters.pulled += count
        counters.pulls += 1
        counters.pull_ms += cost_ms

    def consumed(self, topic: str, ok: int, failed: int, cost_ms: int, *, calls: int = 1) -> None:
        """Count calls of the listener: incConsumeOKTPS, incConsumeFailedTPS, incConsumeRT."""
        counters = self._of(topic)
        counters.ok += ok
        counters.failed += failed
        counters.calls += calls
        counters.consume_ms += cost_ms

    def totals(self, topic: str) -> tuple[int, int]:
        """Return (ok, failed) since the start."""
        counters = self._of(topic)
        return counters.ok, counters.failed

    def sample(self, now_ms: int) -> None:
        """Sample the counters; call it every SAMPLE_INTERVAL_MS (monotonic)."""
        for topic, counters in self._counters.items():
            samples = self._samples.get(topic)
            if samples is None:
                # A first made-up point, so that rates show before the second sample.
                zero = _Sample(now_ms - SAMPLE_INTERVAL_MS, (0,) * len(astuple(counters)))
                samples = self._samples[topic] = deque([zero], maxlen=_SAMPLES_AN_HOUR)
            samples.append(_Sample(now_ms, astuple(counters)))

    def status(self, topic: str, now_ms: int) -> ConsumeStatus:
        """Return the current rates."""
        samples = self._samples.get(topic)
        now = _Sample(now_ms, astuple(self._of(topic)))
        if not samples:
            first = hour = _Sample(now_ms - SAMPLE_INTERVAL_MS, (0,) * len(now.values))
        else:
            first = samples[max(0, len(samples) - _SAMPLES_A_MINUTE)]
            hour = samples[0]
        seconds = max(1, now.at_ms - first.at_ms) / 1000
        pulled, pulls, pull_ms, ok, failed, calls, consume_ms = (
            new - old for new, old in zip(now.values, first.values, strict=True)
        )
        return ConsumeStatus(
            pull_ms / pulls if pulls else 0.0,
            pulled / seconds,
            consume_ms / calls if calls else 0.0,
            ok / seconds,
            failed / seconds,
            now.values[4] - hour.values[4],
        )
