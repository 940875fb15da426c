"""Single messages: the kind of send of SEND_MESSAGE and SEND_MESSAGE_V2."""

from collections.abc import Sequence
from typing import Any

from pocketmq.broker.wire.sends.plain_send import (
    PlainSends,
    SendFields,
    key_place,
    plain_flags,
    sent_as_five,
    stored_properties,
    template_of,
)
from pocketmq.broker.wire.sends.send_answer import no_answer
from pocketmq.broker.wire.sends.send_parts import SendParts
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.quick.by_pattern import CutRule, Pattern
from pocketmq.remoting.transport.connection import Connection
from pocketmq.store import StoreError
from pocketmq.store.queue.tags_code import value_code


class Singles:
    """Plain messages, whether parsed (`values_of`), cut by a pattern, or by columns."""

    def __init__(self, parts: SendParts, fields: SendFields) -> None:
        self._parts = parts
        self._fields = fields
        self._append = parts.store.appends.append
        self._durability = parts.durability
        self._latencies = parts.latencies
        self.names = (fields.topic, fields.queue, fields.born)
        self.way = CutRule(self.names, fields.properties, self.fix, self.take, self.run)

    def fix(self, request: RemotingCommand, names: Sequence[str]) -> PlainSends | None:
        """Return what such messages share that differ in these properties; None: the act has to look."""
        fields, ext, parts = self._fields, request.ext, self._parts
        if ext is None or ext.get(fields.batch) == "true":
            return None
        flags, text = plain_flags(ext, fields), ext.get(fields.properties)
        if flags is None or text is None:
            return None
        as_five = sent_as_five(request)
        kept = stored_properties(text, parts.more[as_five], as_five=as_five)
        template = None if kept is None else template_of(kept[0], names)
        if kept is None or template is None:
            return None
        sys_flag, flag = flags
        answer = no_answer if request.is_oneway else parts.answers[request.encoding].one
        key_at = key_place(kept[0], names)
        # In `take` it stands behind the values of fields.
        key_at += len(self.names) if key_at >= 0 else 0
        plain = (parts.topics, request.code, flag, sys_flag, answer, *template, kept[1])
        return PlainSends(*plain, parts.once, key_at)

    def take(
        self,
        known: PlainSends,
        values: Sequence[bytes],
        opaque: int,
        body: bytes,
        connection: Connection,
    ) -> bytes | None:
        """Store and answer one message; b"": later. None, with nothing done, if the act has to look."""
        topics, code, flag, sys_flag, answer, text, tag_at, tag_code, wait, onces, key_at = known
        plain, once = topics.get(values[0]), None
        if plain is None:
            plain = onces.get(values[0])
            if plain is None or key_at < 0:
                return None
            once = plain.once
            if once is None or not once.is_new(values[key_at]):
                return None
        found = plain.queues.get(values[1]) or plain.open(values[1])
        born = values[2]
        if found is None or not born.isdigit():
            return None
        queue_id, counter = found
        properties = values[3:-1]
        if tag_at >= 0:
            tag_code = value_code(properties[tag_at])
        try:
            position, queue_offset, _, size = self._append(
                plain.name,
                queue_id,
                body,
                text % properties,
                flag,
                sys_flag,
                int(born),
                connection.peer_host,
                0,
                0,
                tag_code,
            )
        except (ValueError, StoreError):
            return None
        if once is not None:
            once.latest[values[key_at]] = position
        counter.nums += 1
        counter.size += size
        counter.sizes[(size - 1).bit_length()] += 1
        reply = answer(opaque, position, queue_id, queue_offset)
        if wait and (self._durability.is_sync_flush or self._durability.replicas.wanted):
            return self._parts.kept.park(code, connection, position + size, reply)
        latencies = self._latencies
        latencies.left -= 1
        if not latencies.left:
            self._parts.look(code, connection)
        return reply

    def run(
        self, pattern: Pattern, known: PlainSends, frames: Sequence[bytes], connection: Connection
    ) -> bytes | None:
        """Store and answer several messages of one read."""
        return self._parts.runs.answer(pattern, known, frames, connection)


def values_of(request: RemotingCommand, names: Sequence[str]) -> tuple[bytes, ...] | None:
    """Return the values of a parsed request as if they were cut; None if one is missing."""
    ext: dict[str, Any] = request.ext or {}
    try:
        return *[ext[name].encode() for name in names], b""
    except KeyError:
        return None
