"""Disk usage of a store, and differences between two stores: read only, of any writer, served or not."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketmq.files.records import Damage, Entry
from pocketmq.model.record import read_record
from pocketmq.store.repair.reader import StoreReader

Progress = Callable[[Iterable[Any], str], Iterable[Any]]


@dataclass
class TopicUse:
    """Records of a topic in the log; size in bytes."""

    messages: int = 0
    size: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0


def folders_use(root: Path) -> dict[str, int]:
    """Return the bytes on disk, without the holes of sparse files, per entry of the root folder."""
    found: dict[str, int] = {}
    for each in sorted(root.iterdir()):
        paths = [each]
        if each.is_dir():
            paths += [Path(folder) / name for folder, _, names in os.walk(each) for name in names]
        found[each.name] = sum(path.lstat().st_blocks * 512 for path in paths)
    return found


def topics_use(store: StoreReader, progress: Progress) -> dict[str, TopicUse]:
    """Return the log usage by topic, counting every intact record."""
    found: dict[str, TopicUse] = {}
    for record in progress(store.walk(), "records"):
        if isinstance(record, Damage):
            continue
        use = found.setdefault(record.topic.decode("utf-8", "replace"), TopicUse())
        stored_ms = read_record(
            store.bytes_at(record.position, record.size), check_crc=False
        ).store_ms
        use.messages += 1
        use.size += record.size
        use.oldest_ms = min(use.oldest_ms or stored_ms, stored_ms)
        use.newest_ms = max(use.newest_ms, stored_ms)
    return found


def differences(
    left: StoreReader, right: StoreReader
) -> Iterator[tuple[str, int, int | None, str]]:
    """Yield (topic, queue, offset, what) for each queue or message that only one has, or that differs.

    Messages are equal if body, properties, flag and tag are, whatever their place in the log. Of a run of
    messages that only one store has, the first is named.
    """
    queues = [{(q.topic, q.queue_id): q for q in store.queues()} for store in (left, right)]
    for topic, queue_id in sorted(queues[0].keys() | queues[1].keys()):
        held = []
        for store, known in zip((left, right), queues, strict=True):
            queue = known.get((topic, queue_id))
            held.append({} if queue is None else _messages(store, queue))
        ours, theirs = held
        for offset in sorted(ours.keys() & theirs.keys()):
            if ours[offset] != theirs[offset]:
                yield topic, queue_id, offset, "differs"
        for have, lack, which in ((ours, theirs, "first"), (theirs, ours, "second")):
            alone = sorted(have.keys() - lack.keys())
            if alone:
                yield topic, queue_id, alone[0], f"{len(alone)} only in the {which}"


def _messages(store: StoreReader, queue: Any) -> dict[int, bytes]:
    """Return offset -> a digest of what a consumer gets."""
    found: dict[int, bytes] = {}
    for each in store.entries(queue):
        entry = store.record_at(each.position)
        if isinstance(entry, Entry):
            record = read_record(store.bytes_at(entry.position, entry.size), check_crc=False)
            digest = hashlib.sha1(bytes(record.body), usedforsecurity=False)
            digest.update(b"%d\0%d\0" % (record.flag, record.sys_flag))
            digest.update(bytes(record.properties))
            found[record.queue_offset] = digest.digest()
    return found
