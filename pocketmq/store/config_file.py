"""ConfigFile: config/*.json, replaced atomically.

1. A save writes NAME.tmp, syncs it, keeps the old file as NAME.bak, renames, and syncs the folder: at every
   moment NAME or NAME.bak is whole.
2. A load reads NAME, or NAME.bak if NAME is missing, empty or not JSON, which is logged.
3. Read: JSON and fastjson's dialect (integer keys without quotes); written: integer keys without quotes,
   as RocketMQ writes and reads them.
Owner: its creator; one writer per file, or each change made `alone`. Source: ConfigManager, RocketMQ 4.9.7.
"""

import contextlib
import logging
import os
from collections.abc import Hashable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from pocketmq.files.side_file import (
    LMQ_OFFSETS,
    OFFSETS,
    SideFileBroken,
    file_of_offsets,
    read_or_backup,
)
from pocketmq.remoting import fastjson
from pocketmq.store.errors import StoreUnreadable
from pocketmq.store.log.descriptors import open_file
from pocketmq.store.log.folder import sync_folder
from pocketmq.store.one_writer import one_writer

log = logging.getLogger(__name__)


class ConfigFile:
    """One file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def load(self) -> Any | None:
        """Return the value, integer keys as str; None if neither the file nor its .bak exists.

        Raises: StoreUnreadable if there is content but none of it can be read: starting empty would lose
        topics, groups or offsets.
        """
        try:
            value, path = read_or_backup(self.path, _content)
        except SideFileBroken as error:
            raise StoreUnreadable(
                self.path, f"{error}. Repair it, or move it away to start without it"
            ) from error
        if path is None and os.path.exists(self.path):
            log.error(
                "a file is empty, as after a power cut, and has no previous version: starting without what "
                "it held path=%s",
                self.path,
            )
        if path not in (None, self.path):
            log.warning(
                "loaded the previous version of a file, because the current one cannot be "
                "read path=%s",
                path,
            )
        return value

    def alone(self) -> AbstractContextManager[None]:
        """Hold off other processes that change the file. Blocks. Raises: OSError."""
        os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
        return one_writer(self.path)

    def stamp(self) -> Hashable:
        """Return another value after each change of the file, by whichever process; None if absent."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    @staticmethod
    def encode(value: Any) -> bytes:
        """Encode `value` as save() writes it."""
        return fastjson.dumps(value)

    def save(self, value: Any) -> None:
        """Replace the file. Blocks. Raises: OSError."""
        self.write((self.encode(value),))

    def write(self, pieces: Iterable[bytes]) -> None:
        """Replace the file by encoded bytes; for the pool. Blocks. Raises: OSError."""
        folder = os.path.dirname(self.path)
        os.makedirs(folder, exist_ok=True)
        temporary = self.path + ".tmp"
        with open(temporary, "wb", opener=open_file) as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        self._keep_previous()
        os.replace(temporary, self.path)
        sync_folder(folder)

    def _keep_previous(self) -> None:
        backup = self.path + ".bak"
        with contextlib.suppress(FileNotFoundError):
            if os.path.getsize(self.path):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(backup)
                try:
                    os.link(self.path, backup)
                except OSError:
                    # No hard links here: for a moment only the .bak is there, which a load takes.
                    os.replace(self.path, backup)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreUnreadable(path, error) from error


class LatestFile(ConfigFile):
    """One whose previous version must not be taken for the present one: it has no .bak."""

    def load(self) -> Any | None:
        """See ConfigFile. Raises: StoreUnreadable, also for an empty file."""
        try:
            return fastjson.loads(_content(self.path))
        except FileNotFoundError:
            return None
        except fastjson.FastjsonError as error:
            raise StoreUnreadable(
                self.path, f"{error}. Restore it, or move it away to start without it"
            ) from error

    def _keep_previous(self) -> None:
        """Nothing is kept."""


class OffsetFile(ConfigFile):
    """The file of the groups' offsets, and the other one that a RocketMQ broker with enableLmq has.

    The newer one is read; both are written, so a RocketMQ broker resumes from here with either setting.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(os.path.join(folder, OFFSETS))
        self._folder = folder
        self._lmq = ConfigFile(os.path.join(folder, LMQ_OFFSETS))
        # What else the other file holds; None without that file.
        self._more: dict[str, Any] | None = None

    def load(self) -> Any | None:
        """See ConfigFile."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            names = []
        if not {LMQ_OFFSETS, f"{LMQ_OFFSETS}.bak"} & {*names}:
            return super().load()
        value = self._lmq.load()
        self._more = value if isinstance(value, dict) else {}
        if file_of_offsets(self._folder, names) == OFFSETS:
            value = super().load()
        log.info(
            "offsets are those of %s, the newer file of %s and %s",
            file_of_offsets(self._folder, names),
            OFFSETS,
            LMQ_OFFSETS,
        )
        return value

    def save(self, value: Any) -> None:
        """See ConfigFile."""
        super().save(value)
        if self._more is not None:
            self._lmq.save({**self._more, **value})
