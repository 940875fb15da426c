"""GivenOptions: the options of one mqadmin command, by letter."""

import argparse
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NoReturn

from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.mqadmin.printed import print_columns, say
from pocketmq.cli.mqadmin.table import MqCommand
from pocketmq.remoting import java_number

if TYPE_CHECKING:
    from pocketmq.admin import Admin


class GivenOptions:
    """The given options; a letter is contained if its option was given."""

    def __init__(self, command: MqCommand, values: dict[str, str]) -> None:
        self._command = command
        self._values = values

    def __contains__(self, letter: str) -> bool:
        return letter in self._values

    def __getitem__(self, letter: str) -> str:
        return self._values[letter]

    def text(self, letter: str, default: str = "") -> str:
        return self._values.get(letter, default)

    def maybe(self, letter: str) -> str | None:
        return self._values.get(letter)

    def number(self, letter: str, default: int | None = None) -> int:
        """Return a number. Raises: CannotBegin if it is malformed, or missing without a default."""
        text = self._values.get(letter)
        if text is None and default is not None:
            return default
        try:
            return java_number.long(text or "")
        except ValueError:
            raise CannotBegin(f"-{letter} takes a number, not {text!r}") from None

    def flag(self, letter: str, default: bool) -> bool:
        """Parse like Java's Boolean.parseBoolean: anything but `true` is false."""
        return self._values[letter].lower() == "true" if letter in self._values else default

    def show(self, rows: Iterable[tuple[object, ...]], *, table: int = 0) -> None:
        """Print rows under the columns of the command."""
        print_columns(*self._command.tables[table], rows)

    async def call(self, admin: "Admin") -> None:
        """Make the call of a command without a function, and print its text."""
        path, *words = self._command.run.split()
        pairs = [word.rpartition("=") for word in words]
        await attrgetter(path)(admin)(
            *(self[letter] for name, _, letter in pairs if not name),
            **{name: self[letter] for name, _, letter in pairs if name},
        )
        for line in self._command.said:
            say(line.format_map(self._values))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CannotBegin(f"{message}; see: {self.prog} -h")


def parse(
    command: MqCommand, arguments: Sequence[str], default_namesrv: str
) -> tuple[GivenOptions, str]:
    """Return the options of a command, and the name servers.

    Raises: CannotBegin for a bad option or a missing one. SystemExit(0) after -h.
    """
    parser = _Parser(
        prog=f"mqadmin {command.name}",
        description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog=f"The same: pocketmq {command.instead}"
        if command.instead
        else f"In PocketMQ: {command.why}",
        allow_abbrev=False,
    )
    parser.add_argument(
        *("-n", "--namesrvAddr"),
        dest="namesrv",
        metavar="ADDR",
        default=default_namesrv,
        help="name servers, 'host:port;host:port' (default: NAMESRV_ADDR, else 127.0.0.1:9876)",
    )
    for option in command.options:
        flags = [f"--{option.name}"]
        if option.letter != option.name:
            flags.insert(0, f"-{option.letter}")
        if option.takes_value:
            parser.add_argument(
                *flags, dest=option.letter, metavar="VALUE", required=option.required
            )
        else:
            parser.add_argument(*flags, dest=option.letter, action="store_const", const="true")
    found = vars(parser.parse_args(list(arguments)))
    namesrv = str(found.pop("namesrv"))
    values = {letter: str(value).strip() for letter, value in found.items() if value is not None}
    if command.one_of and not values.keys() & set(command.one_of):
        words = " or ".join(f"-{letter}" for letter in command.one_of)
        raise CannotBegin(f"mqadmin {command.name} needs {words}; see: mqadmin {command.name} -h")
    return GivenOptions(command, values), namesrv
