"""GET_BROKER_LITE_INFO and the like: what lite/info.py tells. Source: LiteManagerProcessor, 5.5.0."""

from collections.abc import Callable, Generator
from typing import Any

from pocketmq.broker.lite.info import LiteInfo
from pocketmq.broker.refused import Refused
from pocketmq.broker.services import Parts
from pocketmq.broker.wire.admin.answers import json_answer
from pocketmq.remoting import admin_headers as h
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.requests import GetLiteTopicsHeader, PocketRequestCode
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.dispatch import Steps

_CLIENT_TOLD, _PAGE = 1_000, 100
Told = dict[str, Any]


class AdminLiteProcessor:
    """Handlers of the seven codes."""

    def __init__(self, parts: Parts) -> None:
        self._lite = parts.services.lite.service
        self._info = LiteInfo(parts.node, parts.tables, parts.messages, self._lite)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_LITE_INFO: self.broker,
            RequestCode.GET_PARENT_TOPIC_INFO: self.parent,
            RequestCode.GET_LITE_TOPIC_INFO: self.lite_topic,
            RequestCode.GET_LITE_CLIENT_INFO: self.client,
            RequestCode.GET_LITE_GROUP_INFO: self.group,
            RequestCode.TRIGGER_LITE_DISPATCH: self.trigger,
            PocketRequestCode.GET_LITE_TOPICS: self.list_some,
        }

    def broker(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return json_answer(request, self._info.of_broker())

    def parent(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = h.GetParentTopicInfoHeader.parse(request.ext)
        return _told(request, self._info.of_parent, header.topic)

    def lite_topic(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = h.GetLiteTopicInfoHeader.parse(request.ext)
        return _told(request, self._info.of_lite_topic, header.parent_topic, header.lite_topic)

    def client(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = h.GetLiteClientInfoHeader.parse(request.ext)
        most = _CLIENT_TOLD if header.max_count is None else header.max_count
        asked = header.parent_topic, header.group, header.client_id, most
        return _told(request, self._info.of_client, *asked)

    def group(self, request: RemotingCommand, connection: Connection) -> RemotingCommand | Steps:
        header = h.GetLiteGroupInfoHeader.parse(request.ext)
        if header.lite_topic:
            return _told(request, self._info.of_group_in, header.group, header.lite_topic)
        return _told_later(request, self._info.of_group(header.group, header.top_k))

    def trigger(self, request: RemotingCommand, connection: Connection) -> Steps:
        header = h.TriggerLiteDispatchHeader.parse(request.ext)
        try:
            self._info.bound_topic(header.group)
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        yield from self._lite.dispatch(header.group, header.client_id or "")
        return request.answer(ResponseCode.SUCCESS)

    def list_some(self, request: RemotingCommand, connection: Connection) -> Steps:
        header = GetLiteTopicsHeader.parse(request.ext)
        cursor = header.cursor or "0"
        if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 20:
            raise HeaderError(f"cursor is the one of the last answer, not {cursor[:50]!r}")
        page = self._info.listed(
            header.topic,
            header.group,
            header.begins or "",
            int(cursor),
            header.count or _PAGE,
        )
        return _told_later(request, page)


def _told(request: RemotingCommand, what: Callable[..., Told], *asked: object) -> RemotingCommand:
    try:
        return _answer(request, what(*asked))
    except Refused as refused:
        return request.answer(refused.code, refused.remark)


def _told_later(request: RemotingCommand, asked: Generator[None, None, Told]) -> Steps:
    try:
        return _answer(request, (yield from asked))
    except Refused as refused:
        return request.answer(refused.code, refused.remark)


def _answer(request: RemotingCommand, told: Told) -> RemotingCommand:
    return json_answer(request, {name: each for name, each in told.items() if each is not None})
