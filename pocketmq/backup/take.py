"""Takes a cut of a store: the work of `pocketmq store backup`.

1. Only what no earlier cut has is written: pieces of the log that are whole are neither read nor hashed
   again.
2. What is copied of the log is on the source's disk first: a record that a power cut takes from the broker
   must not live on here, since its offset is given again.
3. Before a piece is added, the last one of the last cut is compared with the source: a backup is of one log.
"""

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256

from pocketmq.backup.cut import (
    PIECE,
    CutFile,
    CutPiece,
    StoreCut,
    listed_objects,
    names_of_cuts,
    path_of,
    read_cut,
)
from pocketmq.backup.errors import BackupRefused
from pocketmq.backup.place import BackupPlace
from pocketmq.backup.source import SideFile, StoreSource
from pocketmq.files.layout import FileSpan
from pocketmq.store.store_config import sizes_of

_CHUNK = 1 << 20


@dataclass
class BackupReport:
    """What a backup did; sizes in bytes. removed: cuts that were removed."""

    cut: StoreCut
    written: int = 0
    objects: int = 0
    removed: int = 0


class Backup:
    """Adds one cut of a store to a place. Raises (each method): BackupRefused, BackupDamaged, OSError."""

    def __init__(
        self, folder: str, place: BackupPlace, now_ms: Callable[[], int], *, piece: int = PIECE
    ) -> None:
        """now_ms: wall time. Raises: StoreForeign."""
        self._source = StoreSource(folder)
        self._place = place
        self._now_ms = now_ms
        self._piece = piece
        self._there: dict[str, int] = {}
        self._written = self._objects = 0

    def run(self, *, keep: int = 0) -> BackupReport:
        """Take a cut. keep: of that many cuts the last ones are kept, and older ones removed; 0: all."""
        self._place.clear()
        names = names_of_cuts(self._place)
        last = read_cut(self._place, names[-1]) if names else None
        self._there = listed_objects(self._place)
        cut = self._taken(last)
        self._place.write(cut.name, [cut.to_bytes()])
        report = BackupReport(cut, self._written, self._objects)
        if keep:
            report.removed = remove_old(self._place, keep)
        return report

    def _taken(self, last: StoreCut | None) -> StoreCut:
        source, reader = self._source, self._source.reader
        files = {each.path: self._keep_file(each) for each in source.tables()}
        ms = self._now_ms()
        end = source.end(0 if last is None else last.position)
        with ExitStack() as opened:
            log = {
                file: opened.enter_context(open(file.path, "rb"))
                for file in reader.log_files
                if file.first < end
            }
            if not log:
                raise BackupRefused(f"{reader.root} has no messages yet")
            begin = min(log).first
            for each in source.topics_and_groups():
                files[each.path] = self._keep_file(each)
            for rest in (source.timers(), source.queues_without_records(begin, end)):
                files.update((each.path, self._keep_file(each)) for each in rest)
            descriptors = {file: each.fileno() for file, each in log.items()}
            if last is not None:
                self._check_is_the_same(last, descriptors, end)
            pieces = [*self._pieces(descriptors, end, last)]
        return StoreCut(
            position=end,
            ms=ms,
            begin=begin,
            file_size=max(file.size for file in log),
            sizes=sizes_of(reader.root),
            ours=reader.written_by() != "RocketMQ",
            pieces=tuple(pieces),
            files=tuple(files.values()),
        )

    # ------------------------------------------------------------ the log

    def _check_is_the_same(self, last: StoreCut, log: dict[FileSpan, int], end: int) -> None:
        """Apply invariant 3."""
        other = (
            f"the backup is of another log than {self._source.root}, or of one that was restored or cut "
            "back since: choose another folder for this one"
        )
        if end < last.position or not last.pieces:
            raise BackupRefused(other)
        known = last.pieces[-1]
        file = next((each for each in log if each.first <= known.position < each.end), None)
        # Retention may have deleted all that the last cut has.
        if file is None and known.position < min(log).first:
            return
        if file is None or _hash(_bytes_of(log[file], file, known)) != known.object:
            raise BackupRefused(other)

    def _pieces(
        self, log: dict[FileSpan, int], end: int, last: StoreCut | None
    ) -> Iterator[CutPiece]:
        known = {} if last is None else {(p.position, p.size): p.object for p in last.pieces}
        for file, descriptor in sorted(log.items()):
            # Invariant 2; what is on the disk already costs nothing.
            os.fsync(descriptor)
            until = min(file.end, end)
            for position in range(file.first, until, self._piece):
                size = min(self._piece, until - position)
                name = known.get((position, size), "")
                piece = CutPiece(position, size, name)
                if self._there.get(name) != size:
                    name = _hash(_bytes_of(descriptor, file, piece))
                    piece = replace(piece, object=name)
                    self._keep(name, size, _bytes_of(descriptor, file, piece))
                yield piece

    # ------------------------------------------------------------ objects

    def _keep_file(self, file: SideFile) -> CutFile:
        name = f"{sha256(file.data).hexdigest()}.z"
        data = zlib.compress(file.data, 1)
        self._keep(name, len(data), [data])
        return CutFile(file.path, len(file.data), file.length, name)

    def _keep(self, name: str, size: int, data: Iterable[bytes]) -> None:
        """Write an object that is not there, or not whole."""
        if self._there.get(name) == size:
            return
        self._place.write(path_of(name), data)
        self._there[name] = size
        self._written += size
        self._objects += 1


def remove_old(place: BackupPlace, keep: int) -> int:
    """Remove all but the last `keep` cuts, and objects that none of these names. Returns: how many cuts.

    Objects may be left of a removal that was killed, so they are looked for though no cut is old.
    """
    names = names_of_cuts(place)
    old = names[:-keep]
    # First: what cannot be read must not cost objects that it names.
    wanted = {each for name in names[-keep:] for each in read_cut(place, name).objects}
    for name in old:
        place.remove(name)
    for name in listed_objects(place):
        if name not in wanted:
            place.remove(path_of(name))
    return len(old)


def _hash(data: Iterable[bytes]) -> str:
    digest = sha256()
    for each in data:
        digest.update(each)
    return digest.hexdigest()


def _bytes_of(descriptor: int, file: FileSpan, piece: CutPiece) -> Iterator[bytes]:
    at, until = piece.position - file.first, piece.position - file.first + piece.size
    while at < until:
        data = os.pread(descriptor, min(_CHUNK, until - at), at)
        if not data:
            raise BackupRefused(f"{file.path} became shorter while it was read")
        at += len(data)
        yield data
