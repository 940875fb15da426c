"""The arguments and results of listeners, and their calls (S34, S59, S62); listener_pool.py makes these.

    def on_messages(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None: ...

A plain function runs in a thread pool, a coroutine function on the event loop; either way `concurrency` calls
at the same time. None means SUCCESS; an exception means RECONSUME_LATER and is logged.
"""

import inspect
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from pocketmq.client.pull.process_queue import ProcessQueue
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.remoting.errors import IllegalArgument


class ConsumeResult(StrEnum):
    """A listener's result for its messages.

    RECONSUME_LATER: redeliver after a while (orderly consumers treat it like the next one).
    SUSPEND_CURRENT_QUEUE_A_MOMENT: orderly only, the same messages again, before any other of the queue.
    """

    SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


@dataclass(slots=True)
class ConsumeContext:
    """What a listener may read and set for its call.

    ack_index: the last message of the list that succeeded, with SUCCESS; those behind it are redelivered.
    delay_level: when they are redelivered; 0 lets the broker choose (longer each time), -1 dead-letters.
    suspend_ms: orderly, how long the queue pauses after SUSPEND; None takes the consumer's setting.
    """

    queue: MessageQueue
    ack_index: int = sys.maxsize
    delay_level: int = 0
    suspend_ms: int | None = None


Listener = Callable[
    [list[MessageExt], ConsumeContext],
    ConsumeResult | Awaitable[ConsumeResult | None] | None,
]


@dataclass(slots=True)
class Outcome:
    """How a listener call ended; times by the wall clock, ms. result None: it raised `error`."""

    result: ConsumeResult | None
    error: BaseException | None
    cost_ms: int


@dataclass(slots=True, eq=False)
class ListenerCall:
    """One call of the listener, whose own list of messages may have been changed by it."""

    messages: list[MessageExt]
    context: ConsumeContext
    process_queue: ProcessQueue | None = None


Done = Callable[[ListenerCall, Outcome | None], None]
"""Takes a call that has ended, on the event loop, and its outcome; None: it was cancelled."""


@dataclass(slots=True, eq=False)
class ListenerRun:
    """Messages of one queue, which the listener gets `size` at a time; `done` gets each call's outcome.

    process_queue: if it is dropped before a call starts, the call is cancelled. good: the places where calls
    begin that succeeded and were not passed on yet; cost_s: how long these took.

    What is the same for all calls stands here once: a call that succeeds makes little but its list.
    """

    messages: list[MessageExt]
    queue: MessageQueue
    size: int
    done: Done
    process_queue: ProcessQueue | None = None
    good: list[int] = field(default_factory=list)
    cost_s: float = 0.0

    @property
    def starts(self) -> range:
        """Return the places where calls begin."""
        return range(0, len(self.messages), self.size)

    def call(self, at: int, context: ConsumeContext) -> ListenerCall:
        """Return the call that begins there."""
        return ListenerCall(self.messages[at : at + self.size], context, self.process_queue)

    @property
    def succeeded(self) -> list[MessageExt]:
        """Return the messages of `good`."""
        messages, size = self.messages, self.size
        if len(self.good) * size >= len(messages):
            return messages
        if size == 1:
            return [messages[at] for at in self.good]
        return [message for at in self.good for message in messages[at : at + size]]


Together = Callable[[list[ListenerRun]], None]
"""Takes the runs with calls that succeeded with all their messages within one turn of the loop."""


class ListenerHooks(Protocol):
    """Hooks right before and after the listener, in its thread or task: traces."""

    def before(self, call: ListenerCall) -> object:
        """Return what `after` is given."""
        ...

    def after(self, call: ListenerCall, token: object, outcome: Outcome) -> None: ...


def is_coroutine_listener(listener: Callable[..., object]) -> bool:
    """Return True if the listener must be awaited: a coroutine function, or an object with async __call__."""
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
        getattr(listener, "__call__", None)  # noqa: B004 - asks whether it is async, not callable
    )


def check_takes(function: Callable[..., object], *arguments: str) -> None:
    """Check that a function can be called with so many arguments. Raises: IllegalArgument."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some functions in C have no signature to inspect.
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        name = getattr(function, "__name__", "listener")
        name = name if name.isidentifier() else "listener"
        raise IllegalArgument(
            f"{name}{signature} cannot be called with {' and '.join(arguments)}: {error}. "
            f"Write: def {name}({', '.join(arguments)})"
        ) from None


def direct_result(outcome: Outcome | None, *, orderly: bool) -> dict[str, object]:
    """Return ConsumeMessageDirectlyResult (wire.md 2.4)."""
    remark: str | None
    if outcome is None:
        result, remark = "CR_LATER", "the consumer is shutting down"
    elif outcome.error is not None:
        result = "CR_THROW_EXCEPTION"
        remark = f"{type(outcome.error).__name__}: {outcome.error}"
    else:
        result = "CR_SUCCESS" if outcome.result is ConsumeResult.SUCCESS else "CR_LATER"
        remark = None
    return {
        "autoCommit": True,
        "consumeResult": result,
        "order": orderly,
        "remark": remark,
        "spentTimeMills": outcome.cost_ms if outcome else 0,
    }
