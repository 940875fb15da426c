"""TrackType: what administrators' tools say that became of a message in a group.

Source: TrackType, RocketMQ 4.9.7, 5.3.3.
"""

from enum import StrEnum


class TrackType(StrEnum):
    """RocketMQ's names."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"
