"""TimerCheck: the progress of the timers. Source: TimerCheckpoint, RocketMQ 5.5.0.

    config/timercheck, 4096 bytes, big-endian longs
       0  next second to deliver, ms
       8  position in the timer log up to which log and wheel are on disk
      16  next offset of rmq_sys_wheel_timer to be read
      24  the master's: ours. RocketMQ begins with the lower one of both, and puts what it reads again into
          the wheel: it would come twice
      32  data version: state, time, counter

The file is written in place by one pwrite of 56 bytes: killing the process never leaves it torn.
Owner: TimerService.
"""

import logging
import os
import struct
from dataclasses import astuple, dataclass, replace

from pocketmq.store.log.descriptors import close_file, open_sized
from pocketmq.store.timer.wheel import SLOTS, TimerWheel

log = logging.getLogger(__name__)

_FIELDS = struct.Struct(">7q")
_FILE_SIZE = 4096


@dataclass(slots=True)
class TimerCheck:
    """The fields, in their order."""

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    version_ms: int = 0
    version_counter: int = 0

    def pack(self) -> bytes:
        """Return the 56 bytes, also the answer of GET_TIMER_CHECK_POINT."""
        return _FIELDS.pack(*astuple(replace(self, master_queue_offset=self.queue_offset)))

    @classmethod
    def unpack(cls, data: bytes) -> "TimerCheck":
        """Parse a file's first bytes; all 0 if there are not enough of them."""
        return cls(*_FIELDS.unpack_from(data)) if len(data) >= _FIELDS.size else cls()


def names_second(check: TimerCheck, now_ms: int) -> bool:
    """Return True if the stored next second can be one, or nothing is stored yet."""
    if check.read_ms == 0 and not (check.log_position or check.queue_offset):
        return True
    return 0 < check.read_ms <= now_ms + SLOTS * 1000 and check.read_ms % 1000 == 0


def correct(check: TimerCheck, wheel: TimerWheel, now_ms: int) -> None:
    """Restart from the wheel if the stored next second is invalid: corrupted or lost.

    This does not apply to a clock that was set back: it is behind by less than the wheel's length.
    """
    if names_second(check, now_ms):
        return
    read_ms = check.read_ms
    check.read_ms = wheel.next(0, now_ms)
    log.error(
        "timercheck is damaged: it names no second. Beginning with the first one that the wheel has: what "
        "was delivered in the last days may come once more read_ms=%d begin_ms=%d",
        read_ms,
        check.read_ms,
    )


class TimerCheckFile:
    """The file, created on the first save."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def load(self) -> TimerCheck:
        """Read the file. Raises: OSError."""
        try:
            with open(self._path, "rb") as file:
                return TimerCheck.unpack(file.read(_FIELDS.size))
        except FileNotFoundError:
            return TimerCheck()

    def save(self, check: TimerCheck) -> None:
        """Write the file durably; for the pool. Raises: OSError."""
        if self._descriptor < 0:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._descriptor = open_sized(self._path, _FILE_SIZE)
        os.pwrite(self._descriptor, check.pack(), 0)
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            close_file(self._descriptor)
            self._descriptor = -1
