"""sync_folder: make the names in a folder as durable as the files behind them."""

import os

from pocketmq.store.descriptors import close_file, open_file


def open_folder(path: str) -> int:
    """A descriptor for sync_opened. Raises: OSError."""
    return open_file(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_opened(descriptor: int) -> None:
    """As sync_folder; closes the descriptor. Blocks. Raises: OSError."""
    try:
        os.fsync(descriptor)
    finally:
        close_file(descriptor)


def sync_folder(path: str) -> None:
    """After this a file made, renamed or removed in `path` stays so. Blocks. Raises: OSError."""
    sync_opened(open_folder(path))
