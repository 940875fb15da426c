"""The table of `make bench` as Markdown."""

import datetime
import math
import statistics
from collections.abc import Iterator
from dataclasses import astuple

from benchmarks.meter import machine
from benchmarks.results import Footprint, Growth, Measured, Results
from benchmarks.rows import Effort, Limits, Sample

_HEAD = (
    "| work | Java {java} | PocketMQ | messages/s | p50 | p99 | CPU | load | reach | |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def text(results: Results, effort: Effort, rounds: int) -> str:
    """The whole page."""
    return "\n".join(_lines(results, effort, rounds)) + "\n"


def _lines(results: Results, effort: Effort, rounds: int) -> Iterator[str]:
    now = datetime.datetime.now(datetime.UTC)
    yield f"Measured on {now:%d %B %Y} on {machine()}: generator and brokers on it."
    yield (
        f"Medians of {rounds} alternating round{'s' if rounds > 1 else ''}; backlog {effort.backlog:,} "
        f"messages of 128 B. Ratios are PocketMQ / Java {results.java} (JDK 17, heap 1 GiB): more is better "
        "for messages/s, less for the rest; least and greatest of the rounds stand behind the median, and a "
        "row reaches what its worst round reaches. CPU is processor seconds of the broker for 100,000 "
        "messages; `compiled` has the hot modules as machine code, of the same sources; `beside` is the pure "
        "form beside a later Java broker. Load average of the "
        f"machine before the run: {results.load:.1f}; `load` is that before "
        "the row, to which the run itself adds up to two."
    )
    yield ""
    yield from (line.format(java=results.java) for line in _HEAD)
    for measured in results.measured:
        yield from _rows(measured)
    yield ""
    footprints = results.footprints
    if any(footprint.start_s for footprint in footprints.values()):
        yield from _footprints(footprints.get("java"), footprints.get("pocketmq"), effort)
    if results.growth:
        yield ""
        yield from _growth(results.growth)


def _rows(measured: Measured) -> Iterator[str]:
    yield _row(measured, "pocketmq", measured.row.title, measured.row.reach)
    if "compiled" in measured.samples:
        reach = measured.row.reach_compiled or measured.row.reach
        yield _row(measured, "compiled", "- compiled", reach)
    for name in measured.samples:
        if name.startswith("java-"):
            yield _row(measured, "pocketmq", f"- beside Java {name[5:]}", Limits(), java=name)


def _row(measured: Measured, name: str, title: str, reach: Limits, java: str = "java") -> str:
    """One line: broker `name` beside `java`. What a line above has shown is left out."""
    ratios = {
        "rate": measured.ratios(name, lambda sample: sample.rate, java),
        "p50": measured.ratios(name, _p50, java),
        "p99": measured.ratios(name, _p99, java),
        "cpu": measured.ratios(name, lambda sample: sample.cpu, java),
    }
    other = java != "java"
    cells = [
        title,
        _sample(measured, java) if name == "pocketmq" else "",
        "" if other else _sample(measured, name),
        *(_ratio(ratios[kind]) for kind in ("rate", "p50", "p99", "cpu")),
        f"{measured.load:.1f}",
        _limits(reach),
        "" if other else _verdict(ratios, reach, measured.row.aim),
    ]
    return f"| {' | '.join(cells)} |"


def _sample(measured: Measured, name: str) -> str:
    rate = measured.median(name, lambda sample: sample.rate)
    if rate is None:
        return "-"
    parts = [f"{rate / 1_000:,.1f} k/s"]
    p50, p99 = (measured.median(name, value) for value in (_p50, _p99))
    if p50 is not None and p99 is not None:
        parts.append(f"{p50 / 1_000:.2f} / {p99 / 1_000:.2f} ms")
    cpu = measured.median(name, lambda sample: sample.cpu)
    parts.append(f"{cpu:.2f} s")
    return " · ".join(parts)


def _p50(sample: Sample) -> float | None:
    return sample.p50_us


def _p99(sample: Sample) -> float | None:
    return sample.p99_us


def _ratio(ratios: list[float]) -> str:
    """`0.95 x (0.69-1.02)`: median, least, greatest."""
    if not ratios:
        return "-"
    spread = f" ({ratios[0]:.2f}-{ratios[-1]:.2f})" if len(ratios) > 1 else ""
    return f"{statistics.median(ratios):.2f} x{spread}"


def _limits(limits: Limits) -> str:
    parts = []
    if limits.rate is not None:
        parts.append(f"≥ {limits.rate:g} x")
    if limits.latency is not None:
        parts.append(f"p50, p99 ≤ {limits.latency:g} x")
    if limits.cpu is not None:
        parts.append(f"CPU ≤ {limits.cpu:g} x")
    return ", ".join(parts)


def _verdict(ratios: dict[str, list[float]], reach: Limits, aim: Limits) -> str:
    """`aim`, `reach`, or by what the worst round falls short; empty when only one broker was measured."""
    if not ratios["rate"]:
        return ""
    short = _short(ratios, reach)
    if short:
        return f"**short: {', '.join(short)}**"
    return "reach" if _short(ratios, aim) else "aim"


def _short(ratios: dict[str, list[float]], limits: Limits) -> list[str]:
    asked = {
        "p50": limits.latency,
        "p99": limits.latency,
        "cpu": limits.cpu,
    }
    short = [
        name.upper() if name == "cpu" else name
        for name, limit in asked.items()
        if limit is not None and max(ratios[name], default=0.0) > limit + 0.005
    ]
    rate = min(ratios["rate"])
    if limits.rate is not None and rate < limits.rate - 0.005:
        short.insert(0, "messages/s")
    return short


def _footprints(java: Footprint | None, pocket: Footprint | None, effort: Effort) -> Iterator[str]:
    nothing = Footprint()
    theirs, ours = java or nothing, pocket or nothing
    yield "| at rest | Java | PocketMQ | reach | aim |"
    yield "|---|---|---|---|---|"
    start = ours.median_start_s / theirs.median_start_s
    ratio = "" if math.isnan(start) else f" ({start:.2f} x)"
    yield (
        f"| process start to first acknowledged message | {theirs.median_start_s:.2f} s "
        f"| {ours.median_start_s:.2f} s{ratio} | ≤ 1/6 | ≤ 0.5 s |"
    )
    yield (
        f"| anonymous memory, idle | {theirs.idle_mb:.0f} MB | {ours.idle_mb:.0f} MB "
        "| ≤ 60 MB | ≤ 50 MB |"
    )
    yield (
        f"| anonymous memory after {effort.backlog:,} messages and more | {theirs.loaded_mb:.0f} MB "
        f"| {ours.loaded_mb:.0f} MB | ≤ 120 MB | ≤ 80 MB |"
    )
    yield (
        f"| CPU when idle, of a core | {theirs.idle_cpu_share:.2%} | {ours.idle_cpu_share:.2%} "
        "| < 1 % | < 0.3 % |"
    )


def _growth(growth: list[Growth]) -> Iterator[str]:
    yield (
        "| messages stored by PocketMQ | start to first ack, CPU | send, raw, 64 in flight, CPU | pull, CPU "
        "| memory |"
    )
    yield "|---|---|---|---|---|"
    for messages in sorted({each.messages for each in growth}):
        rounds = [astuple(each) for each in growth if each.messages == messages]
        each = Growth(*map(statistics.median, zip(*rounds, strict=True)))
        yield (
            f"| {messages:,} | {each.start_s:.2f} s · {each.start_cpu:.2f} s "
            f"| {each.send_rate / 1_000:,.1f} k/s · {each.send_cpu:.2f} s "
            f"| {each.pull_rate / 1_000:,.1f} k/s · {each.pull_cpu:.2f} s | {each.memory_mb:.0f} MB |"
        )
