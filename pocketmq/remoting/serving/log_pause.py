"""LogPause: logs what happens again and again once a minute, and counts it in between.

A disk that is full fails every send: a line for each would bury all others, and fill what is left of it.
"""

from collections.abc import Hashable

PAUSE_MS = 60_000
_KINDS_MAX = 100


class LogPause:
    """By kind: when its last line was written, and how often it has happened since.

    >>> pause = LogPause()
    >>> pause.due("full", 0), pause.due("full", 1), pause.due("full", 2), pause.due("full", 60_000)
    (0, None, None, 2)
    """

    def __init__(self) -> None:
        self._told: dict[Hashable, tuple[int, int]] = {}

    def due(self, kind: Hashable, now_ms: int) -> int | None:
        """Return the number of times since the last line if one is due now, else None: it is counted.

        now_ms: monotonic.
        """
        told = self._told.get(kind)
        if told is not None and now_ms - told[0] < PAUSE_MS:
            self._told[kind] = told[0], told[1] + 1
            return None
        if told is None and len(self._told) >= _KINDS_MAX:
            self._told.clear()
        self._told[kind] = now_ms, 0
        return 0 if told is None else told[1]
