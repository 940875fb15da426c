"""A store for each finding: one that a broker has written, and what damages it.

`DAMAGES` is walked by test_findings.py, which fails for a row of store.findings without a damaged store here.
"""

import json
import random
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

from pocketmq.files.layout import BLANK_SIZE, ENTRY, ENTRY_SIZE
from pocketmq.files.records import Entry
from pocketmq.remoting import fastjson
from pocketmq.store.findings import FindingCode
from pocketmq.store.index.index_file import HEADER_SIZE as INDEX_HEADER
from pocketmq.store.index.index_file import SLOT_SIZE
from pocketmq.store.repair.reader import StoreReader
from pocketmq.store.timer.log import UNIT_SIZE
from pocketmq.testing import AdvancingClock, InProcess
from tests.store.stores import open_store, send

Damage = Callable[[Path], None]

SLOTS = 16
SMALL_FILES = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * ENTRY_SIZE,
    "maxHashSlotNum": SLOTS,
    "maxIndexNum": 64,
}


def server(root: Path) -> InProcess:
    """A broker on a folder."""
    return InProcess(SMALL_FILES, store=str(root), clock=AdvancingClock())


def write_store(root: Path) -> None:
    """Write a store with a file of each kind, and more of the log than a start looks at."""
    # Bodies that cannot be packed.
    big = random.Random(1)
    with server(root) as broker:
        for topic in ("Early", "Late"):
            broker.create_topic(topic, queues=1)
        broker.create_group("readers")
        for number in range(60):
            broker.send("Early", b"%d" % number, tags="t", keys=f"key-{number}")
        broker.send("Early", b"later", delay_level=18)
        for seconds in range(5):
            due_ms = broker.clock.now_ms() + (3_600 + seconds) * 1000
            broker.send("Early", b"at its time", deliver_at_ms=due_ms)
        for number in range(80):
            broker.send("Late", big.randbytes(40_000), keys=f"late-{number}")
        [queue] = [each.queue for each in broker.admin.topics.status("Early")]
        broker.admin.groups.place("readers", queue, 7)
    # Two records so small that nothing fits into the place of one.
    store = open_store(
        root,
        mapped_file_size_commit_log=SMALL_FILES["mappedFileSizeCommitLog"],
        mapped_file_size_consume_queue=SMALL_FILES["mappedFileSizeConsumeQueue"],
        max_hash_slot_num=SLOTS,
        max_index_num=SMALL_FILES["maxIndexNum"],
    )
    for _ in range(3):
        send(store, "S", body=b"x")
    store.close()
    # The next start knows what is on the disk, and looks at the end of the log only.
    with server(root) as broker:
        broker.send("Late", big.randbytes(40_000), keys="last")


def copy_of(root: Path, target: Path) -> Path:
    """A copy, with the holes of the timer wheel."""
    subprocess.run(["cp", "-a", "--sparse=always", str(root), str(target)], check=True)
    return target


# ------------------------------------------------------------ places


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def records(root: Path, topic: str) -> list[Entry]:
    found = StoreReader(str(root)).walk()
    return [each for each in found if isinstance(each, Entry) and each.topic == topic.encode()]


def in_log(root: Path, position: int) -> tuple[Path, int]:
    file = StoreReader(str(root)).log_file_of(position)
    assert file is not None
    return Path(file.path), position - file.first


def queue_files(root: Path, topic: str) -> list[Path]:
    return sorted((root / "consumequeue" / topic / "0").iterdir())


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def put_entry(root: Path, topic: str, offset: int, position: int, size: int) -> None:
    number, at = divmod(offset, 20)
    overwrite(queue_files(root, topic)[number], at * ENTRY_SIZE, ENTRY.pack(position, size, 0))


def break_record(root: Path, topic: str, number: int) -> None:
    """Change its magic and its size."""
    overwrite(*in_log(root, records(root, topic)[number].position), b"\xff" * 8)


def of_rocketmq(root: Path) -> None:
    """Change the checkpoint as RocketMQ does: its fields, without our sum."""
    data = (root / "checkpoint").read_bytes()
    overwrite(root / "checkpoint", 24, bytes([data[24] ^ 1]))


def change_json(path: Path, change: Callable[[dict[str, dict[str, int]]], None]) -> None:
    value = fastjson.loads(path.read_bytes())
    change(value["offsetTable"])
    path.write_text(json.dumps(value))


# ------------------------------------------------------------ damage


def foreign(root: Path) -> None:
    (root / "config" / "rdb").mkdir()
    (root / "config" / "rdb" / "CURRENT").write_bytes(b"MANIFEST-000005\n")


def log_missing(root: Path) -> None:
    for path in (root / "commitlog").iterdir():
        path.unlink()


def log_files(root: Path) -> None:
    sorted((root / "commitlog").iterdir())[1].unlink()


def log_short(root: Path) -> None:
    last = records(root, "Late")[-1]
    path, at = in_log(root, last.position)
    with path.open("r+b") as file:
        file.truncate(at + last.size)


def log_damaged(root: Path) -> None:
    break_record(root, "Late", 70)


def log_would_end(root: Path) -> None:
    of_rocketmq(root)
    break_record(root, "Late", 70)


def log_unfillable(root: Path) -> None:
    of_rocketmq(root)
    break_record(root, "S", 1)


def log_torn_end(root: Path) -> None:
    last = records(root, "Late")[-1]
    overwrite(*in_log(root, last.position + last.size), b"\0\0\x01\0 half a record")


def queue_files_damaged(root: Path) -> None:
    queue_files(root, "Late")[1].unlink()


