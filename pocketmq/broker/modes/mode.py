"""GroupMode: how a group treats members that subscribe differently. Ours; docs/isolate.md.

The broker's groupMode applies to every group without an attribute `group.mode` of its own. The attribute
is where RocketMQ 5.x keeps attributes: `attributes` of the group in subscriptionGroup.json, set by
`mqadmin updateSubGroup --attributes +group.mode=isolate` or by `pocketmq group mode`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.groups.subscription_group import SubscriptionGroupManager
from pocketmq.model.tables import GroupConfig
from pocketmq.remoting.errors import IllegalArgument

ATTRIBUTES = "attributes"
MODE_ATTRIBUTE = "group.mode"


class GroupMode(StrEnum):
    """compatible: as RocketMQ. strict: one subscription. isolate: sub-groups, nothing lost."""

    COMPATIBLE = "compatible"
    STRICT = "strict"
    ISOLATE = "isolate"


class GroupModes:
    """Looks up modes; the owners of the settings are BrokerConfig and SubscriptionGroupManager."""

    def __init__(self, config: BrokerConfig, groups: SubscriptionGroupManager) -> None:
        self._config = config
        self._groups = groups

    def mode(self, group: str) -> GroupMode:
        """Return the mode of a group, existing or not."""
        found = self._groups.get(group)
        if found is not None and found.extra:
            attributes = found.extra.get(ATTRIBUTES)
            if isinstance(attributes, Mapping) and MODE_ATTRIBUTE in attributes:
                try:
                    return GroupMode(str(attributes[MODE_ATTRIBUTE]))
                except ValueError:
                    # Written by hand: what cannot be understood must not turn a group's mode off and
                    # on with each look; the broker's own holds.
                    pass
        return GroupMode(self._config.group_mode)


def merge_attributes(group: GroupConfig, old: GroupConfig | None) -> None:
    """Apply attribute changes to an updated group: `+name` sets, `-name` removes, the rest is kept.

    A name without sign sets too: RocketMQ writes its file so. Raises: IllegalArgument for an unknown
    mode. Source of the signs: AttributeUtil, RocketMQ 5.3.3.

    >>> group = GroupConfig("g", extra={"attributes": {"+group.mode": "isolate"}})
    >>> merge_attributes(group, None); group.extra
    {'attributes': {'group.mode': 'isolate'}}
    """
    kept: dict[str, str] = {}
    before = old.extra.get(ATTRIBUTES) if old is not None else None
    if isinstance(before, Mapping):
        kept.update(before)
    sent = group.extra.get(ATTRIBUTES)
    for name, value in sent.items() if isinstance(sent, Mapping) else ():
        if name.startswith("-"):
            kept.pop(name[1:], None)
        else:
            kept[name.removeprefix("+")] = str(value)
    _check_mode(kept)
    if kept or isinstance(sent, Mapping):
        group.extra[ATTRIBUTES] = kept


def _check_mode(attributes: Mapping[str, Any]) -> None:
    mode = attributes.get(MODE_ATTRIBUTE)
    if mode is not None and mode not in set(GroupMode):
        raise IllegalArgument(
            f"the attribute {MODE_ATTRIBUTE} must be one of {', '.join(GroupMode)}, not {mode!r}"
        )
