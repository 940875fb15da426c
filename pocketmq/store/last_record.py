"""The last record of a log before a position, found from there: a file holds millions of records."""

from pocketmq.files.records import Entry, next_record
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.mapped_file import MappedFile

# How far it looks back at first, bytes: then the whole file.
_LOOKS_BACK = (64 << 10, 1 << 20, 8 << 20)


def last_record_before(log: CommitLog, position: int) -> tuple[int, int] | None:
    """Return position and size of the last record that ends at or before `position`; None without one."""
    while position > 0 and (file := log.files.file_at(position - 1)) is not None:
        for size in (*_LOOKS_BACK, file.size):
            found = _last_from(log, file, max(file.start, position - size), position)
            if found is not None:
                return found
        position = file.start
    return None


def boundary_before(log: CommitLog, position: int) -> int:
    """Return the last record end at or before `position`, at least the beginning of its file."""
    file = log.files.file_at(position)
    found = log.min_position if file is None else file.start
    for record in log.walk(found, position, check_crc=False):
        if not isinstance(record, Entry) or record.position + record.size > position:
            break
        found = record.position + record.size
    return found


def _last_from(log: CommitLog, file: MappedFile, begin: int, end: int) -> tuple[int, int] | None:
    """Return the last record between two positions of a file."""
    first = begin - file.start
    if first:
        found = next_record(file.view, first, end - file.start, file.start)
        if found is None:
            return None
        first = found
    last = None
    for record in log.walk(file.start + first, end, check_crc=False):
        if not isinstance(record, Entry) or record.position + record.size > end:
            break
        last = record.position, record.size
    return last
