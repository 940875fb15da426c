"""Rows of the delivery record: their kinds, and what they say. The layout is in record.py."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

# The kind of a row: its first element.
TEXT, SPAN, EVENT, DELETED, GIVEN, FORGOTTEN, FOLDED = range(7)
Texts = dict[int, str]
Row = list[Any]
Key = tuple[str, str, int]
# A copy's offset, and the topic, queue id and offset of the message that was sent back.
Origin = tuple[int, str, int, int]


class EventKind(StrEnum):
    """What happened besides deliveries. begin and end are offsets of the queue."""

    # The group came to the queue for the first time, at `end`; it never asks for what is before.
    START = "start"
    # The group's offset was set from `begin` to `end`, by an administrator: the text says by whom and how.
    RESET = "reset"
    # The same, by a client that is no member but sends what members send.
    COMMIT = "commit"
    # A member has begun to read at `end`, behind what was given before, which ended at `begin`.
    JUMP = "jump"
    # Retention deleted [begin, end), which a member asked for.
    EXPIRED = "expired"
    # The message at `begin` was sent back; the text says where it went and why.
    RETRY = "retry"
    DEAD = "dead"
    # The message at `begin` of a retry topic is a copy: the text is what `origin_text` makes.
    COPY = "copy"
    # The messages [begin, end) of a retry topic were given back: the text: given_back.given_text.
    REDELIVERED = "redelivered"
    # A member that broadcasts, which keeps its offsets itself, says that it is at `end`; the text is its
    # client id.
    REPORT = "report"


class Way(IntEnum):
    """How a client shares a queue with the other members."""

    SHARED = 0
    ISOLATED = 1
    BROADCAST = 2
    # It is no member, and looks at messages in the group's name.
    STRANGER = 3


@dataclass(frozen=True, slots=True)
class Delivery:
    """A span; ms are wall time."""

    begin: int
    end: int
    count: int
    client_id: str
    by: str
    own: str
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class DeliveryEvent:
    """An event; ms is wall time."""

    kind: EventKind
    begin: int
    end: int
    text: str
    ms: int


@dataclass(slots=True)
class DeliveryHistory:
    """What is known of one queue offset in one group, oldest first; since_ms: start of the record."""

    deliveries: list[Delivery]
    events: list[DeliveryEvent]
    since_ms: int


def began_ms(row: Row) -> int:
    """Return the wall time at which what a row says began."""
    return int(row[-2] if row[0] in (SPAN, GIVEN) else row[-1])


def origin_text(topic: str, queue_id: int, offset: int) -> str:
    """Format the message that a copy is of."""
    return f"{topic} {queue_id} {offset} "


def parse_origin(text: str) -> tuple[str, int, int, str]:
    """Parse what `origin_text` made; older versions added the class of what was redelivered."""
    topic, queue_id, offset, taken_from = text.split(" ")
    return topic, int(queue_id), int(offset), taken_from
