"""KeyWindow: where recent messages are, by a hash of their keys. No I/O.

1. Two generations of keys_max / 2 keys each. When the newer one is full, or half of the window's time old,
   the older one goes. So a key is known for half of that time at least, or for keys_max / 2 later ones.
2. A generation is one array of (hash, position), open addressing, half full, 32 bytes a key; and a filter of
   16 bytes a key, one of which says that a key may be known: so a new key costs a look at two bytes.
3. New keys wait in `_fresh`, and are entered many at once.
4. Two keys may have one hash: the caller compares the message. Of one hash the first position stays.
"""

from array import array
from collections.abc import Callable, Sequence

# Marks a free place; no hash is 0.
_FREE = 0
_FRESH_MAX = 4_096
_FILTER = 16


class _Generation:
    def __init__(self, keys_max: int) -> None:
        size = 1 << (2 * keys_max - 1).bit_length()
        self.mask = size - 1
        self.places = array("q", bytes(16 * size))
        self.seen = bytearray(_FILTER // 2 * size)
        self.room = keys_max

    def _place(self, key: int) -> int:
        """Return the index of a key's entry, or of the free one where it belongs."""
        places, mask = self.places, self.mask
        at = key & mask
        while places[2 * at] not in (_FREE, key):
            at = (at + 1) & mask
        return 2 * at

    def find(self, key: int) -> int:
        at = self._place(key)
        return -1 if self.places[at] == _FREE else self.places[at + 1]

    def add(self, key: int, position: int) -> None:
        at = self._place(key)
        if self.places[at] == _FREE:
            self.places[at], self.places[at + 1] = key, position


class KeyWindow:
    """Positions of the log by hash, a number of 64 bits.

    >>> now_ms = 0
    >>> window = KeyWindow(4, 1_000, lambda: now_ms)
    >>> for number in (1, 2, 3, 4):
    ...     window.add(number, 10 * number)
    >>> window.add(1, 99)
    >>> [window.find(number) for number in (1, 4, 5)]
    [10, 40, -1]
    >>> now_ms = 1_500
    >>> [window.find(number) for number in (1, 4)]
    [-1, -1]
    """

    def __init__(
        self,
        keys_max: int,
        window_ms: int,
        monotonic_ms: Callable[[], int],
        has_numpy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._half, self._half_ms = max(1, keys_max // 2), window_ms // 2
        self._monotonic_ms, self._has_numpy = monotonic_ms, has_numpy
        self._fresh_max = max(1, min(_FRESH_MAX, self._half // 64))
        self._newer: _Generation | None = None
        self._older: _Generation | None = None
        self._began_ms = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._newer = self._older = None
        self._fresh: dict[int, int] = {}
        # Of a window without keys one byte is enough.
        self._seen = self._seen_before = bytearray(1)
        self._mask = self._mask_before = 0

    def find(self, key: int) -> int:
        """Return the position of a key; -1 if it is not known."""
        self._turn()
        found = self._fresh.get(key)
        if found is not None:
            return found
        key = key or 1
        for each in (self._newer, self._older):
            if each is not None and (place := each.find(key)) >= 0:
                return place
        return -1

    def add(self, key: int, position: int) -> None:
        """Add a key, unless it is known."""
        if self.find(key) < 0:
            self.put(key, position)

    def knows(self, key: int) -> bool:
        """Return True if a key is known."""
        return bool(
            self._seen[key & self._mask] or self._seen_before[key & self._mask_before]
        ) and (self.find(key) >= 0)

    def put(self, key: int, position: int) -> None:
        """Add a key that is not known."""
        if self._newer is None or self._newer.room <= 0:
            self._begin()
        self._fresh[key] = position
        self._seen[key & self._mask] = 1
        if len(self._fresh) >= self._fresh_max:
            self._enter()

    def knows_any(self, keys: Sequence[int]) -> bool:
        """Return True if one of these keys is known, or occurs twice."""
        seen, mask = self._seen, self._mask
        before, mask_before = self._seen_before, self._mask_before
        for key in keys:
            if (seen[key & mask] or before[key & mask_before]) and self.find(key) >= 0:
                return True
        return len(set(keys)) < len(keys)

    def put_all(self, keys: Sequence[int], positions: Sequence[int]) -> None:
        """Add keys that are not known."""
        if self._newer is None or self._newer.room <= 0:
            self._begin()
        self._fresh.update(zip(keys, positions, strict=True))
        seen, mask = self._seen, self._mask
        for key in keys:
            seen[key & mask] = 1
        if len(self._fresh) >= self._fresh_max:
            self._enter()

    def _begin(self) -> None:
        """Begin a generation."""
        self._older, self._newer = self._newer, _Generation(self._half)
        self._seen_before, self._mask_before = self._seen, self._mask
        self._seen, self._mask = self._newer.seen, len(self._newer.seen) - 1
        self._began_ms = self._monotonic_ms()

    def _enter(self) -> None:
        """Enter the fresh keys into the newer generation (3)."""
        newer, fresh = self._newer, self._fresh
        assert newer is not None
        self._fresh = {}
        newer.room -= len(fresh)
        if 0 in fresh:
            fresh[1] = fresh.pop(0)
        if self._has_numpy():
            from pocketmq.broker.once.entering import enter

            enter(newer.places, newer.mask, fresh)
        else:
            for key, position in fresh.items():
                newer.add(key, position)
        self._turn()

    def _turn(self) -> None:
        """Let old generations go (1)."""
        age_ms = self._monotonic_ms() - self._began_ms
        if self._newer is None or age_ms < self._half_ms:
            return
        if age_ms >= 2 * self._half_ms:
            self.clear()
            return
        if self._fresh:
            self._began_ms = self._monotonic_ms()
            self._enter()
        self._begin()
