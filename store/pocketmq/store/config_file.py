"""ConfigFile: config/*.json, replaced atomically.

1. A save writes NAME.tmp, syncs it, keeps the old file as NAME.bak, renames, and syncs the folder: at every
   moment NAME or NAME.bak is whole.
2. A load reads NAME, or NAME.bak if NAME is missing, empty or not JSON, which is logged.
3. Read: JSON and fastjson's dialect (integer keys without quotes); written: integer keys without quotes,
   as RocketMQ writes and reads them.
Owner: its creator; one writer per file. Source: ConfigManager, RocketMQ 4.9.7.
"""

import contextlib
import logging
import os
from typing import Any

from pocketmq.files.side_file import SideFileBroken, read_or_backup
from pocketmq.remoting import fastjson
from pocketmq.store.descriptors import open_file
from pocketmq.store.errors import StoreUnreadable
from pocketmq.store.folder import sync_folder

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

    @staticmethod
    def encode(value: Any) -> bytes:
        """Encode `value` as save() writes it."""
        return fastjson.dumps(value)

    def save(self, value: Any) -> None:
        """Replace the file. Blocks. Raises: OSError."""
        self.write(self.encode(value))

    def write(self, data: bytes) -> None:
        """Replace the file by encoded bytes; for the pool. Blocks. Raises: OSError."""
        folder = os.path.dirname(self.path)
        os.makedirs(folder, exist_ok=True)
        temporary = self.path + ".tmp"
        with open(temporary, "wb", opener=open_file) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
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
        os.replace(temporary, self.path)
        sync_folder(folder)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreUnreadable(path, error) from error
