"""GivenOptions: the options of one mqadmin command, by letter."""

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.mqadmin.printed import parse_time
from pocketmq.cli.mqadmin.table import MqCommand
from pocketmq.remoting import java_number

if TYPE_CHECKING:
    from pocketmq.admin import Admin, ClusterBroker


class GivenOptions(dict[str, str]):
    """The given options; a letter is contained if its option was given."""

    def number(self, letter: str, default: int | None = None) -> int:
        """Return a number. Raises: CannotBegin if it is malformed, or missing without a default."""
        text = self.get(letter)
        if text is None and default is not None:
            return default
        try:
            return java_number.long(text or "")
        except ValueError:
            raise CannotBegin(f"-{letter} takes a number, not {text!r}") from None

    def flag(self, letter: str, default: bool = False) -> bool:
        """Parse like Java's Boolean.parseBoolean: anything but `true` is false."""
        return self[letter].lower() == "true" if letter in self else default

    def time(self, letter: str) -> int:
        """Return a time, ms since 1970. Raises: CannotBegin."""
        return parse_time(self[letter], time.time_ns() // 1_000_000)

    def value(self, word: str) -> Any:
        """Return the option of `letter`, or of `letter:kind` by the method of that kind."""
        letter, _, kind = word.partition(":")
        if kind == "list":
            return self[letter].split(",")
        return getattr(self, kind)(letter) if kind else self[letter]

    async def masters(self, admin: "Admin") -> "list[ClusterBroker]":
        """Return the masters of -c and -b, or all."""
        return await admin.site.masters(self.get("c"), self.get("b"))

    async def addresses(self, admin: "Admin", which: str) -> Sequence[str]:
        """Return addresses: of `servers`, `masters`, or `brokers`: slaves, too, each with its own files."""
        if which == "servers":
            return admin.name_servers
        if which == "masters":
            return [each.address for each in await self.masters(admin)]
        if "b" in self:
            return [self["b"]]
        return [each.address for each in await admin.site.brokers(self["c"])]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CannotBegin(f"{message}; see: {self.prog} -h")


def parse(
    command: MqCommand, arguments: Sequence[str], default_namesrv: str
) -> tuple[GivenOptions, str]:
    """Return the options of a command, and the name servers.

    Raises: CannotBegin for a bad option or a missing one. SystemExit(0) after -h.
    """
    same = f"The same: pocketmq {command.instead}"
    parser = _Parser(
        prog=f"mqadmin {command.name}",
        description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog=same if command.instead else f"In PocketMQ: {command.why}",
        allow_abbrev=False,
    )
    servers = "name servers, 'host:port;host:port' (default: NAMESRV_ADDR, else 127.0.0.1:9876)"
    at: dict[str, Any] = {
        "dest": "namesrv",
        "metavar": "ADDR",
        "default": default_namesrv,
        "help": servers,
    }
    parser.add_argument("-n", "--namesrvAddr", **at)
    for option in command.options:
        flags = [f"-{option.letter}", f"--{option.name}"][option.letter == option.name :]
        how: dict[str, Any] = {"action": "store_const", "const": "true"}
        if option.takes_value:
            how = {"metavar": "VALUE", "required": option.required}
        parser.add_argument(*flags, dest=option.letter, **how)
    found = vars(parser.parse_args(list(arguments)))
    namesrv = str(found.pop("namesrv"))
    given = GivenOptions((k, str(value).strip()) for k, value in found.items() if value is not None)
    if command.one_of and not given.keys() & set(command.one_of):
        words = " or ".join(f"-{letter}" for letter in command.one_of)
        raise CannotBegin(f"mqadmin {command.name} needs {words}; see: mqadmin {command.name} -h")
    return given, namesrv
