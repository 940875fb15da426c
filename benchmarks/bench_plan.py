"""What it costs to plan a read of many stores with many queues, and what each task pays before its first row.

    python -m benchmarks.bench_plan                       10 stores of 2,000 queues, three messages each
    python -m benchmarks.bench_plan --stores 100          200,000 queues

CPU seconds of this process, not time: the figures hold on a machine that others use too. The files are
sparse, and all stores share those of the first by hard links.
"""

import argparse
import os
import pickle
import resource
import shutil
import struct
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pocketmq import bulk
from pocketmq.bulk.offsets import LossRule
from pocketmq.bulk.partition import Partition
from pocketmq.bulk.planning.planner import Planner
from pocketmq.model.java_hash import string_hash
from pocketmq.model.record import MAGIC_V1, Record, body_crc, write_record

QUEUES_A_TOPIC = 8
_ENTRY = struct.Struct(">qiq")
_FILE_ENTRIES = 300_000


def write_first(root: Path, queues: int, messages: int) -> None:
    """A store with `messages` in each of its queues, queue after queue in the log."""
    log = root / "commitlog"
    log.mkdir(parents=True)
    entries: dict[tuple[str, int], bytearray] = {}
    position = 0
    with (log / f"{0:020d}").open("wb") as file:
        for number in range(queues * messages):
            queue_offset, slot = divmod(number, queues)
            topic, queue_id = f"Topic{slot // QUEUES_A_TOPIC}", slot % QUEUES_A_TOPIC
            record = _record(topic, queue_id, queue_offset, position)
            file.write(record)
            entry = _ENTRY.pack(position, len(record), string_hash("a"))
            entries.setdefault((topic, queue_id), bytearray()).extend(entry)
            position += len(record)
        file.truncate(1 << 30)
    for (topic, queue_id), data in entries.items():
        folder = root / "consumequeue" / topic / str(queue_id)
        folder.mkdir(parents=True)
        with (folder / f"{0:020d}").open("wb") as file:
            file.write(data)
            file.truncate(_FILE_ENTRIES * _ENTRY.size)


def _record(topic: str, queue_id: int, queue_offset: int, position: int) -> bytes:
    host = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
    body = bytes(100)
    record = Record(
        size=0, magic=MAGIC_V1, body_crc=body_crc(body), queue_id=queue_id, flag=0, queue_offset=queue_offset,
        position=position, sys_flag=0, born_ms=1_790_000_000_000, born_host=host,
        store_ms=1_790_000_000_000 + position, store_host=host, reconsume_times=0, prepared_offset=0,
        body=memoryview(body), topic=topic, properties=b"TAGS\x01a\x02",
    )  # fmt: skip
    return write_record(record)


def link_store(first: Path, root: Path) -> None:
    """The same store under another name, without a byte more."""
    shutil.copytree(first, root, copy_function=os.link)


def cpu(run: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of this process, its threads and its children, and what came back."""
    before = os.times()
    found = run()
    after = os.times()
    return sum(after[:4]) - sum(before[:4]), found


def plan(roots: list[bulk.Root]) -> tuple[Planner, list[Partition]]:
    planner = Planner(roots, bulk.Topics(), LossRule())
    starts, ends = planner.starts(bulk.Positions()), planner.ends(bulk.Positions("latest"))
    return planner, planner.partitions(starts, ends, bulk.Sizes())


def read(partition: Partition, columns: tuple[str, ...]) -> int:
    one = pickle.loads(pickle.dumps(partition))
    return sum(b.num_rows for b in bulk.read_partition(one, bulk.Read(columns), LossRule()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--stores", type=int, default=10)
    parser.add_argument("--queues", type=int, default=2000, help="of each store")
    parser.add_argument("--messages", type=int, default=3, help="in each queue")
    parser.add_argument("--folder", type=Path, help="keep the stores here, or use those there")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="bench-plan-"))
    roots = [folder / f"broker-{n}" / "store" for n in range(options.stores)]
    try:
        for number, root in enumerate(roots):
            if root.exists():
                continue
            if number:
                link_store(roots[0], root)
            else:
                write_first(root, options.queues, options.messages)
        began = time.perf_counter()
        # The stores are links to one another, which only stores that are named may be.
        names = {str(r): r.parent.name for r in roots}
        used, (planner, partitions) = cpu(lambda: plan(bulk.find_roots(list(names), names)))
        wall = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"plan of {len(planner.bounds)} queues in {len(roots)} stores: {used:.2f} CPU-s ({wall:.2f} s), "
            f"{peak:.0f} MB, {len(partitions)} partitions of {len(pickle.dumps(partitions[0]))} bytes"
        )
        for name, columns in (("index only", ("queueOffset",)), ("body", ("topic", "body"))):
            found = []
            for one in partitions[:10]:
                used, rows = cpu(partial(read, one, columns))
                assert rows == options.queues * options.messages, rows
                found.append(used)
            middle = sorted(found)[len(found) // 2]
            print(f"a task of {options.queues} queues, {name}: {middle:.3f} CPU-s")
    finally:
        if options.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
