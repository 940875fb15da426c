"""ElectionHistory: the last roles of this broker, for people who ask what happened at night."""

from collections import deque
from dataclasses import dataclass

from pocketmq.broker.election.verdict import Elected

_KEPT = 32


@dataclass(frozen=True, slots=True)
class PastElection:
    """One verdict. at_ms: when this broker had the role, epoch ms; gap_ms: for how long it had heard
    nothing of the earlier master when it led itself, -1: it did not follow one before.
    """

    at_ms: int
    epoch: int
    master_id: int | None
    master_address: str
    gap_ms: int = -1

    def to_json(self) -> dict[str, object]:
        return {
            "atMs": self.at_ms,
            "masterEpoch": self.epoch,
            "masterId": self.master_id,
            "masterAddress": self.master_address,
            "gapMs": self.gap_ms,
        }


class ElectionHistory:
    """The newest elections of this process' life; count: of all of them."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: deque[PastElection] = deque(maxlen=_KEPT)

    def add(self, verdict: Elected, at_ms: int, gap_ms: int = -1) -> None:
        self.count += 1
        self._kept.append(
            PastElection(
                at_ms, verdict.master_epoch, verdict.master_id, verdict.master_address, gap_ms
            )
        )

    def newest_first(self) -> list[dict[str, object]]:
        return [each.to_json() for each in reversed(self._kept)]
