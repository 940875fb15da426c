"""Stores to back up, and places for backups."""

from pathlib import Path

from pocketmq.backup.cut import chosen_cut
from pocketmq.backup.place import BackupPlace, opened_place
from pocketmq.backup.restore import Restore, RestoreReport, check_backup
from pocketmq.backup.take import Backup, BackupReport
from pocketmq.remoting.clock import SystemClock
from pocketmq.store import MessageStore
from pocketmq.store.repair.diff import differences
from pocketmq.store.repair.reader import StoreReader
from tests.store.stores import HOST

PIECE = 16 << 10


def fill(store: MessageStore, count: int, begin: int = 0, topic: str = "T") -> None:
    """Append messages with keys to three queues."""
    for number in range(begin, begin + count):
        body, properties = b"%d " % number * 40, b"KEYS\x01key%d\x02" % number
        store.append(topic, number % 3, body, properties, 0, 0, 1, HOST)


def take(folder: Path, dest: str, ms: int = 1, keep: int = 0) -> BackupReport:
    """Take a cut at that time."""
    return Backup(str(folder), opened_place(dest), lambda: ms, piece=PIECE).run(keep=keep)


def restored(dest: str, folder: Path, **at: int) -> RestoreReport:
    """Make a store of a cut."""
    place = opened_place(dest)
    return Restore(place, chosen_cut(place, **at), str(folder), SystemClock()).run()


def unlike(one: Path, other: Path) -> list[object]:
    """How two stores differ."""
    return [*differences(StoreReader(str(one)), StoreReader(str(other)))]


def damaged(place: BackupPlace) -> list[str]:
    """What is wrong with a backup."""
    return [*check_backup(place)]
