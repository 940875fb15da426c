"""LiteWaiting: receives of lite topics that wait for a message; woken by news for their client."""

from collections.abc import Callable, Iterable

from pocketmq.broker.lite.subscribers import Subscriber
from pocketmq.broker.waiting.held_request import HeldRequest, Woken
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.transport.turns import CallSoon


class LiteWaiting(Woken[HeldRequest]):
    """See the head of the file. Owner: LiteService."""

    kind = "receive of lite topics"

    def __init__(self, clock: Clock, call_soon: CallSoon | None, count_max: Callable[[], int]):
        super().__init__(clock, call_soon)
        self._count_max = count_max
        self._held: dict[Subscriber, dict[HeldRequest, None]] = {}
        self._closing = False

    def hold(self, one: Subscriber, request: HeldRequest) -> bool:
        """Hold a receive; False if too many wait, or the broker stops."""
        if self._closing or self.weight >= self._count_max():
            return False
        self.enter(request, one)
        self._held.setdefault(one, {})[request] = None
        return True

    def wake(self, which: Iterable[Subscriber]) -> None:
        """Run a receive of each again."""
        for one in which:
            for request in self._held.get(one, ()):
                if not request.connection.closed:
                    self._wake(request)
                    break

    def _wake(self, request: HeldRequest) -> None:
        self.leave(request)
        self._forget(request)
        self.run_soon(request)

    def _forget(self, held: HeldRequest) -> None:
        held_of = self._held[held.queue]
        del held_of[held]
        if not held_of:
            del self._held[held.queue]

    def check(self) -> None:
        """Wake those whose time is over."""
        now_ms = self._clock.monotonic_ms()
        for held_of in list(self._held.values()):
            for request in [each for each in held_of if each.deadline_ms <= now_ms]:
                self._wake(request)

    def release(self) -> None:
        """Answer all and hold no more: the broker stops."""
        self._closing = True
        for held_of in list(self._held.values()):
            for request in list(held_of):
                self._wake(request)
        self.run_all()
