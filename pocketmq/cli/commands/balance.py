"""`pocketmq group balance`: what became of all messages of a group."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import ClusterRefused, with_admin
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.group_report import check_known
from pocketmq.cli.moments import parse_moment, show_moment
from pocketmq.cli.options import GroupName, Json, NameServer
from pocketmq.cli.output import print_line, print_rows
from pocketmq.model.balance import ListedMessages, State

if TYPE_CHECKING:
    from pocketmq.admin import Admin
    from pocketmq.admin.views.balance import BalanceView

_WORDS = ", ".join(state.value for state in State)
# Columns that are shown even where they are 0 in every row.
_ALWAYS = {"stored", "consumed", "lost", "difference"}


def balance(
    group: GroupName,
    namesrv: NameServer,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only messages stored since: now, 2h (ago), 2026-11-21T12:00."),
    ] = None,
    listed: Annotated[
        str | None,
        typer.Option("--list", metavar="STATE", help=f"List the messages in a state: {_WORDS}."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Every message of a group accounted for: consumed, waiting, lost and why.

    What each state says: docs/balance.md. A difference that is not 0 is a defect of PocketMQ.
    """
    since_ms = 0 if since is None else parse_moment(since)
    if listed is not None:
        state = _state(listed)
        rows = with_admin(namesrv, lambda admin: _list(admin, group, state, topic, since_ms))
        shown = [each.to_json() if as_json else _row(each) for each in rows]
        print_rows(shown, as_json=as_json, empty=f"no message is {listed}")
        return
    view = with_admin(namesrv, lambda admin: _view(admin, group, topic, since_ms))
    if as_json:
        print_rows([each.to_json() for each in view.rows], as_json=True)
        return
    _print(view)


def _state(word: str) -> State:
    try:
        return State.of(word)
    except KeyError:
        raise CannotBegin(f"no state {word!r}; states are: {_WORDS}") from None


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
    columns = _ALWAYS | {state.value for state in view.states} | {"topic"}
    rows: list[dict[str, Any]] = [
        {name: value for name, value in each.to_json().items() if name in columns}
        for each in view.rows
    ]
    print_rows(rows, as_json=False, empty="the group reads no topic")
    lost = view.sum.of(State.LOST)
    if lost:
        print_line(f"{lost} lost; which: pocketmq group balance {view.group} --list lost")


def _row(each: ListedMessages) -> dict[str, Any]:
    return {**each.to_json(), "time": show_moment(each.time)}
