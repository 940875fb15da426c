"""PocketMQ: the face of every server that a test gets, wherever that runs.

Every method blocks the calling thread; `aio` has the same names as coroutines, for tests with an event loop:

    pocketmq.send("T", "hello")                       await pocketmq.aio.send("T", "hello")
    pocketmq.admin.topics.delete("T")                 async with Admin(name_server=pocketmq.namesrv) ...

A blocking wait inside a coroutine would stop the test's own consumers: it is refused with that advice.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from pocketmq.client import MessageExt, SendResult
from pocketmq.testing.clock import AdvancingClock
from pocketmq.testing.loop_thread import LoopThread
from pocketmq.testing.server_calls import WITHIN_S, ServerCalls

T = TypeVar("T")


class PocketMQ(ABC):
    """A name server and a broker that serve.

    namesrv: `ip:port` for clients. broker: `ip:port` of the broker itself. admin: pocketmq.admin.Admin as
    blocking calls. aio: this object's calls as coroutines. clock: see AdvancingClock.
    """

    namesrv: str
    broker: str
    _thread: LoopThread
    _calls: ServerCalls

    # ------------------------------------------------------------ life

    @abstractmethod
    def start(self) -> Self:
        """Start, and return when a client can send."""

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
        """The broker's time. Raises: TypeError for a server in another process."""

    @property
    def environment(self) -> dict[str, str]:
        """Variables for programs that a test starts: RocketMQ's clients read NAMESRV_ADDR."""
        return {"NAMESRV_ADDR": self.namesrv}

    @property
    def admin(self) -> Any:
        """pocketmq.admin.Admin, its coroutines as blocking calls: `admin.topics.create("T")`."""
        return _Proxy(self._calls.admin, self._call)

    @property
    def aio(self) -> ServerCalls:
        """The methods below as coroutines, to await in any event loop."""
        return cast(ServerCalls, _Proxy(self._calls, self._await))

    def create_topic(self, topic: str, *, queues: int = 4, perm: int = 6) -> str:
        """Make a topic, and return its name when clients can find it."""
        return self._call(self._calls.create_topic(topic, queues=queues, perm=perm))

    def create_group(self, group: str, **settings: object) -> str:
        """Make a consumer group; settings: fields of pocketmq.admin.GroupConfig. Returns: its name."""
        return self._call(self._calls.create_group(group, **settings))

    def send(
        self,
        topic: str,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        sharding_key: str | None = None,
        delay_level: int | None = None,
        deliver_at_ms: int | None = None,
    ) -> SendResult:
        """Send one message; text is sent as UTF-8. See pocketmq.client.Producer.send for the rest."""
        return self._call(
            self._calls.send(
                topic,
                body,
                tags=tags,
                keys=keys,
                properties=properties,
                queue_id=queue_id,
                sharding_key=sharding_key,
                delay_level=delay_level,
                deliver_at_ms=deliver_at_ms,
            )
        )

    def send_all(
        self, topic: str, bodies: Iterable[bytes | str], *, tags: str | None = None
    ) -> list[SendResult]:
        """Send messages one after the other, each to the next queue."""
        return self._call(self._calls.send_all(topic, bodies, tags=tags))

    def messages(self, topic: str, *, tags: str = "*") -> list[MessageExt]:
        """Every message of a topic that is stored now, in the order of storing; nobody consumes them.

        Dead letters are in "%DLQ%" + group. Raises: NoRoute.
        """
        return self._call(self._calls.messages(topic, tags=tags))

    def lag(self, group: str, topic: str | None = None) -> int:
        """Messages that the group has still to consume, as it has committed; topic None: all its topics."""
        return self._call(self._calls.lag(group, topic))

    def wait_for_messages(
        self, topic: str, count: int, *, tags: str = "*", within_s: float = WITHIN_S
    ) -> list[MessageExt]:
        """The messages of a topic, when there are at least so many. Raises: TimeoutError."""
        _refuse_in_a_loop("wait_for_messages")
        return self._call(self._calls.wait_for_messages(topic, count, tags=tags, within_s=within_s))

    def wait_until_consumed(
        self, group: str, topic: str | None = None, *, within_s: float = WITHIN_S
    ) -> None:
        """Wait until the group has consumed all that is stored, by its commits or its members' own word.

        A message that failed counts as consumed when it is in the group's retry topic, which is among the
        topics of `topic=None`. Raises: TimeoutError saying what is left.
        """
        _refuse_in_a_loop("wait_until_consumed")
        self._call(self._calls.wait_until_consumed(group, topic, within_s=within_s))

    # ------------------------------------------------------------ across threads

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the test where the server's calls run: for what is not among them."""
        return self._call(coroutine)

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._thread.call(coroutine)

    async def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._thread.begin(coroutine))


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


def _refuse_in_a_loop(name: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        f"{name}() would block this event loop, and with it the consumers that it waits for: write "
        f"`await pocketmq.aio.{name}(...)`"
    )
