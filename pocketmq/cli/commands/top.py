"""`pocketmq top`: what goes in and out now, and which groups are worst off.

Rates are those between two looks.
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
from pocketmq.model.names import is_system_group

if TYPE_CHECKING:
    from pocketmq.admin import Admin

_ASKED_AT_ONCE = 16


@dataclass
class Look:
    """The state at `at_s`: messages ever stored by topic; by group its progress, and of how many."""

    at_s: float
    topics: dict[str, int] = field(default_factory=dict)
    groups: dict[str, tuple[int, int]] = field(default_factory=dict)


def top(
    namesrv: NameServer,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between updates.")] = 2.0,
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="Rows in each table.")] = 10,
    once: Annotated[bool, typer.Option("--once", help="Show each table once and exit.")] = False,
    everything: All = False,
    as_json: Json = False,
) -> None:
    """Show current traffic by topic and the groups with the most lag, until Ctrl-C.

    With --json, one value after two looks.
    """
    import asyncio

    async def work(admin: "Admin") -> None:
        before = await look(admin, everything)
        while True:
            await asyncio.sleep(every)
            now = await look(admin, everything)
            shown = rates(before, now, count)
            if as_json:
                print_json(shown)
                return
            if sys.stdout.isatty() and not once:
                sys.stdout.write("\x1b[H\x1b[J\n")
            print_rows(shown["topics"], as_json=False, empty="no topics")
            print_rows(shown["groups"], as_json=False, empty="no groups")
            if once:
                return
            before = now

    try:
        with_admin(namesrv, work)
    except KeyboardInterrupt:
        raise typer.Exit(int(ExitCode.OK)) from None


async def look(admin: "Admin", everything: bool) -> Look:
    """Query every topic and group; what cannot be queried now is left out."""
    import asyncio

    from pocketmq.admin.views.topic import users_topics
    from pocketmq.client.network.gather import together
    from pocketmq.remoting.errors import PocketMQError

    found = Look(asyncio.get_running_loop().time())

    async def topic(name: str) -> None:
        rows = await admin.topics.status(name, partial=True)
        found.topics[name] = sum(row.max_offset for row in rows)

    async def group(name: str) -> None:
        rows = await admin.groups.progress(name, partial=True)
        far = sum(row.consumer_offset for row in rows)
        found.groups[name] = (far, far + sum(row.lag for row in rows))

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
    await together(ask, asked, _ASKED_AT_ONCE)
    return found


def rates(before: Look, now: Look, count: int) -> dict[str, list[dict[str, Any]]]:
    """Return the busiest topics, and the groups with the most lag.

    >>> two = [Look(0, {"T": 10}, {"g": (2, 10)}), Look(2, {"T": 30}, {"g": (10, 30)})]
    >>> rates(*two, 5)["topics"]
    [{'topic': 'T', 'inPerS': 10.0, 'messages': 30}]
    >>> rates(*two, 5)["groups"]
    [{'group': 'g', 'lag': 20, 'inPerS': 10.0, 'outPerS': 4.0, 'emptyInS': 'never'}]
    """
    seconds = max(now.at_s - before.at_s, 0.001)

    def rate(new: int, old: int) -> float:
        return round(max(new - old, 0) / seconds, 1)

    topics: list[dict[str, Any]] = [
        {"topic": name, "inPerS": rate(end, before.topics.get(name, end)), "messages": end}
        for name, end in now.topics.items()
    ]
    groups: list[dict[str, Any]] = []
    for name, (far, end) in now.groups.items():
        far_before, end_before = before.groups.get(name, (far, end))
        lag, come, gone = end - far, rate(end, end_before), rate(far, far_before)
        empty: int | str | None = None
        if lag:
            empty = round(lag / (gone - come)) if gone > come else "never"
        groups.append(
            {"group": name, "lag": lag, "inPerS": come, "outPerS": gone, "emptyInS": empty}
        )
    topics.sort(key=lambda row: (-row["inPerS"], -row["messages"], row["topic"]))
    groups.sort(key=lambda row: (-row["lag"], row["group"]))
    return {"topics": topics[:count], "groups": groups[:count]}
