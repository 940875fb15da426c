"""StoreFiles: the files of a store's folder as of its opening; folders are listed once.

The folder is the broker's storePathRootDir (it holds `commitlog`), or a commitlog folder itself when only the
log was copied.
"""

import os
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple

from pocketmq.files.layout import DATABASE, FileSpan, partition, row_of_files
from pocketmq.files.local import FileSystem, list_or_empty
from pocketmq.files.queue_files import QueueT


class TopicFolder(NamedTuple):
    """Where the queues of a topic are."""

    topic: str
    path: str
    batch: bool


class StoreFiles(Generic[QueueT]):
    """See the head of the file. QueueT: the class that reads a queue's files."""

    def __init__(self, folders: FileSystem, base: str, queue_class: type[QueueT]) -> None:
        self.base = base
        self._folders = folders
        self._queue_class = queue_class
        self.log_files: list[FileSpan] = []
        self.list_again()

    def list_again(self) -> None:
        """List the folder again."""
        top = {e.name: e for e in list_or_empty(self._folders, self.base)}
        self._log_folder = f"{self.base}/commitlog" if "commitlog" in top else self.base
        self.list_log()
        self.was_not_stopped = "abort" in top
        # Why this is no store, None for one; and what to do then, where something else than usual is.
        self.why_not: str | None = None
        self.instead: str | None = None
        if dledger := next(filter(self._is_dledger, sorted(top)), None):
            self.why_not = (
                f"its messages are in {dledger}, a log of DLedger (enableDLegerCommitLog=true), which "
                "PocketMQ does not read"
            )
            self.instead = "Consume them from a RocketMQ broker"
        elif not self.log_files and "commitlog" not in top:
            self.why_not = "it has no folder `commitlog`" if top else "there is no such folder"
            if "consumequeue" in top:
                self.instead = (
                    "Its storePathCommitLog is another folder: put a link `commitlog` to that into it, or, "
                    "where it names several, a folder `commitlog` with links to all of their files"
                )
        self._queue_folders = [
            (name, name == "batchconsumequeue")
            for name in ("consumequeue", "batchconsumequeue")
            if name in top and self._log_folder != self.base
        ]

    def _is_dledger(self, name: str) -> bool:
        """Return True for the folder of a DLedger log; the broker's own log ends where that begins."""
        return name.startswith("dledger-") and bool(
            list_or_empty(self._folders, f"{self.base}/{name}/data")
        )

    # ------------------------------------------------------------ the log

    def list_log(self) -> None:
        """List the log's files again."""
        listed = list_or_empty(self._folders, self._log_folder)
        self.log_files = row_of_files(listed, self._log_folder)

    @property
    def log_start(self) -> int:
        """Return the position of the first byte still there."""
        return self.log_files[0].first if self.log_files else 0

    @property
    def log_end(self) -> int:
        """Return the position behind the last file; the used part ends before."""
        return self.log_files[-1].end if self.log_files else 0

    def log_file_of(self, position: int) -> FileSpan | None:
        """Return the file that holds `position`."""
        files = self.log_files
        number = partition(0, len(files), lambda n: files[n].end > position)
        return files[number] if number < len(files) and files[number].first <= position else None

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield (first byte, byte behind the last) of every file and of every gap between two files.

        Retention deletes from the front and never truncates a file: records in a gap are lost.
        """
        at = self.log_start
        for file in self.log_files:
            if at < file.first:
                yield at, file.first
            yield file.first, file.end
            at = file.end

    def missing_file(self, position: int) -> str:
        """Return the path of the missing file that would hold `position`: behind the one before it."""
        behind = [f for f in self.log_files if f.first <= position]
        folder = os.path.dirname(behind[-1].path) if behind else f"{self.base}/commitlog"
        return f"{folder}/{behind[-1].end if behind else position:020d}"

    # ------------------------------------------------------------ queues

    def has_queues(self) -> bool:
        """Return True if there is any ConsumeQueue; if not, the log has to be walked."""
        names = self._names_of_queues()
        return bool(names) and DATABASE not in names

    def has_rocksdb(self) -> bool:
        """Return True if RocketMQ 5.x has its queues in RocksDB (storeType=defaultRocksDB).

        The database is in the folder of the queues; what queue files there are may be from before.
        """
        return DATABASE in self._names_of_queues()

    def _names_of_queues(self) -> set[str]:
        folders = [f"{self.base}/{name}" for name, _ in self._queue_folders]
        return {entry.name for path in folders for entry in list_or_empty(self._folders, path)}

    def queues(self, wanted: Callable[[str], bool] = lambda topic: True) -> Iterator[QueueT]:
        """Yield the queues of the topics accepted by `wanted`, by topic and queue id."""
        for folder in self.topic_folders(wanted):
            yield from self.queues_in(folder)

    def topic_folders(self, wanted: Callable[[str], bool]) -> Iterator[TopicFolder]:
        """Yield the queue folders of the topics accepted by `wanted`."""
        for kind, batch in self._queue_folders:
            for topic in list_or_empty(self._folders, f"{self.base}/{kind}"):
                if topic.size < 0 and wanted(topic.name):
                    yield TopicFolder(topic.name, f"{self.base}/{kind}/{topic.name}", batch)

    def queues_in(self, folder: TopicFolder) -> Iterator[QueueT]:
        """Yield the queues of a topic in order; none if its folder was deleted."""
        listed = list_or_empty(self._folders, folder.path)
        for queue_id in sorted(int(e.name) for e in listed if e.name.isdecimal()):
            yield self.queue(folder.topic, queue_id, batch=folder.batch)

    def queue(self, topic: str, queue_id: int, *, batch: bool = False) -> QueueT:
        """Return one queue; a missing one is empty."""
        kind = "batchconsumequeue" if batch else "consumequeue"
        return self._queue_class(
            self._folders,
            f"{self.base}/{kind}/{topic}/{queue_id}",
            topic,
            queue_id,
            batch=batch,
            ext="" if batch else f"{self.base}/consumequeue_ext/{topic}/{queue_id}",
        )
