"""The measurements of `pocketmq bench`: sends, reads, or both, with the time of each message.

A BenchRun keeps its figures outside the tasks that measure, so that Ctrl-C loses none.
"""

import asyncio
import os
import struct
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pocketmq.cli.exits import visible
from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
)
from pocketmq.client.network.gather import together
from pocketmq.model.names import retry_topic
from pocketmq.remoting.errors import PocketMQError

# Upper bounds of the histogram's classes, ms; the last class has none.
BOUNDS_MS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_STAMP = struct.Struct(">8sq")
SIZE_MIN = _STAMP.size


class BenchRun:
    """The figures of one run; rate: wanted sends per second, 0: as fast as possible."""

    def __init__(self, count: int, size: int, rate: int) -> None:
        self.count, self.size, self.rate = count, size, rate
        self.took_s: list[float] = []
        self.began_s: float | None = None
        self.ended_s: float | None = None

    def begin(self) -> None:
        self.began_s = time.perf_counter()

    def took(self, seconds: float) -> None:
        self.took_s.append(seconds)
        self.ended_s = time.perf_counter()

    def figures(self) -> dict[str, Any]:
        """Return one row; p50Ms to maxMs: percentiles of the messages' times."""
        seconds = (self.ended_s or 0) - (self.began_s or 0) if self.took_s else 0.0
        ordered = sorted(self.took_s)

        def part(share: float) -> float | None:
            return round(ordered[int((len(ordered) - 1) * share)] * 1000, 3) if ordered else None

        return {
            "size": self.size,
            "rate": self.rate,
            "messages": len(ordered),
            "seconds": round(seconds, 3),
            "messagesPerS": round(len(ordered) / seconds) if seconds else 0,
            "p50Ms": part(0.5),
            "p99Ms": part(0.99),
            "p999Ms": part(0.999),
            "maxMs": part(1),
        }

    def histogram(self) -> list[dict[str, Any]]:
        """Count messages by their time, at most upToMs; None in the last class, which has no bound."""
        counts = [0] * (len(BOUNDS_MS) + 1)
        for seconds in self.took_s:
            counts[bisect_right(BOUNDS_MS, seconds * 1000)] += 1
        classes = zip((*BOUNDS_MS, None), counts, strict=True)
        return [{"upToMs": bound, "messages": each} for bound, each in classes if each]


async def produce(run: BenchRun, topic: str, in_flight: int, options: dict[str, Any]) -> None:
    """Send run.count messages; a message's time ends when it is acknowledged."""
    async with Producer("pocketmq-bench", **options) as producer:
        await producer.send(Message(topic, b"x" * run.size))
        run.begin()
        await _send_all(run, producer, topic, in_flight, run.took)


async def both(run: BenchRun, topic: str, in_flight: int, options: dict[str, Any]) -> None:
    """Send run.count messages and consume them at once; a message's time is from its send to its listener."""
    mark, everything = os.urandom(8), asyncio.Event()
    few = _Few()

    async def on_messages(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        now_ns = time.perf_counter_ns()
        for message in messages:
            if message.body.startswith(mark):
                run.took((now_ns - _STAMP.unpack_from(message.body)[1]) / 1e9)
        if len(run.took_s) >= run.count:
            everything.set()
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(
        f"pocketmq-bench-{mark.hex()}",
        listener=on_messages,
        consume_from_where=ConsumeFromWhere.LAST_OFFSET,
        strategy=few,
        **options,
    )
    consumer.subscribe(topic)
    async with Producer("pocketmq-bench", **options) as producer:
        await producer.send(Message(topic, b"x" * run.size))
        few.queues = _spread(await producer.queues(topic), min(in_flight, run.count))
        await _begin_at_the_end(consumer.group, few.queues, options)
        try:
            async with consumer:
                while len(consumer.assignment()) < len(few.queues):
                    await asyncio.sleep(0.02)
                run.begin()
                await _send_all(run, producer, topic, in_flight, lambda _: None, mark, few.queues)
                await everything.wait()
        finally:
            await _forget(consumer.group, options)


class _Few:
    """The strategy of a group's only member: of the measured topic these queues, of others all."""

    name = "FEW"
    queues: Sequence[MessageQueue] = ()

    def __call__(
        self, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str
    ) -> list[MessageQueue]:
        few = set(self.queues)
        return [queue for queue in queues if queue in few] or list(queues)


def _spread(queues: Sequence[MessageQueue], count: int) -> list[MessageQueue]:
    """Return at most so many, of all brokers alike.

    Each queue costs a pull that waits, BenchmarkTest has 1,024 of them, and no more than the messages in
    flight are used at once.
    """
    count = min(count, len(queues))
    return [queues[number * len(queues) // count] for number in range(count)]


async def _begin_at_the_end(
    group: str, queues: Sequence[MessageQueue], options: dict[str, Any]
) -> None:
    """Leave out what the queues hold: brokers give a new group a short topic from its beginning."""
    from pocketmq.admin import Admin

    topic = queues[0].topic
    try:
        async with Admin(**options) as admin:
            masters = dict(await admin.site.masters_of(topic))

            async def end(queue: MessageQueue) -> int:
                return await admin.site.api.max_offset(masters[queue.broker_name], queue)

            ends = zip(queues, await together(end, queues), strict=True)
            # An empty queue's end is its beginning: a new group starts there untold.
            await admin.groups.place_all(group, {queue: end for queue, end in ends if end})
    except PocketMQError as error:
        text = f"what topic {topic} holds may be read first and count as time: {error}\n"
        sys.stderr.write(visible(text))


async def _forget(group: str, options: dict[str, Any]) -> None:
    """Delete the group of one run; without administrator rights it stays."""
    from pocketmq.admin import Admin

    with suppress(PocketMQError):
        async with Admin(**options) as admin:
            await admin.topics.delete(retry_topic(group))
            await admin.groups.delete(group, with_offsets=True)


async def _send_all(
    run: BenchRun,
    producer: Producer,
    topic: str,
    in_flight: int,
    sent: Callable[[float], object],
    mark: bytes | None = None,
    queues: Sequence[MessageQueue] = (),
) -> None:
    """Send with `in_flight` messages at once, at run.rate. mark: begins each body, with its send time.

    queues: sent to in turn; none: as producers choose.
    """
    begin, number = time.perf_counter(), 0
    body = b"x" * run.size

    async def sender() -> None:
        nonlocal number
        while number < run.count:
            number += 1
            if run.rate:
                await asyncio.sleep(max(0.0, begin + number / run.rate - time.perf_counter()))
            at_ns = time.perf_counter_ns()
            stamped = body if mark is None else _STAMP.pack(mark, at_ns) + body[SIZE_MIN:]
            queue = queues[number % len(queues)] if queues else None
            await producer.send(Message(topic, stamped), queue=queue)
            sent((time.perf_counter_ns() - at_ns) / 1e9)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(in_flight, run.count)):
            tasks.create_task(sender())


async def consume(run: BenchRun, topic: str, options: dict[str, Any]) -> None:
    """Read at most run.count messages from the topic's beginning; nothing is committed."""
    from pocketmq.admin import Admin

    async with Admin(**options) as admin:
        run.begin()
        before = time.perf_counter()
        async for _ in admin.messages.between(topic):
            now = time.perf_counter()
            run.took(now - before)
            before = now
            if len(run.took_s) == run.count:
                break
