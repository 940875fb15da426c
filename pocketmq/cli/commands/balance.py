"""`pocketmq group balance`, `group redeliver`: what became of a group's messages; lost ones given back."""

from collections.abc import Container
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.balance_options import Listed, Since, Topic
from pocketmq.cli.cluster import ClusterRefused, confirm, with_admin
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.group_report import check_known
from pocketmq.cli.moments import parse_moment, show_moment
from pocketmq.cli.options import GroupName, Json, NameServer, Yes
from pocketmq.cli.output import print_line, print_rows
from pocketmq.model.balance import Balance, ListedMessages, State, total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pocketmq.admin import Admin
    from pocketmq.admin.views.balance import BalanceView

STATES = ", ".join(state.value for state in State)
# Columns that are shown even where they are 0 in every row.
ALWAYS = {"stored", "consumed", "lost", "difference"}
_NONE = {"given": 0}


def balance(
    group: GroupName,
    namesrv: NameServer,
    topic: Topic = None,
    since: Since = None,
    listed: Listed = None,
    as_json: Json = False,
) -> None:
    """Every message of a group accounted for: consumed, waiting, lost and why.

    What each state says: docs/balance.md. A difference that is not 0 is a defect of PocketMQ.
    """
    since_ms = 0 if since is None else parse_moment(since)
    if listed is not None:
        state = parse_state(listed)
        rows = with_admin(namesrv, lambda admin: _list(admin, group, state, topic, since_ms))
        print_listed(rows, state, as_json=as_json)
        return
    view = with_admin(namesrv, lambda admin: _view(admin, group, topic, since_ms))
    if as_json:
        print_rows([each.to_json() for each in view.rows], as_json=True)
        return
    _print(view)


def redeliver(
    group: GroupName,
    namesrv: NameServer,
    lost: Annotated[bool, typer.Option("--lost", help="Messages that were lost.")] = False,
    skipped: Annotated[
        bool, typer.Option("--skipped", help="Messages that a move of the offset passed.")
    ] = False,
    topic: Topic = None,
    since: Since = None,
    rate: Annotated[int, typer.Option(min=1, help="Messages a second, of each broker.")] = 1_000,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count what would be given.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Give lost or skipped messages to this group again, and to no other, through its retry topic.

    It may be interrupted and run again: no message is given twice. It refuses while members subscribe
    differently, unless the group is isolated.
    """
    if lost == skipped:
        raise CannotBegin("say what to give back: --lost or --skipped")
    state = State.LOST if lost else State.SKIPPED
    since_ms = 0 if since is None else parse_moment(since)

    async def work(admin: "Admin") -> dict[str, dict[str, int]]:
        counted = await _give(admin, group, state, topic, since_ms, 0)
        if dry_run:
            return counted
        count = sum(each["left"] for each in counted.values())
        confirm(f"{count:,} {state.value} messages will be given to group {group!r} again", yes)
        return await _give(admin, group, state, topic, since_ms, rate)

    given = with_admin(namesrv, work)
    rows = [{"broker": name, **numbers} for name, numbers in sorted(given.items())]
    print_rows(rows, as_json=as_json, empty="no PocketMQ broker answers")


async def _give(
    admin: "Admin", group: str, state: State, topic: str | None, since_ms: int, rate: int
) -> dict[str, dict[str, int]]:
    """Give them, `rate` a second; 0 only counts."""
    import asyncio

    await check_known(admin, group)
    sums: dict[str, dict[str, int]] = {}
    async for told in admin.balances.redeliver(group, state, topic, since_ms, count=rate):
        before, sums = sums, told
        given = max(
            (each["given"] - before.get(name, _NONE)["given"] for name, each in told.items()),
            default=0,
        )
        if given:
            await asyncio.sleep(given / rate)
    return sums


def parse_state(word: str) -> State:
    try:
        return State.of(word)
    except KeyError:
        raise CannotBegin(f"no state {word!r}; states are: {STATES}") from None


async def _view(admin: "Admin", group: str, topic: str | None, since_ms: int) -> "BalanceView":
    from pocketmq.admin.views.balance import balance_view

    await check_known(admin, group)
    view = await balance_view(admin, group, topic, since_ms)
    if not view.brokers:
        raise ClusterRefused(
            "no PocketMQ broker answers, and Apache brokers cannot account for messages"
        )
    return view


async def _list(
    admin: "Admin", group: str, state: State, topic: str | None, since_ms: int
) -> list[ListedMessages]:
    await check_known(admin, group)
    return await admin.balances.listed(group, [state], topic, since_ms)


def _print(view: "BalanceView") -> None:
    print_balances(view.rows)
    lost = view.sum.of(State.LOST)
    if lost:
        print_line(
            f"{lost} lost; which: pocketmq group balance {view.group} --list lost; to give them back: "
            f"pocketmq group redeliver {view.group} --lost"
        )


def print_balances(balances: "Sequence[Balance]", always: Container[str] = ALWAYS) -> None:
    """Print a row a topic, without the states that no message is in. always: columns that are shown all the
    same.
    """
    whole = total(balances, "", "")
    used = {state.value for state in State if whole.of(state)} | {"topic"}
    rows: list[dict[str, Any]] = [
        {name: value for name, value in each.to_json().items() if name in used or name in always}
        for each in balances
    ]
    print_rows(rows, as_json=False, empty="the group reads no topic")


def print_listed(rows: "Sequence[ListedMessages]", state: State, *, as_json: bool) -> None:
    shown = [each.to_json() for each in rows] if as_json else _shown(rows)
    print_rows(shown, as_json=as_json, empty=f"no message is {state}")


def _shown(rows: "Sequence[ListedMessages]") -> list[dict[str, Any]]:
    """Return what people read: of the columns those with something in them."""
    told = [{**each.to_json(), "time": show_moment(each.time)} for each in rows]
    used = {name for row in told for name, value in row.items() if value != ""}
    return [{name: value for name, value in row.items() if name in used} for row in told]
