"""ConfigManager: a table that lives in memory and in one config/*.json file. Source: ConfigManager, 4.9.7.

1. The file is replaced atomically and its last content kept as .bak (ConfigFile of the store).
2. `persist_soon` leaves a change to housekeeping, which writes the table in a thread (offsets). Rows that
   must be on the disk before anybody relies on them are those of a StoredTable (topics, groups).
"""

import asyncio
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
        """Of the file, without its folder."""
        return os.path.basename(self._file.path)

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The whole table as the file holds it."""

    @abstractmethod
    def from_json(self, data: Any) -> None:
        """Take over what a file held; what is not understood is logged and left out."""

    def load(self) -> None:
        """Read the file, if there is one. Raises: StoreUnreadable."""
        data = self._file.load()
        if data is not None:
            self.from_json(data)

    def persist(self) -> None:
        """Write now. Raises: OSError."""
        self.dirty = False
        self._file.save(self.to_json())

    def begin_save(self) -> Callable[[], None]:
        """What the table is now, ready to be written by a thread: call the result there."""
        self.dirty = False
        data = self.to_json()
        return lambda: self._file.save(data)

    def persist_soon(self) -> None:
        """Write within the next round of the persist task."""
        self.dirty = True


async def in_thread(write: Callable[[], None]) -> None:
    """Run it beside the event loop, to its end even when the wait for it is cancelled.

    So nothing that is written afterwards meets it, or is written over by it. Raises: what `write` raises.
    """
    running = asyncio.get_running_loop().run_in_executor(None, write)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
