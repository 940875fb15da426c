"""RECALL_MESSAGE. Source: RecallMessageProcessor, RocketMQ 5.3.3 and 5.5.0.

A recall is itself a timer message for the second in which the recalled one is due; there both are dropped.
"""

from collections.abc import Callable

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.message_put import MessagePut
from pocketmq.broker.topic_config import TopicConfigManager
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.connection import Connection, Handler
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.headers import RecallMessageHeader, RecallMessageResponseHeader
from pocketmq.remoting.message_codec import properties_to_text
from pocketmq.remoting.recall_handle import RecallHandle
from pocketmq.store import StoreError
from pocketmq.store.timer_properties import delete_keys

_TAG = "_RECALL_TAG_"


class RecallMessageProcessor:
    """The handler."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigManager,
        put: MessagePut,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._topics = topics
        self._put = put
        self._now_ms = now_ms

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Cancel a message that is not due yet; every answer says MSG_REGION."""
        answer = self._recall(request, connection)
        answer.ext = {"MSG_REGION": self._config.region_id, **(answer.ext or {})}
        return answer

    def _recall(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = RecallMessageHeader.parse(request.ext)
        refusal = self._refusal(header)
        if refusal is not None:
            return request.answer(refusal[0], refusal[1], {})
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except IllegalArgument as error:
            return request.answer(ResponseCode.ILLEGAL_OPERATION, str(error), {})
        wrong = self._fault(header, handle)
        if wrong is not None:
            return request.answer(ResponseCode.ILLEGAL_OPERATION, wrong, {})
        now = self._now_ms()
        topic_key, _ = delete_keys(handle.topic.encode(), handle.unique_key.encode())
        properties = {
            "TAGS": _TAG,
            "TIMER_DEL_UNIQKEY": topic_key.decode(),
            "UNIQ_KEY": handle.unique_key,
            "TIMER_DELIVER_MS": str(handle.due_ms),
            "BORN_TIMESTAMP": str(now),
            "PGROUP": header.producer_group or None,
        }
        try:
            self._put.put(
                handle.topic,
                0,
                b"0",
                properties_to_text(properties).encode(),
                born_host=connection.peer_host,
            )
        except StoreError as error:
            return request.answer(
                ResponseCode.SYSTEM_ERROR, f"recall failed, execute error: {error}", {}
            )
        answer = RecallMessageResponseHeader(msg_id=handle.unique_key)
        return request.answer(ResponseCode.SUCCESS, None, answer.ext())

    def _refusal(self, header: RecallMessageHeader) -> tuple[int, str] | None:
        config = self._config
        if not config.recall_message_enable:
            return ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden"
        if (
            self._now_ms() < config.start_accept_send_request_time_stamp
            or not config.broker_permission & Perm.WRITE
        ):
            return ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available"
        if self._topics.get(header.topic) is None:
            return (
                ResponseCode.TOPIC_NOT_EXIST,
                f"recall failed, the topic[{header.topic}] not exist",
            )
        return None

    def _fault(self, header: RecallMessageHeader, handle: RecallHandle) -> str | None:
        if handle.topic != header.topic:
            return "recall failed, topic not match"
        if handle.broker != self._config.broker_name:
            return "recall failed, broker service not available"
        left_ms = handle.due_ms - self._now_ms()
        if not 0 < left_ms < self._config.timer_max_delay_sec * 1000:
            return "recall failed, timestamp invalid"
        return None
