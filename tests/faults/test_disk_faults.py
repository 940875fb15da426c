"""R7: the n-th call that writes fails, for n from 1 to the end, while a broker does all that it does.

Nothing that was answered with SEND_OK is lost, the broker lives, reading works, and when the fault is over
everything recovers by itself. Only an fsync of the log that failed makes the store read-only.
"""

import errno
import logging
import os
import shutil
import subprocess
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker import housekeeping
from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import parse_offset_msg_id
from pocketmq.remoting.codes import RequestCode
from pocketmq.store import StoreError
from pocketmq.store.timer import service as timer
from tests.broker.popping import Popper, popped
from tests.broker.serving import Peer, batch, number, records, serving
from tests.faults.faulty_disk import BY_PATH, FaultyDisk
from tests.kit.waiting import until_async

ERRORS = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EMFILE)
# What stays said until a restart: the files may lack something, and are not relied on any more.
_UNTIL_RESTART = {"checkpoint", "timer-sync"}
_ROUNDS_MAX = 8
_LASTING_ROUNDS = 3
# How many faults without --every-fault, and in how many tests they are with it.
_FAULTS = 16
_PIECES = 16


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "piece" in metafunc.fixturenames:
        count = _PIECES if metafunc.config.getoption("--every-fault") else 1
        metafunc.parametrize("piece", range(count))


def settings() -> dict[str, Any]:
    """Everything happens soon and often."""
    return {
        "flush_consumer_offset_interval": 20,
        "transaction_check_interval": 50,
        "transaction_time_out": 50,
        "store": {
            "mapped_file_size_commit_log": 1 << 17,
            "mapped_file_size_consume_queue": 1000,
            "flush_disk_type": "SYNC_FLUSH",
            "flush_interval_consume_queue": 20,
            "flush_consume_queue_thorough_interval": 20,
            "flush_delay_offset_interval": 20,
            "clean_resource_interval": 20,
            "file_reserved_time": 72,
            "delete_when": f"{time.localtime().tm_hour};{(time.localtime().tm_hour + 1) % 24}",
            "max_hash_slot_num": 64,
            "max_index_num": 64,
        },
    }


