"""Side files of a store that a reader uses: consumer offsets, topics. Read only."""

from collections.abc import Callable, Iterable
from typing import Any

from pocketmq.bulk.errors import BulkError
from pocketmq.bulk.offsets import Offsets, QueueKey, store_at
from pocketmq.bulk.store import StoreSnapshot
from pocketmq.files.local import list_or_empty
from pocketmq.files.side_file import SideFileBroken, file_of_offsets, read_or_backup


def read_side_file(store: StoreSnapshot, name: str) -> Any:
    """Return the parsed content of config/`name`, {} if it does not exist.

    Raises: BulkError if it exists but cannot be read.
    """

    def read(path: str) -> bytes:
        opened = store.folders.open(path)
        return bytes(opened.read(0, opened.size))

    try:
        return read_or_backup(f"{store.base}/config/{name}", read)[0] or {}
    except SideFileBroken as error:
        raise BulkError(f"{error} cannot be read") from error


def name_of_offsets(store: StoreSnapshot) -> str:
    """Return the file in `config` that has the groups' offsets."""
    folder = f"{store.base}/config"
    return file_of_offsets(folder, {e.name for e in list_or_empty(store.folders, folder)})


def offset_rows(store: StoreSnapshot) -> Iterable[tuple[str, str, int, int]]:
    """Yield (group, topic, queue id, next offset to consume) as the store's files have them."""
    table = read_side_file(store, name_of_offsets(store)).get("offsetTable") or {}
    for name, queues in sorted(table.items()):
        topic, separator, group = name.partition("@")
        if separator:
            for queue_id, offset in sorted(queues.items(), key=lambda item: int(item[0])):
                yield group, topic, int(queue_id), int(offset)


def group_offsets(
    stores: Iterable[StoreSnapshot], group: str, wanted: Callable[[QueueKey], bool]
) -> Offsets:
    """Return a group's next offset in each queue, by the stores' files.

    Raises: BulkError when no store knows the group.
    """
    result: Offsets = {}
    groups: set[str] = set()
    for store in stores:
        for name, topic, queue_id, offset in offset_rows(store):
            groups.add(name)
            key = QueueKey(topic, store.root.broker_name, queue_id)
            if name == group and wanted(key):
                store_at(result, key, offset)
    if group not in groups:
        known = ", ".join(sorted(groups)[:10]) or "none"
        raise BulkError(f"no store has offsets of group {group!r}; groups there: {known}")
    return result
