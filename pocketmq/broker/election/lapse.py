"""Lapse: whether this log may lack what this broker has reported: its machine lost power, and a part of the
log was only in memory. Other brokers have that part, and would lose it to this one's log were it elected.

1. A broker that may lack something sends no heartbeats: no controller elects it, or keeps it as the master.
   RocketMQ's takes part, as the master, too, and every broker cuts what this one lacks.
2. It lacks nothing any more once it has all that another master's log had when it began to follow, or when it
   led and no other broker was in sync, or when an operator designates it.
3. One that was elected while it was down cannot know who was in sync before: any broker may have more. It
   has the one elected that has most, once all have answered.
4. If every broker that may have more may lack something, too, the longest of their logs leads.
A file says so until then, also over restarts; in it is the last epoch of the log as it was.
"""

import asyncio
import contextlib
import os

from pocketmq.broker.election.verdict import Elected
from pocketmq.store.log.folder import sync_folder

FILE_NAME = "mayLack"


class Lapse:
    """Owner of the file. over: set unless this log may lack something."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, FILE_NAME)
        self._last_epoch = -1
        self.over = asyncio.Event()
        self.over.set()

    @property
    def may_lack(self) -> bool:
        return not self.over.is_set()

    def begin(self, last_epoch: int, *, lost_memory: bool) -> None:
        """Note how the last process ended, or one before it. Raises: OSError, ValueError."""
        if lost_memory and not os.path.exists(self._path):
            with open(self._path, "w", encoding="ascii") as file:
                file.write(str(last_epoch))
                file.flush()
                os.fsync(file.fileno())
            sync_folder(os.path.dirname(self._path))
        with contextlib.suppress(FileNotFoundError), open(self._path, encoding="ascii") as file:
            self._last_epoch = int(file.read() or -1)
            self.over.clear()

    def has_led(self, verdict: Elected) -> bool:
        """Return True if this broker led when the verdict's set was in sync (invariant 3)."""
        # An epoch without a master follows the one that it led in.
        return self._last_epoch >= verdict.master_epoch - (verdict.master_id is None)

    def end(self) -> None:
        """Lack nothing any more. A crash that brings the file back only makes this broker wait again."""
        if self.may_lack:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            self.over.set()
