"""CircuitBreaker: a hanging broker costs a page one time-out, not one for each thing it shows.

After a failed connection, or no answer within the usual time, calls to that address fail at once for OPEN_MS;
then the next one tries again. Calls with a longer time-out (a member is asked through its broker) say nothing
about the broker, and do not count.
"""

from pocketmq.client.network.requests import Remoting
from pocketmq.client.send.limits import OpenConnection
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import ConnectFailed, RequestTimeout

OPEN_MS = 5_000


class CircuitBreaker:
    """Between MQClientApi and its transport. usual_ms: the time-out of ordinary calls."""

    def __init__(self, inner: Remoting, clock: Clock, usual_ms: int) -> None:
        self._inner = inner
        self._clock = clock
        self._usual_ms = usual_ms
        self._closed_again_ms: dict[str, int] = {}

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int = 3_000
    ) -> RemotingCommand:
        """Like the transport's. Raises: ConnectFailed at once for an address that was silent just now."""
        until_ms = self._closed_again_ms.get(address)
        if until_ms is not None:
            if self._clock.monotonic_ms() < until_ms:
                raise ConnectFailed(
                    address, "it did not answer a moment ago; it is asked again soon"
                )
            del self._closed_again_ms[address]
        try:
            return await self._inner.invoke(address, command, timeout_ms)
        except (ConnectFailed, RequestTimeout):
            if timeout_ms <= self._usual_ms:
                self._closed_again_ms[address] = self._clock.monotonic_ms() + OPEN_MS
            raise

    async def oneway(self, address: str, command: RemotingCommand) -> None:
        await self._inner.oneway(address, command)

    def open_connection(self, address: str) -> OpenConnection | None:
        return self._inner.open_connection(address)

    @property
    def signs(self) -> bool:
        return self._inner.signs

    def encoded(self, command: RemotingCommand) -> bytes:
        return self._inner.encoded(command)
