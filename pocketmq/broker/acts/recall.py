"""Cancel a message that is not due yet. Source: RecallMessageProcessor, RocketMQ 5.3.3.

A recall is itself a timer message due in the same second as the recalled one; at that time both are dropped.
"""

from typing import NamedTuple

from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages, Tables
from pocketmq.broker.refused import Refused
from pocketmq.model.message_codec import properties_to_text
from pocketmq.model.recall_handle import RecallHandle
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import StoreError
from pocketmq.store.timer.properties import delete_keys

_TAG = "_RECALL_TAG_"


class Recalled(NamedTuple):
    """unique_key: of the cancelled message; end: the log position that must be safe before the response."""

    unique_key: str
    end: int


class RecallActs:
    """Recall a message."""

    def __init__(self, node: Node, tables: Tables, messages: Messages) -> None:
        self._config = node.config
        self._now_ms = node.clock.now_ms
        self._topics = tables.topics
        self._put = messages.put

    def recall(
        self, topic: str, handle_text: str, producer_group: str | None, peer: Peer
    ) -> Recalled:
        """Cancel the message that a handle names. Raises: Refused."""
        self._check(topic)
        try:
            handle = RecallHandle.decode(handle_text)
        except IllegalArgument as error:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
        self._check_handle(topic, handle)
        topic_key, _ = delete_keys(handle.topic.encode(), handle.unique_key.encode())
        properties = {
            "TAGS": _TAG,
            "TIMER_DEL_UNIQKEY": topic_key.decode(),
            "UNIQ_KEY": handle.unique_key,
            "TIMER_DELIVER_MS": str(handle.due_ms),
            "BORN_TIMESTAMP": str(self._now_ms()),
            "PGROUP": producer_group or None,
        }
        text = properties_to_text(properties).encode()
        try:
            stored = self._put.put(handle.topic, 0, b"0", text, born_host=peer.host)
        except StoreError as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"recall failed, execute error: {error}"
            ) from error
        return Recalled(handle.unique_key, stored.appended.position + stored.appended.size)

    def _check(self, topic: str) -> None:
        config = self._config
        if not config.recall_message_enable:
            raise Refused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if (
            self._now_ms() < config.start_accept_send_request_time_stamp
            or not config.broker_permission & Perm.WRITE
        ):
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available"
            )
        if self._topics.get(topic) is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist"
            )

    def _check_handle(self, topic: str, handle: RecallHandle) -> None:
        left_ms = handle.due_ms - self._now_ms()
        if handle.topic != topic:
            fault = "recall failed, topic not match"
        elif handle.broker != self._config.broker_name:
            fault = "recall failed, broker service not available"
        elif not 0 < left_ms < self._config.timer_max_delay_sec * 1000:
            fault = "recall failed, timestamp invalid"
        else:
            return
        raise Refused(ResponseCode.ILLEGAL_OPERATION, fault)
