"""MessageWindow: the messages of a topic in a span of time, newest first, page by page.

1. The ends of the queues are read for the first page and travel in the cursor: later messages do not shift
   the pages, and the server keeps no state.
2. Queues are merged by store time. Only what a page needs is read from each queue, so a page costs the same
   however much is stored.
3. A cursor comes from the client, so it is not trusted: it must name queues of this topic only, or is
   refused.
4. A broker that does not answer when the first page is opened is left out of all pages, unless none does.
"""

import asyncio
import heapq
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass, field

from pocketmq.admin.admin import Admin
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.remoting import json_codec
from pocketmq.remoting.errors import IllegalArgument, RemotingError

_CHUNK_MIN = 8


@dataclass(slots=True)
class _Part:
    """The rest of one queue: offsets [begin, end); ahead: read already, oldest first."""

    queue: MessageQueue
    begin: int
    end: int
    ahead: list[MessageExt] = field(default_factory=list)

    @property
    def rest_end(self) -> int:
        """Return the offset behind the last message that no page has shown."""
        return self.ahead[-1].queue_offset + 1 if self.ahead else self.end


class MessageWindow:
    """begin_ms and end_ms bound the store times, end exclusive; None: no bound."""

    def __init__(self, admin: Admin, topic: str, begin_ms: int, end_ms: int | None) -> None:
        self._admin = admin
        self._topic = topic
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._addresses: dict[str, str] = {}
        self._parts: list[_Part] = []
        #: Brokers that do not answer, with the reason (invariant 4).
        self.left_out: dict[str, RemotingError] = {}

    async def open(self, cursor: str | None) -> None:
        """Find the ends of the queues, or read them from a cursor.

        Raises: IllegalArgument, NoRoute, RemotingError if no broker answers.
        """
        route = await self._admin.topics.route(self._topic)
        self._addresses = dict(await self._admin.site.masters_of(self._topic))
        queues = route.subscribe_queues(self._topic)
        if cursor is not None:
            self._parts = self._parse(cursor, set(queues))
            return
        async with asyncio.TaskGroup() as tasks:
            found = [tasks.create_task(self._part_or_none(queue)) for queue in queues]
        self._parts = [part for each in found if (part := each.result())]
        if queues and not self._parts:
            raise next(iter(self.left_out.values()))

    async def _part_or_none(self, queue: MessageQueue) -> _Part | None:
        try:
            return await self._part(queue)
        except RemotingError as error:
            self.left_out.setdefault(queue.broker_name, error)
            return None

    async def _part(self, queue: MessageQueue) -> _Part:
        api, address = self._admin.site.api, self._addresses[queue.broker_name]
        begin = await api.min_offset(address, queue)
        end = await api.max_offset(address, queue)
        if self._begin_ms > 0 and begin < end:
            # Of several messages of one ms a broker may name any: the ms before is asked for.
            begin = max(begin, await api.search_offset(address, queue, self._begin_ms - 1))
        if self._end_ms is not None and begin < end:
            # Behind the last message brokers name it or the place after it, by version.
            end = min(end, await api.search_offset(address, queue, self._end_ms) + 1)
        return _Part(queue, begin, max(begin, end))

    @property
    def total(self) -> int:
        """Return how many are left, at most: time bounds are exact to one message per queue."""
        return sum(part.rest_end - part.begin for part in self._parts)

    @property
    def cursor(self) -> str | None:
        """Return where the next page begins; None if nothing is left."""
        left = [
            [part.queue.broker_name, part.queue.queue_id, part.begin, part.rest_end]
            for part in self._parts
            if part.rest_end > part.begin
        ]
        return urlsafe_b64encode(json_codec.dumps(left)).decode() if left else None

    def _parse(self, cursor: str, queues: set[MessageQueue]) -> list[_Part]:
        try:
            parts = [
                _Part(MessageQueue(self._topic, str(name), int(number)), int(begin), int(end))
                for name, number, begin, end in json_codec.loads(urlsafe_b64decode(cursor))
            ]
        except (Base64Error, TypeError, ValueError) as error:
            raise IllegalArgument(f"cannot read this cursor: {error}. Begin without one") from error
        if any(part.queue not in queues or not 0 <= part.begin <= part.end for part in parts):
            raise IllegalArgument("this cursor belongs to another topic. Begin without one")
        return parts

    async def page(self, size: int, chunk: int = _CHUNK_MIN) -> list[MessageExt]:
        """Return the next messages, newest first (invariant 2). chunk: read at once of a queue, at least."""
        found: list[MessageExt] = []
        heap: list[tuple[int, int, MessageExt]] = []
        chunk = max(chunk, size // max(1, len(self._parts)) + 1)
        async with asyncio.TaskGroup() as tasks:
            for part in self._parts:
                tasks.create_task(self._read(part, chunk))
        for number, part in enumerate(self._parts):
            await self._push(heap, number, part, chunk)
        while heap and len(found) < size:
            _, number, message = heapq.heappop(heap)
            found.append(message)
            await self._push(heap, number, self._parts[number], chunk)
        # Messages that were read and not taken come first on the next page.
        for _, number, message in heap:
            self._parts[number].ahead.append(message)
        return found

    async def _push(
        self, heap: list[tuple[int, int, MessageExt]], number: int, part: _Part, chunk: int
    ) -> None:
        if not part.ahead:
            await self._read(part, chunk)
        if part.ahead:
            message = part.ahead.pop()
            heapq.heappush(heap, (-message.store_timestamp, number, message))

    async def _read(self, part: _Part, chunk: int) -> None:
        """Read the last messages of a part into `ahead`, until there are some or nothing is left."""
        while not part.ahead and part.begin < part.end:
            start = max(part.begin, part.end - chunk)
            address = self._addresses[part.queue.broker_name]
            stored = self._admin.messages.within(part.queue, start, part.end, address=address)
            part.ahead = [each async for each in stored if self._is_inside(each)]
            part.end = start

    def _is_inside(self, message: MessageExt) -> bool:
        stored = message.store_timestamp
        return self._begin_ms <= stored and (self._end_ms is None or stored < self._end_ms)