class Work:
    """One round is a bit of everything; `sure` is what was answered with SEND_OK: topic and body."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.popper = Popper(peer, lambda: int(time.time() * 1000), topic="Topic")
        self.sure: set[tuple[str, bytes]] = set()
        self.number = 0

    async def round(self) -> None:
        self.number += 1
        turn = self.number
        await self.send("Topic", queue_id=turn % 2, KEYS=f"k{turn}", TAGS="t")
        await self.send(f"New{turn}")
        await self.send("Topic", size=20_000)
        await self.send("Topic", DELAY="1")
        await self.send("Topic", TIMER_DELAY_MS="1")
        await self.peer.heartbeat(f"group{turn}", {"Topic": "*"}, sub_version=turn)
        await self.half()
        await self.batch()
        await self.burst()
        answer = await self.popper.answer(maxMsgNums=2)
        if answer.code == 0:
            for message in popped(answer, "Topic", "g"):
                await self.popper.ack(message)
        ext = {"consumerGroup": "g", "topic": "Topic", "queueId": 0, "commitOffset": turn}
        await self.peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)

    async def send(self, topic: str, *, size: int = 10, queue_id: int = 0, **more: Any) -> bool:
        body = f"{self.number} {size} {sorted(more)} ".encode().ljust(size, b".")
        answer = await self.peer.produce(topic, body, queue_id=queue_id, **more)
        if answer.code == 0:
            self.sure.add((topic, body))
        return answer.code == 0

    async def batch(self) -> None:
        bodies = [f"batch {self.number} {place}".encode() for place in range(3)]
        members = batch(*((body, b"") for body in bodies))
        code = RequestCode.SEND_BATCH_MESSAGE
        answer = await self.peer.produce("Topic", members, code=code, more={"m": True})
        if answer.code == 0:
            self.sure.update(("Topic", body) for body in bodies)

    async def burst(self) -> None:
        """Sends of one read, which are stored and answered together."""
        bodies = [b"burst %06d %02d" % (self.number, place) for place in range(32)]
        for body, answer in zip(bodies, await self.peer.burst("Topic", bodies), strict=True):
            if answer.code == 0:
                self.sure.add(("Topic", body))

    async def half(self) -> None:
        """A half message, committed at once."""
        body = f"half {self.number}".encode()
        own: dict[str, Any] = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": f"u{self.number}"}
        answer = await self.peer.produce("Topic", body, sys_flag=4, **own)
        if answer.code:
            return
        assert answer.ext is not None
        header = {
            "producerGroup": "pg",
            "tranStateTableOffset": number(answer, "queueOffset"),
            "commitLogOffset": parse_offset_msg_id(answer.ext["msgId"])[1],
            "commitOrRollback": 8,
            "fromTransactionCheck": False,
            "msgId": "id",
        }
        if (await self.peer.ask(RequestCode.END_TRANSACTION, header)).code == 0:
            self.sure.add(("Topic", body))

    async def missing(self, peer: Peer) -> set[tuple[str, bytes]]:
        """What is sure, and cannot be pulled."""
        left = set(self.sure)
        for topic in sorted({topic for topic, _ in left}):
            for queue_id in range(4):
                left -= {(topic, body) for body in await pulled(peer, topic, queue_id)}
        return left


async def pulled(peer: Peer, topic: str, queue_id: int) -> list[bytes]:
    """The bodies of a queue, by pulls."""
    found: list[bytes] = []
    offset = 0
    while True:
        how = {"queue_id": queue_id, "sys_flag": 4, "subscription": "*"}
        answer = await peer.pull("reader", topic, offset, **how)
        if answer.code == 0:
            found += [bytes(record.body) for record in records(answer)]
        elif answer.ext is None or number(answer, "nextBeginOffset") <= offset:
            return found
        offset = number(answer, "nextBeginOffset")


async def run(folder: Path, disk: FaultyDisk, *, rounds: int = 0) -> None:
    """Work until the fault has come, or for some rounds; then all must be well again."""
    disk.starting = True
    image = folder.with_name("image")
    shutil.rmtree(image, ignore_errors=True)
    work: Work | None = None
    try:
        async with serving(folder, **settings()) as broker, await Peer.at(broker) as peer:
            work = Work(peer)
            await _worked(work, broker, disk, folder, rounds or _ROUNDS_MAX)
            as_killed(folder, image)
            disk.starting = True
    except (OSError, StoreError):
        # A broker that cannot start, or stop, says why, and leaves a store that starts again.
        if disk.hit is None or not disk.starting:
            raise
    disk.heal()
    for store in (folder, image):
        if store.exists():
            async with serving(store) as broker, await Peer.at(broker) as peer:
                if work is not None:
                    await until_async(
                        partial(nothing_missing, work, peer), what="acknowledged and lost"
                    )


def as_killed(folder: Path, image: Path) -> None:
    """A copy of a store in use, as kill -9 leaves it."""
    # cp keeps the holes; it complains of names that go meanwhile, which is as good.
    subprocess.run(["cp", "-r", str(folder), str(image)], check=False, capture_output=True)
    assert image.exists()


async def _worked(
    work: "Work", broker: Broker, disk: FaultyDisk, folder: Path, rounds: int
) -> None:
    store = broker.parts.messages.store
    store.side_tasks.retry_ms = 5
    disk.starting = False
    await work.round()
    old = time.time() - 80 * 3600
    for path in sorted((folder / "commitlog").iterdir())[:1]:
        os.utime(path, (old, old))
    work.number, after = 100, 0
    while after < _LASTING_ROUNDS and work.number < 100 + rounds:
        await work.round()
        after += disk.hit is not None
    if disk.hit is not None:
        disk.heal()
    work.number = 1000
    if (
        disk.hit is not None
        and disk.hit.name in ("fsync", "fdatasync")
        and "flush._sync_files" in disk.hit.site
    ):
        assert not await work.send("Topic"), "an fsync of the log failed, and messages are taken"
        return
    await until_async(lambda: store.writable, what="the store takes messages again")
    await until_async(lambda: work.send("Last"), what="a new topic can be made again")
    await until_async(lambda: not store.side_tasks.troubles.keys() - _UNTIL_RESTART)
    # The delayed ones come too.
    await until_async(partial(nothing_missing, work, work.peer))


async def nothing_missing(work: "Work", peer: Peer) -> bool:
    return not await work.missing(peer)


@pytest.fixture
def disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> FaultyDisk:
    """Also: what happens once a second does so much oftener; and nothing is logged, since pytest would keep
    the exceptions, and with them every broker of a test, until its end."""
    caplog.set_level(logging.CRITICAL + 1, "pocketmq")
    monkeypatch.setattr(housekeeping, "_TICK_MS", 20)
    monkeypatch.setattr(timer, "_SYNC_INTERVAL_MS", 20)
    monkeypatch.setattr(timer, "_CLEAN_INTERVAL_MS", 20)
    return FaultyDisk(tmp_path, monkeypatch)


async def test_each_call_that_writes_may_fail_once(
    tmp_path: Path, disk: FaultyDisk, request: pytest.FixtureRequest, piece: int
) -> None:
    """Every place of the product that writes, with one of the errors; with --every-fault all of them."""
    every = request.config.getoption("--every-fault")
    disk.fail(1 << 30, errno.EIO)
    await run(tmp_path / "sound", disk, rounds=8)
    places = sorted(set(disk.calls))
    assert len(places) > 100
    chosen = [(place, error) for place in places for error in ERRORS]
    # Without the option another error for the next place.
    chosen = chosen[piece::_PIECES] if every else chosen[:: len(chosen) // _FAULTS | 1]
    failures: list[str] = []
    for place, error in chosen:
        disk.fail_call(place, error)
        try:
            await run(tmp_path / "store", disk)
        except (Exception, BaseExceptionGroup) as failure:  # noqa: BLE001 - told below
            told = "".join(traceback.format_exception(failure)[-3:])
            failures.append(f"{errno.errorcode[error]} at {place}: {told}")
        disk.heal()
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
    assert not failures, "\n\n".join(failures)


@pytest.mark.parametrize(
    ("error", "names"),
    [
        (errno.ENOSPC, ("posix_fallocate", "pwrite", "mkdir", "open", "link")),
        (errno.EROFS, (*BY_PATH, "open", "ftruncate", "posix_fallocate", "pwrite")),
        (errno.EMFILE, ("open",)),
        (errno.EIO, (*BY_PATH, "pwrite", "ftruncate")),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else "",
)
@pytest.mark.parametrize("first", [1, 40])
async def test_a_disk_that_refuses_for_a_while(
    tmp_path: Path, disk: FaultyDisk, error: int, names: tuple[str, ...], first: int
) -> None:
    """R9: full, read-only, without descriptors, broken; with delays and timers due all the while."""
    disk.fail(1 << 30, error)
    async with serving(tmp_path / "store", **settings()) as broker, await Peer.at(broker) as peer:
        store = broker.parts.messages.store
        store.side_tasks.retry_ms = 5
        work = Work(peer)
        await work.round()
        first_body = next(iter(await pulled(peer, "Topic", 1)))
        disk.fail(first, error, lasting=True, names=names)
        while disk.hit is None:
            await work.round()
        for _ in range(_LASTING_ROUNDS):
            await work.round()
            # Consumers continue.
            found = {body for queue in (0, 1) for body in await pulled(peer, "Topic", queue)}
            assert first_body in found
        disk.heal()
        await until_async(lambda: work.send("Last"), what="messages are taken again")
        await until_async(lambda: not store.side_tasks.troubles)
        await until_async(partial(nothing_missing, work, peer))
