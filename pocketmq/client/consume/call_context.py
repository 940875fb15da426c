"""The context variables of a listener's call: its own, and none at first.

What a call binds (a request's id in a log, a current span) is not seen by the next one, and no call sees what
the code that called start() had bound: both would stick to messages that they are not about. Also known here:
whether some code runs inside a call.
"""

import types
from collections.abc import Awaitable, Generator
from contextvars import Context, ContextVar
from typing import Any, TypeVar, cast

T = TypeVar("T")

_pool: ContextVar[object] = ContextVar("pocketmq_listener_pool", default=None)


def base_of(pool: object) -> Context:
    """Return the context whose copies are those of a pool's calls."""
    context = Context()
    context.run(_pool.set, pool)
    return context


def calling_pool() -> object:
    """Return the pool whose call this code belongs to, directly or by a task or thread of its; or None."""
    return _pool.get()


@types.coroutine
def within(context: Context, awaitable: Awaitable[T]) -> Generator[Any, Any, T]:
    """Await in a context, without a task of its own: every step is taken in it."""
    steps = awaitable.__await__()
    step, given = steps.send, None
    while True:
        try:
            waits_for = context.run(step, given)
        except StopIteration as stop:
            return cast(T, stop.value)
        try:
            step, given = steps.send, (yield waits_for)
        except BaseException as error:  # noqa: BLE001 - it is for the awaitable: a cancellation, mostly
            step, given = steps.throw, error
