"""Sending: SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE.

1. A plain message to a known topic takes the short path (`_put`): no header object, no dictionary of
   properties, a response made from a template. A header like the previous one is not even parsed
   (`_quick`, `_quick_alike`). Everything else takes `_send_checked`, which calls the act.
2. MSG_REGION and TRACE_ON are in every response; for clients of 5.x they are stored too, as 5.x brokers do,
   since 5.x consumers trace nothing without them.
One noun: the ways into one family of requests, which share what they have learned of earlier frames.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from pocketmq.broker.acts.send import BatchPlace, SendActs, SentBatch
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages
from pocketmq.broker.refused import Refused, store_refusal
from pocketmq.broker.wire.admin.answers import asks_as_five
from pocketmq.broker.wire.sends.kept_answers import KeptAnswers
from pocketmq.broker.wire.sends.long_batches import LongBatches, is_long
from pocketmq.broker.wire.sends.plain_send import (
    QUEUE_IDS,
    AlikeBatchSends,
    AlikeSends,
    Plain,
    Target,
    parse_send,
    place_of,
    plain_batch,
    plain_v1,
    plain_v2,
    stored_properties,
    template_of,
)
from pocketmq.broker.wire.sends.send_answer import SendAnswers
from pocketmq.broker.wire.sends.send_runs import BATCHES_MAX, BATCHES_MIN, SendRuns
from pocketmq.remoting.codes import RequestCode, ResponseCode, Version
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.java_number import integer, long
from pocketmq.remoting.quick.by_place import ByPlace, FixedShape
from pocketmq.remoting.quick.by_text import Shaped, text_of
from pocketmq.remoting.transport.connection import Connection, Handler, Reply
from pocketmq.store import StoreError
from pocketmq.store.queue.tags_code import value_code

log = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview


class SendMessageProcessor:
    """Handlers of the three codes."""

    def __init__(self, node: Node, messages: Messages, acts: SendActs) -> None:
        self._config = node.config
        self._acts = acts
        self._store = store = messages.store
        self._append = store.append
        self._stats = messages.stats
        self._durability = messages.durability
        self._host = node.store_host.hex().upper()
        self._cluster = b"\x02CLUSTER\x01" + node.config.broker_cluster_name.encode()
        self._latencies = messages.stats.latencies
        self._monotonic_ms = node.clock.monotonic_ms
        self._kept = KeptAnswers(node, messages)
        self._long_batches = LongBatches(acts, self._stored_batch, self._refuse)
        self._runs = SendRuns(node, messages, self._kept, acts.batch_properties)
        self._targets: dict[str, Target] = {}
        self.forget_targets()

    def handlers(self) -> dict[int, Handler]:
        v1, v2 = self._by_place(_FIELDS_V1, plain_v1), self._by_place(_FIELDS_V2, plain_v2)
        return {
            RequestCode.SEND_MESSAGE: Shaped(self.send_v1, _FIELDS_V1, plain_v1, self._quick, v1),
            RequestCode.SEND_MESSAGE_V2: Shaped(
                self.send_v2, _FIELDS_V2, plain_v2, self._quick, v2
            ),
            RequestCode.SEND_BATCH_MESSAGE: Shaped(
                self.send_batch,
                _FIELDS_V2,
                plain_batch,
                self._quick_batch,
                ByPlace(
                    ("e", "g"),
                    "i",
                    self._fix_batch,
                    self._quick_alike_batch,
                    self._quick_batches,
                    BATCHES_MIN,
                    BATCHES_MAX,
                ),
            ),
        }

    def forget_targets(self, changed: object = None) -> None:
        """Clear the short path's cache: topics or settings have changed."""
        self._targets.clear()
        trace = str(self._config.trace_on).lower()
        region = self._config.region_id
        self.answer_ext = {"MSG_REGION": region, "TRACE_ON": trace}
        self._answers = SendAnswers(self._host, self.answer_ext)
        self._more = self._cluster, self._cluster + self._acts.traced()

    def drain(self) -> Coroutine[Any, Any, None]:
        """Store what waits and wait for the flushes that responses are parked for, as the broker stops."""
        self._long_batches.drain()
        return self._kept.drain()

    # ------------------------------------------------------------ the short way

    def send_v2(self, request: RemotingCommand, connection: Connection) -> Reply:
        """SEND_MESSAGE_V2, the code of the official Java client."""
        place = place_of(request, _FIELDS_V2)
        if place is None:
            return self._send_checked(request, connection)
        return self._send(request, connection, *place, plain_v2(request))

    def send_v1(self, request: RemotingCommand, connection: Connection) -> Reply:
        """SEND_MESSAGE, the code of the Go client."""
        place = place_of(request, _FIELDS_V1)
        if place is None:
            return self._send_checked(request, connection)
        return self._send(request, connection, *place, plain_v1(request))

    def _send(
        self,
        request: RemotingCommand,
        connection: Connection,
        topic: str,
        queue_id: int,
        born_ms: int,
        text: str,
        plain: "Plain | None",
    ) -> Reply:
        """Append and answer, if neither header nor properties require anything special."""
        if plain is None:
            return self._send_checked(request, connection)
        try:
            put = self._put(topic, queue_id, born_ms, text, request.body, plain, connection)
        except StoreError as error:
            return self._refuse(request, connection, store_refusal(error, self._store))
        if put is None:
            return self._send_checked(request, connection)
        position, queue_offset, end = put
        reply = self._answers.one(request, position, queue_id, queue_offset)
        if end:
            return self._kept.when_kept(request, connection, end, reply)
        return reply

    def _quick(
        self, plain: "Plain", values: list[str], body: bytes, connection: Connection
    ) -> bytes | None:
        """Like `_send`, for a request whose header was not parsed (remoting.json_shape)."""
        topic, queue, born, properties, number = values
        if not (queue.isdecimal() and born.isdecimal()):
            return None
        try:
            queue_id, text = int(queue), text_of(properties)
            put = self._put(topic, queue_id, int(born), text, body, plain, connection)
        except (ValueError, StoreError):
            return None
        if put is None:
            return None
        position, queue_offset, end = put
        opaque = int(number)
        reply = self._answers.one_json(opaque, position, queue_id, queue_offset)
        if end:
            return self._kept.park(plain.code, connection, end, reply) or b""
        return reply

    def _by_place(self, fields: Sequence[str], admit: Callable[[RemotingCommand], Any]) -> ByPlace:
        """Return how single messages are answered whose headers are cut by place (remoting.fixed_shape)."""
        topic, queue, born, properties = fields

        def fix(request: RemotingCommand, names: Sequence[str]) -> AlikeSends | None:
            plain, ext = admit(request), request.ext or {}
            target = self._targets.get(ext[topic])
            if plain is None or target is None:
                return None
            more, text = self._more[plain.as_five], ext[properties]
            kept = stored_properties(text, more, as_five=plain.as_five)
            template = None if kept is None else template_of(kept[0], names, wait=kept[1])
            if template is None:
                return None
            answer = self._answers.one_binary if request.encoding else self._answers.one_json
            return AlikeSends(plain, ext[topic], target, answer, template)

        return ByPlace((queue, born), properties, fix, self._quick_alike, self._quick_run)

    def _quick_alike(
        self,
        alike: AlikeSends,
        values: tuple[bytes, ...],
        opaque: int,
        body: bytes,
        connection: Connection,
    ) -> bytes | None:
        """Like `_quick`, for a message whose header is like another in all but these values."""
        plain, topic, target, answer, (text, tag_at, code, wait) = alike
        if self._targets.get(topic) is not target:
            return None
        try:
            queue_id = QUEUE_IDS.get(values[0], -1)
            if not 0 <= queue_id < target.queue_count or not values[1].isdigit():
                return None
            place, properties = (topic, queue_id, int(values[1])), values[2:]
            if tag_at >= 0:
                code = value_code(properties[tag_at])
            text %= properties
            put = self._append_plain(target, place, body, text, plain, connection, wait, code)
        except (ValueError, StoreError):
            return None
        position, queue_offset, end = put
        reply = answer(opaque, position, queue_id, queue_offset)
        if end:
            return self._kept.park(plain.code, connection, end, reply) or b""
        return reply

    def _quick_run(
        self, shape: FixedShape, alike: AlikeSends, frames: Sequence[bytes], connection: Connection
    ) -> bytes | None:
        """Like `_quick_alike`, for several messages of one read."""
        if self._targets.get(alike.topic) is not alike.target:
            return None
        return self._runs.answer(shape, alike, frames, connection)

    def _put(
        self,
        topic: str,
        queue_id: int,
        born_ms: int,
        text: str,
        body: Buffer,
        plain: "Plain",
        peer: Connection,
    ) -> tuple[int, int, int] | None:
        """Return position, queue offset, and the end that the response waits for, or 0; None, with nothing
        done, if this is no plain message to a known topic. Raises: StoreError.
        """
        target = self._targets.get(topic)
        if target is None or not 0 <= queue_id < target.queue_count:
            return None
        kept = stored_properties(text, self._more[plain.as_five], as_five=plain.as_five)
        if kept is None:
            return None
        properties, wait = kept
        place = topic, queue_id, born_ms
        return self._append_plain(target, place, body, properties, plain, peer, wait, None)

    def _append_plain(
        self,
        target: Target,
        place: tuple[str, int, int],
        body: Buffer,
        properties: bytes,
        plain: Plain,
        peer: Connection,
        wait: bool,
        code: int | None,
    ) -> tuple[int, int, int]:
        """See _put; code: of the tag, None: it is among the properties. Raises: StoreError."""
        topic, queue_id, born_ms = place
        position, queue_offset, _, size = self._append(
            topic,
            queue_id,
            body,
            properties,
            plain.flag,
            plain.sys_flag,
            born_ms,
            peer.peer_host,
            0,
            0,
            code,
        )
        counter = target.counters[queue_id]
        if counter is None:
            counter = target.counters[queue_id] = self._stats.put_counter(topic, queue_id)
        counter.nums += 1
        counter.size += size
        counter.sizes[(size - 1).bit_length()] += 1
        if wait and (self._durability.is_sync_flush or self._durability.replicas.wanted):
            return position, queue_offset, position + size
        latencies = self._latencies
        latencies.left -= 1
        if not latencies.left:
            latencies.look(plain.code, self._monotonic_ms() - peer.last_read_ms)
        return position, queue_offset, 0

    def send_batch(self, request: RemotingCommand, connection: Connection) -> Reply:
        """SEND_BATCH_MESSAGE: many messages in one body, for one queue."""
        ext = request.ext
        try:
            topic = ext["b"]  # type: ignore[index]
            queue_id, born_ms = integer(ext["e"]), long(ext["g"])  # type: ignore[index]
        except (KeyError, TypeError, ValueError):
            return self._send_checked(request, connection)
        plain = plain_batch(request)
        if plain is None or not self._has_queue(topic, queue_id) or is_long(request.body):
            return self._send_checked(request, connection)
        text = ext.get("i") or ""  # type: ignore[union-attr]
        place = BatchPlace(topic, queue_id, plain.sys_flag, born_ms, text, plain.as_five)
        try:
            sent = self._put_batch(place, request.body, connection)
        except Refused as refused:
            return self._refuse(request, connection, refused)
        return self._stored_batch(request, connection, sent)

    def _quick_batch(
        self, plain: "Plain", values: list[str], body: bytes, connection: Connection
    ) -> bytes | None:
        """Like `send_batch`, for a request whose header was not parsed."""
        topic, queue, born, properties, number = values
        try:
            queue_id, born_ms, text = integer(queue), long(born), text_of(properties)
            if not self._has_queue(topic, queue_id) or is_long(body):
                return None
            place = BatchPlace(topic, queue_id, plain.sys_flag, born_ms, text, plain.as_five)
            sent = self._put_batch(place, body, connection)
        except (ValueError, Refused):
            return None
        opaque = int(number)
        reply = self._answers.batch_json(opaque, sent.positions, queue_id, sent.queue_offset)
        return self._when_kept_batch(plain.code, connection, sent.end, reply)

    def _fix_batch(self, request: RemotingCommand, names: Sequence[str]) -> AlikeBatchSends | None:
        plain, ext = plain_batch(request), request.ext or {}
        topic = ext["b"]
        target = self._targets.get(topic)
        if plain is None or target is None or names:
            return None
        answer = self._answers.batch_binary if request.encoding else self._answers.batch_json
        return AlikeBatchSends(plain, topic, target, answer, ext["i"])

    def _quick_alike_batch(
        self,
        alike: AlikeBatchSends,
        values: tuple[bytes, ...],
        opaque: int,
        body: bytes,
        connection: Connection,
    ) -> bytes | None:
        """Like `_quick_batch`, for a header that is like another in all but these values."""
        plain, topic, target, answer, text = alike
        if self._targets.get(topic) is not target:
            return None
        try:
            queue_id = QUEUE_IDS.get(values[0], -1)
            if not 0 <= queue_id < target.queue_count or is_long(body):
                return None
            if not values[1].isdigit():
                return None
            place = _new_tuple(
                BatchPlace,
                (topic, queue_id, plain.sys_flag, int(values[1]), text, plain.as_five),
            )
            sent = self._put_batch(place, body, connection)
        except (ValueError, Refused):
            return None
        reply = answer(opaque, sent.positions, queue_id, sent.queue_offset)
        return self._when_kept_batch(plain.code, connection, sent.end, reply)

    def _quick_batches(
        self,
        shape: FixedShape,
        alike: AlikeBatchSends,
        frames: Sequence[bytes],
        connection: Connection,
    ) -> bytes | None:
        """Like `_quick_alike_batch`, for several batches of one read."""
        if self._targets.get(alike.topic) is not alike.target:
            return None
        return self._runs.answer_batches(shape, alike, frames, connection)

    def _when_kept_batch(
        self, code: int, connection: Connection, end: int | None, reply: bytes
    ) -> bytes:
        """Like `_when_kept`, for a batch whose header was not parsed; b"": later."""
        if end is not None:
            return self._kept.park(code, connection, end, reply) or b""
        took_ms = self._monotonic_ms() - connection.last_read_ms
        self._latencies.add(code, ResponseCode.SUCCESS, took_ms)
        return reply

    def _has_queue(self, topic: str, queue_id: int) -> bool:
        target = self._targets.get(topic)
        return target is not None and 0 <= queue_id < target.queue_count

    def _put_batch(self, place: BatchPlace, body: Buffer, peer: Connection) -> SentBatch:
        """Store a batch for an existing queue. Raises: Refused."""
        counters = self._targets[place.topic].counters
        counter = counters[place.queue_id]
        if counter is None:
            counter = self._stats.put_counter(place.topic, place.queue_id)
            counters[place.queue_id] = counter
        return self._acts.append_batch(place, body, peer.peer_host, counter)

    # ------------------------------------------------------------ any send

    def _send_checked(self, request: RemotingCommand, connection: Connection) -> Reply:
        """Handle any send, with all checks."""
        ask = parse_send(request)
        try:
            topic = self._acts.check(ask, connection)
            stored = self._acts.unsaved(topic)
            if stored is not None:
                stored.add_done_callback(partial(self._send_again, request, connection))
                return None
            self._remember(ask.topic)
            if request.code == RequestCode.SEND_BATCH_MESSAGE or ask.batch:
                if is_long(request.body):
                    self._long_batches.add(ask, request, connection)
                    return None
                as_five = asks_as_five(request)
                batch = self._acts.send_batch(ask, topic, request.body, connection, as_five=as_five)
                return self._stored_batch(request, connection, batch)
            # Older clients send the field, and mean nothing by it.
            times_max = ask.max_reconsume_times if request.version >= Version.V3_4_9 else None
            sent = self._acts.send(
                ask,
                topic,
                request.body,
                connection,
                times_max=times_max,
                as_five=asks_as_five(request),
            )
        except Refused as refused:
            return self._refuse(request, connection, refused)
        reply = self._answers.one(request, sent.position, sent.queue_id, sent.queue_offset)
        if sent.recall_handle is not None or sent.transaction_id is not None:
            answer = decode(reply[4:])
            more = {"recallHandle": sent.recall_handle, "transactionId": sent.transaction_id}
            answer.ext = {**(answer.ext or {}), **{k: v for k, v in more.items() if v}}
            reply = encode(answer)
        return self._when_kept(request, connection, sent.end, reply)

    def _send_again(
        self, request: RemotingCommand, connection: Connection, stored: "asyncio.Future[None]"
    ) -> None:
        """Send a message whose new topic is saved now, or could not be: a crash would have lost it."""
        reply: Reply
        error = stored.exception()
        if error is None:
            try:
                reply = self._send_checked(request, connection)
            except Exception as bug:
                log.exception("request failed code=%s peer=%s", request.code, connection.peer)
                reply = request.answer(ResponseCode.SYSTEM_ERROR, f"{type(bug).__name__}: {bug}")
        else:
            refused = Refused(ResponseCode.SYSTEM_ERROR, f"cannot save the topic: {error}")
            reply = self._refuse(request, connection, refused)
        if reply is not None and not request.is_oneway:
            connection.send(reply)

    def _remember(self, topic: str) -> None:
        """Let the next plain message to this topic take the short path."""
        if topic not in self._targets:
            count = self._acts.plain_queue_count(topic)
            if count is not None:
                self._targets[topic] = Target(count)

    # ------------------------------------------------------------ answers

    def _stored_batch(
        self, request: RemotingCommand, connection: Connection, batch: SentBatch
    ) -> bytes | None:
        reply = self._answers.batch(request, batch.positions, batch.queue_id, batch.queue_offset)
        return self._when_kept(request, connection, batch.end, reply)

    def _refuse(
        self, request: RemotingCommand, connection: Connection, refused: Refused
    ) -> RemotingCommand:
        log.warning(
            "send refused code=%d peer=%s remark=%r", refused.code, connection.peer, refused.remark
        )
        self._count(request, connection, refused.code)
        return request.answer(refused.code, refused.remark, dict(self.answer_ext))

    def _count(self, request: RemotingCommand, connection: Connection, code: int) -> None:
        self._latencies.add(request.code, code, self._monotonic_ms() - connection.last_read_ms)

    def _when_kept(
        self, request: RemotingCommand, connection: Connection, end: int | None, reply: bytes
    ) -> bytes | None:
        """Return the response now, or send it when the log is safe up to `end`."""
        if end is None:
            self._count(request, connection, ResponseCode.SUCCESS)
            return reply
        return self._kept.when_kept(request, connection, end, reply)


_FIELDS_V1 = ("topic", "queueId", "bornTimestamp", "properties")
_FIELDS_V2 = ("b", "e", "g", "i")
# A named tuple without the cost of its own __new__, for every batch.
_new_tuple = tuple.__new__
