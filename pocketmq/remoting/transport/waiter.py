"""Waiter: receives the answer to a connection's own request."""

from typing import Protocol

from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import RemotingError


class Waiter(Protocol):
    """Waits for an answer: a future, or an object that behaves like one."""

    def done(self) -> bool: ...

    def set_result(self, result: RemotingCommand, /) -> None: ...

    def set_exception(self, exception: RemotingError, /) -> None: ...
