"""Records in a crashed store's log that its ConsumeQueues do not point to (yet).

1. `abort` exists in a store while a broker runs, and after a crash. A running broker indexes at once and
   shares its pages with us, so only a store that no process here holds open is examined.
2. What was stored before the checkpoint's times, less 3 s, is in the queues. Recovery dispatches everything
   from there again; so do we. Source: StoreCheckpoint.getMinTimestamp, CommitLog.recoverAbnormally, RocketMQ
   4.9.7 and 5.5.0.
3. The walk ends at the first thing that is not a record, as recovery's does, and at a record that is older
   than those before it: it was left behind the end by an earlier truncation.
4. A record's queue offset continues where its queue ends; offsets in between are lost.
"""

import os
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from pocketmq.bulk.columns.arrays import Int64s
from pocketmq.bulk.columns.decode import decode
from pocketmq.bulk.log_walk import walk
from pocketmq.bulk.offsets import LossRule
from pocketmq.bulk.planning.bounds import FileBounds, store_ms
from pocketmq.bulk.store import StoreSnapshot
from pocketmq.files.layout import CHECKPOINT_TIMES, surely_indexed_ms
from pocketmq.model.record import WRAPPED_BATCH

_ASKED = 16
_NEVER = 1 << 62
_COLUMNS = ("topic", "queueId", "queueOffset", "storeTimestamp", "commitLogOffset", "sysFlag")


def is_held(store: StoreSnapshot) -> bool:
    """Return True if a process of this machine has the store open, by the lock on its file `lock`.

    The file is not opened: closing it would drop the lock of a broker in this very process.
    """
    try:
        status = os.stat(f"{store.base}/lock")
        with open("/proc/locks", encoding="ascii") as file:
            locks = file.read()
    except (OSError, ValueError):
        return False
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any(place in line.split() for line in locks.splitlines())


def find_tails(
    store: StoreSnapshot,
    bounds: dict[tuple[str, int], FileBounds],
    wanted: Callable[[str, int], bool],
    loss: LossRule,
) -> None:
    """Add what the log holds behind the index to the bounds of a crashed store's queues.

    bounds: by topic and queue id; queues known only to the log are added.
    """
    start = _walk_start(store, list(bounds.values()))
    newest_ms = 0
    for file in store.log_files:
        at = max(start, file.first)
        if at >= file.first + file.size:
            continue
        torn: list[int] = []
        data = store.open_log(file).read(at - file.first, file.size)
        starts, sizes = walk(data, at, partial(_note, torn))
        rows = decode(data, starts, _COLUMNS, on_bad=_never, broker_name="")
        newest_ms, whole = _up_to_older(rows, newest_ms)
        rows = rows.slice(0, whole)
        ends = {key: one.max_offset for key, one in bounds.items()}
        times = _ms(rows)
        for number in _behind(rows, ends, wanted).tolist():
            row = rows.slice(number, 1).to_pylist()[0]
            key = (row["topic"], row["queueId"])
            one = bounds.get(key)
            if one is None:
                one = bounds[key] = FileBounds(store, store.queue(*key), loss)
            _add(one, row, int(times[number]), int(sizes[number]), loss)
        if whole < len(starts):
            return
        if torn:
            return


def _up_to_older(rows: pa.RecordBatch, newest_ms: int) -> tuple[int, int]:
    """Return the newest store time, and the rows before the first older one (invariant 3)."""
    if not rows.num_rows:
        return newest_ms, 0
    times = _ms(rows)
    so_far = np.maximum.accumulate(np.concatenate([[newest_ms], times]))
    older = np.flatnonzero(times < so_far[:-1])
    whole = int(older[0]) if len(older) else len(times)
    return int(so_far[whole]), whole


def _behind(
    rows: pa.RecordBatch,
    ends: Mapping[tuple[str, int], int],
    wanted: Callable[[str, int], bool],
) -> Int64s:
    """Return the rows of wanted queues at or behind their ends, filtering without Python per row."""
    topics = rows.column("topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    queue_ids = rows.column("queueId").to_numpy().astype(np.int64)
    keys = topics.indices.to_numpy().astype(np.int64) << 32 | queue_ids
    distinct, which = np.unique(keys, return_inverse=True)
    known = [(names[key >> 32], key & 0xFFFF_FFFF) for key in distinct.tolist()]
    limits = np.array([ends.get(k, 0) if wanted(*k) else _NEVER for k in known], np.int64)
    offsets = rows.column("queueOffset").to_numpy()
    return np.flatnonzero(offsets >= limits[which]) if len(known) else np.zeros(0, np.int64)


def _ms(rows: pa.RecordBatch) -> Int64s:
    times: Int64s = rows.column("storeTimestamp").cast(pa.int64()).to_numpy() // 1000
    return times


def _note(torn: list[int], position: int, reason: str) -> None:
    torn.append(position)


def _never(place: int, reason: str) -> None:
    raise AssertionError(f"{reason} at {place}, although the scan of the log has seen it")


def _add(one: FileBounds, row: Mapping[str, Any], ms: int, size: int, loss: LossRule) -> None:
    """Add a record behind the end of its queue, unless the queue has it (invariant 4)."""
    topic, queue_id, offset = row["topic"], row["queueId"], row["queueOffset"]
    position = row["commitLogOffset"]
    if offset < one.max_offset:
        return
    if one.queue.batch or row["sysFlag"] & WRAPPED_BATCH == WRAPPED_BATCH:
        loss.lost(
            f"topic {topic}, queue {queue_id}: the broker stopped before it had indexed all "
            f"batches of its log; start the broker once, and it completes the queue",
            "commitlog",
            position,
        )
        return
    if offset > one.max_offset:
        if one.min_offset < one.max_offset:
            loss.lost(
                f"topic {topic}, queue {queue_id}: offsets {one.max_offset}..{offset} are neither in the "
                "queue nor in the log",
                "commitlog",
                position,
            )
            # What cannot be joined to the queue stays out.
            return
        one.move_to(offset)
    one.add_behind(position, size, ms)


def _walk_start(store: StoreSnapshot, bounds: list[FileBounds]) -> int:
    """Return a record's position before everything unindexed (invariant 2)."""
    try:
        opened = store.folders.open(f"{store.base}/checkpoint")
        times = CHECKPOINT_TIMES.unpack(opened.read(0, CHECKPOINT_TIMES.size).to_pybytes())
    except (FileNotFoundError, struct.error):
        return store.log_start
    indexed_ms = surely_indexed_ms(*times)
    start = store.log_start
    if indexed_ms <= 0:
        return start
    for file in store.log_files:
        first_ms = store_ms(store, file.first)
        if first_ms and first_ms < indexed_ms:
            start = file.first
    used = [(b.span(b.high - 1, b.high)[0], n) for n, b in enumerate(bounds) if b.high > b.low]
    for _, number in sorted(used)[-_ASKED:]:
        one = bounds[number]
        index = one.index_at_time(indexed_ms)
        if index > one.low:
            start = max(start, one.span(index - 1, index)[0])
    return start
