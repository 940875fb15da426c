"""Coroutines of a connection. Kept apart because connection.py may be compiled by mypyc, so it has none.

A coroutine that mypyc (2.4) compiled throws into its awaited object in a way that is deprecated from Python
3.12 on. Where warnings are errors, as in many test suites, a cancelled request ended with that warning.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from pocketmq.remoting.codes import request_name
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import RequestTimeout
from pocketmq.remoting.transport.peer import PeerAnswer


class Asker(Protocol):
    """A connection over which requests are sent and answered: connection.Connection."""

    peer: str

    def begin(self, command: RemotingCommand) -> "asyncio.Future[RemotingCommand]": ...

    def forget(self, opaque: int) -> None: ...

    def unanswered(self, opaque: int, waited_ms: float) -> None: ...

    def send(self, reply: RemotingCommand) -> None: ...


async def invoke(connection: Asker, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
    """Send a request and wait for its answer."""
    future = connection.begin(command)
    # A timer alone: asyncio.timeout, which could cancel anything, costs twice as much.
    loop = asyncio.get_running_loop()
    timer = loop.call_later(timeout_ms / 1000, _late, future, connection, command, timeout_ms)
    try:
        return await future
    except RequestTimeout:
        late_ms = (loop.time() - timer.when()) * 1000
        connection.unanswered(command.opaque, timeout_ms + late_ms)
        raise
    finally:
        timer.cancel()
        connection.forget(command.opaque)


def _late(
    future: "asyncio.Future[RemotingCommand]",
    connection: Asker,
    command: RemotingCommand,
    timeout_ms: int,
) -> None:
    if not future.done():
        name = request_name(command.code)
        future.set_exception(RequestTimeout(connection.peer, name, timeout_ms))


async def ask(
    connection: Asker, code: int, fields: Mapping[str, str], body: bytes, timeout_ms: int
) -> PeerAnswer:
    """Like `invoke`, from a code and fields."""
    answer = await invoke(connection, RemotingCommand(code, dict(fields), body), timeout_ms)
    return PeerAnswer(answer.code, answer.remark, answer.ext, bytes(answer.body))


async def run(
    connection: Asker,
    command: RemotingCommand,
    handler: Coroutine[Any, Any, RemotingCommand | None],
    failed: Callable[[RemotingCommand, Exception], None],
    done: Callable[[], None],
) -> None:
    """Answer a request with what its handler's coroutine returns; done: called in any case."""
    try:
        reply = await handler
    except Exception as error:  # noqa: BLE001 - a bug answers, as in a plain handler
        failed(command, error)
        return
    finally:
        done()
    if reply is not None and not command.is_oneway:
        connection.send(reply)
