"""Blocking: a blocking client over an asyncio one: start, shutdown, `with`, and `twin` for the methods."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, overload

from pocketmq.client.group_client import GroupClient
from pocketmq.client.sync import loop_thread
from pocketmq.client.sync.loop_thread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")


@overload
def twin(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]: ...
@overload
def twin(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]: ...
def twin(method: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[Any, P], Any]:
    """The method once more, for an object that has the asyncio one as `_client`: it waits for the value.

    A coroutine is run by the object's `_call`, a plain function by its `_do`.
    """
    waits = iscoroutinefunction(method)

    @wraps(method)
    def blocking(self: Any, /, *args: P.args, **options: P.kwargs) -> Any:
        # The trace of a test that fails shows the test.
        __tracebackhide__ = True
        if waits:
            return self._call(method(self._client, *args, **options))
        return self._do(partial(method, self._client, *args, **options))

    return blocking


class Blocking:
    """Base of the blocking clients. A client may be used from several threads."""

    def __init__(self, client: GroupClient[Any, Any]) -> None:
        self._client: Any = client
        self._thread: LoopThread | None = None
        self._ended: threading.Event | None = None

    @property
    def client_id(self) -> str:
        """The id by which brokers know this client."""
        return str(self._client.client_id)

    @property
    def group(self) -> str:
        """The group as the caller named it."""
        return str(self._client.group)

    def start(self) -> None:
        """See the asyncio client. Raises: what its start() raises."""
        if self._thread is not None:
            self._thread.check_own()
        thread = loop_thread.acquire()
        try:
            thread.call(self._client.start())
        except BaseException:
            loop_thread.release()
            raise
        self._thread = thread

    def shutdown(self) -> None:
        """See the asyncio client. May be called twice; does nothing in a forked child of its process."""
        self._leave(None, None, None)

    def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        thread = self._thread
        # In a forked child it is the parent's, and stays to say so.
        if thread is None or thread.is_inherited:
            return
        if self._ended is not None:
            # Begun inside a listener, for which it waits.
            if not self._client._is_inside():
                self._ended.wait()
            return
        try:
            thread.call(self._client.__aexit__(kind, error, trace))
        finally:
            if self._client._ending is None:
                self._thread = None
                loop_thread.release()
            else:
                self._ended = threading.Event()
                thread.begin(self._release_after(self._client._ending, self._ended))

    async def _release_after(self, ending: "asyncio.Task[None]", ended: threading.Event) -> None:
        await asyncio.wait((ending,))
        self._thread, self._ended = None, None
        ended.set()
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
    raise RuntimeError("a client that is not started cannot wait")
