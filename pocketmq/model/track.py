"""What became of a message in a group: RocketMQ's TrackType, and our Verdict with its severity.

TrackType is computed by administration tools from the current offsets and subscriptions:

    CONSUMED               the group's offset is beyond the message, and its tags pass the subscription
    CONSUMED_BUT_FILTERED  beyond it, but the group's current subscription does not name its tag (E3b)
    NOT_CONSUME_YET        the group's offset is at it or before (E3c)
    NOT_ONLINE             no member of the group is connected (E3c)
    PULL                   a pull consumer, which does not report its progress
    CONSUME_BROADCASTING   every member keeps its own offset (5.x)
    UNKNOWN                the broker could not be asked

CONSUMED means no more than that: with members that subscribe different tags, a message that no member got
counts as CONSUMED (E3). Compatible with mqadmin and the dashboard on purpose.
Source: TrackType, DefaultMQAdminExtImpl.messageTrackDetail, RocketMQ 4.9.7, 5.3.3.
"""

from enum import StrEnum
from typing import Self

from pocketmq.model.subscription import ALL, SubscriptionData


class Severity(StrEnum):
    """The gravest first. INFO is informative only; GOOD is as it should be."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    GOOD = "good"


class Verdict(StrEnum):
    """What really became of a message in a group, by the broker's delivery record.

    User interfaces show these and no others: the console colours them by severity, and has names and
    sentences in both languages (i18n).
    """

    severity: Severity

    def __new__(cls, word: str, severity: Severity) -> Self:
        verdict = str.__new__(cls, word)
        verdict._value_ = word
        verdict.severity = severity
        return verdict

    CONSUMED = "CONSUMED", Severity.GOOD
    IN_FLIGHT = "IN_FLIGHT", Severity.INFO
    FILTERED = "FILTERED", Severity.ERROR
    DROPPED_BY_CLIENT = "DROPPED_BY_CLIENT", Severity.ERROR
    RETRYING = "RETRYING", Severity.WARNING
    DEAD_LETTERED = "DEAD_LETTERED", Severity.ERROR
    SKIPPED_BY_RESET = "SKIPPED_BY_RESET", Severity.WARNING
    SKIPPED_AT_START = "SKIPPED_AT_START", Severity.WARNING
    EXPIRED = "EXPIRED", Severity.ERROR
    NOT_REACHED = "NOT_REACHED", Severity.INFO
    NOBODY_READS = "NOBODY_READS", Severity.ERROR
    NOT_ONLINE = "NOT_ONLINE", Severity.WARNING
    UNKNOWN = "UNKNOWN", Severity.INFO

    @classmethod
    def of(cls, word: str) -> "Verdict":
        """Return the verdict of a broker's answer; one that only a newer broker knows is UNKNOWN."""
        return cls.__members__.get(word, cls.UNKNOWN)


class TrackType(StrEnum):
    """RocketMQ's names."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


def track_type(
    consume_type: str,
    message_model: str,
    stored: SubscriptionData | None,
    tags: str | None,
    *,
    is_passed: bool,
) -> TrackType:
    """Return the track type of a message with these tags, in a group that is online.

    stored: the broker's subscription of the group for the message's topic; is_passed: whether the group's
    offset is beyond the message.
    """
    if consume_type == "CONSUME_ACTIVELY":
        return TrackType.PULL
    if message_model == "BROADCASTING":
        return TrackType.CONSUME_BROADCASTING
    if not is_passed:
        return TrackType.NOT_CONSUME_YET
    if stored is None or not stored.tags_set or ALL in stored.tags_set or tags in stored.tags_set:
        return TrackType.CONSUMED
    return TrackType.CONSUMED_BUT_FILTERED
