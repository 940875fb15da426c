"""RetryLog: what a producer says of attempts that failed and are made again.

The first is logged whole; more of its kind are counted, since a broker that refuses one message refuses the
hundreds that are under way.
"""

import logging

from pocketmq.client.send.retries import SendAttempts
from pocketmq.model.message import MessageQueue
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.serving.log_pause import LogPause

log = logging.getLogger(__name__)


class RetryLog:
    """Owner: a SendEngine."""

    def __init__(self) -> None:
        self._pause = LogPause()

    def note(
        self, plan: SendAttempts, topic: str, queue: MessageQueue, error: PocketMQError, now_ms: int
    ) -> None:
        """Log or count an attempt, the last of the plan."""
        # One that fails like the one before it says nothing new.
        if len(plan.attempts) > 1 and type(plan.attempts[-2].error) is type(error):
            return
        count = self._pause.due((topic, queue.broker_name, type(error)), now_ms)
        if count is None:
            return
        log.warning(
            "send failed, trying again; more of this kind are counted topic=%s broker=%s "
            "since_the_last_line=%s reason=%r",
            topic,
            queue.broker_name,
            count,
            str(error),
        )
