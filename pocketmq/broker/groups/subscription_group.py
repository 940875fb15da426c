"""SubscriptionGroupManager: the groups that may consume, config/subscriptionGroup.json.

Source: SubscriptionGroupManager, SubscriptionGroupConfig, RocketMQ 4.9.7. With
autoCreateSubscriptionGroup an unknown group is created on first use, and kept while there are fewer than
autoCreateSubscriptionGroupMax (unused_groups.py).
"""

import logging

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.stored_table import StoredTable
from pocketmq.model.names import BUILT_IN_GROUPS, SYSTEM_GROUP_PREFIX, group_is_legal
from pocketmq.model.tables import GroupConfig
from pocketmq.remoting.clock import Clock
from pocketmq.store import ConfigFile

log = logging.getLogger(__name__)

_TOLD_MS = 60_000


class SubscriptionGroupManager(StoredTable[GroupConfig]):
    """Owner of the table of groups."""

    table, key, row_class = "subscriptionGroupTable", "group", GroupConfig
    key_name = "groupName"

    def __init__(self, file: ConfigFile, config: BrokerConfig, clock: Clock) -> None:
        super().__init__(file, clock.now_ms())
        self._config = config
        self._clock = clock
        # When it was last logged that there is no room, monotonic.
        self._told_ms = -_TOLD_MS
        self.groups = self.rows
        self.groups.update({name: GroupConfig(name) for name in BUILT_IN_GROUPS})

    def get(self, group: str) -> GroupConfig | None:
        """Return the group if it is configured; creates nothing."""
        return self.groups.get(group)

    def find(self, group: str) -> GroupConfig | None:
        """Return the group, creating it where that is allowed. Source: findSubscriptionGroupConfig."""
        found = self.groups.get(group)
        if found is None and (
            self._config.auto_create_subscription_group or group.startswith(SYSTEM_GROUP_PREFIX)
        ):
            if not group_is_legal(group):
                log.warning("cannot create a group, its name is illegal group=%r", group[:300])
                return None
            most = self._config.auto_create_subscription_group_max
            if len(self.groups) >= most and not group.startswith(SYSTEM_GROUP_PREFIX):
                self._note_full(group, most)
                return None
            found = GroupConfig(group)
            log.info("group created by its first use group=%s", group)
            self._put(found, keep=True)
        return found

    @property
    def is_nearly_full(self) -> bool:
        """Return True if unused groups are to be deleted, so that new ones find room."""
        config = self._config
        return config.auto_create_subscription_group and (
            len(self.groups) >= config.auto_create_subscription_group_max * 0.9
        )

    def _note_full(self, group: str, most: int) -> None:
        """Log once a minute that there is no room for another group."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._told_ms + _TOLD_MS:
            self._told_ms = now_ms
            log.error(
                "no group is created any more by its first use, since there are %d: delete groups that are "
                "not needed, create the group by hand, or raise autoCreateSubscriptionGroupMax (%d) group=%s",
                len(self.groups),
                most,
                group,
            )

    def update(self, group: GroupConfig) -> None:
        """Create or replace a group."""
        done = "changed" if group.group in self.groups else "created"
        log.info("group %s %s", done, group)
        self._put(group)

    def delete(self, group: str) -> bool:
        """Remove a group; False if there was none."""
        if group not in self.groups:
            log.warning("no group to delete group=%s", group)
            return False
        log.debug("group deleted group=%s", group)
        self._put_row(group, None)
        return True

    def _put(self, group: GroupConfig, *, keep: bool = False) -> None:
        self._put_row(group.group, group, keep=keep)

    def _put_row(self, name: str, group: GroupConfig | None, *, keep: bool = False) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())
        self.put(name, group, keep=keep)
