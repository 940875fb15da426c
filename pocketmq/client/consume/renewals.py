"""Renewals: received messages stay invisible to other members until they are acknowledged or given up.

1. A renewal gives the message a new receipt, and only the newest one acknowledges it: an acknowledgement
   waits for a renewal that is on its way.
2. A message whose renewal the broker refuses was redelivered already, and is dropped; while a broker
   cannot be reached, the next round tries again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pocketmq.client.errors import BrokerRefused
from pocketmq.model.message import MessageExt
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

_AT_ONCE = 32


class _Held(NamedTuple):
    topic: str
    message: MessageExt
    invisible_ms: int
    since_ms: int


class Renewals:
    """Owner: SimpleMember. renew(topic, message, invisible_ms) asks the broker."""

    def __init__(
        self, renew: Callable[[str, MessageExt, int], Awaitable[None]], clock: Clock
    ) -> None:
        self._renew = renew
        self._clock = clock
        self._held: dict[int, _Held] = {}
        self._under_way: dict[int, asyncio.Event] = {}

    def add(self, topic: str, message: MessageExt, invisible_ms: int) -> None:
        """Keep a message that was received just now. topic: as it travels."""
        now_ms = self._clock.monotonic_ms()
        self._held[id(message)] = _Held(topic, message, invisible_ms, now_ms)

    async def give_up(self, message: MessageExt) -> None:
        """Renew the message no more; return when none of its renewals is on its way (invariant 1)."""
        self._held.pop(id(message), None)
        under_way = self._under_way.get(id(message))
        if under_way is not None:
            await under_way.wait()

    async def round(self) -> None:
        """Renew what a third of its invisible time has passed for."""
        now_ms = self._clock.monotonic_ms()
        due = [
            (key, held)
            for key, held in self._held.items()
            if now_ms - held.since_ms >= held.invisible_ms // 3
        ]
        for start in range(0, len(due), _AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for key, held in due[start : start + _AT_ONCE]:
                    if self._held.get(key) is held:
                        group.create_task(self._one(key, held))

    async def _one(self, key: int, held: _Held) -> None:
        over = self._under_way[key] = asyncio.Event()
        try:
            await self._renew(held.topic, held.message, held.invisible_ms)
        except BrokerRefused as error:
            if self._held.pop(key, None) is not None:
                log.warning(
                    "a message was redelivered before its renewal msg_id=%s reason=%r",
                    held.message.msg_id,
                    str(error),
                )
        except PocketMQError as error:
            log.warning(
                "renewal failed, will retry msg_id=%s reason=%r", held.message.msg_id, str(error)
            )
        else:
            if key in self._held:
                self._held[key] = held._replace(since_ms=self._clock.monotonic_ms())
        finally:
            del self._under_way[key]
            over.set()
