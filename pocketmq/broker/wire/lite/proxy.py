"""Lite topics as RocketMQ's proxy asks for them: LITE_SUBSCRIPTION_CTL, POP_LITE_MESSAGE, and receipts of
lite topics. Source: the processors of these names, RocketMQ 5.5.0; lite.md 5 and 6.

1. A client is who it says it is, over whatever connection: the proxy has many clients, and several
   connections. It is told things over the one that it used last, and forgotten after three silent minutes.
2. A receipt is acknowledged whatever has become of it, as with other orderly pops.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from pocketmq.broker.acts.lite import COUNT_MAX, From, HandedOut, LiteAction, LiteActs, LiteAsk
from pocketmq.broker.refused import Refused
from pocketmq.broker.services import Parts
from pocketmq.model.pop_receipt import ORDER_REVIVE_QUEUE, Receipt
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, encode_head
from pocketmq.remoting.headers import (
    AckMessageHeader,
    ChangeInvisibleTimeHeader,
    ChangeInvisibleTimeResponseHeader,
    PopLiteMessageHeader,
    PopLiteMessageResponseHeader,
)
from pocketmq.remoting.java_number import number
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.dispatch import Reply, Steps
from pocketmq.remoting.transport.peer import PeerAnswer

_SILENT_MS = 180_000
NAMES_MAX = 5_000
_POLICIES = (From.LAST, From.MIN, From.MAX)


class ProxyClient:
    """A client of a proxy: a Peer (invariant 1). line: the connection that it used last."""

    protocol = "remoting"

    def __init__(self, line: Connection, clock: Clock) -> None:
        self._clock = clock
        self.use(line)

    def use(self, line: Connection) -> None:
        self.line, self._seen_ms = line, self._clock.monotonic_ms()

    @property
    def address(self) -> str:
        return self.line.address

    @property
    def host(self) -> bytes:
        return self.line.host

    @property
    def closed(self) -> bool:
        return self._clock.monotonic_ms() - self._seen_ms > _SILENT_MS

    @property
    def writable(self) -> bool:
        return self.line.writable

    def tell(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Raises: ConnectionLost."""
        self.line.tell(code, fields, body)

    async def ask(
        self, code: int, fields: Mapping[str, str], body: bytes, timeout_ms: int
    ) -> PeerAnswer:
        """Raises: RequestTimeout, ConnectionLost, TooManyRequests."""
        return await self.line.ask(code, fields, body, timeout_ms)

    def when_read(self, run: Any) -> None:
        self.line.when_read(run)

    def abort(self) -> None:
        """Do nothing: others use the connection, too."""


