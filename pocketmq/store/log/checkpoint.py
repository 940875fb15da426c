"""checkpoint: the positions up to which log, queues and index are known to be on disk.

    position  field                                            written by
           0  store time of the last flushed commit log record  4.9, 5.x, us
           8  store time of the last flushed queue entry        4.9, 5.x, us
          16  store time up to which the index is on the disk   4.9, 5.x, us
          24  master flushed offset                             5.x (kept as it is)
          32  confirm position                                  5.x (kept as it is)
          40  log position whose queue entries are flushed      5.x, us
        2048  "PocketMQ", then our own fields (_OWN)            us
        4092  CRC-32 of everything before                       us

1. 4096 bytes. The CRC covers RocketMQ's fields too: once a RocketMQ broker has written this file, the CRC is
   wrong, which shows that one wrote the store last (`ours` is False).
2. Replaced by one write of consecutive sectors and fdatasync; a torn one fails its CRC and only makes
   recovery longer.
Owner: Flush; read by Recovery. Source: StoreCheckpoint, RocketMQ 4.9.7 and 5.5.0; disk.md 8.
"""

import os
import struct
import zlib
from dataclasses import dataclass

from pocketmq.store.log.descriptors import close_file, open_file

SIZE = 4096
# How far behind the flushed end every start checks again; small stores are checked whole.
MARGIN = 1 << 20
_TIMES = struct.Struct(">qqqqqq")
_OWN_AT = 2048
# magic, version, flushed position, indexed position, commit log and consume queue file size, boundary
_OWN = struct.Struct(">8siqqqqq")
_VERSION = 2
_MAGIC = b"PocketMQ"
_CRC_AT = SIZE - 4


@dataclass
class Checkpoint:
    """Times in ms, positions in bytes of the commit log; 0 means unknown."""

    log_ms: int = 0
    queue_ms: int = 0
    index_ms: int = 0
    master_flushed: int = 0
    confirm_position: int = 0
    queue_position: int = 0
    # Only in a file that we wrote last:
    ours: bool = False
    flushed_position: int = 0
    indexed_position: int = 0
    log_file_size: int = 0
    queue_file_size: int = 0
    # A record begins there, some way before flushed_position; -1 in a file of version 1.
    boundary: int = -1
    path: str = ""

    @classmethod
    def load(cls, path: str) -> "Checkpoint":
        """Return the content of the file; all 0 if it is absent or too short."""
        try:
            with open(path, "rb") as file:
                data = file.read(SIZE)
        except FileNotFoundError:
            return cls(path=path)
        if len(data) < _TIMES.size:
            return cls(path=path)
        found = cls(*_TIMES.unpack_from(data))
        found.path = path
        if len(data) == SIZE and data[_OWN_AT : _OWN_AT + 8] == _MAGIC:
            (crc,) = struct.unpack_from(">I", data, _CRC_AT)
            if zlib.crc32(data[:_CRC_AT]) == crc:
                (
                    _,
                    version,
                    found.flushed_position,
                    found.indexed_position,
                    found.log_file_size,
                    found.queue_file_size,
                    boundary,
                ) = _OWN.unpack_from(data, _OWN_AT)
                found.boundary = boundary if version >= _VERSION else -1
                found.ours = True
        return found

    def save(self) -> None:
        """Write the file and sync it. Blocks. Raises: OSError."""
        data = bytearray(SIZE)
        _TIMES.pack_into(
            data,
            0,
            self.log_ms,
            self.queue_ms,
            self.index_ms,
            self.master_flushed,
            self.confirm_position,
            self.queue_position,
        )
        _OWN.pack_into(
            data,
            _OWN_AT,
            _MAGIC,
            _VERSION,
            self.flushed_position,
            self.indexed_position,
            self.log_file_size,
            self.queue_file_size,
            self.boundary,
        )
        struct.pack_into(">I", data, _CRC_AT, zlib.crc32(data[:_CRC_AT]))
        descriptor = open_file(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.pwrite(descriptor, data, 0)
            os.fdatasync(descriptor)
        finally:
            close_file(descriptor)
