"""Shared by the steps of a migration: progress messages to the user, and refusals.

Apart from the steps, since a command that only checks (`--check`), or migrates outwards, needs no broker.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from pocketmq.cli.output import print_line
from pocketmq.client.errors import BrokerRefused
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

#: How long a step waits before it looks again.
LOOK_S = 0.05
_TRIES_MAX = 15
_PAUSE_S_MAX = 3.0


class MigrationRefused(PocketMQError):
    """Why it does not continue, in one sentence; every step is undone."""


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """How the steps talk to the caller: a line, and a question that waits for a yes."""

    say: Callable[[str], None]
    confirm: Callable[[str], Awaitable[None]]


async def insisted(change: Callable[[], Awaitable[None]], by_hand: str) -> None:
    """Make a change that a broker must not be left without, again while it does not answer: for a minute.

    The connection may be dead, which only a request finds out. by_hand: what an operator does instead.
    Raises: MigrationRefused with `by_hand`; BrokerRefused.
    """
    for number in range(_TRIES_MAX):
        try:
            await change()
        except BrokerRefused:
            raise
        except (PocketMQError, OSError) as error:
            log.warning("a broker did not answer, it is asked again reason=%s", error)
            reason = error
            await asyncio.sleep(min(_PAUSE_S_MAX, LOOK_S * 2**number))
        else:
            return
    raise MigrationRefused(f"{by_hand}: it did not answer {_TRIES_MAX} times ({reason})")


def said(text: str) -> None:
    """Print one line; a terminal that was closed meanwhile ends no migration."""
    with suppress(OSError):
        print_line(text)


async def asked(what: str) -> None:
    """Ask the user at the terminal, while everything else continues. Raises: MigrationRefused."""
    sys.stderr.write(f"{what}. Go on? [y/N] ")
    sys.stderr.flush()
    loop = asyncio.get_running_loop()
    answered = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), answered.set)
    try:
        await answered.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise MigrationRefused("it was not wanted")
