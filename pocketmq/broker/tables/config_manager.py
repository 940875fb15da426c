"""ConfigManager: a table that lives in memory and in one config/*.json file. Source: ConfigManager, 4.9.7.

1. The file is replaced atomically and its previous content kept as .bak (ConfigFile of the store).
2. `persist_soon` leaves a change to housekeeping, which writes the table in a thread (offsets). Rows that
   must be on disk before any client relies on them belong in a StoredTable (topics, groups).
"""

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from pocketmq.store import ConfigFile

log = logging.getLogger(__name__)


class ConfigManager(ABC):
    """Base of the managers with a file. Subclasses call one of the persist methods after each change."""

    def __init__(self, file: ConfigFile) -> None:
        self._file = file
        self.dirty = False

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return os.path.basename(self._file.path)

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the whole table as stored in the file."""

    @abstractmethod
    def from_json(self, data: Any) -> None:
        """Load a file's content; entries that are not understood are logged and skipped."""

    def load(self) -> None:
        """Read the file if it exists. Raises: StoreUnreadable."""
        data = self._file.load()
        if data is not None:
            self.from_json(data)

    def persist(self) -> None:
        """Write the file now. Raises: OSError."""
        self.dirty = False
        self._file.save(self.to_json())

    def begin_save(self) -> Callable[[], None]:
        """Snapshot the table; the returned function writes it and may be called in a thread."""
        self.dirty = False
        data = self.to_json()
        return lambda: self._file.save(data)

    def persist_soon(self) -> None:
        """Have the next round of the persist task write the file."""
        self.dirty = True
