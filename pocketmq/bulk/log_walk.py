"""Walks a commit log file by the records' sizes, for stores without ConsumeQueue.

Without an index the reader drops what an index would not point to: half and rolled-back transaction records.
The walk ends at the end mark of the file, or at the first thing that is not a record: the end of the log,
behind which there may be stale bytes.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from pocketmq.bulk.columns.arrays import Int64s
from pocketmq.model.record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    POSITION_AND_FLAG,
    POSITION_AT,
    RECORD_SIZE_MIN,
    SIZE_AND_MAGIC,
    read_record,
)
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.flags import TRANSACTION_MASK, MessageSysFlag

_UNINDEXED = (int(MessageSysFlag.TRANSACTION_PREPARED), int(MessageSysFlag.TRANSACTION_ROLLBACK))


def record_starts(data: pa.Buffer) -> Int64s:
    """Return where records begin in joined records, such as pull replies.

    Raises: MessageCodecError if anything in between is not a record.
    """
    starts: list[int] = []
    at, end = 0, data.size
    unpack = SIZE_AND_MAGIC.unpack_from
    while at + RECORD_SIZE_MIN <= end:
        size, magic = unpack(data, at)
        if size < RECORD_SIZE_MIN or (magic != MAGIC_V1 and magic != MAGIC_V2):
            raise MessageCodecError(f"no record at byte {at}: magic {magic & 0xFFFFFFFF:08X}")
        starts.append(at)
        at += size
    if at != end:
        raise MessageCodecError(f"the last record ends at byte {at}, but the data ends at {end}")
    return np.array(starts, np.int64)


def walk(data: pa.Buffer, first: int, on_torn: Callable[[int, str], None]) -> tuple[Int64s, Int64s]:
    """Return starts and sizes of the records that a consumer could see, in the log's order.

    data: the log from position `first` to the end of a file, beginning with a record. on_torn: called with
    the position and the reason if the walk ends at anything but an end mark or zeros.
    """
    starts, sizes, _ = walk_piece(data, first, on_torn, is_last=True)
    return starts, sizes


def walk_piece(
    data: pa.Buffer, first: int, on_torn: Callable[[int, str], None], *, is_last: bool
) -> tuple[Int64s, Int64s, int]:
    """Like walk(), for a piece of a file. is_last: it is the last piece.

    Returns: also where the next piece begins, in bytes of this one; -1 if the walk has ended.
    """
    starts: list[int] = []
    sizes: list[int] = []
    at, end, ended = 0, data.size, is_last
    head, rest = SIZE_AND_MAGIC.unpack_from, POSITION_AND_FLAG.unpack_from
    while at + RECORD_SIZE_MIN <= end:
        size, magic = head(data, at)
        if magic == MAGIC_BLANK:
            is_last, ended = True, True
            break
        if not is_last and at + size > end and magic in (MAGIC_V1, MAGIC_V2):
            break
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_SIZE_MIN or at + size > end:
            if size or magic:
                _report_torn(first + at, size, on_torn)
            is_last, ended = True, True
            break
        position, sys_flag = rest(data, at + POSITION_AT)
        if position != first + at:
            _report_torn(first + at, size, on_torn)
            is_last, ended = True, True
            break
        if sys_flag & TRANSACTION_MASK not in _UNINDEXED:
            starts.append(at)
            sizes.append(size)
        at += size
    if starts and is_last:
        _drop_torn_end(data, starts, sizes, first, on_torn)
    return np.array(starts, np.int64), np.array(sizes, np.int64), -1 if ended else at


def _drop_torn_end(
    data: pa.Buffer,
    starts: list[int],
    sizes: list[int],
    first: int,
    on_torn: Callable[[int, str], None],
) -> None:
    """Drop the last record before the end of the log if its size is there but not all of its bytes."""
    while starts:
        at = starts[-1]
        try:
            read_record(memoryview(data.slice(at, sizes[-1])))
        except MessageCodecError as error:
            on_torn(first + at, f"the last record is not whole: {error}")
            starts.pop()
            sizes.pop()
        else:
            return


def _report_torn(position: int, size: int, on_torn: Callable[[int, str], None]) -> None:
    on_torn(position, f"the log ends with bytes that are not a record (size {size})")
