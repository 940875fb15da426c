"""Blocking: start, shutdown and `with` of a blocking client over an asyncio one."""

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from pocketmq.client.sync import loop_thread
from pocketmq.client.sync.loop_thread import LoopThread

T = TypeVar("T")


class _Client(Protocol):
    @property
    def client_id(self) -> str: ...

    async def start(self) -> None: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Blocking:
    """Base of the blocking clients. A client may be used from several threads."""

    def __init__(self, client: _Client) -> None:
        self._client = client
        self._thread: LoopThread | None = None

    @property
    def client_id(self) -> str:
        """Who this client is at the brokers."""
        return self._client.client_id

    def start(self) -> None:
        """See the asyncio client. Raises: what its start() raises."""
        thread = loop_thread.acquire()
        try:
            thread.call(self._client.start())
        except BaseException:
            loop_thread.release()
            raise
        self._thread = thread

    def shutdown(self) -> None:
        """See the asyncio client. May be called twice."""
        self._leave(None, None, None)

    def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            thread.call(self._client.__aexit__(kind, error, trace))
        finally:
            loop_thread.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(kind, error, trace)

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        thread = self._thread
        if thread is None:
            # The coroutine's first step raises NotRunning, with the asyncio client's text.
            return _first_step(coroutine)
        return thread.call(coroutine)

    def _do(self, function: Callable[[], T]) -> T:
        return function() if self._thread is None else self._thread.do(function)


def _first_step(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        coroutine.send(None)
    except StopIteration as ended:
        value: T = ended.value
        return value
    finally:
        coroutine.close()
    raise RuntimeError("a client that was not started began to wait")
