"""Answers the plain sends, or batches, of one read that are alike together, once the store has numpy
(send_run.py).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages
from pocketmq.broker.wire.sends.kept_answers import KeptAnswers
from pocketmq.broker.wire.sends.plain_send import AlikeBatchSends, AlikeSends
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.quick.by_place import FixedShape
from pocketmq.remoting.transport.connection import Connection
from pocketmq.store import StoreError

if TYPE_CHECKING:
    from pocketmq.broker.wire.sends.send_run import BatchRun, SendRun
    from pocketmq.remoting.quick.many import Cut
    from pocketmq.store.log.alike_run import AlikeRun

# Larger frames cost more than what is done for a message otherwise; sizes of one shape.
_RUN_FRAME_MAX, _RUNS_MAX = 8_192, 32
# What a run of batches takes at most lies in a cache.
BATCHES_MIN, BATCHES_MAX, _BATCH_FRAME_MAX = 2, 16, 32_768


class SendRuns:
    """Stores, counts and answers runs."""

    def __init__(
        self,
        node: Node,
        messages: Messages,
        kept: KeptAnswers,
        outer: Callable[[str, bool], tuple[bytes, bool]],
    ) -> None:
        """outer: see SendActs.batch_properties."""
        self._store = messages.store
        self._stats = messages.stats
        self._latencies = messages.stats.latencies
        self._durability = messages.durability
        self._kept = kept
        self._outer = outer
        self._monotonic_ms = node.clock.monotonic_ms

    def answer(
        self, shape: FixedShape, alike: AlikeSends, frames: Sequence[bytes], connection: Connection
    ) -> bytes | None:
        """Store and answer several plain messages.

        Returns b"" if answered later, None if the frames must be handled one by one.
        """
        if not self._store.has_numpy:
            return None
        run: SendRun | None = self._run_of(shape, alike, len(frames[0]))
        taken = None if run is None else run.take(frames)
        if run is None or taken is None:
            return None
        return self._store_and_answer(alike, run, taken, connection, alike.properties.wait)

    def answer_batches(
        self,
        shape: FixedShape,
        alike: AlikeBatchSends,
        frames: Sequence[bytes],
        connection: Connection,
    ) -> bytes | None:
        """The same for batches."""
        if not self._store.has_numpy:
            return None
        run: BatchRun | None = self._run_of(shape, alike, len(frames[0]))
        if run is None:
            return None
        try:
            taken = run.take(frames, self._store.batch_shape)
        except ValueError:
            return None
        if taken is None:
            return None
        _, wait = self._outer(alike.properties, alike.plain.as_five)
        return self._store_and_answer(alike, run, taken, connection, wait)

    def _store_and_answer(
        self,
        alike: AlikeSends | AlikeBatchSends,
        run: "SendRun | BatchRun",
        taken: "tuple[Cut, AlikeRun]",
        connection: Connection,
        wait: bool,
    ) -> bytes | None:
        topic, target = alike.topic, alike.target
        cut, messages = taken
        try:
            stored = self._store.append_run(topic, messages, run.records, connection.peer_host)
        except StoreError:
            return None
        if stored is None:
            return None
        ids, size, each = messages.queue_ids, stored.size, messages.each
        for queue_id in set(ids):
            counter = target.counters[queue_id]
            if counter is None:
                counter = target.counters[queue_id] = self._stats.put_counter(topic, queue_id)
            count = ids.count(queue_id)
            counter.nums += count * each
            counter.batched += count * (each - 1)
            counter.size += count * size
            counter.sizes[(size // each - 1).bit_length()] += count * each
        replies = run.answers(cut, messages, stored)
        if wait and (self._durability.is_sync_flush or self._durability.replicas.wanted):
            # A read's messages are kept as one, on disk and by slaves.
            end = stored.position + len(ids) * size
            return self._kept.park(alike.plain.code, connection, end, replies, len(ids)) or b""
        took_ms = self._monotonic_ms() - connection.last_read_ms
        self._latencies.add(alike.plain.code, ResponseCode.SUCCESS, took_ms, len(ids))
        return replies if isinstance(replies, bytes) else b"".join(replies)

    def _run_of(self, shape: FixedShape, alike: AlikeSends | AlikeBatchSends, size: int) -> Any:
        """Return how runs of frames of this size are taken; None at their first, and if they are not."""
        runs = shape.runs
        found = runs.get(size)
        size_max = _BATCH_FRAME_MAX if isinstance(alike, AlikeBatchSends) else _RUN_FRAME_MAX
        if found is None and size in runs and size <= size_max:
            from pocketmq.broker.wire.sends import send_run

            try:
                if isinstance(alike, AlikeBatchSends):
                    outer, _ = self._outer(alike.properties, alike.plain.as_five)
                    found = send_run.BatchRun(shape, alike, size, outer)
                else:
                    found = send_run.SendRun(shape, alike, size)
            except ValueError:
                # An empty body, or properties that are too long: refused or taken one by one.
                return None
        if len(runs) >= _RUNS_MAX:
            runs.clear()
        runs[size] = found
        return found
