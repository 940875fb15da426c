"""Ledger: what producers were told and what listeners did, as they saw it. The checks compare it with the
brokers' stores. Nothing of the product is asked here."""

from dataclasses import dataclass, field

Queue = tuple[str, str, int]
"""Topic, broker name, queue id."""


@dataclass
class Sent:
    """One message. acked_s: virtual time of SEND_OK; place: where the broker said it is, if it said so.

    outcome: of a transaction "commit" or "rollback", known from the start.
    """

    key: str
    kind: str
    topic: str
    began_s: float
    acked_s: float | None = None
    place: tuple[Queue, int] | None = None
    outcome: str = "commit"


@dataclass
class Handled:
    """What a group's listeners did.

    keys: processed with success. failed: given back at least once. done: offsets of a queue that were
    processed with success. returned: keys of the messages at (queue, offset) whose listener call came back,
    however it ended. acked: keys whose acknowledgement the broker took, in time; of a group that pops.
    again: those that were handed out afterwards. before_cut: handed out before a power cut that may have lost
    what became of them, or copied to the retry topic just before a kill, unlike the note of it: each may come
    from where it was, and from the retry topic, too. changing: whose time was to be changed, without an
    answer: a crash may leave both the old check point and the new one.
    """

    keys: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    acked: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)
    before_cut: set[str] = field(default_factory=set)
    returned: dict[tuple[Queue, int], set[str]] = field(default_factory=dict)
    changing: set[str] = field(default_factory=set)
    done: dict[Queue, set[int]] = field(default_factory=dict)


class Ledger:
    """sent: by key. groups: by name. said: what happened, in order, for the comparison of two runs."""

    def __init__(self) -> None:
        self.sent: dict[str, Sent] = {}
        self.groups: dict[str, Handled] = {}
        self.said: list[str] = []
        self.wrong: list[str] = []
        # Keys of the messages that were at a place when the power of its broker was cut.
        self.had_at_cut: dict[tuple[Queue, int], set[str]] = {}
        # What was stored when the members left: no member processes what comes later. None: they are there.
        self.at_the_end: set[tuple[Queue, int]] | None = None
        # When the power of a broker was cut that may have lost what it had answered, the last time.
        self.lost_power_s = -1.0
        # (queue, offset, an earlier offset that was not processed then) of an orderly group.
        self.overtaken: list[tuple[Queue, int, int]] = []
        # From when to when, in virtual seconds, some broker's clock was wrong.
        self.wrong_clocks: list[tuple[float, float]] = []

    def group(self, name: str) -> Handled:
        return self.groups.setdefault(name, Handled())

    def say(self, now_s: float, text: str) -> None:
        self.said.append(f"{now_s:10.4f} {text}")

    def fault(self, now_s: float, text: str) -> None:
        """Something that may not be; said once."""
        if text not in self.wrong:
            self.wrong.append(text)
            self.say(now_s, f"WRONG {text}")
