"""Makes a store of a cut: the work of `pocketmq store restore`.

1. The store is made in a folder beside, DATA.restoring, and gets its name when it is whole: a restore that
   was killed leaves no DATA, and the next one begins anew.
2. Every object is compared with its name, the hash of its content.
3. Queues and index are made of the log, by the recovery of the store, which reads every record.
"""

import os
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pocketmq.backup.cut import CutFile, CutPiece, StoreCut, listed_objects, path_of, read_cuts
from pocketmq.backup.errors import BackupDamaged, BackupRefused
from pocketmq.backup.place import BackupPlace
from pocketmq.remoting.clock import Clock
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.log.folder import sync_folder
from pocketmq.store.message_store import MessageStore
from pocketmq.store.repair.recovery import RecoveryReport
from pocketmq.store.store_config import StoreConfig

_STORE_HOST = b"\x7f\0\0\1\0\0\x2a\x9f"


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore made; damages: places of the log that were damaged in the source, too."""

    cut: StoreCut
    records: int
    damages: int


class Restore:
    """One restore. Raises (each method): BackupRefused, BackupDamaged, StoreError, OSError."""

    def __init__(self, place: BackupPlace, cut: StoreCut, folder: str, clock: Clock) -> None:
        self._place = place
        self._cut = cut
        self._folder = Path(folder).expanduser().absolute()
        self._made = self._folder.with_name(f"{self._folder.name}.restoring")
        self._clock = clock

    def run(self) -> RestoreReport:
        """Make the store."""
        if self._folder.exists() and (not self._folder.is_dir() or any(self._folder.iterdir())):
            raise BackupRefused(f"{self._folder} is not empty: name a folder that is, or none yet")
        self._check_paths()
        if self._made.exists():
            shutil.rmtree(self._made)
        self._made.mkdir(parents=True)
        self._write_log()
        for each in self._cut.files:
            self._write_file(each)
        self._begin_checkpoint()
        found = self._built()
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self._made, self._folder)
        sync_folder(str(self._folder.parent))
        return RestoreReport(self._cut, found.records, len(found.damages))

    def _check_paths(self) -> None:
        """A backup from elsewhere writes nowhere but in the store."""
        for each in self._cut.files:
            parts = each.path.split("/")
            if each.path.startswith("/") or ".." in parts:
                raise BackupDamaged(f"{self._cut.name} names a file outside the store: {each.path}")

    # ------------------------------------------------------------ files

    def _write_log(self) -> None:
        """Write the log's files in their size, with nothing behind the cut."""
        size, folder = self._cut.file_size, self._made / "commitlog"
        folder.mkdir()
        for piece in self._cut.pieces:
            first = piece.position - (piece.position - self._cut.begin) % size
            with open(folder / f"{first:020d}", "ab") as file:
                file.truncate(size)
            with open(folder / f"{first:020d}", "r+b") as file:
                file.seek(piece.position - first)
                for data in checked(piece, self._place.read(path_of(piece.object))):
                    file.write(data)
                file.flush()
                os.fsync(file.fileno())
        sync_folder(str(folder))

    def _write_file(self, file: CutFile) -> None:
        path = self._made / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as opened:
            for data in checked(file, self._place.read(path_of(file.object))):
                opened.write(data)
            opened.truncate(file.length)
            opened.flush()
            os.fsync(opened.fileno())

    # ------------------------------------------------------------ queues and index

    def _begin_checkpoint(self) -> None:
        """Say that nothing but the log is known, and whose it is: how recovery reads it."""
        if self._cut.ours:
            Checkpoint(
                log_file_size=self._cut.file_size,
                queue_file_size=self._cut.sizes.get("mapped_file_size_consume_queue", 0),
                # Index files are lost: all is indexed again.
                index_ms=1,
                path=str(self._made / "checkpoint"),
            ).save()
        # The stop was no clean one: what the queues lack is looked for from the beginning of the log.
        (self._made / "abort").touch()

    def _built(self) -> RecoveryReport:
        """Have queues and index built, and everything checked."""
        sizes: dict[str, Any] = self._cut.sizes
        config = StoreConfig(store_path_root_dir=str(self._made), **sizes)
        store = MessageStore(config, clock=self._clock, store_host=_STORE_HOST)
        store.open()
        found = store.recovery
        store.close()
        if found.end != self._cut.position:
            raise BackupDamaged(
                f"the log of the backup ends at {found.end}, not at {self._cut.position}: "
                f"{found.damages[-1].why if found.damages else 'records are missing'}"
            )
        return found


def checked(part: CutPiece | CutFile, stored: Iterator[bytes]) -> Iterator[bytes]:
    """Yield an object's content. Raises: BackupDamaged, before its last bytes or behind them."""
    digest, size = sha256(), 0
    where = part.path if isinstance(part, CutFile) else f"the log at {part.position}"
    try:
        for data in _unpacked(stored) if part.object.endswith(".z") else stored:
            digest.update(data)
            size += len(data)
            yield data
    except (FileNotFoundError, zlib.error) as error:
        raise BackupDamaged(f"object {part.object}, of {where}, cannot be read: {error}") from error
    if size != part.size or digest.hexdigest() != part.object.removesuffix(".z"):
        raise BackupDamaged(f"object {part.object}, of {where}, is not what was written")


def _unpacked(stored: Iterator[bytes]) -> Iterator[bytes]:
    unpack = zlib.decompressobj()
    for data in stored:
        yield unpack.decompress(data)
    yield unpack.flush()
    if not unpack.eof:
        raise zlib.error("its end is missing")


def check_backup(place: BackupPlace) -> Iterator[str]:
    """Compare every object of every cut with its name. Yields: what is wrong."""
    there, seen = listed_objects(place), set[str]()
    for cut in read_cuts(place):
        parts: list[CutPiece | CutFile] = [*cut.pieces, *cut.files]
        for part in parts:
            if part.object in seen:
                continue
            seen.add(part.object)
            if part.object not in there:
                yield f"{cut.name}: object {part.object} is missing"
                continue
            try:
                for _ in checked(part, place.read(path_of(part.object))):
                    pass
            except BackupDamaged as error:
                yield f"{cut.name}: {error}"
