"""What is wrong with a row of JSON that an administrator sends: numbers that no program could use, mostly.

One such number is not its row's alone: Java's readers refuse a whole table for a value that is no int, and a
broker's slaves read the tables, too. Fields that are not listed are not judged. Source of the types:
SubscriptionGroupConfig, TopicConfig, GroupRetryPolicy, SetMessageRequestModeRequestBody, RocketMQ 5.3.3.
"""

import json
from collections.abc import Mapping
from typing import Any

from pocketmq.model.tables import QUEUE_COUNT_MAX
from pocketmq.remoting.java_number import INT_MAX, LONG_MAX, number

_Range = tuple[int, int]

_INT: _Range = (-INT_MAX - 1, INT_MAX)
_COUNT: _Range = (0, INT_MAX)
_LONG_COUNT: _Range = (0, LONG_MAX)
_QUEUES: _Range = (0, QUEUE_COUNT_MAX)
_PERM_MAX = 7
_GROUP = {
    "retryQueueNums": _QUEUES,
    "retryMaxTimes": _COUNT,
    "brokerId": _LONG_COUNT,
    "whichBrokerWhenConsumeSlowly": _LONG_COUNT,
    "groupSysFlag": _INT,
    "consumeTimeoutMinute": _COUNT,
}
_TOPIC = {
    "readQueueNums": _QUEUES,
    "writeQueueNums": _QUEUES,
    "perm": (0, _PERM_MAX),
    "topicSysFlag": _INT,
}
_TRUTHS = (None, True, False, 0, 1, "true", "false", "")


def group_row_fault(row: Any) -> str | None:
    """Return why a subscription group is refused, naming the field.

    >>> group_row_fault({"groupName": "g", "retryMaxTimes": -1})
    "a group's retryMaxTimes is 0 to 2147483647, not -1"
    """
    if not isinstance(row, Mapping):
        return "a group is a JSON object"
    fault = _number_fault("a group's", row, _GROUP)
    in_order = row.get("consumeMessageOrderly")
    if fault is None and in_order not in _TRUTHS:
        fault = f"a group's consumeMessageOrderly is true or false, not {_shown(in_order)}"
    return fault or _attributes_fault(row) or _policy_fault(row.get("groupRetryPolicy"))


def topic_row_fault(row: Any) -> str | None:
    """Return why a topic is refused, naming the field."""
    if not isinstance(row, Mapping):
        return "a topic is a JSON object"
    return _number_fault("a topic's", row, _TOPIC) or _attributes_fault(row)


def mode_row_fault(row: Mapping[str, Any]) -> str | None:
    """Return why a group's message request mode is refused, naming the field."""
    return _number_fault("a group's", row, {"popShareQueueNum": _COUNT})


def _number_fault(whose: str, row: Mapping[Any, Any], fields: Mapping[str, _Range]) -> str | None:
    for name, (low, high) in fields.items():
        value = row.get(name)
        if value is None or value == "":
            continue
        try:
            if low <= number(value) <= high:
                continue
        except (OverflowError, TypeError, ValueError):
            pass
        return f"{whose} {name} is {low} to {high}, not {_shown(value)}"
    return None


def _attributes_fault(row: Mapping[Any, Any]) -> str | None:
    attributes = row.get("attributes")
    if attributes is None:
        return None
    if isinstance(attributes, Mapping) and not any(
        isinstance(value, Mapping | list) for value in attributes.values()
    ):
        return None
    return f"attributes are names and texts, not {_shown(attributes)}"


def _policy_fault(policy: Any) -> str | None:
    """Return what is wrong with a groupRetryPolicy; some tools send it as a text."""
    if isinstance(policy, str):
        try:
            policy = json.loads(policy) if policy else None
        except ValueError:
            pass
    if policy is None:
        return None
    parts = [policy]
    if isinstance(policy, Mapping):
        parts += [
            policy.get(name) or {} for name in ("exponentialRetryPolicy", "customizedRetryPolicy")
        ]
    if not all(isinstance(part, Mapping) for part in parts):
        return f"a group's groupRetryPolicy is an object, and so are its policies, not {_shown(policy)}"
    _, exponential, customized = parts
    times = {"initial": _LONG_COUNT, "max": _LONG_COUNT, "multiplier": (1, LONG_MAX)}
    pauses = customized.get("next", [0])
    if not isinstance(pauses, list) or not pauses:
        return f"next of a group's groupRetryPolicy is a list of times in ms, not {_shown(pauses)}"
    each = ({"next": pause} for pause in pauses)
    faults = [_number_fault("a groupRetryPolicy's", one, {"next": _LONG_COUNT}) for one in each]
    faults.append(_number_fault("a groupRetryPolicy's", exponential, times))
    return next((fault for fault in faults if fault is not None), None)


def _shown(value: Any) -> str:
    return repr(value)[:100]
