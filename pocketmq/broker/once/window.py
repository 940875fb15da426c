"""KeyWindow: where recent messages are, by hashes of their keys (key_hash.py). No I/O.

    seen: a byte for each place, the generation that last had a hash there     "not known", in one look
    two generations of keys_max / 2 entries each: (hash, position), open addressing, half full

1. When the newer generation is full, or half of the window's time old, the older one goes. So a key is known
   for half of that time at least, or for keys_max / 2 later ones.
2. An entry is never replaced by that of another message: entries of one hash stand beside each other, and the
   caller compares the messages.
3. 40 bytes a key: 16 of `seen`, 24 of the generations.
"""

from collections.abc import Callable, Iterator, Sequence

from pocketmq.broker.once.key_hash import hash_of, place_of

_FILTER = 16
_LAST = 255
# Fewer are entered one by one.
_MANY = 64
# Keys that are entered together.
_TOGETHER = 4_096


class Generation:
    """A table of entries. hashes: each with 1 added, 0 marks a free place; room: for so many more."""

    def __init__(self, keys_max: int) -> None:
        self.size = 2 * keys_max
        # Zeros that no memory stands behind before they are written.
        self.hashes = memoryview(bytearray(4 * self.size)).cast("i")
        self.positions = memoryview(bytearray(8 * self.size)).cast("q")
        self.room = keys_max

    def _places(self, key: int) -> Iterator[int]:
        """Yield the places of a hash's entries, at last the free one behind them."""
        hashes, size = self.hashes, self.size
        at = place_of(key, size)
        while (found := hashes[at]) != 0:
            if found == key + 1:
                yield at
            at = at + 1 if at + 1 < size else 0
        yield at

    def positions_of(self, key: int) -> list[int]:
        return [self.positions[at] for at in list(self._places(key))[:-1]]

    def add(self, key: int, position: int) -> None:
        *_, at = self._places(key)
        self.hashes[at], self.positions[at] = key + 1, position

    def replace(self, key: int, old: int, position: int) -> bool:
        """Give an entry another position; False if it is not here."""
        for at in self._places(key):
            if self.hashes[at] and self.positions[at] == old:
                self.positions[at] = position
                return True
        return False


class KeyWindow:
    """Positions of the log by hash. generation: the number of the newer one; it only grows.

    >>> window = KeyWindow(keys_max=6, window_ms=1_000, monotonic_ms=lambda: 0)
    >>> for number in (1, 2, 3, 4, 3):
    ...     window.add(number, 10 * number)
    >>> [list(window.find(number)) for number in (1, 3, 5)]
    [[10], [30, 30], []]
    >>> window.add(5, 50)
    >>> window.add(6, 60)
    >>> [window.knows(number) for number in (1, 3, 4, 5)]
    [False, True, True, True]
    """

    def __init__(
        self,
        keys_max: int,
        window_ms: int,
        monotonic_ms: Callable[[], int],
        has_numpy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._half, self._half_ms = max(1, keys_max // 2), window_ms // 2
        self._monotonic_ms, self.has_numpy = monotonic_ms, has_numpy
        self.generation = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything. Memory is taken again with the first key."""
        self._newer: Generation | None = None
        self._older: Generation | None = None
        self._seen = bytearray(1)
        # As `seen` has it; the least that counts.
        self._number = self._lowest = 1
        self._began_ms = 0

    # ------------------------------------------------------------ looking

    def knows(self, key: int) -> bool:
        """Return True if there is an entry of a hash."""
        seen = self._seen
        return seen[key % len(seen)] >= self._lowest and any(True for _ in self.find(key))

    def find(self, key: int) -> Iterator[int]:
        """Yield the positions of a hash, the latest first."""
        for each in (self._newer, self._older):
            if each is not None:
                yield from reversed(each.positions_of(key))

    def is_newer(self, key: int) -> bool:
        """Return True if a hash will stay as long as a key that is added now."""
        return self._newer is not None and bool(self._newer.positions_of(key))

    # ------------------------------------------------------------ entering

    def add(self, key: int, position: int, instead_of: int = -1) -> None:
        """Add an entry; or change the position of one in the newer generation."""
        newer = self._open()
        self._seen[key % len(self._seen)] = self._number
        if instead_of < 0 or not newer.replace(key, instead_of, position):
            newer.add(key, position)
            newer.room -= 1

    def add_many(self, keys: bytes, size: int, positions: Sequence[int], salt: int) -> None:
        """Add an entry for each key of a topic.

        keys: one behind the other; size: of each; salt: of the topic.
        """
        count = len(positions)
        if count < _MANY or not self.has_numpy():
            for place, position in enumerate(positions):
                self.add(hash_of(salt, keys[place * size : (place + 1) * size]), position)
            return
        # Loaded once the store has numpy.
        from pocketmq.broker.once.columns import enter, hashes_of

        at = 0
        while at < count:
            newer = self._open()
            end = min(count, at + min(_TOGETHER, newer.room))
            hashes = hashes_of(keys[at * size : end * size], size, salt)
            enter(
                newer.hashes, newer.positions, hashes, positions[at:end], self._seen, self._number
            )
            newer.room -= end - at
            at = end

    def tick(self) -> None:
        """Let what is too old go. Called once a second, and before an answer depends on it."""
        if self._newer is not None and self._monotonic_ms() - self._began_ms >= self._half_ms:
            self._begin()

    def _open(self) -> Generation:
        """Return the newer generation, with room for an entry."""
        if self._newer is None:
            self._seen = bytearray(_FILTER * 2 * self._half)
        if self._newer is None or self._newer.room <= 0:
            return self._begin()
        return self._newer

    def _begin(self) -> Generation:
        """Begin a generation."""
        if self._number == _LAST:
            # Numbers begin anew: 2 is the generation that becomes the older one, the others are forgotten.
            numbers = bytearray(256)
            numbers[_LAST] = 2
            self._seen[:] = self._seen.translate(numbers)
            self._number = 2
        self._older, self._newer = self._newer, Generation(self._half)
        self.generation += 1
        self._number += 1
        self._lowest = self._number - 1
        self._began_ms = self._monotonic_ms()
        return self._newer
