"""A broker whose files of one kind are on a file system of their own, which is full for a while. Prints JSON.

    python -m tests.crash.full_disk_kinds FOLDER KIND...

The file systems are mounted here: root, in a name space of its own, see test_full_disk. Kind by kind, the
others have room. Delays and timers become due all the while.
"""

import asyncio
import json
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.broker.serving import Peer, serving
from tests.crash.full_disk_broker import KEPT
from tests.faults.test_disk_faults import Work, nothing_missing, pulled, settings
from tests.kit.waiting import until_async

_ROUNDS = 3


def mounted(folder: Path) -> Path:
    """A file system of 3 MiB there."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], check=True)
    return folder


def fill(folder: Path) -> Path:
    """Take what room is left, to the last byte."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1 << 9, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    return ballast


async def one(store: Path, kind: str) -> list[int]:
    """Returns: how many were acknowledged before, while it was full, and in all; how many are lost."""
    how = settings()
    how["store"].update(KEPT, enable_consume_queue_ext=True)
    small = mounted(store / kind)
    async with serving(store, **how) as broker, await Peer.at(broker) as peer:
        tasks = broker.parts.messages.store.side_tasks
        tasks.retry_ms = 20
        work = Work(peer)
        await work.round()
        await until_async(partial(nothing_missing, work, peer), what="all come")
        before = set(work.sure)
        ballast = fill(small)
        work.number = 100
        for _ in range(_ROUNDS):
            await work.round()
            # Readers are served.
            found = {
                ("Topic", body) for queue in (0, 1) for body in await pulled(peer, "Topic", queue)
            }
            assert {each for each in before if each[0] == "Topic"} <= found
        full = len(work.sure) - len(before)
        ballast.unlink()
        work.number = 1_000
        await until_async(lambda: work.send("Last"), what=f"messages are taken again ({kind})")
        await until_async(partial(nothing_missing, work, peer), what=f"all come ({kind})")
        await until_async(lambda: not tasks.troubles, what=f"no trouble is left ({kind})")
    async with serving(store, **how) as broker, await Peer.at(broker) as peer:
        lost = len(await work.missing(peer))
    return [len(before), full, len(work.sure), lost]


async def main(folder: Path, kinds: list[str]) -> None:
    said = {kind: await one(folder / f"with-{kind}" / "store", kind) for kind in kinds}
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
