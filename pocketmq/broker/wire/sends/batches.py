"""Batches: the kind of send of SEND_BATCH_MESSAGE: many messages in one body, for one queue."""

from collections.abc import Sequence

from pocketmq.broker.acts.send import BatchPlace
from pocketmq.broker.refused import Refused
from pocketmq.broker.wire.sends.long_batches import is_long
from pocketmq.broker.wire.sends.plain_send import (
    V2,
    PlainBatches,
    plain_flags,
    sent_as_five,
)
from pocketmq.broker.wire.sends.send_answer import no_answer
from pocketmq.broker.wire.sends.send_parts import SendParts
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.quick.by_pattern import CutRule, Pattern
from pocketmq.remoting.transport.connection import Connection

# A run of batches begins with two; what it takes at most lies in a cache.
_RUN_MIN, _RUN_MAX = 2, 16


class Batches:
    """See Singles."""

    def __init__(self, parts: SendParts) -> None:
        self._parts = parts
        self._append = parts.acts.append_batch
        self.names = (V2.topic, V2.queue, V2.born)
        self.way = CutRule(
            self.names, V2.properties, self.fix, self.take, self.run, _RUN_MIN, _RUN_MAX
        )

    def fix(self, request: RemotingCommand, names: Sequence[str]) -> PlainBatches | None:
        """Return what such batches share; None: the act has to look, or properties differ."""
        ext = request.ext
        # The flags of messages are their own.
        flags = None if ext is None or names else plain_flags({**ext, V2.flag: "0"}, V2)
        if ext is None or flags is None:
            return None
        parts = self._parts
        answer = no_answer if request.is_oneway else parts.answers[request.encoding].batch
        text = ext.get(V2.properties) or ""
        return PlainBatches(
            parts.topics, request.code, flags[0], answer, text, sent_as_five(request)
        )

    def take(
        self,
        known: PlainBatches,
        values: Sequence[bytes],
        opaque: int,
        body: bytes,
        connection: Connection,
    ) -> bytes | None:
        """Store and answer one batch; b"": later. None, with nothing done, if the act has to look."""
        topics, code, sys_flag, answer, text, as_five = known
        plain = topics.get(values[0])
        if plain is None or is_long(body):
            return None
        found = plain.queues.get(values[1]) or plain.open(values[1])
        if found is None or not values[2].isdigit():
            return None
        queue_id, counter = found
        try:
            place = BatchPlace(plain.name, queue_id, sys_flag, int(values[2]), text, as_five)
            sent = self._append(place, body, connection.peer_host, counter)
        except (ValueError, Refused):
            return None
        reply = answer(opaque, sent.positions, queue_id, sent.queue_offset)
        return self._parts.kept.answer(code, connection, sent.end, reply)

    def run(
        self,
        pattern: Pattern,
        known: PlainBatches,
        frames: Sequence[bytes],
        connection: Connection,
    ) -> bytes | None:
        """Store and answer several batches of one read."""
        return self._parts.runs.answer_batches(pattern, known, frames, connection)
