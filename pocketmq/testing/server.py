"""PocketMQ: the interface of every server that a test gets, wherever it runs.

Every method blocks the calling thread; `aio` has the same names as coroutines, for tests with an event loop:

    pocketmq.send("T", "hello")                       await pocketmq.aio.send("T", "hello")
    pocketmq.admin.topics.delete("T")                 async with Admin(name_server=pocketmq.namesrv) ...

A blocking wait inside a coroutine would stop the test's own consumers: it is refused with an explanation.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, cast

from pocketmq.client.sync.blocking import twin
from pocketmq.client.sync.loop_thread import LoopThread
from pocketmq.testing.clock import AdvancingClock
from pocketmq.testing.failures import ListenerFailed
from pocketmq.testing.server_calls import ServerCalls

P = ParamSpec("P")
T = TypeVar("T")


def _outside_a_loop(method: Callable[P, T]) -> Callable[P, T]:
    """Wrap a method so that it is refused where it would block an event loop."""

    @wraps(method)
    def refusing(*args: P.args, **options: P.kwargs) -> T:
        __tracebackhide__ = True
        if _loop_runs():
            name = refusing.__name__
            raise RuntimeError(
                f"{name}() would block this event loop, and with it the consumers that it waits for: write "
                f"`await pocketmq.aio.{name}(...)`"
            )
        return method(*args, **options)

    return refusing


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# What says everything in its text: where in this package it was raised says no more.
_WHOLE = (TimeoutError, ListenerFailed)


class PocketMQ(ABC):
    """A running name server and broker.

    namesrv: `ip:port` for clients. broker: `ip:port` of the broker itself. grpc: `ip:port` for the SDKs of
    RocketMQ 5, empty without them. admin: pocketmq.admin.Admin as blocking calls. aio: this object's
    calls as coroutines. clock: see AdvancingClock.
    """

    namesrv: str
    broker: str
    grpc: str = ""
    _thread: LoopThread
    _client: ServerCalls

    # ------------------------------------------------------------ life

    @abstractmethod
    def start(self) -> Self:
        """Start, and return once a client can send."""

    @abstractmethod
    def stop(self) -> None:
        """Stop, and leave nothing behind."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # ------------------------------------------------------------ what a test is given

    @property
    @abstractmethod
    def clock(self) -> AdvancingClock:
        """Return the broker's time. Raises: TypeError for a server in another process."""

    @property
    def environment(self) -> dict[str, str]:
        """Return variables for programs that a test starts: RocketMQ's clients read NAMESRV_ADDR."""
        return {"NAMESRV_ADDR": self.namesrv}

    @property
    def admin(self) -> Any:
        """Return pocketmq.admin.Admin with blocking calls: `admin.topics.create("T")`."""
        return _Proxy(self._client.admin, self._call)

    @property
    def aio(self) -> ServerCalls:
        """Return the methods below as coroutines, to await in any event loop."""
        return cast(ServerCalls, _Proxy(self._client, self._await))

    create_topic = twin(ServerCalls.create_topic)
    create_group = twin(ServerCalls.create_group)
    send = twin(ServerCalls.send)
    send_all = twin(ServerCalls.send_all)
    messages = twin(ServerCalls.messages)
    lag = twin(ServerCalls.lag)
    wait_for_messages = _outside_a_loop(twin(ServerCalls.wait_for_messages))
    wait_until_consumed = _outside_a_loop(twin(ServerCalls.wait_until_consumed))

    # ------------------------------------------------------------ across threads

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a test's own coroutine where the server's calls run."""
        return self._call(coroutine)

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        __tracebackhide__ = True
        try:
            return self._thread.call(coroutine)
        except _WHOLE as error:
            raise error.with_traceback(None) from error.__cause__

    async def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        __tracebackhide__ = True
        try:
            return await asyncio.wrap_future(self._thread.begin(coroutine))
        except _WHOLE as error:
            raise error.with_traceback(None) from error.__cause__


class _Proxy:
    """An object whose coroutine methods, and those of its parts, are run by `carry`."""

    def __init__(self, target: object, carry: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._target = target
        self._carry = carry

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if iscoroutinefunction(found):
            return lambda *args, **options: self._carry(found(*args, **options))
        if type(found).__module__.startswith("pocketmq.admin.") and not callable(found):
            return _Proxy(found, self._carry)
        return found

    def __repr__(self) -> str:
        return f"{self._target!r}, called from another thread"
