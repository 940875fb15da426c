"""What the names and sizes of a store's files show: whether the log is whole, and what is in the way."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from pocketmq.files.layout import LOST_FOUND, FileSpan
from pocketmq.store.errors import StoreForeign
from pocketmq.store.findings import FindingCode, Problem, problem
from pocketmq.store.log.checkpoint import SIZE as CHECKPOINT_SIZE
from pocketmq.store.repair.reader import StoreReader
from pocketmq.store.repair.unsupported import refuse_foreign


def break_in(files: Sequence[FileSpan], file_size: int = 0) -> str:
    """Return what breaks a sequence of files of one size, the last one may be shorter; empty if nothing does.

    file_size: what the store's own records say, in bytes; 0 if nothing is known.
    """
    size = file_size or (files[1].first - files[0].first if len(files) > 1 else 0)
    for file, following in pairwise(files):
        if file.first + size != following.first:
            return f"{file.first + size:020d} is missing before {following.first:020d}"
        if file.size != size:
            return f"{file.first:020d} has {file.size} bytes instead of {size}"
    if files and files[-1].size > size > 0:
        return f"{files[-1].first:020d} has {files[-1].size} bytes instead of {size}"
    return ""


def check_foreign(store: StoreReader) -> Iterator[Problem]:
    """Find what keeps PocketMQ from opening the folder."""
    try:
        refuse_foreign(str(store.root))
    except StoreForeign as error:
        yield problem(FindingCode.FOREIGN, "config", 0, str(error))


def check_log_files(store: StoreReader) -> Iterator[Problem]:
    """Find what is wrong with the log as a row of files; with LOG_MISSING and LOG_FILES it is unreadable."""
    files = store.log_files
    if not files:
        if any(queue.end_index() > queue.first_index for queue in store.queues()):
            yield problem(FindingCode.LOG_MISSING, "commitlog", 0)
        return
    size = store.checkpoint.log_file_size
    if broken := break_in(files, size):
        yield problem(FindingCode.LOG_FILES, "commitlog", 0, broken)
        return
    size = size or files[0].size
    if files[-1].size < size:
        what = f"the last file has {files[-1].size} bytes instead of {size}"
        yield problem(
            FindingCode.LOG_SHORT, f"commitlog/{files[-1].first:020d}", files[-1].size, what
        )


def check_checkpoint(store: StoreReader, records_end: int) -> Iterator[Problem]:
    """Find a checkpoint that no start can use, or that knows more of the log than there is.

    records_end: behind the last record, a position in bytes.
    """
    path = store.root / "checkpoint"
    size = path.stat().st_size if path.is_file() else -1
    # A broker that has only begun to run has not written one.
    if store.log_files and size < CHECKPOINT_SIZE and not (size < 0 and store.was_not_stopped):
        what = "it is missing" if size < 0 else f"it has {size} bytes instead of {CHECKPOINT_SIZE}"
        yield problem(FindingCode.CHECKPOINT_SHORT, "checkpoint", max(0, size), what)
    known = store.checkpoint.flushed_position
    if known > max(records_end, store.log_start):
        what = (
            f"{known} bytes of the log were on the disk, but its last record ends at {records_end}: "
            f"{known - records_end} bytes are lost"
        )
        yield problem(FindingCode.CHECKPOINT_AHEAD, "checkpoint", known - records_end, what)


def check_lost_found(root: Path) -> Iterator[Problem]:
    """Find what a file system's check has put aside, at any level."""
    for folder in sorted(root.rglob(LOST_FOUND)):
        names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
        if names:
            where = str(folder.relative_to(root))
            yield problem(FindingCode.LOST_FOUND, where, 0, f"it holds {', '.join(names[:5])}")
