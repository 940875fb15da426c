"""unless_frozen: a send's attempt that ends early if its broker gives no sign of life (SendAttempts, 3)."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from pocketmq.client.errors import AnswerTimeout
from pocketmq.client.send.result import SendResult
from pocketmq.client.send.retries import NotReached, SendAttempts

if TYPE_CHECKING:
    from pocketmq.client.network.instance import MQClientInstance


async def unless_frozen(
    instance: "MQClientInstance",
    address: str,
    timeout_ms: int,
    plan: SendAttempts,
    sending: Coroutine[Any, Any, SendResult],
) -> SendResult:
    """Return what `sending` returns. Raises: what it raises; NotReached (nothing was sent), AnswerTimeout."""
    loop, began_ms = asyncio.get_running_loop(), instance.clock.monotonic_ms()
    reached = True

    def look_first() -> None:
        nonlocal reached
        connection = instance.api.requests.open_connection(address)
        if connection is None:
            reached = False
            limit.reschedule(loop.time())
        elif plan.may_repeat and connection.last_read_ms <= began_ms:
            instance.presence.probe(address)

    def look_again() -> None:
        connection = instance.api.requests.open_connection(address)
        waited_ms = instance.clock.monotonic_ms() - began_ms
        if plan.may_repeat and connection is not None and connection.last_read_ms <= began_ms:
            connection.in_vain(waited_ms)
            limit.reschedule(loop.time())

    timers = [
        loop.call_later(timeout_ms / 3_000, look_first),
        loop.call_later(timeout_ms / 1_500, look_again),
    ]
    try:
        async with asyncio.timeout(None) as limit:
            return await sending
    except TimeoutError:
        took_ms = instance.clock.monotonic_ms() - began_ms
        if not reached:
            raise NotReached(
                f"sending: no connection to {address} within {took_ms} ms; nothing was sent"
            ) from None
        raise AnswerTimeout(
            f"sending: {address} gave no sign of life within {took_ms} ms; it may have acted all the same"
        ) from None
    finally:
        for timer in timers:
            timer.cancel()
