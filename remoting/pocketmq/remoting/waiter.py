"""Waiter: what a connection gives the answer to a request of its own."""

from typing import Protocol

from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import RemotingError


class Waiter(Protocol):
    """Who waits for an answer: a future, or what behaves like one."""

    def done(self) -> bool: ...

    def set_result(self, result: RemotingCommand, /) -> None: ...

    def set_exception(self, exception: RemotingError, /) -> None: ...
