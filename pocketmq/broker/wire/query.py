"""Finding messages: QUERY_MESSAGE by key or unique key, VIEW_MESSAGE_BY_ID. Source: QueryMessageProcessor.

The index stores only hashes of keys. Ours: the store compares topic and key, so that no client has to compare
again; RocketMQ leaves this to the client.
"""

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, encode_head
from pocketmq.remoting.headers import (
    QueryMessageHeader,
    QueryMessageResponseHeader,
    ViewMessageHeader,
)
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.dispatch import Reply
from pocketmq.store import MessageStore

# defaultQueryMaxNum: what a query by unique key looks at, whatever it asks for.
_UNIQUE_KEY_COUNT_MAX = 32
# Of all messages that a query by key may return at once, whatever it asks for: the answer is one frame.
_ANSWER_SIZE_MAX = 8 << 20


class QueryMessageProcessor:
    """Handlers over the store's index and log."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_MESSAGE: self.query_message,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view_message,
        }

    def query_message(self, request: RemotingCommand, connection: Connection) -> Reply:
        header = QueryMessageHeader.parse(request.ext)
        is_unique_key = header.unique_key_query or header.index_type == "U"
        count_max = _UNIQUE_KEY_COUNT_MAX if is_unique_key else header.max_num
        found = self._store.query_by_key(
            header.topic, header.key, count_max, header.begin_timestamp, header.end_timestamp
        )
        ext = QueryMessageResponseHeader(
            index_last_update_timestamp=found.index_last_ms,
            index_last_update_phyoffset=found.index_last_position,
        ).ext()
        records: list[memoryview] = []
        size = 0
        for record in found.records:
            if size + len(record) > _ANSWER_SIZE_MAX and records:
                break
            records.append(record)
            size += len(record)
        if not records:
            return request.answer(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                ext=ext,
            )
        return [encode_head(request.answer(ResponseCode.SUCCESS, ext=ext), size), *records]

    def view_message(self, request: RemotingCommand, connection: Connection) -> Reply:
        header = ViewMessageHeader.parse(request.ext)
        record = self._store.message_at(header.offset)
        if record is None:
            return request.answer(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}"
            )
        return [encode_head(request.answer(ResponseCode.SUCCESS), len(record)), record]
