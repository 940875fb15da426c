"""StoreCut: a store as of one position of its log, as a list of objects; a backup is a row of cuts.

    objects/HH/HASH         bytes of the log; HASH: their SHA-256, HH: its first two digits
    objects/HH/HASH.z       the same of a side file, as zlib
    cuts/POSITION-MS.json   one cut: where its log ends (20 digits), and when it was taken (ms, 13 digits)

1. An object is named by its content: what two cuts share is there once, and each can be checked alone.
2. A cut is written after its objects; a backup that was killed leaves objects that no cut names.
3. The log is in pieces of PIECE bytes, counted from the beginning of each of its files. A piece before the
   end of the log never changes.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from pocketmq.backup.errors import BackupDamaged, BackupRefused
from pocketmq.backup.place import BackupPlace

PIECE = 64 << 20
FORMAT = 1
_CUTS, _OBJECTS = "cuts", "objects"


@dataclass(frozen=True, slots=True)
class CutPiece:
    """Bytes of the log. position: of the first; object: its name."""

    position: int
    size: int
    object: str


@dataclass(frozen=True, slots=True)
class CutFile:
    """A side file. path: in the store; size: of the object's content; length: of the file, zeros behind."""

    path: str
    size: int
    length: int
    object: str


@dataclass(frozen=True, slots=True)
class StoreCut:
    """One cut. position: where its log ends, behind a record; ms: everything stored before is in it.

    begin: of the log's first file; file_size: of each; sizes: of all kinds of files, as StoreConfig has them;
    ours: PocketMQ wrote the store last.
    """

    position: int
    ms: int
    begin: int
    file_size: int
    sizes: dict[str, int]
    ours: bool
    pieces: tuple[CutPiece, ...] = ()
    files: tuple[CutFile, ...] = field(default=())

    @property
    def name(self) -> str:
        return f"{_CUTS}/{self.position:020d}-{self.ms:013d}.json"

    @property
    def objects(self) -> set[str]:
        return {each.object for each in self.pieces} | {each.object for each in self.files}

    @property
    def size(self) -> int:
        """Return the bytes of its log."""
        return sum(each.size for each in self.pieces)

    def to_bytes(self) -> bytes:
        content = asdict(self)
        return json.dumps(
            {"format": FORMAT, "checksum": _checksum(content), **content}, indent=0
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> "StoreCut":
        """Parse one. Raises: BackupDamaged, BackupRefused for one of a later format."""
        try:
            content: dict[str, Any] = json.loads(data)
            written, checksum = content.pop("format"), content.pop("checksum")
            if written != FORMAT:
                raise BackupRefused(
                    f"{name} has format {written}: it needs a newer PocketMQ to be read"
                )
            if checksum != _checksum(content):
                raise BackupDamaged(f"{name} is damaged: its checksum is wrong")
            content["pieces"] = tuple(CutPiece(**each) for each in content["pieces"])
            content["files"] = tuple(CutFile(**each) for each in content["files"])
            return cls(**content)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BackupDamaged(f"{name} is damaged: {error}") from error


def _checksum(content: dict[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def path_of(name: str) -> str:
    """Return where an object is, by its name."""
    return f"{_OBJECTS}/{name[:2]}/{name}"


def listed_objects(place: BackupPlace) -> dict[str, int]:
    """Return the size of each object by name, as it is stored."""
    return {path.rpartition("/")[2]: size for path, size in place.listed(_OBJECTS).items()}


def names_of_cuts(place: BackupPlace) -> list[str]:
    """Return the names of all cuts, by position and time."""
    return [f"{_CUTS}/{name}" for name in sorted(place.listed(_CUTS)) if name.endswith(".json")]


def read_cut(place: BackupPlace, name: str) -> StoreCut:
    """Raises: BackupDamaged, BackupRefused, OSError."""
    return StoreCut.from_bytes(b"".join(place.read(name)), name)


def read_cuts(place: BackupPlace) -> Iterator[StoreCut]:
    """Yield all cuts, by position and time. Raises: as `read_cut`."""
    for name in names_of_cuts(place):
        yield read_cut(place, name)


def chosen_cut(
    place: BackupPlace, *, ms: int | None = None, position: int | None = None
) -> StoreCut:
    """Return the last cut that is not after a time or position; the last of all without them.

    Raises: BackupRefused without one, BackupDamaged, OSError.
    """
    rows = []
    for name in names_of_cuts(place):
        end, _, taken = name.rpartition("/")[2].removesuffix(".json").partition("-")
        rows.append((int(end), int(taken), name))
    if not rows:
        raise BackupRefused("there is no backup: its folder `cuts` has no cut")
    fitting = [
        row
        for row in rows
        if (ms is None or row[1] <= ms) and (position is None or row[0] <= position)
    ]
    if not fitting:
        first, first_ms, _ = rows[0]
        raise BackupRefused(
            f"the first cut is at position {first}, of {first_ms} ms: later than that"
        )
    return read_cut(place, fitting[-1][2])
