"""KeyWindow: where recent messages are, by a hash of their keys. No I/O.

1. Two tables of keys_max / 2 keys each. When the newer one is full, or half of the window's time old, the
   older one goes. So a key is known for half of that time at least, or for keys_max / 2 later ones.
2. A table is one array of (hash, position), open addressing, half full: 32 bytes a key.
3. Two keys may have one hash: the caller compares the message. Of one hash the last position counts.
"""

from array import array

# Marks a free place; no hash is 0.
_FREE = 0


class _Table:
    def __init__(self, keys_max: int) -> None:
        self._mask = (1 << (2 * keys_max - 1).bit_length()) - 1
        self._places = array("q", bytes(16 * (self._mask + 1)))
        self.room = keys_max

    def _place(self, key: int) -> int:
        """Return the index of a key's entry, or of the free one where it belongs."""
        places, mask = self._places, self._mask
        at = key & mask
        while places[2 * at] not in (_FREE, key):
            at = (at + 1) & mask
        return 2 * at

    def find(self, key: int) -> int:
        at = self._place(key)
        return -1 if self._places[at] == _FREE else self._places[at + 1]

    def add(self, key: int, position: int) -> None:
        at = self._place(key)
        self.room -= self._places[at] == _FREE
        self._places[at], self._places[at + 1] = key, position


class KeyWindow:
    """Positions of the log by hash, a number of 63 bits that is not 0.

    >>> window = KeyWindow(keys_max=4, window_ms=1_000)
    >>> for number in (1, 2, 3, 4):
    ...     window.add(number, 10 * number, now_ms=0)
    >>> window.add(4, 44, now_ms=0)
    >>> [window.find(number, now_ms=0) for number in (1, 4, 5)]
    [10, 44, -1]
    >>> [window.find(number, now_ms=1_500) for number in (1, 4)]
    [-1, -1]
    """

    def __init__(self, keys_max: int, window_ms: int) -> None:
        self._half, self._half_ms = max(1, keys_max // 2), window_ms // 2
        self._newer: _Table | None = None
        self._older: _Table | None = None
        self._began_ms = 0

    def find(self, key: int, now_ms: int) -> int:
        """Return the position of a key; -1 if it is not known. now_ms: of a clock that does not go back."""
        self._turn(now_ms)
        for table in (self._newer, self._older):
            if table is not None and (found := table.find(key)) >= 0:
                return found
        return -1

    def add(self, key: int, position: int, now_ms: int) -> None:
        """Add a key, or change its position."""
        self._turn(now_ms)
        newer = self._newer
        if newer is None or (not newer.room and newer.find(key) < 0):
            self._older, self._newer = newer, _Table(self._half)
            newer, self._began_ms = self._newer, now_ms
        newer.add(key, position)

    def clear(self) -> None:
        """Forget everything."""
        self._newer = self._older = None

    def _turn(self, now_ms: int) -> None:
        age_ms = now_ms - self._began_ms
        if self._newer is not None and age_ms >= self._half_ms:
            self._older = self._newer if age_ms < 2 * self._half_ms else None
            self._newer = None
            self._began_ms = now_ms
