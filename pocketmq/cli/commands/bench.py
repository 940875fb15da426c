"""`pocketmq bench`: how fast this site takes messages and gives them, with PocketMQ's own client.

For a comparison with Apache RocketMQ under its own load generator see benchmarks/ in the repository.
"""

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import completed
from pocketmq.cli.connecting import client_options
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.options import Json, NameServer
from pocketmq.cli.output import print_json, print_line, print_rows
from pocketmq.model.names import BENCHMARK_TOPIC
from pocketmq.remoting import java_number

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pocketmq.cli.bench import BenchRun

app = typer.Typer()

Topic = Annotated[str, typer.Option(help="Topic to use; created if missing.")]
Count = Annotated[int, typer.Option("--count", "-c", min=1, help="Messages of each run.")]
Sizes = Annotated[
    str,
    typer.Option("--size", help="Bytes of each body; several values, one run for each: 128,1024."),
]
Rates = Annotated[
    str, typer.Option("--rate", help="Sends per second, 0 for no limit; several: 1000,5000,0.")
]
InFlight = Annotated[int, typer.Option(min=1, help="Concurrent sends.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV for a spreadsheet.")]
Histogram = Annotated[bool, typer.Option("--histogram", help="Show the distribution of latencies.")]


@app.command()
def produce(
    namesrv: NameServer,
    topic: Topic = BENCHMARK_TOPIC,
    count: Count = 10_000,
    size: Sizes = "128",
    rate: Rates = "0",
    in_flight: InFlight = 64,
    histogram: Histogram = False,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """Send messages, each acknowledged, and say how long it took. Ctrl-C keeps the figures so far."""
    from pocketmq.cli import bench

    def one(run: "BenchRun", options: "dict[str, Any]") -> Awaitable[None]:
        return bench.produce(run, topic, in_flight, options)

    runs = [bench.BenchRun(count, *each) for each in product(_numbers(size), _numbers(rate))]
    _measure(namesrv, runs, one)
    _print(runs, histogram=histogram, as_csv=as_csv, as_json=as_json)


@app.command()
def both(
    namesrv: NameServer,
    topic: Topic = BENCHMARK_TOPIC,
    count: Count = 10_000,
    size: Sizes = "128",
    rate: Rates = "0",
    in_flight: InFlight = 64,
    histogram: Histogram = False,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """Send and consume at once; times are from the send to the listener. Ctrl-C keeps the figures."""
    from pocketmq.cli import bench

    def one(run: "BenchRun", options: "dict[str, Any]") -> Awaitable[None]:
        return bench.both(run, topic, in_flight, options)

    runs = [
        bench.BenchRun(count, max(wide, bench.SIZE_MIN), fast)
        for wide, fast in product(_numbers(size), _numbers(rate))
    ]
    _measure(namesrv, runs, one)
    _print(runs, histogram=histogram, as_csv=as_csv, as_json=as_json)


@app.command()
def consume(
    namesrv: NameServer,
    topic: Topic = BENCHMARK_TOPIC,
    count: Annotated[
        int, typer.Option("--count", "-c", min=1, help="At most this many messages.")
    ] = 10_000,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """Read what a topic holds, from its beginning, and say how long it took; nothing is committed."""
    from pocketmq.cli import bench

    def one(run: "BenchRun", options: "dict[str, Any]") -> Awaitable[None]:
        return bench.consume(run, topic, options)

    runs = [bench.BenchRun(count, 0, 0)]
    _measure(namesrv, runs, one)
    _print(runs, histogram=False, as_csv=as_csv, as_json=as_json)


def _numbers(text: str) -> list[int]:
    """Parse `128,1024` into [128, 1024]. Raises: CannotBegin."""
    try:
        found = [java_number.long(each.strip()) for each in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 0:
        raise CannotBegin(f"{text!r} is not a list of numbers: give 128, or 128,1024")
    return found


def _measure(
    namesrv: str,
    runs: "list[BenchRun]",
    one: "Callable[[BenchRun, dict[str, Any]], Awaitable[None]]",
) -> None:
    """Measure the runs one after the other; Ctrl-C ends this and keeps what was measured."""

    async def work() -> None:
        for number, run in enumerate(runs, 1):
            with _bar(run, f"{number}/{len(runs)}  {run.size} B"):
                await one(run, client_options(namesrv))

    try:
        completed(work)
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped; measured so far:\n")


@contextmanager
def _bar(run: "BenchRun", what: str) -> Iterator[None]:
    """Show a bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress

    class Bar(Progress):
        """Looks at the run each time it is drawn, so that a message costs the run nothing for it."""

        def get_renderables(self) -> "Iterable[RenderableType]":
            for each in self.tasks:
                self.update(each.id, completed=len(run.took_s))
            return super().get_renderables()

    with Bar(console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=run.count)
        yield


def _print(runs: "list[BenchRun]", *, histogram: bool, as_csv: bool, as_json: bool) -> None:
    """Print a row for each run that has begun."""
    begun = [run for run in runs if run.took_s]
    rows = [run.figures() for run in begun]
    if as_json:
        print_json(
            [{**row, "latency": run.histogram()} for row, run in zip(rows, begun, strict=True)]
        )
    elif as_csv:
        if rows:
            print_line(",".join(rows[0]))
        for row in rows:
            print_line(",".join(str(value) for value in row.values()))
    else:
        print_rows(rows, as_json=False, empty="nothing was measured")
    for run in begun if histogram and not as_json else ():
        print_rows(
            _bars(run.histogram()),
            as_json=False,
            columns={"took": "took", "messages": "messages", "bar": ""},
        )


def _bars(classes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from pocketmq.cli.bench import BOUNDS_MS

    most = max((each["messages"] for each in classes), default=1)
    return [
        {
            "took": f"> {BOUNDS_MS[-1]} ms" if bound is None else f"<= {bound} ms",
            "messages": count,
            "bar": "#" * -(-40 * count // most),
        }
        for bound, count in map(dict.values, classes)
    ]
