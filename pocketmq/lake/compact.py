"""Merges small files of a table: each commit of `pocketmq lake --follow` adds one for each partition.

1. Rows and their order are the copy's: a merged file is sorted as one that the copy has written.
2. A merge carries the position of the snapshot that it replaces, so it may come between any two copies.
3. It is committed onto the snapshot whose files it has read, or onto a later one that still has them all;
   else it changes nothing. Files that another engine has deletes for are left to that engine.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.types import LongType

from pocketmq.lake.columns import file_schema
from pocketmq.lake.iceberg import write_file
from pocketmq.lake.position import position_of
from pocketmq.lake.waiting import WaitingRows

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

#: A file as large in memory is not merged any more; nor becomes a merged one larger.
FULL_BYTES = 96 << 20
#: So few files of a partition are left alone, unless they are enough for a full one.
FEW = 4
_ATTEMPTS = 5
# Of one commit.
_COMMIT_BYTES = 1 << 29


def compact(table: "Table", full_bytes: int = FULL_BYTES, few: int = FEW) -> tuple[int, int]:
    """Merge the small files of each partition.

    Returns: how many files were merged, and how many took their place.
    """
    old = new = waiting = 0
    replaced: list[FileScanTask] = []
    added: list[DataFile] = []
    schema = file_schema(table.schema())
    for tasks, size in list(_groups(table, full_bytes, few)):
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        rows = WaitingRows()
        rows.add_mixed(scan.to_table(tasks).cast(schema))
        added.append(write_file(table, schema, rows.taken(), tasks[0].file.partition))
        replaced += tasks
        waiting += size
        if waiting >= _COMMIT_BYTES:
            done = _replace(table, replaced, added)
            old, new = old + done * len(replaced), new + done * len(added)
            replaced, added, waiting = [], [], 0
    if added:
        done = _replace(table, replaced, added)
        old, new = old + done * len(replaced), new + done * len(added)
    return old, new


def _groups(
    table: "Table", full_bytes: int, few: int
) -> Iterator[tuple[list["FileScanTask"], int]]:
    """Yield files of one partition to merge into one, in the order of the log, with their bytes in memory."""
    partitions: dict[tuple[object, ...], list[FileScanTask]] = {}
    for task in table.scan().plan_files():
        file = task.file
        is_ours = file.spec_id == table.spec().spec_id and file.file_format == FileFormat.PARQUET
        # Compressed, bodies are rarely a tenth: what is larger needs no look at its footer.
        if is_ours and not task.delete_files and file.file_size_in_bytes < full_bytes:
            partitions.setdefault(_values(file), []).append(task)
    place = table.schema().find_field("commitLogOffset").field_id
    for tasks in partitions.values():
        if len(tasks) <= 1:
            continue
        tasks.sort(key=lambda one: _lower_bound(one.file, place))
        group: list[FileScanTask] = []
        size = 0
        for task in tasks:
            more = _bytes_in_memory(table, task.file)
            if more * 2 > full_bytes:
                continue
            if size + more > full_bytes:
                if len(group) > 1:
                    yield group, size
                group, size = [], 0
            group.append(task)
            size += more
        if len(group) > few:
            yield group, size


def _values(file: DataFile) -> tuple[object, ...]:
    return tuple(file.partition[number] for number in range(len(file.partition)))


def _lower_bound(file: DataFile, field_id: int) -> int:
    found = (file.lower_bounds or {}).get(field_id)
    return -1 if found is None else int(from_bytes(LongType(), found))


def _bytes_in_memory(table: "Table", file: DataFile) -> int:
    with table.io.new_input(file.file_path).open() as stream:
        footer = pq.read_metadata(stream)
    return sum(footer.row_group(n).total_byte_size for n in range(footer.num_row_groups))


def _replace(table: "Table", tasks: list["FileScanTask"], added: list[DataFile]) -> bool:
    """Commit files in place of others; return False if these are no longer there (invariant 3)."""
    for _ in range(_ATTEMPTS):
        try:
            position = position_of(table).summary()
            with table.transaction() as change:
                with change.update_snapshot(snapshot_properties=position).overwrite() as snapshot:
                    for task in tasks:
                        snapshot.delete_data_file(task.file)
                    for file in added:
                        snapshot.append_data_file(file)
            return True
        except CommitFailedException:
            table.refresh()
        except ValidationException:
            table.refresh()
            return False
    return False
