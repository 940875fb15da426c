"""BackupPlace: where a backup is, a folder or an object store by fsspec; names to whole files.

1. A file is there whole or not at all: in a folder it is written beside, synced and renamed; an object store
   shows an object once it is whole.
2. What a killed writer left beside is not listed, and goes with the next `clear`.
Owner: the one process that takes a backup.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from pocketmq.backup.errors import BackupRefused
from pocketmq.remoting.lazy_names import needs

_URI = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]+://")
_PART = ".part"
_CHUNK = 1 << 20


class BackupPlace(Protocol):
    """See the head of the file. Names have `/` between folders. Raises (each method): OSError."""

    def write(self, name: str, data: Iterable[bytes | memoryview]) -> None:
        """Write a file under its name, durably."""
        ...

    def read(self, name: str) -> Iterator[bytes]:
        """Yield a file's bytes. Raises: FileNotFoundError."""
        ...

    def listed(self, folder: str) -> dict[str, int]:
        """Return the size of each file below a folder by its name in it."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file; one that is absent is no error."""
        ...

    def clear(self) -> None:
        """Remove what a killed writer left."""
        ...


def opened_place(dest: str) -> BackupPlace:
    """Return the place with this path or URI, such as s3://bucket/broker-a. Raises: BackupRefused."""
    if not _URI.match(dest):
        return FolderPlace(Path(dest).expanduser().absolute())
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise BackupRefused(
            needs(dest, "fsspec", "backup") + ", and the package of that store "
            "(s3fs for s3://, gcsfs for gs://, adlfs for az://)"
        ) from error
    try:
        file_system, base = url_to_fs(dest)
    except (ImportError, ValueError) as error:
        raise BackupRefused(f"{dest} cannot be opened: {error}") from error
    return ObjectPlace(file_system, base)


class FolderPlace:
    """A folder of this machine, or of what is mounted."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def write(self, name: str, data: Iterable[bytes | memoryview]) -> None:
        path = self._base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + _PART)
        try:
            with open(part, "wb") as file:
                for each in data:
                    file.write(each)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except OSError:
            # On a full disk it would take the room that is made for the next run.
            with suppress(OSError):
                part.unlink()
            raise
        _sync(path.parent)

    def read(self, name: str) -> Iterator[bytes]:
        with open(self._base / name, "rb") as file:
            while data := file.read(_CHUNK):
                yield data

    def listed(self, folder: str) -> dict[str, int]:
        top = self._base / folder
        return {
            path.relative_to(top).as_posix(): path.stat().st_size
            for path in top.rglob("*")
            if path.suffix != _PART and path.is_file()
        }

    def remove(self, name: str) -> None:
        (self._base / name).unlink(missing_ok=True)

    def clear(self) -> None:
        for path in self._base.rglob(f"*{_PART}"):
            path.unlink()


class ObjectPlace:
    """A file system of fsspec's."""

    def __init__(self, file_system: Any, base: str) -> None:
        self._fs = file_system
        self._base = base.rstrip("/")

    def write(self, name: str, data: Iterable[bytes | memoryview]) -> None:
        path = f"{self._base}/{name}"
        # Where folders are real they have to be there.
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        with self._fs.transaction, self._fs.open(path, "wb") as file:
            for each in data:
                file.write(each)

    def read(self, name: str) -> Iterator[bytes]:
        with self._fs.open(f"{self._base}/{name}", "rb") as file:
            while data := file.read(_CHUNK):
                yield data

    def listed(self, folder: str) -> dict[str, int]:
        # Others may have written there since the last look.
        self._fs.invalidate_cache()
        top = f"{self._base}/{folder}"
        try:
            found = self._fs.find(top, detail=True)
        except FileNotFoundError:
            return {}
        begin = len(self._fs._strip_protocol(top).rstrip("/")) + 1
        return {path[begin:]: int(each["size"]) for path, each in found.items()}

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(f"{self._base}/{name}")

    def clear(self) -> None:
        """Do nothing: an object that was not finished is not there."""


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
