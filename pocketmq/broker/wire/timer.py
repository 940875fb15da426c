"""Pending timer messages: GET_TIMER_CHECK_POINT, GET_TIMER_METRICS, and ours, GET_TIMERS.

Source: AdminBrokerProcessor, RocketMQ 5.5.0; wire.md 2.9.
"""

from typing import Any

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.wire.admin.answers import json_answer
from pocketmq.model.recall_handle import RecallHandle
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import GetTimersHeader, PocketRequestCode
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.store.timer.pending import PendingMessage
from pocketmq.store.timer.service import TimerService

_COUNT, _COUNT_MAX = 32, 1_000


class TimerProcessor:
    """Handlers of the three codes."""

    def __init__(self, config: BrokerConfig, timer: TimerService) -> None:
        self._config = config
        self._timer = timer

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_TIMER_CHECK_POINT: self.get_check_point,
            RequestCode.GET_TIMER_METRICS: self.get_metrics,
            PocketRequestCode.GET_TIMERS: self.get_timers,
        }

    def get_check_point(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Return timercheck as bytes, for slaves."""
        return request.answer(ResponseCode.SUCCESS, None, None, self._timer.check.pack())

    def get_metrics(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Return the number of waiting messages by topic."""
        return json_answer(request, self._timer.pending.to_json())

    def get_timers(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Return the next due messages, with what a recall of each needs."""
        header = GetTimersHeader.parse(request.ext)
        count = min(max(header.count or _COUNT, 1), _COUNT_MAX)
        timer = self._timer
        found = timer.pending.next(
            timer.check.read_ms, count, header.topic or None, header.key or None
        )
        return json_answer(
            request,
            {
                "behindMs": timer.behind_ms,
                "counting": timer.pending.counting,
                "counts": dict(sorted(timer.pending.counts.items())),
                "messages": [self._described(each) for each in found],
                "offsetBehind": timer.offset_behind,
            },
        )

    def _described(self, waiting: PendingMessage) -> dict[str, Any]:
        broker = self._config.broker_name
        handle = RecallHandle(waiting.topic, broker, waiting.due_ms - 999, waiting.unique_key)
        return {
            "deliverTimestamp": waiting.due_ms,
            "keys": waiting.keys,
            "msgId": waiting.unique_key,
            "offsetMsgId": waiting.msg_id,
            "queueId": waiting.queue_id,
            "recallHandle": handle.encode(),
            "rollTimes": waiting.roll_times,
            "storeSize": waiting.size,
            "storeTimestamp": waiting.store_ms,
            "topic": waiting.topic,
        }
