"""R7 for what is written through memory maps: the process ends amid such a write."""

import asyncio
import errno
import mmap
import os
import shutil
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from pocketmq.cli.__main__ import version
from pocketmq.store import StoreUnreadable
from tests.broker.serving import At, Peer, serving
from tests.cli.servers import Server
from tests.faults.faulty_disk import FaultyDisk
from tests.faults.test_disk_faults import Work, as_killed, settings
from tests.faults.torn_maps import TornMaps
from tests.kit.waiting import until_async
from tests.store.stores import open_store, read_all, send

# Its functions have no frames while they run, so that neither a place nor a dump names them.
_IS_COMPILED = "(compiled)" in version()

_ROUNDS = 8
# Of one place in the program, the first and some later ones.
_EACH = (1, 7)
_EVERY = 40


WRITERS = {
    *("appends.append", "appends.append_batch", "commit_log._roll", "log.append"),
    "appends.append_run",
    *("consume_queue.put", "consume_queue.put_many"),
    *("index_file.create", "index_file.put", "index_file.write_header"),
    *("index_columns.put_many", "index_columns._link"),
}


class Images:
    """The store as it was amid writes, each with what had been acknowledged by then."""

    def __init__(self, store: Path, folder: Path, numbers: range | tuple[int, ...]) -> None:
        self.made: list[tuple[str, Path, set[tuple[str, bytes]]]] = []
        self.work: Work | None = None
        self._store, self._folder, self._numbers = store, folder, numbers
        self._seen: Counter[str] = Counter()

    def look(self, site: str) -> None:
        self._seen[site] += 1
        if self.work is None or self._seen[site] not in self._numbers:
            return
        image = self._folder / str(len(self.made))
        as_killed(self._store, image)
        self.made.append((site, image, set(self.work.sure)))


async def test_a_process_may_end_amid_any_write_through_a_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """--every-fault: amid the first 40 of each place in the program."""
    every = request.config.getoption("--every-fault")
    (tmp_path / "images").mkdir()
    store = tmp_path / "store"
    images = Images(store, tmp_path / "images", range(1, _EVERY) if every else _EACH)
    with monkeypatch.context() as patch:
        TornMaps(store, patch).on_write = images.look
        async with serving(store, **settings()) as broker, await Peer.at(broker) as peer:
            images.work = work = Work(peer)
            for _ in range(_ROUNDS * (5 if every else 1)):
                await work.round()
            # Runs need numpy, and a connection that sends nothing else takes them soon.
            store_of = broker.parts.messages.store
            await until_async(lambda: store_of.appends.has_numpy)
            async with await Peer.at(broker) as work.peer:
                for _ in range(4):
                    await work.burst()
            images.work = None
    assert images.made
    if not _IS_COMPILED:
        assert {site.split(" ")[0] for site, _, _ in images.made} >= WRITERS
    for site, image, sure in images.made:
        async with serving(image, **settings()) as broker, await Peer.at(broker) as peer:
            work.sure = sure
            await until_async(partial(_nothing, work, peer), what=f"lost, amid {site}")
            work.peer = peer
            assert await work.send("After")
        shutil.rmtree(image)


async def _nothing(work: Work, peer: Peer) -> bool:
    return not await work.missing(peer)


async def test_a_cut_below_a_map_ends_the_broker_with_the_place(
    tmp_path: Path,
) -> None:
    """SIGBUS, as from a page that the disk cannot give; what was acknowledged is there afterwards."""
    words = ("broker", "--port", "0", "--data", "store", "--namesrv", "127.0.0.1:1")
    server = Server(tmp_path, *words)
    try:
        async with await Peer.at(At(server.ready()["broker"])) as peer:
            assert (await peer.produce("Topic", b"before")).code == 0
            [file] = (tmp_path / "store" / "commitlog").glob("0*0")
            os.truncate(file, mmap.PAGESIZE)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await peer.produce("Topic", bytes(2 * mmap.PAGESIZE))
        assert server.end() == -signal.SIGBUS
        assert "Bus error" in server.log_path.read_text()
        if not _IS_COMPILED:
            assert "message_store.py" in server.log_path.read_text()
        server = Server(tmp_path, *words)
        async with await Peer.at(At(server.ready()["broker"])) as peer:
            assert await peer.bodies("g", "Topic") == [b"before"]
            assert (await peer.produce("Topic", b"after")).code == 0
        assert server.stop() == 0
    finally:
        server.kill()


@pytest.mark.parametrize(("file_count", "number"), [(0, 1), (0, 2), (1, 1)])
def test_a_log_file_that_cannot_be_mapped_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_count: int, number: int
) -> None:
    """The first one, and one that follows: nothing may go to where the log was before."""
    disk = FaultyDisk(tmp_path, monkeypatch)
    store = open_store(tmp_path / "store", mapped_file_size_commit_log=4096)
    sent = [send(store, "T", 0, bytes(2500)) for _ in range(file_count)]
    disk.fail(number, errno.ENOMEM, names=("mmap",))
    with pytest.raises(StoreUnreadable):
        send(store, "T", 0, bytes(2500))
    sent += [send(store, "T", 0, bytes(2500)) for _ in range(3)]
    store.close()
    store = open_store(tmp_path / "store", mapped_file_size_commit_log=4096)
    assert [record.queue_offset for record in read_all(store, "T", 0)] == sent
    assert sorted(os.listdir(tmp_path / "store" / "commitlog")) == [
        f"{number * 4096:020d}" for number in range(file_count + 3)
    ]
    store.close()
