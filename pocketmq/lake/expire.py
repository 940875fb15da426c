"""Expires snapshots of a table, and deletes the files that nothing names any more.

1. The current snapshot, those of branches and tags, and the one that says the table's position stay.
2. A file is deleted when no snapshot and no metadata names it and it was written some days ago: a younger one
   may belong to a commit that is under way. So files that a killed process left are found, too.
3. Deletion comes after the commit that gives up the files; a process that is killed between them leaves files
   for the next time.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyarrow.fs import FileSelector, FileSystem, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO

from pocketmq.lake.position import MARKS_KEY

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

#: Age of a file that nothing names when it is deleted, ms: longer than any commit takes.
UNNAMED_MS = 3 * 86_400_000
_FOLDERS = ("data", "metadata")
# With these another engine keeps files elsewhere, perhaps those of several tables in one folder.
_ELSEWHERE = ("write.data.path", "write.metadata.path", "write.object-storage.enabled")


def expire(table: "Table", before_ms: int) -> int:
    """Expire the snapshots that were committed before a time, ms since 1970; return how many."""
    kept = {reference.snapshot_id for reference in table.metadata.refs.values()}
    holder = _of_position(table)
    if holder is not None:
        kept.add(holder.snapshot_id)
    old = [
        one.snapshot_id
        for one in table.snapshots()
        if one.timestamp_ms < before_ms and one.snapshot_id not in kept
    ]
    if old:
        table.maintenance.expire_snapshots().by_ids(old).commit()
        table.refresh()
    return len(old)


def delete_unnamed(table: "Table", before_ms: int) -> int:
    """Delete the files of a table that nothing names and that were written before a time; return how many.

    Does nothing where files cannot be listed: with an IO of fsspec, or where a property puts them elsewhere.
    """
    io = table.io
    if not isinstance(io, PyArrowFileIO) or any(key in table.properties for key in _ELSEWHERE):
        return 0
    scheme, netloc, root = io.parse_location(table.location(), io.properties)
    system = io.fs_by_scheme(scheme, netloc or None)
    # Listed first: what a commit names after that is younger than the list.
    listed = [
        info
        for folder in _FOLDERS
        for info in system.get_file_info(
            FileSelector(f"{root}/{folder}", recursive=True, allow_not_found=True)
        )
        if info.type == FileType.File
    ]
    table.refresh()
    if _path(io, table.metadata_location) not in {info.path for info in listed}:
        # The list calls files by other names than the metadata, or the table is elsewhere.
        return 0
    before = datetime.fromtimestamp(before_ms / 1000, UTC)
    named = {_path(io, location) for location in _named(table)}
    old = [info.path for info in listed if info.mtime is not None and info.mtime < before]
    unnamed = [path for path in old if path not in named]
    for path in unnamed:
        delete_file(system, path)
    return len(unnamed)


def delete_file(system: FileSystem, path: str) -> None:
    system.delete_file(path)


def has_position(table: "Table") -> bool:
    """Return whether a table is one that `pocketmq lake` writes."""
    return _of_position(table) is not None


def _of_position(table: "Table") -> "Snapshot | None":
    """Return the snapshot that says the table's position, the current one or its nearest ancestor."""
    snapshot = table.current_snapshot()
    while snapshot is not None and not _says_position(snapshot):
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return snapshot


def _says_position(snapshot: "Snapshot") -> bool:
    return snapshot.summary is not None and snapshot.summary.get(MARKS_KEY) is not None


def _named(table: "Table") -> set[str]:
    """Return the locations of all files that a table's metadata names."""
    metadata = table.metadata
    found = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    found |= {one.statistics_path for one in metadata.statistics}
    found |= {one.statistics_path for one in metadata.partition_statistics}
    manifests = {}
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list)
        manifests.update({one.manifest_path: one for one in snapshot.manifests(table.io)})
    for manifest in manifests.values():
        found.add(manifest.manifest_path)
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        found |= {entry.data_file.file_path for entry in entries}
    return found


def _path(io: PyArrowFileIO, location: str) -> str:
    """Return a location as its file system lists it."""
    return io.parse_location(location, io.properties)[2]
