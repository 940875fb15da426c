"""Fills the file system it is given, reads all back, frees room, continues. Prints what it did as JSON.

    python -m tests.crash.full_disk_writer FOLDER

A process of its own: if a page without a block were ever written, SIGBUS would end it.
"""

import json
import sys
from pathlib import Path

from pocketmq.store import DiskFull, MessageStore
from tests.crash.recorded_store import HOST, open_store, served

SIZES = {"mapped_file_size_commit_log": 4 << 20, "mapped_file_size_consume_queue": 20_000}


def fill(store: MessageStore) -> int:
    """Send to many queues until there is no room. Returns: how many were taken."""
    taken = refused = 0
    while refused < 50:
        try:
            body = b"x" * (taken % 700)
            store.append("Topic", taken % 40, body, b"KEYS\x01k%d\x02" % taken, 0, 0, 1, HOST)
            taken += 1
        except DiskFull:
            refused += 1
    return taken


def main(folder: Path) -> None:
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    store = open_store(folder / "store", **SIZES)
    first = fill(store)
    after_first = len(served(store))
    ballast.unlink()
    second = fill(store)
    after_second = len(served(store))
    store.close()
    store = open_store(folder / "store", **SIZES)
    after_reopen = len(served(store))
    damages = len(store.recovery.damages)
    numbers = [first, after_first, second, after_second, after_reopen, damages]
    sys.stdout.write(json.dumps(numbers))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
