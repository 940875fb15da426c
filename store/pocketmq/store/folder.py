"""sync_folder: make the names in a folder as durable as the files behind them."""

import os


def sync_folder(path: str) -> None:
    """After this a file made, renamed or removed in `path` stays so. Blocks. Raises: OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
