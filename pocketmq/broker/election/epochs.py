"""Epochs: which master wrote which bytes of this log; the list and its file, `epochFileCheckpoint`.

    count
    CRC-32 of the rest & 0x7fffffff
    epoch-start        a line each, ascending

1. An epoch ends where the next one begins; the last one is open. Two logs agree up to X if X lies in an epoch
   that both have with the same start: the controller gives each number once.
2. An entry that begins where the last one does replaces it: the old epoch has no byte. RocketMQ keeps the old
   one; a tail that its master wrote and never sent then has the same epoch and start as other bytes.
3. The file is synced before its content counts, also when the list is empty (RocketMQ keeps the old file
   then, and does not sync it).
4. A master or slave notes an epoch before the first byte of it; after a power cut the log may end before
   that: such entries are dropped (`settle`).
Source: EpochFileCache, CheckpointFile, RocketMQ 5.5.0.
"""

import itertools
import logging
import os
import zlib
from collections.abc import Sequence

from pocketmq.broker.election.switch_wire import Epoch
from pocketmq.broker.ha.wire import HaWireError
from pocketmq.store import StoreUnreadable
from pocketmq.store.log.folder import sync_folder

log = logging.getLogger(__name__)

FILE_NAME = "epochFileCheckpoint"


class Epochs:
    """Owner of the file. entries: ascending in both numbers."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, FILE_NAME)
        self.entries: list[Epoch] = []

    @property
    def last(self) -> Epoch | None:
        return self.entries[-1] if self.entries else None

    def load(self) -> None:
        """Read the file, if there is one. Raises: StoreUnreadable."""
        try:
            with open(self.path, encoding="ascii") as file:
                text = file.read()
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            raise StoreUnreadable(self.path, error) from error
        try:
            self.entries = parse(text)
        except ValueError as error:
            raise StoreUnreadable(
                self.path,
                f"{error}. Restore it, or empty this store, so that it copies the master's",
            ) from error

    def append(self, epoch: Epoch) -> None:
        """Note a new epoch (invariant 2). Raises: HaWireError if it is not a later one; OSError."""
        last = self.last
        if epoch == last:
            return
        if last is not None and (epoch.number <= last.number or epoch.start < last.start):
            raise HaWireError(f"epoch {epoch.number} from {epoch.start} on does not follow {last}")
        if last is not None and epoch.start == last.start:
            self.entries.pop()
        self.entries.append(epoch)
        self._save()

    def cut(self, end: int) -> None:
        """Remove the epochs that begin at `end` or later: the log was cut there. Raises: OSError."""
        kept = [each for each in self.entries if each.start < end]
        if kept != self.entries:
            self.entries = kept
            self._save()

    def settle(self, end: int) -> None:
        """Apply invariant 4 to a log that ends at `end`. Raises: OSError."""
        kept = [each for each in self.entries if each.start <= end]
        if kept != self.entries:
            log.error("the log ends before some of its epochs end=%d lost=%s", end, self.entries)
            self.entries = kept
            self._save()

    def prune(self, low: int) -> None:
        """Forget epochs whose bytes were all deleted; the log begins at `low`. Raises: OSError."""
        while len(self.entries) > 1 and self.entries[1].start <= low:
            del self.entries[0]
            if len(self.entries) < 2 or self.entries[1].start > low:
                self._save()

    def at(self, position: int) -> tuple[Epoch, int] | None:
        """Return the epoch of a position, and where that epoch ends; -1: it is open."""
        end = -1
        for entry in reversed(self.entries):
            if entry.start <= position:
                return entry, end
            end = entry.start
        return None

    def common_end(self, own_end: int, theirs: Sequence[Epoch], their_end: int) -> int | None:
        """Return up to where two logs agree (invariant 1); None if they share no epoch."""
        ends = _ends(theirs, their_end)
        for entry, end in reversed(list(_ends(self.entries, own_end).items())):
            if entry in ends:
                return min(end, ends[entry])
        return None

    def _save(self) -> None:
        temporary = self.path + ".tmp"
        with open(temporary, "w", encoding="ascii") as file:
            file.write(text_of(self.entries))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)
        sync_folder(os.path.dirname(self.path))


def _ends(entries: Sequence[Epoch], end: int) -> dict[Epoch, int]:
    starts = [each.start for each in entries[1:]]
    return dict(zip(entries, [*starts, end], strict=True)) if entries else {}


def text_of(entries: Sequence[Epoch]) -> str:
    r"""Return the file's text.

    >>> text_of([Epoch(1, 0), Epoch(2, 690), Epoch(3, 1152)])
    '3\n608671763\n1-0\n2-690\n3-1152\n'
    """
    rows = "".join(f"{each.number}-{each.start}\n" for each in entries)
    crc = zlib.crc32(rows.encode()) & 0x7FFF_FFFF
    return f"{len(entries)}\n{crc}\n{rows}"


def parse(text: str) -> list[Epoch]:
    """Parse the file's text. Raises: ValueError."""
    count, crc, *rows = text.splitlines()
    found = []
    for row in rows:
        number, start = row.split("-")
        found.append(Epoch(int(number), int(start)))
    sum_of_rows = zlib.crc32("".join(f"{row}\n" for row in rows).encode()) & 0x7FFF_FFFF
    if len(found) != int(count) or int(crc) not in (0, sum_of_rows):
        raise ValueError("the list of epochs is damaged")
    if any(a.number >= b.number or a.start >= b.start for a, b in itertools.pairwise(found)):
        raise ValueError("the epochs do not ascend")
    return found
