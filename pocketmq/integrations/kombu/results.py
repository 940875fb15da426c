"""Results: values by key in a topic, and their arrival in the processes that wait for some of them.

1. A value is a message whose key is the value's key, in one queue by that key; the newest counts, and may
   mark the value as deleted. Brokers delete messages by their age; readers ignore older ones than they
   ask for.
2. A message has one of BUCKETS tags, by its key. A process that waits follows the topic for the buckets
   of the keys that it waits for, by pulls that the broker holds until one arrives.
3. An index may be a moment behind: a follower begins FOLLOW_BACK_MS before it was started, and the own values
   of a process count at once.
"""

import asyncio
import logging
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pocketmq.client import Message, MessageExt, MessageQueue, PullResult
from pocketmq.integrations.kombu.link import Link
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

TOPIC = "CELERY_RESULTS"
BUCKETS = 64
FOLLOW_BACK_MS = 10_000

_WAIT_MS = 15_000
_PAUSE_S = 1.0
_QUEUES = 4
_OWN_MAX = 1_000
_AT_ONCE = 16


def bucket_of(key: str) -> str:
    """Return the tag of a key."""
    return f"b{zlib.crc32(key.encode()) % BUCKETS}"


class Stored(NamedTuple):
    """The newest value of a key, None if it was deleted, and where it is stored."""

    queue: MessageQueue
    offset: int
    value: bytes | None


class _Own(NamedTuple):
    """A value that this process stored, which the index may not know yet."""

    since_ms: int
    stored: Stored


class Results:
    """Runs in the link's loop. take(key, value): called there with each followed value that arrives."""

    def __init__(self, link: Link, prefix: str, take: Callable[[str, bytes], None]) -> None:
        self._link = link
        self._topic = prefix + TOPIC
        self._take = take
        self._wanted: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_ready = False
        self._own: OrderedDict[str, _Own] = OrderedDict()

    async def _ready(self) -> None:
        if not self._is_ready:
            await self._link.create(self._topic, _QUEUES, 0)
            self._is_ready = True

    # ------------------------------------------------------------ values

    async def set(self, key: str, value: bytes) -> None:
        """Store a value; b"" deletes it."""
        await self._ready()
        message = Message(self._topic, value or b"-", tags=bucket_of(key), keys=key)
        message.properties["deleted"] = str(not value).lower()
        sent = await self._link.send(message, sharding_key=key)
        stored = Stored(sent.message_queue, sent.queue_offset, value or None)
        self._own[key] = _Own(self._link.clock.monotonic_ms(), stored)
        self._own.move_to_end(key)
        while len(self._own) > _OWN_MAX:
            self._own.popitem(last=False)

    async def get(self, key: str, age_ms_max: int | None) -> bytes | None:
        """Return the newest value, None if it is absent or older."""
        found = await self.find(key, age_ms_max)
        return None if found is None else found.value

    async def find(self, key: str, age_ms_max: int | None) -> Stored | None:
        """Return the newest value, or that it was deleted; None if it is absent or older."""
        await self._ready()
        begin_ms = 0 if age_ms_max is None else max(0, self._link.clock.now_ms() - age_ms_max)
        found = await self._link.admin.messages.by_key(self._topic, key, begin_ms=begin_ms)
        newest = max(found, key=lambda each: each.queue_offset, default=None)
        own = self._own.get(key)
        if own is not None and (newest is None or newest.queue_offset < own.stored.offset):
            age_ms = self._link.clock.monotonic_ms() - own.since_ms
            return own.stored if age_ms_max is None or age_ms < age_ms_max else None
        if newest is None or newest.store_timestamp < begin_ms:
            return None
        queue = MessageQueue(self._topic, newest.broker_name, newest.queue_id)
        return Stored(queue, newest.queue_offset, _value(newest))

    async def get_all(self, keys: Iterable[str], age_ms_max: int | None) -> list[bytes | None]:
        """Return the values of keys, in their order."""
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(key: str) -> bytes | None:
            async with room:
                return await self.get(key, age_ms_max)

        return list(await asyncio.gather(*(one(key) for key in keys)))

    # ------------------------------------------------------------ following

    def follow(self, key: str) -> None:
        """Begin to give values of this key to `take`."""
        self._wanted[bucket_of(key)] += 1
        self._changed.set()
        if self._task is None:
            self._task = self._link.runner.spawn(self._follow(), name="results")

    def leave(self, key: str) -> None:
        """Follow the key no more."""
        bucket = bucket_of(key)
        self._wanted[bucket] -= 1
        if self._wanted[bucket] <= 0:
            del self._wanted[bucket]

    async def _follow(self) -> None:
        while True:
            try:
                await self._ready()
                since_ms = self._link.clock.now_ms() - FOLLOW_BACK_MS
                places = await self._link.places_since(self._topic, since_ms)
                break
            except PocketMQError as error:
                log.warning("cannot follow results, will retry reason=%r", str(error))
                await asyncio.sleep(_PAUSE_S)
        async with asyncio.TaskGroup() as group:
            for place, offset in places.items():
                group.create_task(self._follow_at(place, offset))

    async def _follow_at(self, place: MessageQueue, offset: int) -> None:
        failing = False
        while True:
            changed = self._changed
            try:
                offset = await self._pull(place, offset, changed)
                failing = False
            except PocketMQError as error:
                if not failing:
                    log.warning("cannot follow results, will retry reason=%r", str(error))
                failing = True
                await asyncio.sleep(_PAUSE_S)

    async def _pulled(
        self, place: MessageQueue, offset: int, wanted: str
    ) -> PullResult | PocketMQError:
        """Return the error, which a group of tasks would wrap."""
        try:
            return await self._link.pull(place, offset, wanted, _WAIT_MS)
        except PocketMQError as error:
            return error

    async def _pull(self, place: MessageQueue, offset: int, changed: asyncio.Event) -> int:
        """Pull once; return where to continue. A change of what is wanted ends the wait."""
        wanted = " || ".join(sorted(self._wanted)) or "nothing"
        if changed.is_set():
            self._changed = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            pull = group.create_task(self._pulled(place, offset, wanted))
            change = group.create_task(_set(self._changed))
            await asyncio.wait((pull, change), return_when=asyncio.FIRST_COMPLETED)
            change.cancel()
            if not pull.done():
                pull.cancel()
                return offset
        result = pull.result()
        if isinstance(result, PocketMQError):
            raise result
        for message in result.messages:
            value = _value(message)
            if value is not None and message.keys:
                self._take(message.keys, value)
        return result.next_begin_offset


async def _set(event: asyncio.Event) -> None:
    await event.wait()


def _value(message: MessageExt) -> bytes | None:
    return None if message.properties.get("deleted") == "true" else message.body
