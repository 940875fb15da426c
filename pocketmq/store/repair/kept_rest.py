"""What is cut off the end of the log is kept in files under `dropped`: no byte is lost without a copy."""

import logging
import os

from pocketmq.model.record import MAGIC_BLANK, magic_of
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.folder import sync_folder

log = logging.getLogger(__name__)

_KEPT_MAX = 64 << 20


def _kept_as(name: str, rest: memoryview) -> str:
    """Write a file that is on the disk before the log is cut, and replaces none. Returns: its path."""
    path, number = name, 0
    while True:
        try:
            with open(path, "xb") as copy:
                copy.write(rest)
                copy.flush()
                os.fsync(copy.fileno())
        except FileExistsError:
            number += 1
            path = f"{name}.{number}"
        else:
            sync_folder(os.path.dirname(path))
            return path


def keep_rest(
    root: str, commit_log: CommitLog, end: int, *, size_max: int = _KEPT_MAX
) -> list[str]:
    """Save what is about to be cut off (invariant 4), one file for each of the log's.

    Args: size_max, bytes kept of one file. Returns: their paths.
    """
    kept: list[str] = []
    for file in commit_log.files.files:
        if file.end <= end:
            continue
        at = max(end - file.start, 0)
        data = file.read(at, min(file.data_end(at) - at, size_max))
        size = len(data.rstrip(b"\0"))
        if not size or magic_of(data) == MAGIC_BLANK:
            continue
        # A record without properties ends with their length: two zeros.
        rest = memoryview(data)[: size + 2]
        folder = os.path.join(root, "dropped")
        os.makedirs(folder, exist_ok=True)
        path = _kept_as(os.path.join(folder, f"commitlog-{file.start + at:020d}"), rest)
        kept.append(path)
        log.warning(
            "truncated the end of the commit log position=%d size=%d kept_in=%s",
            file.start + at,
            len(rest),
            path,
        )
    return kept
