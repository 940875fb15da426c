"""OnceTopic: tells, at next to no cost, new messages of a topic that recognises repetitions (send_once.py).

1. The keys of one client begin alike, and ascend. A mark for each beginning is as great as any key of
   it that the window has: a greater one is that of a new message. Others are looked for in the window: one
   that it lacks is new, too. What may be a repetition takes the long way, whose comparison decides.
2. Keys of messages that are stored wait in `latest`, with their positions, and in `_runs`, until others are
   looked for, or the second is over: then many are entered into the window together.
3. Where there are too many beginnings the marks begin anew, and are trusted again once the window has no key
   from before.
4. Between `is_new` and the entry in `latest` nothing else is stored.
"""

from collections.abc import Callable
from itertools import chain, groupby

from pocketmq.broker.once.key_hash import hash_of, salt_of
from pocketmq.broker.once.window import KeyWindow

_MARKS_MAX = 4_096
# Behind it, in classic clients' keys as in those of gRPC, a time and a number count up.
_START = 20


class OnceTopic:
    """The keys of a topic's messages. latest: see the head of the file."""

    __slots__ = (
        "_end",
        "_last",
        "_marked_since",
        "_marks",
        "_runs",
        "_salt",
        "_trusted",
        "_window",
        "latest",
    )

    def __init__(self, topic: str, window: KeyWindow) -> None:
        self._salt = salt_of(topic)
        self._window = window
        self.latest: dict[bytes, int] = {}
        # Keys, one behind the other, their size, and where their messages are.
        self._runs: list[tuple[bytes, int, range]] = []
        self._marks: dict[bytes, bytes] = {}
        self.clear()

    def clear(self) -> None:
        """Forget everything, as the window has."""
        self.latest.clear()
        self._runs.clear()
        self._marks.clear()
        self._trusted, self._marked_since = True, self._window.generation
        # The mark of the client that sent last, and the end of its keys.
        self._last = self._end = b""

    # ------------------------------------------------------------ plain messages, and runs of them

    def is_new(self, key: bytes) -> bool:
        """Return True if no message is known that this UNIQ_KEY may repeat."""
        if self._last < key < self._end:
            self._last = key
            return True
        return self._is_another(key)

    def _is_another(self, key: bytes) -> bool:
        """The same for a key that does not ascend, or is of another client than the last one."""
        start = key[:_START]
        if self._end[:-1] != start:
            self._keep()
        mark = self._last if self._end else self._marks.get(start)
        if not self._trusted or mark is None or key <= mark:
            if not self._is_unknown(key):
                return False
            if mark is not None and key <= mark:
                return True
        self.mark(key)
        if self._trusted and len(start) == _START:
            self._last, self._end = key, start + b"\xff"
        return True

    def are_new(self, keys: bytes, size: int, ascend: Callable[[bytes, int], bool]) -> bool:
        """Return True if all these keys, of `size` bytes each, are new. ascend: see columns.py."""
        self._keep()
        first, last = keys[:size], keys[-size:]
        # What is between two keys of one beginning begins so, too.
        if first[:_START] == last[:_START] and ascend(keys, size):
            mark = self._marks.get(first[:_START])
            if self._trusted and mark is not None and first > mark:
                self._marks[first[:_START]] = last
                return True
        parts = [keys[at : at + size] for at in range(0, len(keys), size)]
        if len(set(parts)) < len(parts) or not all(map(self._is_unknown, parts)):
            return False
        for key in parts:
            self.mark(key)
        return True

    def note_run(self, keys: bytes, size: int, positions: range) -> None:
        """Remember where messages that are new are stored."""
        self._runs.append((keys, size, positions))

    # ------------------------------------------------------------ the window

    def mark(self, key: bytes) -> None:
        """Take note of a key that the window has, or will have."""
        self._keep()
        start, marks = key[:_START], self._marks
        if key > marks.get(start, b""):
            marks[start] = key
        if len(marks) > _MARKS_MAX:
            self.enter()
            marks.clear()
            self._trusted, self._marked_since = False, self._window.generation

    def _keep(self) -> None:
        """Enter the mark of the last client among the others."""
        if self._end:
            self._marks[self._last[:_START]] = self._last
            self._last = self._end = b""

    def _is_unknown(self, key: bytes) -> bool:
        if key in self.latest:
            return False
        if self._runs:
            self.enter()
        return not self._window.knows(hash_of(self._salt, key))

    def enter(self) -> None:
        """Enter the keys that wait into the window (2)."""
        latest, runs, window = self.latest, self._runs, self._window
        for size in sorted(set(map(len, latest))):
            keys = [key for key in latest if len(key) == size]
            window.add_many(b"".join(keys), size, [latest[key] for key in keys], self._salt)
        latest.clear()
        for size, alike in groupby(runs, lambda run: run[1]):
            some = list(alike)
            positions = list(chain.from_iterable(places for _, _, places in some))
            window.add_many(b"".join(keys for keys, _, _ in some), size, positions, self._salt)
        runs.clear()
        if not self._trusted and window.generation >= self._marked_since + 2:
            self._trusted = True


def exempt(properties: bytes) -> bool:
    """Return True for properties that may name the message that theirs is a copy of."""
    return b"ORIGIN_MESSAGE_ID\x01" in properties or b"RETRY_TOPIC\x01" in properties
