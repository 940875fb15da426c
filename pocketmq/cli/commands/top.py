"""`pocketmq top`: brokers that do not serve, what goes in and out now, and which groups are worst off.

Rates are those of the last minute (admin.rates), the same as the group doctor's and the console's. Members
commit every few seconds: what moves between two looks tells little.
"""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import with_admin
from pocketmq.cli.exits import ExitCode
from pocketmq.cli.options import All, Json, NameServer
from pocketmq.cli.output import print_json, print_rows
from pocketmq.model.diagnosis import empty_in_s
from pocketmq.model.names import is_system_group

if TYPE_CHECKING:
    from pocketmq.admin import Admin

_ASKED_AT_ONCE = 16
# Members commit every five seconds: so much may wait for a commit alone.
_LITTLE_S = 10


@dataclass
class Look:
    """Rates and lags at a moment. topics: rate in and messages ever stored; groups: lag, rate in and out.

    A rate is None where no broker tells it. failing: brokers that do not serve, and why.
    """

    failing: list[dict[str, Any]] = field(default_factory=list)
    topics: dict[str, tuple[float | None, int]] = field(default_factory=dict)
    groups: dict[str, tuple[int, float | None, float | None]] = field(default_factory=dict)


def top(
    namesrv: NameServer,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between updates.")] = 2.0,
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="Rows in each table.")] = 10,
    once: Annotated[bool, typer.Option("--once", help="Show each table once and exit.")] = False,
    everything: All = False,
    as_json: Json = False,
) -> None:
    """Show the last minute's traffic by topic and the groups with the most lag, until Ctrl-C.

    Brokers that do not serve are named above, with the reason. With --json, one value.
    """
    import asyncio

    async def work(admin: "Admin") -> None:
        while True:
            shown = ranked(await look(admin, everything), count)
            if as_json:
                print_json(shown)
                return
            if sys.stdout.isatty() and not once:
                sys.stdout.write("\x1b[H\x1b[J\n")
            if shown["failing"]:
                print_rows(shown["failing"], as_json=False)
            print_rows(shown["topics"], as_json=False, empty="no topics")
            print_rows(shown["groups"], as_json=False, empty="no groups")
            if once:
                return
            await asyncio.sleep(every)

    try:
        with_admin(namesrv, work)
    except KeyboardInterrupt:
        raise typer.Exit(int(ExitCode.OK)) from None


async def look(admin: "Admin", everything: bool) -> Look:
    """Query every topic and group; what cannot be queried now is left out."""
    import asyncio

    from pocketmq.admin.rates import consumed_rate, stored_rate
    from pocketmq.admin.views.broker import cluster_view
    from pocketmq.admin.views.topic import users_topics
    from pocketmq.client.network.gather import together
    from pocketmq.remoting.errors import PocketMQError

    found = Look(
        failing=[
            {"broker": each.broker.name, "address": each.broker.address, "state": each.state}
            for each in await cluster_view(admin)
            if each.state != "ok"
        ]
    )
    came: dict[str, asyncio.Task[float | None]] = {}

    async def rate_in(name: str) -> float | None:
        if name not in came:
            came[name] = tasks.create_task(stored_rate(admin, name))
        return await came[name]

    async def topic(name: str) -> None:
        rows = await admin.topics.status(name, partial=True)
        found.topics[name] = await rate_in(name), sum(row.max_offset for row in rows)

    async def group(name: str) -> None:
        rows = await admin.groups.progress(name, partial=True)
        topics = sorted({row.queue.topic for row in rows})
        ins = [await rate_in(each) for each in topics]
        outs = [await consumed_rate(admin, name, each) for each in topics]
        found.groups[name] = sum(row.lag for row in rows), _sum(ins), _sum(outs)

    async def ask(each: tuple[Callable[[str], Awaitable[None]], str]) -> None:
        one, name = each
        try:
            await one(name)
        except PocketMQError:
            return

    topics = await (admin.topics.names() if everything else users_topics(admin))
    groups = [
        name for name in await admin.groups.names() if everything or not is_system_group(name)
    ]
    asked = [*((topic, name) for name in topics), *((group, name) for name in groups)]
    async with asyncio.TaskGroup() as tasks:
        await together(ask, asked, _ASKED_AT_ONCE)
    return found


def _sum(rates: list[float | None]) -> float | None:
    """Return the sum; None if one is unknown."""
    known = [each for each in rates if each is not None]
    return sum(known) if len(known) == len(rates) else None


def ranked(now: Look, count: int) -> dict[str, list[dict[str, Any]]]:
    """Return the busiest topics, and the groups with the most lag.

    emptyInS is None where nothing can be concluded: a rate is unknown, or no more waits than some seconds of
    traffic.

    >>> groups = {"g": (200, 10.0, 4.0), "h": (20, 1.0, 1.8), "new": (20, 5.0, 0.0)}
    >>> look = Look([], {"T": (10.0, 30)}, groups)
    >>> ranked(look, 5)["topics"]
    [{'topic': 'T', 'in': 10.0, 'messages': 30}]
    >>> [(row["group"], row["emptyInS"]) for row in ranked(look, 5)["groups"]]
    [('g', 'never'), ('h', 25), ('new', None)]
    """
    topics: list[dict[str, Any]] = [
        {"topic": name, "in": _rounded(rate), "messages": end}
        for name, (rate, end) in now.topics.items()
    ]
    groups: list[dict[str, Any]] = [
        {
            "group": name,
            "lag": lag,
            "in": _rounded(came),
            "out": _rounded(went),
            "emptyInS": _empty_in_s(lag, came, went),
        }
        for name, (lag, came, went) in now.groups.items()
    ]
    topics.sort(key=lambda row: (-(row["in"] or 0), -row["messages"], row["topic"]))
    groups.sort(key=lambda row: (-row["lag"], row["group"]))
    return {"failing": now.failing, "topics": topics[:count], "groups": groups[:count]}


def _empty_in_s(lag: int, came: float | None, went: float | None) -> int | str | None:
    if came is None or went is None or lag <= _LITTLE_S * max(came, went):
        return None
    seconds = empty_in_s(lag, came, went)
    return "never" if seconds is None else round(seconds)


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)
