"""RecallHandle: lets a producer cancel a waiting message. Source: RecallMessageHandle, RocketMQ 5.3.3.

URL-safe Base64 of `v1 TOPIC BROKER DUE_MS UNIQ_KEY`; DUE_MS is TIMER_OUT_MS + 1, so that it gives the same
second when truncated again.
"""

import base64
import binascii
from typing import NamedTuple

from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.java_number import long


class RecallHandle(NamedTuple):
    """due_ms is wall time."""

    topic: str
    broker: str
    due_ms: int
    unique_key: str

    def encode(self) -> str:
        """Return the text for the producer.

        >>> RecallHandle.decode(RecallHandle("T1", "w5-a", 1795246833001, "FD00").encode()).unique_key
        'FD00'
        """
        text = f"v1 {self.topic} {self.broker} {self.due_ms} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, handle: str) -> "RecallHandle":
        """Parse a handle. Raises: IllegalArgument."""
        try:
            padded = handle + "=" * (-len(handle) % 4)
            version, topic, broker, due_ms, key = (
                base64.urlsafe_b64decode(padded.encode()).decode().split(" ")
            )
            if version != "v1":
                raise ValueError(version)
            return cls(topic, broker, long(due_ms), key)
        except (binascii.Error, UnicodeError, ValueError):
            raise IllegalArgument("recall handle is invalid") from None
