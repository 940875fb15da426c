"""Runs a command's coroutine with an Admin; the cluster's errors become exit codes."""

import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from pocketmq.cli.exits import CannotBegin, ExitCode
from pocketmq.model.names import FAQ
from pocketmq.remoting.errors import IllegalArgument, PocketMQError, did_you_mean

if TYPE_CHECKING:
    from pocketmq.admin import Admin

_T = TypeVar("_T")


class ClusterRefused(Exception):
    """The cluster refused, or did not answer: one line, exit code 1."""


def with_admin(namesrv: str, work: Callable[["Admin"], Awaitable[_T]]) -> _T:
    """Return what `work` returns. Raises: CannotBegin for a wrong argument, ClusterRefused."""
    import logging

    from pocketmq.admin import Admin
    from pocketmq.cli.connecting import client_options

    async def run() -> _T:
        from pocketmq.client.errors import NoRoute

        async with Admin(**client_options(namesrv)) as admin:
            try:
                return await work(admin)
            except NoRoute as error:
                near = await _near(admin, error.topic)
                if not near:
                    raise
                raise ClusterRefused(one_line(error) + near) from error

    # The command's own error line says what a wrong port answered.
    log, nowhere = logging.getLogger("pocketmq.remoting.transport"), logging.NullHandler()
    log.addHandler(nowhere)
    try:
        return completed(run)
    finally:
        log.removeHandler(nowhere)


async def _near(admin: "Admin", topic: str) -> str:
    """Return a question for the topic whose name is nearest, or an empty text."""
    try:
        return did_you_mean(topic, await admin.topics.names())
    except PocketMQError:
        return ""


def completed(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run the coroutine that `work` makes, as `answered` does: asyncio is imported for no other command."""
    import asyncio

    return answered(lambda: asyncio.run(work()))


def answered(call: Callable[[], _T]) -> _T:
    """Return what `call` returns, converting its errors to this command line's."""
    # Nothing of these is needed for --help.
    from pocketmq.cli.servers.server_log import keep_readable
    from pocketmq.client.errors import Unauthorised

    keep_readable()
    try:
        return call()
    except IllegalArgument as error:
        # A broker or cluster that is unknown: where the known ones are listed.
        named = any(word in str(error) for word in ("no master of", "no cluster"))
        hint = ". See: pocketmq cluster list" if named else ""
        raise CannotBegin(one_line(error) + hint) from error
    except PocketMQError as error:
        text = one_line(error)
        if isinstance(error, Unauthorised):
            text += ". Pass them to a command in POCKETMQ_ACCESS_KEY and POCKETMQ_SECRET_KEY"
        raise ClusterRefused(text) from error
    except ExceptionGroup as group:
        refused = group.subgroup(PocketMQError)
        if refused is None:
            raise
        first: BaseException = refused
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise ClusterRefused(one_line(first)) from group


def one_line(error: BaseException) -> str:
    """Return the error's text without the second line, a link, of a name server's remark.

    >>> one_line(ValueError("no route\\nSee http://rocketmq.apache.org/docs/faq/ for further details.)"))
    'no route)'
    """
    text = str(error).replace(FAQ, "")
    return " ".join(text.split("\n")) if "\n" in text else text


def confirm(what: str, yes: bool) -> None:
    """Ask before something irreversible. Raises: CannotBegin, typer.Exit."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CannotBegin(f"{what}: add --yes to do it without a prompt")
    sys.stderr.write(f"{what}. Go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        sys.stderr.write("nothing was done\n")
        raise typer.Exit(int(ExitCode.FAILED))
