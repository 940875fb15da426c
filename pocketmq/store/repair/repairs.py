"""Repairs: damaged places in the middle of a log become records that every broker skips. PocketMQ only.

A RocketMQ broker takes the first bad record for the end of its log, and cuts off what is behind it. So a
damaged place is overwritten with fillers: records without an entry in queues or index, as rolled-back
transactions are, or, up to the end of a file, with that file's end mark.

1. Only a place below the sure end is filled. Of a RocketMQ store that is the end of the last intact record
   which an entry of a queue points to: behind it may be stale records of an earlier truncation, which look
   intact, and recovery ends the log there, as RocketMQ does. Of our own store it is its last record.
2. A copy of the damaged bytes is on the disk before they are overwritten.
Source: CommitLog.recoverNormally, checkMessageAndReturnSize, 4.9.7.
"""

import json
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from pocketmq.files.layout import BLANK_SIZE, ENTRY, ENTRY_SIZE, LOST_FOUND, is_file_name
from pocketmq.files.records import Damage, Entry
from pocketmq.model.record import MAGIC_BLANK, MAGIC_V1, Record, body_crc, write_record
from pocketmq.store.repair.reader import StoreReader

FILLER_TOPIC = "POCKETMQ_DAMAGED"
_ROLLED_BACK = 0xC
_HOST = bytes(8)
_FILLER_MAX = 1 << 20
_GAPS = "gaps.jsonl"


def sure_end(store: StoreReader) -> int:
    """Return the position below which nothing is stale (invariant 1)."""
    end = 0
    for queue in store.queues():
        for index in range(queue.end_index() - 1, queue.first_index - 1, -1):
            entry = queue.entry(index)
            if entry.size == BLANK_SIZE or entry.position + entry.size <= end:
                continue
            record = store.record_at(entry.position)
            if isinstance(record, Entry) and record.size == entry.size:
                end = entry.position + entry.size
                break
        queue.close()
    if store.checkpoint.ours:
        for found in store.walk(end, sure_end=store.log_end):
            if isinstance(found, Entry):
                end = found.position + found.size
    return end


def filler(size: int, position: int, store_ms: int) -> bytes | None:
    """Return a record of `size` bytes that is in no queue; None if none is so small."""
    empty = _filler(b"", position, store_ms)
    if size < len(empty):
        return None
    return _filler(bytes(size - len(empty)), position, store_ms)


def _filler(body: bytes, position: int, store_ms: int) -> bytes:
    return write_record(
        Record(
            size=0,
            magic=MAGIC_V1,
            body_crc=body_crc(body),
            queue_id=0,
            flag=0,
            queue_offset=0,
            position=position,
            sys_flag=_ROLLED_BACK,
            born_ms=store_ms,
            born_host=_HOST,
            store_ms=store_ms,
            store_host=_HOST,
            reconsume_times=0,
            prepared_offset=0,
            body=memoryview(body),
            topic=FILLER_TOPIC,
            properties=b"",
        )
    )


def fillers(place: Damage, file_end: int, store_ms: int) -> bytes | None:
    """Return what a damaged place is overwritten with; None if no record is so small."""
    end = place.position + place.size
    if end == file_end:
        return struct.pack(">iI", place.size, MAGIC_BLANK & 0xFFFF_FFFF)
    made: list[bytes] = []
    at = place.position
    while at < end:
        left = end - at
        # What remains for the last one must be large enough for a record.
        size = left if left <= 2 * _FILLER_MAX else _FILLER_MAX
        one = filler(size, at, store_ms)
        if one is None:
            return None
        made.append(one)
        at += size
    return b"".join(made)


class Repairs:
    """The damaged places of a store below its sure end.

    Attributes: places; unfilled (those too small for a record).
    """

    def __init__(self, store: StoreReader, found: Iterable[Entry | Damage]) -> None:
        """found: a walk to the sure end."""
        self._log = Path(store.log_files[0].path).parent if store.log_files else store.root
        self._fills: list[tuple[Path, int, bytes]] = []
        self.places: list[Damage] = []
        self.unfilled: list[Damage] = []
        store_ms = 0
        for each in found:
            if isinstance(each, Entry):
                store_ms = each.store_ms
                continue
            file = store.log_file_of(each.position)
            assert file is not None
            self.places.append(each)
            data = fillers(each, file.end, store_ms or _store_ms_behind(store, each))
            if data is None:
                self.unfilled.append(each)
            else:
                self._fills.append((Path(file.path), each.position - file.first, data))

    def set_aside(self, store: StoreReader, folder: Path) -> None:
        """Copy the damaged bytes, each place to a file named by its position, with a list of the reasons."""
        if not self.places:
            return
        folder.mkdir()
        rows: list[str] = []
        for place in self.places:
            name = f"{place.position:020d}"
            _write(folder / name, bytes(store.bytes_at(place.position, place.size)))
            row = {"position": place.position, "size": place.size, "why": place.why, "file": name}
            rows.append(json.dumps(row) + "\n")
        _write(folder / "damaged.jsonl", "".join(rows).encode())

    def fill(self) -> None:
        """Overwrite them; call set_aside first."""
        for path, at, data in self._fills:
            _overwrite(path, at, data)


def note_gaps(root: Path, kept: Path, bridged: bool) -> None:
    """Write the queue offsets whose messages are lost to `kept`; read by `gaps`.

    Args: bridged: their entries are to point to the next message of their queue, for RocketMQ, which skips
    whole batches behind an entry without a record. Its clients keep messages by their offset, so none is
    consumed twice for it.
    """
    is_whole = (root / "commitlog" / f"{0:020d}").exists()
    noted: list[str] = []
    for folder in (root / "consumequeue").glob("*/*"):
        if folder.parent.name == LOST_FOUND or not folder.name.isdecimal():
            continue
        files = sorted(path for path in folder.iterdir() if is_file_name(path.name))
        seen = is_whole
        lost: list[tuple[Path, int]] = []
        for path in files:
            data = path.read_bytes()
            for at in range(0, len(data) // ENTRY_SIZE * ENTRY_SIZE, ENTRY_SIZE):
                position, size, _ = ENTRY.unpack_from(data, at)
                if position == 0 and size == 0:
                    break
                if size == BLANK_SIZE:
                    # In front of a log that begins later, they stand for what was deleted.
                    lost += [(path, at)] if seen else []
                    continue
                seen = True
                for gap, gap_at in lost:
                    offset = (int(gap.name) + gap_at) // ENTRY_SIZE
                    noted.append(json.dumps([folder.parent.name, int(folder.name), offset]) + "\n")
                    if bridged:
                        _overwrite(gap, gap_at, data[at : at + ENTRY_SIZE])
                lost.clear()
    _write(kept / _GAPS, "".join(noted).encode())


def gaps(root: Path) -> dict[tuple[str, int], set[int]]:
    """Return by topic and queue id the offsets of the messages that repairs of this store gave up."""
    found: dict[tuple[str, int], set[int]] = {}
    for path in root.glob(f"before-repair-*/{_GAPS}"):
        for topic, queue_id, offset in map(json.loads, path.read_bytes().splitlines()):
            found.setdefault((topic, queue_id), set()).add(offset)
    return found


def _overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _store_ms_behind(store: StoreReader, place: Damage) -> int:
    following = store.record_at(place.position + place.size)
    return following.store_ms if isinstance(following, Entry) else 0


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
