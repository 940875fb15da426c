"""Runs one row of the table: its call or its function, and prints the answers.

A function yields texts, which are lines, and rows of the command's table. It yields Table(n) for the heading
of its n-th table, whose rows follow; without one, the first row brings the heading of the first.
"""

import importlib
from collections.abc import AsyncIterator, Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from pocketmq.admin import Admin
from pocketmq.cli.mqadmin.arguments import GivenOptions
from pocketmq.cli.mqadmin.printed import say
from pocketmq.cli.mqadmin.table import MqCommand
from pocketmq.remoting.codes import RequestCode

Answers = AsyncIterator[Any]
_REQUEST_TIMEOUT_MS = 60_000


class Table(NamedTuple):
    """The heading of a table, by its place in the command's row."""

    number: int = 0


async def show(command: MqCommand, admin: Admin, given: GivenOptions) -> None:
    """Print the answers of a command. Raises: CannotBegin, ClusterRefused, PocketMQError."""
    tables, number, printed = command.tables, -1, False
    async for each in answers(command)(admin, given):
        printed = True
        if isinstance(each, str):
            say(each)
        elif isinstance(each, Table):
            number = each.number
            say(tables[number].heading)
        else:
            if number < 0:
                number = 0
                say(tables[0].heading)
            say(tables[number].of(each))
    if tables and not printed:
        say(tables[0].heading)


def answers(command: MqCommand) -> Callable[[Admin, GivenOptions], Answers]:
    """Return what makes the call of the command, or its function."""
    if not command.call:
        module = importlib.import_module(f"pocketmq.cli.mqadmin.{command.module}")
        function: Callable[[Admin, GivenOptions], Answers] = getattr(module, command.function)
        return function
    return lambda admin, given: _called(command, admin, given)


async def _called(command: MqCommand, admin: Admin, given: GivenOptions) -> Answers:
    """Make the command's call: once, or for each address that it names."""
    path, *words = command.call
    each_of = words.pop(0)[1:] if words and words[0].startswith("@") else ""
    pairs = [word.rpartition("=") for word in words]
    named = {name: given.value(word) for name, _, word in pairs if name and word[0] in given}
    values = [given.value(word) for name, _, word in pairs if not name]
    if path.isupper():
        values, named = [RequestCode[path]], {"timeout_ms": _REQUEST_TIMEOUT_MS}
        path = "site.api.requests.ask"
    for at in await given.addresses(admin, each_of) if each_of else ("",):
        answer = await attrgetter(path)(admin)(*([at] if at else []), *values, **named)
        if command.tables:
            for row in answer:
                yield row
        for mark, line in command.lines:
            known = {**given, "at": at}
            if mark == "<":
                yield line.of(known)
            elif mark == "*":
                assert isinstance(answer, Mapping)
                for key, value in sorted(answer.items()):
                    yield line.of({**known, "key": key, "value": value})
    for mark, line in command.lines:
        if mark == ".":
            yield line.of(given)
