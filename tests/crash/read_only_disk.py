"""A broker on an ext4 that its kernel makes read-only, as after an error of the disk. Prints JSON.

    python -m tests.crash.read_only_disk FOLDER

It is mounted here: root, in a name space of its own, see test_full_disk. The broker is another process, so
that the file system can be checked and mounted anew.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.broker.serving import Peer, serving
from tests.crash.full_disk_broker import KEPT
from tests.faults.test_disk_faults import Work, nothing_missing, pulled, settings
from tests.kit.waiting import until_async

_ROUNDS = 3


def how() -> dict[str, Any]:
    found = settings()
    found["store"].update(KEPT)
    return found


def call(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, stdout=subprocess.DEVNULL)


def give_error(folder: Path) -> None:
    """Let the kernel find an error in a file system."""
    rows = [line.split() for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    device = next(Path(row[0]).name for row in rows if row[1] == str(folder))
    Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("1", "ascii")


async def broken(disk: Path) -> None:
    """Work, until and after the disk becomes read-only. Says what was acknowledged, before and after."""
    async with serving(disk / "store", **how()) as broker, await Peer.at(broker) as peer:
        work = Work(peer)
        await work.round()
        await until_async(lambda: nothing_missing(work, peer), what="all come")
        before = set(work.sure)
        give_error(disk)
        work.number = 100
        for _ in range(_ROUNDS):
            await work.round()
            found = {
                ("Topic", each) for queue in (0, 1) for each in await pulled(peer, "Topic", queue)
            }
            assert {each for each in before if each[0] == "Topic"} <= found
        assert not broker.parts.messages.store.writable
        sure = [[topic, body.hex()] for topic, body in work.sure]
        sys.stdout.write(json.dumps([len(before), sure]))
        sys.stdout.flush()


async def mended(disk: Path, sure: list[list[str]]) -> tuple[int, bool]:
    async with serving(disk / "store", **how()) as broker, await Peer.at(broker) as peer:
        work = Work(peer)
        work.sure = {(topic, bytes.fromhex(body)) for topic, body in sure}
        return len(await work.missing(peer)), await work.send("Last")


def main(folder: Path) -> None:
    image, disk = folder / "image", folder / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    call("mkfs.ext4", "-q", "-F", str(image))
    call("mount", "-o", "loop,errors=remount-ro", str(image), str(disk))
    command = [sys.executable, "-m", "tests.crash.read_only_disk", str(disk), "work"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    before, sure = json.loads(done.stdout)
    call("umount", str(disk))
    call("e2fsck", "-fy", str(image), check=False)
    call("mount", "-o", "loop,errors=remount-ro", str(image), str(disk))
    lost, again = asyncio.run(mended(disk, sure))
    sys.stdout.write(json.dumps([before, len(sure), lost, int(again)]))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        asyncio.run(broken(Path(sys.argv[1])))
    else:
        main(Path(sys.argv[1]))
