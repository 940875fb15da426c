"""Balance: what became of a group's messages of a topic, state by state, and that it adds up. Ours.

    stored = consumed + filtered + inHand + waiting + retry + dead + expired + skipped + lost + redelivered
             + unknown

`stored` comes from the queues, the states from the delivery record and the tables: the difference is 0 unless
there is a defect. What each state says: docs/balance.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Self

from pocketmq.model.track import Severity


class State(StrEnum):
    """The states, in the order in which faces show them."""

    severity: Severity

    def __new__(cls, word: str, severity: Severity) -> Self:
        state = str.__new__(cls, word)
        state._value_ = word
        state.severity = severity
        return state

    @classmethod
    def of(cls, word: str) -> "State":
        """Return the state of this name. Raises: KeyError."""
        return {each.value: each for each in cls}[word]

    CONSUMED = "consumed", Severity.GOOD
    FILTERED = "filtered", Severity.GOOD
    IN_HAND = "inHand", Severity.INFO
    WAITING = "waiting", Severity.INFO
    RETRY = "retry", Severity.WARNING
    DEAD = "dead", Severity.ERROR
    EXPIRED = "expired", Severity.ERROR
    SKIPPED = "skipped", Severity.WARNING
    LOST = "lost", Severity.ERROR
    REDELIVERED = "redelivered", Severity.GOOD
    UNKNOWN = "unknown", Severity.INFO


class Cause(StrEnum):
    """Why a message is lost."""

    FILTERED = "filtered for another member"
    DISCARDED = "discarded by the member"
    UNREAD = "no member reads the queue"
    GONE = "the topic has fewer queues now"


@dataclass(slots=True)
class Balance:
    """The books of one topic and group; counts: messages by state, absent for 0."""

    topic: str
    group: str
    stored: int = 0
    counts: dict[State, int] = field(default_factory=dict)

    @property
    def difference(self) -> int:
        """Return what the states do not account for; 0 unless there is a defect."""
        return self.stored - sum(self.counts.values())

    def of(self, state: State) -> int:
        """Return the number of messages in a state."""
        return self.counts.get(state, 0)

    def add(self, state: State, count: int) -> None:
        """Count more messages in a state."""
        if count:
            self.counts[state] = self.counts.get(state, 0) + count

    def merge(self, other: "Balance") -> None:
        """Add the books of other queues or brokers."""
        self.stored += other.stored
        for state, count in other.counts.items():
            self.add(state, count)

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "group": self.group,
            "stored": self.stored,
            **{state.value: self.of(state) for state in State},
            "difference": self.difference,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        counts = {state: int(data[state]) for state in State if data.get(state)}
        return cls(str(data["topic"]), str(data["group"]), int(data["stored"]), counts)


class ListedMessages(NamedTuple):
    """Messages in one state: offsets first to last, both included. time: ms since 1970, 0 if unknown.

    subscription: what the member asked for when it got or passed them; filter: by what the broker filtered;
    both are empty where no record says it.
    """

    topic: str
    broker: str
    queue_id: int
    first: int
    last: int
    state: State
    cause: str
    member: str
    time: int
    subscription: str = ""
    filter: str = ""

    @property
    def size(self) -> int:
        """Return the number of messages."""
        return self.last - self.first + 1

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "broker": self.broker,
            "queueId": self.queue_id,
            "first": self.first,
            "last": self.last,
            "state": self.state.value,
            "cause": self.cause,
            "member": self.member,
            "time": self.time,
            "subscription": self.subscription,
            "filter": self.filter,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            str(data["topic"]),
            str(data["broker"]),
            int(data["queueId"]),
            int(data["first"]),
            int(data["last"]),
            State.of(data["state"]),
            str(data["cause"]),
            str(data["member"]),
            int(data["time"]),
            str(data.get("subscription", "")),
            str(data.get("filter", "")),
        )


class ListedPage(NamedTuple):
    """Some of the messages in some states, in the order of the queues. after: how to ask for the next ones;
    "" behind the last.
    """

    rows: list[ListedMessages]
    after: str


def total(balances: Iterable[Balance], topic: str, group: str) -> Balance:
    """Return the sum of these books under a topic's name."""
    found = Balance(topic, group)
    for each in balances:
        found.merge(each)
    return found
