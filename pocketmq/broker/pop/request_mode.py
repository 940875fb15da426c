"""MessageRequestModeManager: whether a group pulls or pops a topic, config/messageRequestMode.json.

    messageRequestModeMap[TOPIC][GROUP] = {"consumerGroup", "mode": PULL or POP, "popShareQueueNum", "topic"}

Only clients that query their queues from the broker (5.x, clientRebalance off) learn of it.
Source: MessageRequestModeManager, SetMessageRequestModeRequestBody, RocketMQ 5.3.3.
"""

import logging
from dataclasses import dataclass
from typing import Any

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.model.names import RETRY_PREFIX
from pocketmq.remoting.java_number import number
from pocketmq.store import ConfigFile

log = logging.getLogger(__name__)

PULL = "PULL"
POP = "POP"


@dataclass(frozen=True, slots=True)
class MessageRequestMode:
    """mode of one group for one topic; pop_share_queue_num: see assignment.py."""

    topic: str
    group: str
    mode: str = PULL
    pop_share_queue_num: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "consumerGroup": self.group,
            "mode": self.mode,
            "popShareQueueNum": self.pop_share_queue_num,
            "topic": self.topic,
        }

    @classmethod
    def from_json(cls, data: Any) -> "MessageRequestMode":
        """Parse an entry. Raises: KeyError, TypeError, ValueError if it is malformed."""
        mode = str(data.get("mode") or PULL)
        if mode not in (PULL, POP):
            raise ValueError(f"a group's mode is PULL or POP, not {mode!r}")
        return cls(
            topic=str(data["topic"]),
            group=str(data["consumerGroup"]),
            mode=mode,
            pop_share_queue_num=number(data.get("popShareQueueNum") or 0),
        )


class MessageRequestModeManager(ConfigManager):
    """Owner of the table of modes; a change is on disk before it is answered."""

    def __init__(self, file: ConfigFile, config: BrokerConfig) -> None:
        super().__init__(file)
        self._config = config
        self._modes: dict[str, dict[str, MessageRequestMode]] = {}

    def to_json(self) -> dict[str, Any]:
        return {
            "messageRequestModeMap": {
                topic: {group: mode.to_json() for group, mode in groups.items()}
                for topic, groups in self._modes.items()
            }
        }

    def from_json(self, data: Any) -> None:
        table = data.get("messageRequestModeMap") if isinstance(data, dict) else None
        for topic, groups in (table or {}).items():
            try:
                for group, fields in groups.items():
                    self._modes.setdefault(topic, {})[group] = MessageRequestMode.from_json(fields)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                log.error(
                    "messageRequestMode.json: skipped an entry that cannot be read topic=%s reason=%r",
                    topic,
                    error,
                )

    def set(self, mode: MessageRequestMode) -> None:
        """Set the mode of a group for a topic. Raises: OSError."""
        groups = self._modes.setdefault(mode.topic, {})
        old = groups.get(mode.group)
        groups[mode.group] = mode
        try:
            self.persist()
        except OSError:
            # Rolled back: what is not on the disk does not hold.
            if old is None:
                del groups[mode.group]
            else:
                groups[mode.group] = old
            raise
        log.info("message request mode set %s", mode)

    def get(self, topic: str, group: str) -> MessageRequestMode:
        """Return the set mode, or the broker's default; a retry topic is pulled unless set otherwise."""
        found = self._modes.get(topic, {}).get(group)
        if found is not None:
            return found
        if topic.startswith(RETRY_PREFIX):
            return MessageRequestMode(topic, group)
        config = self._config
        share = config.default_pop_share_queue_num
        return MessageRequestMode(topic, group, config.default_message_request_mode, share)
