"""SendAttempts: the attempts of one send, without I/O: the next queue, and whether a failure is final.

1. All attempts together stay within the time-out.
2. While no broker can be reached, attempts continue until the time-out, with pauses (ours;
   `wait_for_broker`): a restarting broker is back within a second or two, and its name has another master
   soon after a failover. So do attempts that a slave refused: the route names its master soon.
3. Where there is another broker that answers, one that cannot be reached within a third of the time is given
   up; so is one that was written to, if attempts are left (`retry_times`), after two thirds, and only if
   nothing at all came from it, not even the answer to a heartbeat (ours): a slow broker is waited for, a
   frozen one is not.
4. Once an answer of a broker that recognises repeated sends (`sendOnce`; ours) is lost, all further attempts
   go there: another broker would store the message a second time. Rule 3 does not give up such a broker that
   was written to.
Source: DefaultMQProducerImpl.sendDefaultImpl, RocketMQ 4.9.7.
"""

from pocketmq.client.errors import (
    AnswerTimeout,
    Attempt,
    BrokerNotServing,
    BrokerRefused,
    OutcomeUnknown,
    TransientError,
    Unauthorised,
    Unreachable,
)
from pocketmq.client.network.route import BrokerUnknown, TopicPublishInfo
from pocketmq.client.send.fault_strategy import FaultStrategy
from pocketmq.client.send.result import SendStatus
from pocketmq.model.message import MessageQueue
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import PocketMQError, RemotingError

RETRY_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Refusals after which another broker is tried (5.x's set)."""

_PAUSE_MIN_MS = 50
_PAUSE_MAX_MS = 500


class SendAttempts:
    """See the head of the file."""

    def __init__(
        self,
        info: TopicPublishInfo,
        strategy: FaultStrategy,
        clock: Clock,
        *,
        attempts_max: int,
        timeout_ms: int,
        began_ms: int | None = None,
        first: MessageQueue | None = None,
        waits: bool = False,
    ) -> None:
        """began_ms: monotonic, when the time-out began; by default now. first: the first queue, if chosen
        already. waits: whether to wait for a broker that cannot be reached.
        """
        self._pause_ms = _PAUSE_MIN_MS if waits else 0
        began = clock.monotonic_ms() if began_ms is None else began_ms
        self.attempts: list[Attempt] = []
        self._info = info
        self._strategy = strategy
        self._clock = clock
        self._attempts_max = attempts_max
        self._deadline_ms = began + timeout_ms
        self._began_ms = began
        self._last_broker: str | None = None
        # Where the next attempt goes, if that is known (rule 4).
        self._next = first
        self._last = first
        self._stays = False

    def elsewhere(self) -> bool:
        """Return True if the topic has queues at another broker that answers."""
        return not self._stays and self._strategy.has_other_than(self._info, self._last_broker)

    @property
    def may_repeat(self) -> bool:
        """Return True if an attempt without an answer may be followed by one at another broker."""
        return (
            len(self.attempts) + 1 < self._attempts_max and self._last_broker not in self._info.once
        )

    def next_queue(self) -> MessageQueue:
        """Return the queue of the next attempt. Raises: NoQueueToSendTo."""
        queue = self._next or self._strategy.choose(self._info, self._last_broker)
        self._next = queue if self._stays else None
        self._last, self._last_broker = queue, queue.broker_name
        self._began_ms = self._clock.monotonic_ms()
        return queue

    def went_to(self, queue: MessageQueue) -> None:
        """Note that the first attempt was made already, when the time-out began."""
        self._last, self._last_broker = queue, queue.broker_name

    @property
    def left_ms(self) -> int:
        """Return the time left for all further attempts."""
        return self._deadline_ms - self._clock.monotonic_ms()

    def succeeded(self) -> None:
        assert self._last_broker is not None
        self._strategy.update(self._last_broker, self._cost_ms, isolate=False)

    def failed(self, error: PocketMQError) -> bool:
        """Note a failure. Returns: whether to make another attempt."""
        assert self._last_broker is not None
        # Retries while waiting for a broker are not recorded: they are all alike.
        if len(self.attempts) < self._attempts_max:
            self.attempts.append(Attempt(self._last_broker, self._cost_ms, error))
        self._strategy.update(self._last_broker, self._cost_ms, isolate=True)
        if isinstance(error, AnswerTimeout | NotReached):
            self._strategy.late(self._last_broker)
        if isinstance(error, OutcomeUnknown) and self._last_broker in self._info.once:
            self._next, self._stays = self._last, True
        return may_retry(error) and len(self.attempts) < self._attempts_max and self.left_ms > 0

    def pause_ms(self, error: PocketMQError) -> int:
        """Return how long to wait before one more attempt; 0: no further attempt (rule 2)."""
        pause = min(self._pause_ms, self.left_ms - 1)
        if not may_come_back(error) or pause <= 0:
            return 0
        self._pause_ms = min(_PAUSE_MAX_MS, self._pause_ms * 2)
        return pause

    @property
    def _cost_ms(self) -> int:
        return self._clock.monotonic_ms() - self._began_ms


def may_retry(error: PocketMQError) -> bool:
    """Return True if another broker may accept what this one did not."""
    if isinstance(error, BrokerRefused):
        return error.code in RETRY_CODES and not isinstance(error, Unauthorised)
    return isinstance(error, (RemotingError, TransientError))


def may_come_back(error: PocketMQError) -> bool:
    """Return True if the same attempt may succeed soon: nothing was reached, or only a slave."""
    if isinstance(error, BrokerNotServing):
        return error.code == ResponseCode.SERVICE_NOT_AVAILABLE and "slave" in (error.remark or "")
    return isinstance(error, (Unreachable, BrokerUnknown))


class NotReached(Unreachable):
    """No connection to a broker within its share of the time."""


class NotStoredSafely(TransientError):
    """Stored, but less safely than the producer requires."""

    def __init__(self, status: SendStatus) -> None:
        super().__init__(f"stored, but with status {status}")
