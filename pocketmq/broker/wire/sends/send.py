"""Sending: SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE.

    a frame, parsed      -> kind.fix, its values          -> kind.take ┐
    a frame like others  -> pattern: known, its values    -> kind.take ├ append, count, answer
    many of one read     -> pattern: known, their columns -> kind.run  ┘
    all that is not plain, and every error                -> the act

1. A kind of send (Singles, Batches) has one `take`, whichever way its values came. It returns None, with
   nothing done, for what is not plain: the act checks that, and stores or refuses it.
2. MSG_REGION and TRACE_ON are in every response.
"""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any

from pocketmq.broker.acts.send import SendActs, SendAsk, SentBatch
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages
from pocketmq.broker.refused import Refused
from pocketmq.broker.wire.admin.answers import asks_as_five
from pocketmq.broker.wire.sends.batches import Batches
from pocketmq.broker.wire.sends.long_batches import LongBatches, is_long
from pocketmq.broker.wire.sends.plain_send import V1, V2, parse_send
from pocketmq.broker.wire.sends.send_parts import SendParts
from pocketmq.broker.wire.sends.singles import Singles, values_of
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode, Version
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.quick.by_pattern import Cuttable
from pocketmq.remoting.serving.log_pause import LogPause
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.dispatch import Reply

log = logging.getLogger(__name__)


class SendMessageProcessor:
    """Handlers of the three codes."""

    def __init__(self, node: Node, messages: Messages, acts: SendActs) -> None:
        self._acts = acts
        self._refusals = LogPause()
        self._monotonic_ms = node.clock.monotonic_ms
        self.parts = parts = SendParts(node, messages, acts)
        self._long_batches = LongBatches(acts, self._stored_batch, self._refuse)
        self._kinds: dict[int, Singles | Batches] = {
            RequestCode.SEND_MESSAGE: Singles(parts, V1),
            RequestCode.SEND_MESSAGE_V2: Singles(parts, V2),
            RequestCode.SEND_BATCH_MESSAGE: Batches(parts),
        }

    def handlers(self) -> dict[int, Handler]:
        return {code: Cuttable(self.send, kind.way) for code, kind in self._kinds.items()}

    def drain(self) -> Coroutine[Any, Any, None]:
        """Store what waits and wait for the flushes that responses are parked for, as the broker stops."""
        self._long_batches.drain()
        return self.parts.kept.drain()

    def send(self, request: RemotingCommand, connection: Connection) -> Reply:
        """Handle a request of any of the codes that was parsed."""
        kind = self._kinds[request.code]
        values = values_of(request, kind.names)
        if values is not None:
            known: Any = kind.fix(request, ())
            if known is not None:
                body = request.body
                reply = kind.take(known, values, request.opaque, body, connection)  # type: ignore[arg-type]
                if reply is not None:
                    return reply
        return self._send_checked(request, connection)

    # ------------------------------------------------------------ by the act

    def _send_checked(self, request: RemotingCommand, connection: Connection) -> Reply:
        """Handle any send, with all checks."""
        ask = parse_send(request)
        try:
            topic = self._acts.check(ask, connection)
            stored = self._acts.unsaved(topic)
            if stored is not None:
                stored.add_done_callback(partial(self._send_again, request, connection))
                return None
            self.parts.remember(ask.topic)
            if request.code == RequestCode.SEND_BATCH_MESSAGE or ask.batch:
                return self._send_batch(ask, topic, request, connection)
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
        answers = self.parts.answers[request.encoding]
        reply = answers.one(request.opaque, sent.position, sent.queue_id, sent.queue_offset)
        if sent.recall_handle is not None or sent.transaction_id is not None:
            answer = decode(reply[4:])
            more = {"recallHandle": sent.recall_handle, "transactionId": sent.transaction_id}
            answer.ext = {**(answer.ext or {}), **{k: v for k, v in more.items() if v}}
            reply = encode(answer)
        return self._when_kept(request, connection, sent.end, reply)

    def _send_batch(
        self, ask: SendAsk, topic: TopicConfig, request: RemotingCommand, connection: Connection
    ) -> Reply:
        """Store a batch, at once or in turns. Raises: Refused."""
        if is_long(request.body):
            self._long_batches.add(ask, request, connection)
            return None
        as_five = asks_as_five(request)
        batch = self._acts.send_batch(ask, topic, request.body, connection, as_five=as_five)
        return self._stored_batch(request, connection, batch)

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

    # ------------------------------------------------------------ answers

    def _stored_batch(
        self, request: RemotingCommand, connection: Connection, batch: SentBatch
    ) -> bytes:
        answers = self.parts.answers[request.encoding]
        reply = answers.batch(request.opaque, batch.positions, batch.queue_id, batch.queue_offset)
        return self._when_kept(request, connection, batch.end, reply)

    def _when_kept(
        self, request: RemotingCommand, connection: Connection, end: int | None, reply: bytes
    ) -> bytes:
        """Return the response now, or b"": it is sent when the log is safe up to `end`."""
        reply = b"" if request.is_oneway else reply
        return self.parts.kept.answer(request.code, connection, end, reply)

    def _refuse(
        self, request: RemotingCommand, connection: Connection, refused: Refused
    ) -> RemotingCommand:
        count = self._refusals.due((refused.code, refused.remark), self._monotonic_ms())
        if count is not None:
            log.warning(
                "send refused; more like it are counted code=%d peer=%s since_the_last_line=%d remark=%r",
                refused.code,
                connection.peer,
                count,
                refused.remark,
            )
        self.parts.count(request.code, refused.code, connection)
        return request.answer(refused.code, refused.remark, dict(self.parts.answer_ext))
