"""Backups of brokers that serve: under load, from the folder and over the network, with accounts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pocketmq.backup.errors import BackupRefused
from pocketmq.backup.follow import follow_until_level
from pocketmq.backup.place import opened_place
from pocketmq.broker.broker import Broker
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.credentials import Credentials
from pocketmq.remoting.settings import parse_properties
from pocketmq.store.repair.diff import differences
from pocketmq.store.repair.reader import StoreReader
from tests.backup.stores import damaged, restored, take
from tests.broker.pairs import pair
from tests.broker.popping import Popper
from tests.broker.serving import Peer, serving
from tests.broker.test_introduction import guarded_master
from tests.kit.waiting import until_async as until

Way = Callable[[Broker, Path], Awaitable[Path]]


async def settings_of(broker: Broker) -> dict[str, str]:
    async with await Peer.at(broker) as peer:
        answer = await peer.ask(RequestCode.GET_BROKER_CONFIG)
    return parse_properties(bytes(answer.body).decode())


async def from_its_folder(broker: Broker, folder: Path) -> Path:
    """The folder to back up, when the tables are on the disk."""
    root = Path(broker.store_config.store_path_root_dir)
    await until(lambda: '"T@g"' in _text(root / "config" / "consumerOffset.json"))
    await until(lambda: broker.parts.services.timer.check.queue_offset == 1)
    return root


async def over_the_network(broker: Broker, folder: Path) -> Path:
    """The folder of a copy."""
    settings = await settings_of(broker)
    await follow_until_level(broker.listen_address, str(folder / "copy"), settings)
    return folder / "copy"


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@asynccontextmanager
async def load(broker: Broker) -> AsyncIterator[list[bytes]]:
    """A producer that sends all the time; what was acknowledged, in order."""
    sent: list[bytes] = []
    ends = asyncio.Event()

    async def produce() -> None:
        async with await Peer.at(broker) as peer:
            while not ends.is_set():
                body = b"%d " % len(sent) * 100
                assert (await peer.produce("T", body, queue_id=len(sent) % 4)).code == 0
                sent.append(body)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(produce())
        try:
            await until(lambda: len(sent) > 200)
            yield sent
        finally:
            ends.set()


@pytest.mark.parametrize("way", [from_its_folder, over_the_network])
async def test_a_backup_under_load_serves_what_was_acknowledged_before(
    way: Way, tmp_path: Path
) -> None:
    dest, source = str(tmp_path / "backup"), tmp_path / "source"
    files = {"mapped_file_size_commit_log": 1 << 17}
    async with serving(source, store=files, flush_consumer_offset_interval=100) as broker:
        async with load(broker) as sent, await Peer.at(broker) as peer:
            ext: dict[str, Any] = {"topic": "T", "consumerGroup": "g", "queueId": 1}
            await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**ext, "commitOffset": 17})
            assert (await peer.produce("T", b"later", TIMER_DELAY_SEC="3600")).code == 0
            popped = await Popper(peer, broker.clock.now_ms, group="popping").pop(
                invisibleTime=1_000
            )
            assert popped
            before = list(sent)
            for number in range(2):
                await asyncio.to_thread(take, await way(broker, tmp_path), dest, number)
            until_then = len(sent)
        assert damaged(opened_place(dest)) == []
        await asyncio.to_thread(restored, dest, tmp_path / "made")
    found = list(differences(StoreReader(str(source)), StoreReader(str(tmp_path / "made"))))
    # What was sent since is missing, and nothing differs.
    assert {what.partition(" ")[2] for *_, what in found} <= {"only in the first"}
    async with serving(tmp_path / "made") as made, await Peer.at(made) as peer:
        store = made.parts.messages.store
        total = sum(store.max_offset("T", queue_id) for queue_id in range(4))
        assert len(before) <= total <= until_then + 1
        answer = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        assert (answer.ext or {})["offset"] == "17"
        timers = made.parts.services.timer
        await until(lambda: len(timers.pending.next(timers.check.read_ms, 10)) == 1)
        # What was popped and not acknowledged comes again when its time is over.
        await until(lambda: any(topic.startswith("%RETRY%popping") for topic, _ in store.queues()))


async def test_an_administrator_is_needed_where_accounts_are_checked(tmp_path: Path) -> None:
    async with pair(tmp_path) as brokers:
        master = await guarded_master(brokers, tmp_path)
        settings = {"haListenPort": str(master.config.ha_listen_port), "brokerName": "b"}
        copy = str(tmp_path / "copy")
        for account in (None, Credentials("stranger", "other-words")):
            with pytest.raises(BackupRefused):
                await follow_until_level(
                    master.listen_address, copy, settings, account, patience_ms=1_500
                )
        administrator = Credentials("followers", "secret-words")
        await follow_until_level(master.listen_address, copy, settings, administrator)
        assert take(tmp_path / "copy", str(tmp_path / "backup")).cut.size > 0


async def test_a_slave_is_not_followed(tmp_path: Path) -> None:
    with pytest.raises(BackupRefused, match="name its master"):
        await follow_until_level("127.0.0.1:1", str(tmp_path), {"brokerRole": "SLAVE"})
