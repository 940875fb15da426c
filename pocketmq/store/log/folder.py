"""sync_folder: makes the names in a folder as durable as the files behind them."""

import os

from pocketmq.store.log.descriptors import close_file, open_file


def open_folder(path: str) -> int:
    """Return a descriptor for sync_opened. Raises: OSError."""
    return open_file(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_opened(descriptor: int) -> None:
    """Like sync_folder; closes the descriptor. Blocks. Raises: OSError."""
    try:
        os.fsync(descriptor)
    finally:
        close_file(descriptor)


def sync_folder(path: str) -> None:
    """Make file creations, renames and removals in `path` durable. Blocks. Raises: OSError."""
    sync_opened(open_folder(path))
