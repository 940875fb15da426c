"""The tags code of a ConsumeQueue entry, from a record's properties.

The code is Java's hash of the value of TAGS, 0 without one; in SCHEDULE_TOPIC_XXXX it is the time in ms when
the record is due: store time + the delay of its level. Shared by append, rebuild and check.
Source: CommitLog.checkMessageAndReturnSize, ScheduleMessageService, RocketMQ 4.9.7; disk.md 4.
"""

from collections.abc import Sequence

from pocketmq.model.java_hash import tag_code
from pocketmq.model.message_codec import get_property
from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.java_number import property_number

# The longest of RocketMQ's own delay levels: what waits may have come under other levels than today's.
LONGEST_DELAY_MS = 7_200_000
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# Values of TAGS that were seen, and their codes; emptied when it grows beyond any sane set of tags.
_codes: dict[bytes, int] = {}
_CODES_MAX = 16_384


def tags_code(properties: bytes) -> int:
    """
    >>> tags_code(b"KEYS\\x01k\\x02TAGS\\x01tagA\\x02"), tags_code(b"KEYS\\x01k")
    (3552231, 0)
    """
    # Of two equal names the last counts; an empty value counts as absent, so that case is checked.
    _, found, rest = properties.rpartition(b"\x02TAGS\x01")
    if found:
        value = rest.partition(b"\x02")[0]
    elif properties.startswith(b"TAGS\x01"):
        value = properties[5:].partition(b"\x02")[0]
    else:
        return 0
    if not value:
        value = get_property(properties, b"TAGS") or b""
        if not value:
            return 0
    return value_code(value)


def value_code(value: bytes) -> int:
    """The code of this tag."""
    code = _codes.get(value)
    if code is None:
        if len(_codes) >= _CODES_MAX:
            _codes.clear()
        # Java decodes the properties before it hashes; malformed UTF-8 becomes U+FFFD there.
        code = _codes[value] = tag_code(value.decode("utf-8", "replace"))
    return code


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Parse `1s 5s 1m` into (1000, 5000, 60000): the delay of level n is at n - 1. Raises: IllegalArgument.

    >>> parse_delay_levels("1s 5s 1m")
    (1000, 5000, 60000)
    """
    levels: list[int] = []
    for word in text.split():
        if word[-1:] not in _UNITS or not word[:-1].isdecimal():
            raise IllegalArgument(
                f"messageDelayLevel: {word!r} is not a delay; write numbers with s, m, h or d"
            )
        levels.append(int(word[:-1]) * _UNITS[word[-1]])
    if not levels:
        raise IllegalArgument("messageDelayLevel: at least one level is needed")
    return tuple(levels)


def delay_level(properties: bytes, level_max: int) -> int:
    """Return the record's DELAY, at most `level_max`; 0 if it has none."""
    level = property_number(get_property(properties, b"DELAY")) or 0
    return max(0, min(level, level_max))


def schedule_code(properties: bytes, store_ms: int, levels: Sequence[int]) -> int:
    """Return the code of an entry in SCHEDULE_TOPIC_XXXX: its due time, ms; the tag's hash without DELAY."""
    level = delay_level(properties, len(levels))
    return store_ms + levels[level - 1] if level else tags_code(properties)


def entry_code(topic: str, properties: bytes, store_ms: int, levels: Sequence[int]) -> int:
    """Return the code of a stored record's entry."""
    if topic == SCHEDULE_TOPIC:
        return schedule_code(properties, store_ms, levels)
    return tags_code(properties)
