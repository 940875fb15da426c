"""SubscriptionGroupManager: the groups that may consume, config/subscriptionGroup.json.

Source: SubscriptionGroupManager, SubscriptionGroupConfig, RocketMQ 4.9.7. With
autoCreateSubscriptionGroup an unknown group is made when it is first asked for, and kept.
"""

import logging
from dataclasses import dataclass, field
from typing import Any

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.stored_table import StoredTable
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.data_version import DataVersion
from pocketmq.remoting.names import BUILT_IN_GROUPS, MASTER_ID, SYSTEM_GROUP_PREFIX, group_is_legal
from pocketmq.store import ConfigFile

log = logging.getLogger(__name__)


@dataclass(slots=True)
class SubscriptionGroupConfig:
    """One group; the defaults are RocketMQ's. extra: fields that 5.x tools send, kept as they come."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = MASTER_ID
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    extra: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The object of subscriptionGroup.json and of the wire."""
        return {
            **self.extra,
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "groupName": self.group_name,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
        }

    @classmethod
    def from_json(cls, data: Any) -> "SubscriptionGroupConfig":
        """Raises: KeyError, TypeError, ValueError when it is no group."""
        known = cls(str(data["groupName"]))
        known.broker_id = int(data.get("brokerId", known.broker_id))
        known.consume_broadcast_enable = data.get("consumeBroadcastEnable", True) is not False
        known.consume_enable = data.get("consumeEnable", True) is not False
        known.consume_from_min_enable = data.get("consumeFromMinEnable", True) is not False
        known.notify_consumer_ids_changed_enable = (
            data.get("notifyConsumerIdsChangedEnable", True) is not False
        )
        known.retry_max_times = int(data.get("retryMaxTimes", known.retry_max_times))
        known.retry_queue_nums = int(data.get("retryQueueNums", known.retry_queue_nums))
        known.which_broker_when_consume_slowly = int(
            data.get("whichBrokerWhenConsumeSlowly", known.which_broker_when_consume_slowly)
        )
        named = known.to_json()
        known.extra = {
            name: value
            for name, value in data.items()
            if name not in named and isinstance(name, str)
        }
        return known


class SubscriptionGroupManager(StoredTable[SubscriptionGroupConfig]):
    """Owner of the table of groups."""

    def __init__(self, file: ConfigFile, config: BrokerConfig, clock: Clock) -> None:
        super().__init__(file)
        self._config = config
        self._clock = clock
        self.data_version = DataVersion(clock.now_ms())
        self.groups: dict[str, SubscriptionGroupConfig] = {
            name: SubscriptionGroupConfig(name) for name in BUILT_IN_GROUPS
        }
        self.rows = self.groups
        for name in BUILT_IN_GROUPS[3:]:
            self.groups[name].consume_broadcast_enable = True

    def file_of(
        self, rows: dict[str, SubscriptionGroupConfig], version: dict[str, int]
    ) -> dict[str, Any]:
        return {
            "dataVersion": version,
            "subscriptionGroupTable": {name: group.to_json() for name, group in rows.items()},
        }

    def row_to_json(self, value: SubscriptionGroupConfig) -> dict[str, Any]:
        return value.to_json()

    def row_from_json(self, data: Any) -> SubscriptionGroupConfig:
        return SubscriptionGroupConfig.from_json(data)

    def version_to_json(self) -> dict[str, int]:
        return self.data_version.to_json()

    def take_version(self, data: Any) -> None:
        self.data_version = DataVersion.of_file(data)

    def from_json(self, data: Any) -> None:
        table = data.get("subscriptionGroupTable") if isinstance(data, dict) else None
        for name, fields in (table or {}).items():
            try:
                group = SubscriptionGroupConfig.from_json(fields)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                log.error("subscriptionGroup.json: group left out group=%s reason=%r", name, error)
                continue
            self.groups[group.group_name] = group
        if isinstance(data, dict):
            self.data_version = DataVersion.of_file(data.get("dataVersion"))
        log.info("subscription groups loaded count=%d", len(self.groups))

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group if it is configured; makes nothing."""
        return self.groups.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, made by itself when that is allowed. Source: findSubscriptionGroupConfig."""
        found = self.groups.get(group)
        if found is None and (
            self._config.auto_create_subscription_group or group.startswith(SYSTEM_GROUP_PREFIX)
        ):
            if not group_is_legal(group):
                log.warning("group not created: its name is illegal group=%r", group[:300])
                return None
            found = SubscriptionGroupConfig(group)
            log.info("auto create a subscription group, %s", group)
            self._put(found, keep=True)
        return found

    def update(self, group: SubscriptionGroupConfig) -> None:
        """Make or replace a group."""
        known = "update" if group.group_name in self.groups else "create new"
        log.info("%s subscription group config, %s", known, group)
        self._put(group)

    def delete(self, group: str) -> bool:
        """Forget a group; False when there was none."""
        if group not in self.groups:
            log.warning("delete subscription group failed, subscription group: %s not exist", group)
            return False
        log.info("delete subscription group OK, subscription group: %s", group)
        self._put_row(group, None)
        return True

    def _put(self, group: SubscriptionGroupConfig, *, keep: bool = False) -> None:
        self._put_row(group.group_name, group, keep=keep)

    def _put_row(
        self, name: str, group: SubscriptionGroupConfig | None, *, keep: bool = False
    ) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())
        self.put(name, group, keep=keep)
