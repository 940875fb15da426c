"""External: a running server, PocketMQ's or Apache's, by the address of its name server."""

from contextlib import AsyncExitStack
from typing import Self

from pocketmq.client.sync.loop_thread import LoopThread
from pocketmq.remoting.clock import SystemClock
from pocketmq.testing.clock import AdvancingClock
from pocketmq.testing.server import PocketMQ
from pocketmq.testing.server_calls import ServerCalls


class External(PocketMQ):
    """A server that was running before: stop() leaves it running, with all that the tests created there."""

    def __init__(self, namesrv: str) -> None:
        """namesrv: `ip:port`, several joined by ';'."""
        self.namesrv = namesrv
        self.broker = ""
        self._is_running = False

    @property
    def clock(self) -> AdvancingClock:
        raise TypeError(
            "the time of a server in another process cannot be advanced: use the fixture `pocketmq` "
            "without --pocketmq-nameserver for this test"
        )

    def start(self) -> Self:
        """Connect. Raises: Unreachable; IllegalArgument if no broker is registered there."""
        self._thread = LoopThread("pocketmq-testing-calls", self._enter)
        self._thread.start()
        self._is_running = True
        return self

    def stop(self) -> None:
        if self._is_running:
            self._is_running = False
            self._thread.close()

    async def _enter(self, stack: AsyncExitStack) -> None:
        self._client = await stack.enter_async_context(ServerCalls(self.namesrv, SystemClock()))
        self.broker = (await self._client.admin.site.masters())[0].address
