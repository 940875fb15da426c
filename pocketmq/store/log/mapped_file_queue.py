"""MappedFileQueue: a sequence of files of one size that together form one long array of bytes.

    {folder}/%020d          the position of the file's first byte; file i of size S is i * S

1. All files have the same size and follow each other without a gap; the first need not start at 0.
2. The size is part of the store's identity: it is taken from the files, and only a new sequence uses the
   configured one (RocketMQ instead refuses to start if they differ).
3. The last file may be shorter: a process died while creating it, or the end of the store was cut off. It is
   extended to its full size with zeros; an empty one is removed.
Owner: the CommitLog, ConsumeQueue ... that it belongs to.
"""

import contextlib
import logging
import os

from pocketmq.files.layout import is_file_name
from pocketmq.store.errors import StoreForeign, StoreUnreadable
from pocketmq.store.log.folder import sync_folder
from pocketmq.store.log.mapped_file import MappedFile, refusal

log = logging.getLogger(__name__)


class MappedFileQueue:
    """The files of one folder, oldest first."""

    __slots__ = ("cut_at", "file_size", "files", "folder", "keep_open", "unit")

    def __init__(
        self, folder: str, file_size: int, *, keep_open: bool = False, unit: int = 1
    ) -> None:
        """unit: every file's size is a multiple of it."""
        self.folder = folder
        self.unit = unit
        self.file_size = file_size
        self.files: list[MappedFile] = []
        self.keep_open = keep_open
        # Where the bytes of a truncated last file end; the rest is zeros that this process wrote.
        self.cut_at: int | None = None

    def load(self, *, file_size: int | None = None) -> None:
        """Find the existing files. Cost: one listing of the folder, one stat per file.

        Args: file_size, if given, is what the store's own records say.
        Raises: StoreForeign if names and sizes do not form a sequence (invariant 1).
        """
        found: list[tuple[int, str, int]] = []
        try:
            with os.scandir(self.folder) as entries:
                found.extend(
                    (int(entry.name), entry.path, entry.stat().st_size)
                    for entry in entries
                    if is_file_name(entry.name) and entry.is_file()
                )
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreUnreadable(self.folder, error) from error
        found.sort()
        while found and found[-1][2] == 0:
            log.warning("removed an empty file path=%s", found[-1][1])
            os.unlink(found.pop()[1])
        if not found:
            return
        self.file_size = file_size or self._size_of(found)
        self.files = [
            MappedFile(self.folder, start, self.file_size, keep_open=self.keep_open)
            for start, _, _ in found
        ]
        self._check(found)

    def _size_of(self, found: list[tuple[int, str, int]]) -> int:
        if len(found) > 1:
            return found[1][0] - found[0][0]
        start, _, size = found[0]
        # A lone file that was cut off may have a size that its own name contradicts, or that no file has.
        if start % size == 0 == size % self.unit:
            return size
        return max(self.file_size, size + -size % self.unit)

    def _check(self, found: list[tuple[int, str, int]]) -> None:
        for place, (start, path, size) in enumerate(found):
            expected = found[0][0] + place * self.file_size
            if start != expected:
                raise StoreForeign(
                    self.folder,
                    f"a file is missing: {expected:020d} should stand where {start:020d} does. "
                    "Put the missing file back, or move the files before the gap away",
                )
            if size < self.file_size and place == len(found) - 1:
                log.warning(
                    "the last file is truncated and is extended with zeros path=%s size=%d full=%d",
                    path,
                    size,
                    self.file_size,
                )
                os.truncate(path, self.file_size)
                self.cut_at = start + size
            elif size != self.file_size:
                raise StoreForeign(
                    self.folder,
                    f"{os.path.basename(path)} has {size} bytes, but its neighbours have "
                    f"{self.file_size}: another program has changed it. Put the original file back",
                )

    @property
    def min_position(self) -> int:
        """Return the position of the first existing byte; 0 without a file."""
        return self.files[0].start if self.files else 0

    @property
    def end_position(self) -> int:
        """Return the position behind the last file."""
        return self.files[-1].end if self.files else 0

    def file_at(self, position: int) -> MappedFile | None:
        """Return the file that holds the byte, or None if it is deleted or not created yet."""
        files = self.files
        if not files:
            return None
        place = (position - files[0].start) // self.file_size
        return files[place] if 0 <= place < len(files) else None

    def add(self, start: int | None = None) -> MappedFile:
        """Create the next file (the first at `start`). Raises: DiskFull, StoreUnreadable."""
        if not self.files:
            try:
                os.makedirs(self.folder, exist_ok=True)
            except OSError as error:
                raise refusal(self.folder, error) from error
            first = (start or 0) // self.file_size * self.file_size
        else:
            first = self.files[-1].end
        file = MappedFile.create(self.folder, first, self.file_size, keep_open=self.keep_open)
        self.files.append(file)
        return file

    def adopt(self, file: MappedFile) -> None:
        """Append a file that was created ahead."""
        self.files.append(file)

    def cut(self, position: int) -> None:
        """Delete the files that begin at or behind `position`, and zero the rest of its file; durably."""
        count = len(self.files)
        while self.files and self.files[-1].start >= position:
            self.files[-1].delete()
            self.files.pop()
        if len(self.files) < count:
            sync_folder(self.folder)
        if self.files and self.files[-1].end > position:
            self.files[-1].zero_behind(position - self.files[-1].start)

    def close(self) -> None:
        for file in self.files:
            file.close()

    def destroy(self) -> None:
        """Delete every file, and the folder if nothing else is in it."""
        while self.files:
            self.files[0].delete()
            self.files.pop(0)
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)
