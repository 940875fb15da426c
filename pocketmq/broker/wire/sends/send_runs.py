"""Answers the plain sends, or batches, of one read that are alike together, once the store has numpy
(send_run.py).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pocketmq.broker.figures.stats import PutCounter
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages
from pocketmq.broker.wire.sends.kept_answers import KeptAnswers
from pocketmq.broker.wire.sends.plain_send import PlainBatches, PlainSends
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.quick.by_pattern import Pattern
from pocketmq.remoting.transport.connection import Connection
from pocketmq.store import StoreError

if TYPE_CHECKING:
    from pocketmq.broker.wire.sends.send_run import BatchRun, SendRun, Taken

# Larger frames cost more than what is done for a message otherwise; sizes of one shape.
_RUN_FRAME_MAX, _RUNS_MAX = 8_192, 32
_BATCH_FRAME_MAX = 32_768


class SendRuns:
    """Stores, counts and answers runs."""

    def __init__(
        self,
        node: Node,
        messages: Messages,
        kept: KeptAnswers,
        outer: Callable[[str, bool], tuple[bytes, bool]],
    ) -> None:
        """outer: see AddedProperties.of_batch."""
        self._store = messages.store
        self._stats = messages.stats
        self._latencies = messages.stats.latencies
        self._durability = messages.durability
        self._kept = kept
        self._outer = outer
        self._monotonic_ms = node.clock.monotonic_ms

    def answer(
        self,
        pattern: Pattern,
        known: PlainSends,
        frames: Sequence[bytes],
        connection: Connection,
    ) -> bytes | None:
        """Store and answer several plain messages.

        Returns b"" if answered later, None if the frames must be handled one by one.
        """
        if not self._store.appends.has_numpy:
            return None
        run: SendRun | None = self._run_of(pattern, known, frames[0])
        if run is None:
            return None
        taken = run.take(frames)
        if taken is None:
            self._not_taken(pattern, run, frames)
            return None
        return self._store_and_answer(known, run, taken, connection, known.wait)

    def answer_batches(
        self,
        pattern: Pattern,
        known: PlainBatches,
        frames: Sequence[bytes],
        connection: Connection,
    ) -> bytes | None:
        """The same for batches."""
        if not self._store.appends.has_numpy:
            return None
        run: BatchRun | None = self._run_of(pattern, known, frames[0])
        if run is None:
            return None
        try:
            taken = run.take(frames, self._store.appends.batch_shape)
        except ValueError:
            return None
        if taken is None:
            self._not_taken(pattern, run, frames)
            return None
        _, wait = self._outer(known.properties, known.as_five)
        return self._store_and_answer(known, run, taken, connection, wait)

    def _store_and_answer(
        self,
        known: PlainSends | PlainBatches,
        run: "SendRun | BatchRun",
        taken: "Taken",
        connection: Connection,
        wait: bool,
    ) -> bytes | None:
        cut, messages = taken
        ids = messages.queue_ids
        plain, note = known.topics.get(run.topic), None
        if plain is None:
            plain = None if isinstance(known, PlainBatches) else known.once.get(run.topic)
            note = None if plain is None or plain.once is None else run.new(cut, plain.once)
            if plain is None or note is None:
                return None
        counters: dict[int, PutCounter] = {}
        for queue_id in set(ids):
            number = b"%d" % queue_id
            found = plain.queues.get(number) or plain.open(number)
            if found is None:
                return None
            counters[queue_id] = found[1]
        try:
            stored = self._store.appends.append_run(
                plain.name, messages, run.records, connection.peer_host
            )
        except StoreError:
            return None
        if stored is None:
            return None
        size, each = stored.size, messages.each
        if note is not None:
            note(range(stored.position, stored.position + len(ids) * size, size))
        for queue_id, counter in counters.items():
            count = ids.count(queue_id)
            counter.nums += count * each
            counter.batched += count * (each - 1)
            counter.size += count * size
            counter.sizes[(size // each - 1).bit_length()] += count * each
        replies = run.answers(cut, messages, stored)
        if wait and (self._durability.is_sync_flush or self._durability.replicas.wanted):
            # A read's messages are kept as one, on disk and by slaves.
            end = stored.position + len(ids) * size
            return self._kept.park(known.code, connection, end, replies, len(ids))
        took_ms = self._monotonic_ms() - connection.last_read_ms
        self._latencies.add(known.code, ResponseCode.SUCCESS, took_ms, len(ids))
        return replies if isinstance(replies, bytes) else b"".join(replies)

    def _run_of(self, pattern: Pattern, known: PlainSends | PlainBatches, frame: bytes) -> Any:
        """Return how runs of frames of this size are taken; None at their first, and if they are not."""
        runs, size = pattern.runs, len(frame)
        found = runs.get(size)
        size_max = _BATCH_FRAME_MAX if isinstance(known, PlainBatches) else _RUN_FRAME_MAX
        layout = pattern.layout(frame) if found is None and size in runs else None
        if layout is not None and size <= size_max:
            from pocketmq.broker.wire.sends import send_run

            try:
                if isinstance(known, PlainBatches):
                    outer, _ = self._outer(known.properties, known.as_five)
                    found = send_run.BatchRun(layout, known, size, outer)
                else:
                    found = send_run.SendRun(layout, known, size)
            except ValueError:
                # An empty body, or properties that are too long: refused or taken one by one.
                return None
        if len(runs) >= _RUNS_MAX:
            runs.clear()
        runs[size] = found
        return found

    def _not_taken(
        self, pattern: Pattern, run: "SendRun | BatchRun", frames: Sequence[bytes]
    ) -> None:
        """Let the next run of this size be learned from, if values have other lengths now."""
        layout = pattern.layout(frames[0])
        if layout is None or layout.places != run.layout.places:
            del pattern.runs[len(frames[0])]
