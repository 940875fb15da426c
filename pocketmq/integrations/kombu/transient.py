"""Transient queues: those that live as long as a process, as tags of one topic, read by pulls.

A queue begins where the topic ended when it was declared. Each broker of the topic has one queue of it,
and each is read by a pull that waits at the broker for a message with this tag.
"""

import asyncio
import logging
from collections.abc import Callable

from pocketmq.client import MessageExt, MessageQueue, PullConsumer
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

TRANSIENT_TOPIC = "KOMBU_TRANSIENT"

_WAIT_MS = 15_000
_PAUSE_S = 1.0


class Transients:
    """Where each transient queue of this process is read next. Owner: Link."""

    def __init__(self, puller: PullConsumer) -> None:
        self._puller = puller
        self._places: dict[str, dict[MessageQueue, int]] = {}

    async def begin(self, queue: str) -> None:
        """Begin the queue at the topic's end, unless it has begun."""
        if queue in self._places:
            return
        places = {
            each: await self._puller.max_offset(each)
            for each in await self._puller.queues(TRANSIENT_TOPIC)
        }
        self._places.setdefault(queue, places)

    def forget(self, queue: str) -> None:
        """Drop a queue that was deleted."""
        self._places.pop(queue, None)

    async def read(self, queue: str, tag: str, take: Callable[[MessageExt], None]) -> None:
        """Give the queue's messages to `take` as they come, until it is cancelled."""
        await self.begin(queue)
        async with asyncio.TaskGroup() as group:
            for place in list(self._places[queue]):
                group.create_task(self._follow(queue, tag, place, take))

    async def _follow(
        self, queue: str, tag: str, place: MessageQueue, take: Callable[[MessageExt], None]
    ) -> None:
        failing = False
        while queue in self._places:
            try:
                await self._pull(queue, tag, place, take, _WAIT_MS)
                failing = False
            except PocketMQError as error:
                if not failing:
                    log.warning(
                        "cannot read, will retry queue=%s place=%s reason=%r",
                        queue,
                        place,
                        str(error),
                    )
                failing = True
                await asyncio.sleep(_PAUSE_S)

    async def _pull(
        self,
        queue: str,
        tag: str,
        place: MessageQueue,
        take: Callable[[MessageExt], None],
        wait_ms: int,
        count_max: int = 32,
    ) -> None:
        offset = self._places[queue][place]
        result = await self._puller.pull(place, offset, tag, wait_ms=wait_ms, count_max=count_max)
        places = self._places.get(queue)
        # Another reader of this queue may have been here meanwhile.
        if places is None or places[place] != offset:
            return
        places[place] = result.next_begin_offset
        for message in result.messages:
            take(message)

    async def take_one(self, queue: str, tag: str) -> MessageExt | None:
        """Return the queue's next message now, None if it has none."""
        await self.begin(queue)
        found: list[MessageExt] = []
        for place in self._places[queue]:
            behind = -1
            while not found and self._places[queue][place] != behind:
                behind = self._places[queue][place]
                await self._pull(queue, tag, place, found.append, 0, count_max=1)
            if found:
                return found[0]
        return None
