"""Answers the plain sends of one read that are alike together, once the store has numpy (send_run.py)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from pocketmq.broker.parts import Messages, Node
from pocketmq.broker.wire.kept_answers import KeptAnswers
from pocketmq.broker.wire.plain_send import Alike
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.fixed_shape import FixedShape
from pocketmq.store import StoreError
from pocketmq.store.message_store import AppendedRun

if TYPE_CHECKING:
    from pocketmq.broker.wire.send_run import SendRun

# Larger frames cost more than what is done for a message otherwise; sizes of one shape.
_RUN_FRAME_MAX, _RUNS_MAX = 8_192, 32


class SendRuns:
    """Stores, counts and answers runs."""

    def __init__(self, node: Node, messages: Messages, kept: KeptAnswers) -> None:
        self._store = messages.store
        self._stats = messages.stats
        self._latencies = messages.stats.latencies
        self._promise = messages.promise
        self._kept = kept
        self._monotonic_ms = node.clock.monotonic_ms

    def answer(
        self, shape: FixedShape, alike: Alike, frames: Sequence[bytes], connection: Connection
    ) -> bytes | None:
        """Store and answer several plain messages; b"" for later, None if each has to go its own way."""
        topic, target = alike.topic, alike.target
        if not self._store.has_numpy:
            return None
        run = self._run_of(shape, alike, len(frames[0]))
        taken = None if run is None else run.take(frames)
        if run is None or taken is None:
            return None
        cut, messages = taken
        try:
            stored = self._store.append_run(topic, messages, run.records, connection.peer_host)
        except StoreError:
            return None
        if stored is None:
            return None
        ids, size = messages.queue_ids, stored.size
        for queue_id in set(ids):
            counter = target.counters[queue_id]
            if counter is None:
                counter = target.counters[queue_id] = self._stats.put_counter(topic, queue_id)
            count = ids.count(queue_id)
            counter.nums += count
            counter.size += count * size
            counter.sizes[(size - 1).bit_length()] += count
        replies = run.answers(cut, messages, stored)
        if alike.properties.wait and (self._promise.is_sync_flush or self._promise.replicas.wanted):
            return self._park_run(alike.plain.code, connection, stored, replies)
        took_ms = self._monotonic_ms() - connection.last_read_ms
        self._latencies.add(alike.plain.code, ResponseCode.SUCCESS, took_ms, len(frames))
        return replies if isinstance(replies, bytes) else b"".join(replies)

    def _run_of(self, shape: FixedShape, alike: Alike, size: int) -> "SendRun | None":
        """Return how runs of frames of this size are taken; None at their first, and if they are not."""
        runs = shape.runs
        found = runs.get(size)
        if found is None and size in runs and size <= _RUN_FRAME_MAX:
            from pocketmq.broker.wire import send_run

            try:
                found = send_run.SendRun(shape, alike, size)
            except ValueError:
                # An empty body, or properties that are too long: refused or taken one by one.
                return None
        if len(runs) >= _RUNS_MAX:
            runs.clear()
        runs[size] = found
        return cast("SendRun | None", found)

    def _park_run(
        self, code: int, connection: Connection, stored: AppendedRun, replies: bytes | list[bytes]
    ) -> bytes:
        """Park the answers until the messages are kept."""
        position, size, offsets = stored
        count = len(offsets)
        if not self._promise.is_sync_flush:
            # The slaves get a read's messages as one, and acknowledge them so.
            end = position + count * size
            return self._kept.park_run(code, connection, end, replies, count) or b""
        if isinstance(replies, bytes):
            width = len(replies) // count
            replies = [replies[at : at + width] for at in range(0, len(replies), width)]
        now: list[bytes] = []
        for place, reply in enumerate(replies, 1):
            kept = self._kept.park(code, connection, position + place * size, reply)
            if kept is not None:
                now.append(kept)
        return b"".join(now)