def queue_behind(root: Path) -> None:
    last = len(records(root, "Late")) - 1
    put_entry(root, "Late", last, 0, 0)


def queue_lost(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "Early")


def queue_gap(root: Path) -> None:
    put_entry(root, "Early", 30, 0, BLANK_SIZE)


def queue_ahead(root: Path) -> None:
    put_entry(root, "Late", len(records(root, "Late")), 5 << 20, 200)


def entry_wrong(root: Path) -> None:
    other = records(root, "S")[0]
    put_entry(root, "Early", 30, other.position, other.size)


def index_unreadable(root: Path) -> None:
    with index_files(root)[1].open("ab") as file:
        file.write(b"123")


def index_wrong(root: Path) -> None:
    overwrite(index_files(root)[0], INDEX_HEADER + SLOTS * SLOT_SIZE + 5 * 20, b"\x01\x02\x03\x04")


def index_gap(root: Path) -> None:
    index_files(root)[1].unlink()


def index_lost(root: Path) -> None:
    index_files(root)[-1].unlink()


def index_ahead(root: Path) -> None:
    newest = index_files(root)[-1]
    count = struct.unpack_from(">i", newest.read_bytes(), 36)[0]
    position = struct.pack(">q", 5 << 20)
    overwrite(newest, INDEX_HEADER + SLOTS * SLOT_SIZE + (count - 1) * 20 + 4, position)
    overwrite(newest, 24, position)


def checkpoint_short(root: Path) -> None:
    overwrite(root / "checkpoint", 0, b"")
    with (root / "checkpoint").open("r+b") as file:
        file.truncate(10)


def checkpoint_ahead(root: Path) -> None:
    last = records(root, "Late")[-1]
    overwrite(*in_log(root, last.position), bytes(last.size))


def timer_files(root: Path) -> None:
    with (root / "timerwheel").open("ab") as file:
        file.write(b"1")


def timer_unit_wrong(root: Path) -> None:
    [path] = (root / "timerlog").iterdir()
    overwrite(path, UNIT_SIZE, b"\xff" * 20)


def timer_ahead(root: Path) -> None:
    [path] = (root / "timerlog").iterdir()
    overwrite(path, 4 * UNIT_SIZE + 28, struct.pack(">q", 5 << 20))


def timer_check_wrong(root: Path) -> None:
    overwrite(root / "config" / "timercheck", 0, struct.pack(">q", 1234))


def file_broken(root: Path) -> None:
    path = root / "config" / "topics.json"
    shutil.copy(path, f"{path}.bak")
    path.write_text("{")


def file_lost(root: Path) -> None:
    file_broken(root)
    (root / "config" / "topics.json.bak").write_text("{")


def file_empty(root: Path) -> None:
    (root / "config" / "topics.json").write_text("")
    (root / "config" / "topics.json.bak").unlink(missing_ok=True)


def offset_ahead(root: Path) -> None:
    path = root / "config" / "consumerOffset.json"
    change_json(path, lambda table: table["Early@readers"].update({"0": 1000}))


def delay_ahead(root: Path) -> None:
    (root / "config" / "delayOffset.json").write_text('{"offsetTable":{18:1000}}')


def lost_found(root: Path) -> None:
    (root / "lost+found" / "#123").mkdir(parents=True)


C = FindingCode
# Each with the codes that come along: one damage may be wrong in several ways.
DAMAGES: dict[FindingCode, tuple[Damage, set[FindingCode]]] = {
    C.FOREIGN: (foreign, set()),
    C.LOG_MISSING: (log_missing, set()),
    C.LOG_FILES: (log_files, set()),
    C.LOG_SHORT: (log_short, set()),
    C.LOG_DAMAGED: (log_damaged, {C.ENTRY_WRONG}),
    C.LOG_WOULD_END: (log_would_end, {C.ENTRY_WRONG}),
    C.LOG_UNFILLABLE: (log_unfillable, {C.ENTRY_WRONG}),
    C.LOG_TORN_END: (log_torn_end, set()),
    C.QUEUE_FILES: (queue_files_damaged, set()),
    C.QUEUE_BEHIND: (queue_behind, set()),
    C.QUEUE_LOST: (queue_lost, set()),
    C.QUEUE_GAP: (queue_gap, set()),
    C.QUEUE_AHEAD: (queue_ahead, set()),
    C.ENTRY_WRONG: (entry_wrong, set()),
    C.INDEX_UNREADABLE: (index_unreadable, set()),
    C.INDEX_WRONG: (index_wrong, {C.INDEX_GAP}),
    C.INDEX_GAP: (index_gap, set()),
    C.INDEX_LOST: (index_lost, {C.INDEX_GAP}),
    C.INDEX_AHEAD: (index_ahead, {C.INDEX_GAP}),
    C.CHECKPOINT_SHORT: (checkpoint_short, set()),
    C.CHECKPOINT_AHEAD: (
        checkpoint_ahead,
        {C.QUEUE_AHEAD, C.INDEX_AHEAD, C.INDEX_GAP},
    ),
    C.TIMER_FILES: (timer_files, set()),
    C.TIMER_UNIT_WRONG: (timer_unit_wrong, set()),
    C.TIMER_AHEAD: (timer_ahead, set()),
    C.TIMER_CHECK_WRONG: (timer_check_wrong, set()),
    C.FILE_BROKEN: (file_broken, set()),
    C.FILE_LOST: (file_lost, set()),
    C.FILE_EMPTY: (file_empty, set()),
    C.OFFSET_AHEAD: (offset_ahead, set()),
    C.DELAY_AHEAD: (delay_ahead, set()),
    C.LOST_FOUND: (lost_found, set()),
}
