"""DenialLog: logs a denied request once in full, then counts the same again. Ours.

A client without a key asks again and again, as a console does every few seconds: the same line for each of
its requests would bury all others, and fill the disk.
"""

import logging
from collections import Counter
from typing import NamedTuple

from pocketmq.broker.events import Event

log = logging.getLogger("pocketmq.broker.access.acl")

_TICKS = 60
# Kinds of denials that are distinguished: reasons may hold texts that a client has invented.
_KINDS_MAX = 1_000


class Denial(NamedTuple):
    """A refused request. what: its code, or the method of a gRPC call; user: as claimed, unproven."""

    user: str
    peer: str
    what: int | str
    reason: str
    times: int = 1


class DenialLog:
    """Denials of one broker. A denial is the same with the same address, request code and reason.

    logged: each denial that is logged.
    """

    def __init__(self) -> None:
        self.logged: Event[[Denial]] = Event()
        self._again: Counter[tuple[str, int, str]] = Counter()
        self._known: dict[tuple[str, int, str], Denial] = {}
        self._ticks = 0

    def note(self, address: str, code: int, peer: str, reason: str, user: str = "") -> None:
        """Log or count a denial. address: the peer's without its port, which changes with each connection."""
        kind = (address, code, reason)
        if kind in self._known:
            self._again[kind] += 1
            return
        if len(self._known) >= _KINDS_MAX:
            self._known.clear()
        denial = Denial(user, peer, code, reason)
        self._known[kind] = denial
        log.warning(
            "access denied code=%s peer=%s reason=%r; the same again is counted", code, peer, reason
        )
        self.logged(denial)

    def tick(self) -> None:
        """Log the counts once a minute; called about once a second."""
        self._ticks += 1
        if self._ticks % _TICKS:
            return
        for kind, times in self._again.items():
            address, code, reason = kind
            log.warning(
                "access is still denied code=%s address=%s reason=%r times=%d",
                code,
                address,
                reason,
                times,
            )
            known = self._known.get(kind)
            if known is not None:
                self.logged(known._replace(times=times))
        # A denial not repeated within a minute is logged in full again.
        self._known = {kind: known for kind, known in self._known.items() if kind in self._again}
        self._again.clear()
