"""`pocketmq store balance`: what became of a group's messages, by files alone."""

from typing import Annotated

import typer

from pocketmq.cli.balance_options import Listed, Since, Topic
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.options import Json
from pocketmq.remoting.errors import IllegalArgument


def of_files(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The broker's --data directory.")],
    group: Annotated[str, typer.Option("--group", "-g", help="The consumer group.")],
    topic: Topic = None,
    since: Since = None,
    subscription: Annotated[
        list[str] | None,
        typer.Option(
            help='What a member asked for: "TagA || TagB", or "SQL92 a > 1". Once for each that differs.'
        ),
    ] = None,
    listed: Listed = None,
    as_json: Json = False,
) -> None:
    """Every message of a group accounted for, from files alone: PocketMQ's or Apache RocketMQ's.

    Who got a message only PocketMQ's record of deliveries tells: without one, what the group has passed is
    unknown, but for retries, dead letters, and messages that none of --subscription asks for.
    """
    from pocketmq.books.from_files import open_ledger
    from pocketmq.books.subscriptions import texts_of
    from pocketmq.cli.commands.balance import ALWAYS, parse_state, print_balances, print_listed
    from pocketmq.cli.moments import parse_moment
    from pocketmq.cli.output import print_line, print_rows
    from pocketmq.files.local import LocalFiles
    from pocketmq.model.balance import State

    since_ms = 0 if since is None else parse_moment(since)
    state = None if listed is None else parse_state(listed)
    try:
        ledger = open_ledger(LocalFiles(), folder)
        books = ledger.of_group(group, texts_of(subscription or ()))
    except IllegalArgument as error:
        raise CannotBegin(str(error)) from error
    if state is not None:
        print_listed(books.listed(frozenset({state}), topic, since_ms), state, as_json=as_json)
        return
    balances = books.balances(topic, since_ms)
    if as_json:
        print_rows([each.to_json() for each in balances], as_json=True)
        return
    print_balances(balances, ALWAYS if books.is_recorded else {"stored", "difference"})
    unknown = sum(each.of(State.UNKNOWN) for each in balances)
    if unknown and not books.is_recorded:
        hint = (
            "--list unknown says which of them all subscriptions ask for"
            if subscription
            else "--subscription says what members asked for; what none asks for is filtered"
        )
        print_line(
            f"{unknown} unknown: the group has passed them, and no file tells who got them. {hint}"
        )
