"""sync_folder: make the names in a folder as durable as the files behind them."""

import os

from pocketmq.store.descriptors import close_file, open_file
from pocketmq.store.errors import StoreUnreadable


def sync_folder(path: str) -> None:
    """After this a file made, renamed or removed in `path` stays so. Blocks.

    Raises: StoreUnreadable when the folder cannot be opened; OSError when the disk refuses.
    """
    try:
        descriptor = open_file(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise StoreUnreadable(path, error) from error
    try:
        os.fsync(descriptor)
    finally:
        close_file(descriptor)
