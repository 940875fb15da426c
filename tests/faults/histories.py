"""Histories in the manner of Jepsen: what producers and consumers saw, and what may not be in it.

1. No loss: each group has each message whose send was acknowledged.
2. No invention: what a group has was sent, with that body and key.
3. Order: an orderly group, and the log, have the acknowledged messages of a key in the order of their sends.
   Only first sights count: after a fault messages may come again, from an earlier one on.
4. Messages that come again are counted, not forbidden: the promise is at least once.
A send without an answer may have been stored or not, and also later than the next one.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

# (key, its number among the sends of the key).
Sent = tuple[str, int]


@dataclass
class History:
    """What happened so far. Owner: the event loop in which all clients run."""

    begun: set[Sent] = field(default_factory=set)
    acknowledged: set[Sent] = field(default_factory=set)
    # By group, in the order of the sights.
    seen: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    orderly: set[str] = field(default_factory=set)

    def missing(self, group: str) -> set[Sent]:
        """Acknowledged messages that a group has not seen."""
        return self.acknowledged - set(self.seen[group])

    def repeated(self) -> dict[str, int]:
        """How many sights of each group were not the first of their message."""
        return {group: len(seen) - len(set(seen)) for group, seen in self.seen.items()}

    def faults(self) -> list[str]:
        """Everything that may not be (invariants 1 to 3), a sentence for each."""
        found: list[str] = []
        for group, seen in sorted(self.seen.items()):
            if missing := sorted(self.missing(group)):
                found.append(f"{group} never saw {len(missing)} acknowledged: {missing[:5]}")
            if invented := sorted(set(seen) - self.begun):
                found.append(f"{group} saw {len(invented)} that were never sent: {invented[:5]}")
            if group in self.orderly:
                found += [f"{group}: {each}" for each in self._out_of_order(seen)]
        return found

    def _out_of_order(self, seen: list[Sent]) -> list[str]:
        last: dict[str, int] = defaultdict(lambda: -1)
        found: list[str] = []
        for key, number in dict.fromkeys(each for each in seen if each in self.acknowledged):
            if number < last[key]:
                found.append(f"key {key}: {number} was first seen behind {last[key]}")
            last[key] = max(last[key], number)
        return found

    def summary(self) -> str:
        """Figures for the log."""
        counts = Counter({group: len(seen) for group, seen in self.seen.items()})
        return (
            f"begun={len(self.begun)} acknowledged={len(self.acknowledged)} "
            f"seen={dict(counts)} repeated={self.repeated()}"
        )