class LiteProcessor:
    """Handlers of the two codes, and of receipts that name a lite topic."""

    def __init__(self, parts: Parts) -> None:
        self._clock, self._store = parts.node.clock, parts.messages.store
        self._lite = parts.services.lite.service
        self._acts = LiteActs(parts.node, parts.tables, parts.messages, self._lite)
        self._broker_ip = parts.node.config.broker_ip1
        self._clients: dict[tuple[str, str], ProxyClient] = {}

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.LITE_SUBSCRIPTION_CTL: self.subscribe,
            RequestCode.POP_LITE_MESSAGE: self.pop,
        }

    def _client(self, client_id: str, group: str, line: Connection) -> ProxyClient:
        found = self._clients.get((client_id, group))
        if found is None or found.closed:
            for key in [key for key, each in self._clients.items() if each.closed]:
                self._lite.connection_closed(self._clients.pop(key))
            found = self._clients[client_id, group] = ProxyClient(line, self._clock)
        found.use(line)
        return found

    # ------------------------------------------------------------ subscribe

    def subscribe(self, request: RemotingCommand, connection: Connection) -> Steps:
        body = fastjson.loads_request(request.body) if request.body else None
        entries = body.get("subscriptionSet") if isinstance(body, Mapping) else None
        if not isinstance(entries, list) or not entries:
            remark = "the body lacks subscriptionSet, a list of {action, clientId, group, topic}"
            return request.answer(ResponseCode.ILLEGAL_OPERATION, remark)
        for entry in entries:
            try:
                self._subscribe(entry, connection)
            except Refused as refused:
                return request.answer(refused.code, refused.remark)
            yield
        return request.answer(ResponseCode.SUCCESS)

    def _subscribe(self, entry: Any, connection: Connection) -> None:
        """Raises: Refused."""
        told = entry if isinstance(entry, Mapping) else {}
        ask = LiteAsk(*(str(told.get(name) or "") for name in ("clientId", "group", "topic")))
        action, names = told.get("action"), told.get("liteTopicSet") or []
        if not all(ask):
            # RocketMQ passes over them, too.
            return
        if not isinstance(action, str) or action not in LiteAction.__members__:
            known = ", ".join(LiteAction.__members__)
            remark = f"the action {str(action)[:50]!r} is not one of {known}"
            raise Refused(ResponseCode.ILLEGAL_OPERATION, remark)
        if not isinstance(names, list) or len(names) > NAMES_MAX:
            remark = f"liteTopicSet is a list of at most {NAMES_MAX:,} names"
            raise Refused(ResponseCode.ILLEGAL_OPERATION, remark)
        client = self._client(ask.client_id, ask.group, connection)
        begin = _begin(told.get("offsetOption"))
        self._acts.sync(ask, LiteAction[action], map(str, names), client, begin)

    # ------------------------------------------------------------ pop

    def pop(self, request: RemotingCommand, connection: Connection) -> Reply:
        header = PopLiteMessageHeader.parse({"bornTime": "0", **(request.ext or {})})
        request.ext, request.body = None, b""
        until_ms = self._clock.monotonic_ms() + header.poll_time
        if header.max_msg_num > COUNT_MAX:
            remark = f"the broker[{self._broker_ip}] pop message's num is greater than {COUNT_MAX}"
            code = ResponseCode.INVALID_PARAMETER
            return request.answer(code, remark, PopLiteMessageResponseHeader(0, 0, 0).ext())
        return self._pop(request, header, until_ms, connection)

    def _pop(
        self,
        request: RemotingCommand,
        header: PopLiteMessageHeader,
        until_ms: int,
        connection: Connection,
    ) -> Reply:
        ask = LiteAsk(header.client_id, header.consumer_group, header.topic)
        again = partial(self._again, request, header, until_ms, connection)
        try:
            self._acts.check(ask)
            found = self._acts.receive(
                ask,
                header.max_msg_num,
                header.invisible_time,
                self._client(ask.client_id, ask.group, connection),
                until_ms,
                again,
                holds=False,
                line=connection,
            )
        except Refused as refused:
            ext = PopLiteMessageResponseHeader(0, 0, 0).ext()
            return request.answer(refused.code, refused.remark, ext)
        return None if found is None else self._found(request, header, found)

    def _again(
        self,
        request: RemotingCommand,
        header: PopLiteMessageHeader,
        until_ms: int,
        connection: Connection,
    ) -> None:
        reply = self._pop(request, header, until_ms, connection)
        if reply is not None:
            connection.send(reply)

    def _found(
        self, request: RemotingCommand, header: PopLiteMessageHeader, found: list[HandedOut]
    ) -> Reply:
        ext = PopLiteMessageResponseHeader(
            found[0].pop_ms if found else self._clock.now_ms(),
            header.invisible_time,
            ORDER_REVIVE_QUEUE,
            ";".join(str(each.attempt - 1) for each in found),
        ).ext()
        if not found:
            return request.answer(ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE", ext)
        records = [self._store.record_at(each.record.position) or b"" for each in found]
        answer = request.answer(ResponseCode.SUCCESS, "FOUND", ext)
        return [encode_head(answer, sum(map(len, records))), *records]

    # ------------------------------------------------------------ receipts

    def ack(self, request: RemotingCommand, header: AckMessageHeader) -> RemotingCommand:
        """Answer an ACK_MESSAGE that names a lite topic. Raises: HeaderError."""
        receipt = Receipt.parse(header.extra_info)
        try:
            lane = self._acts.lane(
                LiteAsk("", header.consumer_group, header.topic), header.lite_topic or ""
            )
            if not 0 <= header.offset <= self._lite.topics.index.next_offset(lane.key):
                return request.answer(ResponseCode.NO_MESSAGE, "ack offset illegal.")
            self._acts.ack(lane, header.offset, receipt.pop_ms)
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        return request.answer(ResponseCode.SUCCESS)

    def change_invisible_time(
        self, request: RemotingCommand, header: ChangeInvisibleTimeHeader
    ) -> RemotingCommand:
        """Answer a CHANGE_MESSAGE_INVISIBLETIME that names a lite topic. Raises: HeaderError."""
        receipt = Receipt.parse(header.extra_info)
        try:
            lane = self._acts.lane(
                LiteAsk("", header.consumer_group, header.topic), header.lite_topic or ""
            )
            is_out = self._acts.postpone(
                lane, header.offset, receipt.pop_ms, max(0, header.invisible_time)
            )
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        ext = ChangeInvisibleTimeResponseHeader(0, 0, 0)
        if is_out:
            until_ms = self._clock.now_ms() + header.invisible_time
            invisible_ms = until_ms - receipt.pop_ms
            ext = ChangeInvisibleTimeResponseHeader(
                receipt.pop_ms, invisible_ms, ORDER_REVIVE_QUEUE
            )
        return request.answer(ResponseCode.SUCCESS, None, ext.ext())


def _begin(option: Any) -> tuple[From, int]:
    """Return where a subscription begins; like RocketMQ's broker, pass over what is no option."""
    told = option if isinstance(option, Mapping) else {}
    try:
        value = number(told.get("value") or 0)
    except (TypeError, ValueError):
        value = -1
    kind = told.get("type")
    if kind == "POLICY" and 0 <= value < len(_POLICIES):
        return _POLICIES[value], 0
    if kind in ("OFFSET", "TAIL_N") and value >= 0:
        return (From.OFFSET if kind == "OFFSET" else From.TAIL), value
    return From.LAST, 0
