"""Disk: what of a folder would be there after the machine lost its power, and calls that fail.

The product works on real files in memory, maps and all. They are the page cache; beside them a Disk keeps
the platter: what fsync has brought there.

1. fsync of a file writes the blocks that differ from what was last written; no other block is certain to
   be on the platter. Names, and lengths that were set, are kept in a journal, as ext4 and XFS do: they come
   to the platter in the order of the calls, with the fsync of a folder or of a file that was made later.
2. A power cut keeps, of each block of 4 KiB that was not synced, the old one, the new one, or a mixture by
   sectors of 512 bytes; of a length that grew by writing the old or the new; of the journal a first part.
3. An fsync that fails has written some of the blocks and forgets the others, as Linux does: the cache
   holds them, the next fsync says nothing, and after a power cut the old ones are there.
4. A killed process loses nothing that it wrote; the machine's cache outlives it.
"""

import contextlib
import copy
import errno
import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

BLOCK = 4096
SECTOR = 512
Blocks = dict[int, bytes]


@dataclass
class _File:
    """One inode: platter is durable; seen is what the cache held when it was last written back."""

    platter: Blocks = field(default_factory=dict)
    platter_size: int = 0
    seen: Blocks = field(default_factory=dict)
    seen_size: int = 0
    # What the cache holds, once no name leads to it any more.
    last: tuple[Blocks, int] | None = None


@dataclass(frozen=True)
class _Change:
    """One call, in the journal: names that lead to other inodes (None: to nothing), or a new length."""

    names: tuple[tuple[str, int | None], ...] = ()
    inode: int = 0
    size: int = 0

    def concerns(self, inode: int) -> bool:
        return inode == self.inode or any(each == inode for _, each in self.names)

    def moved(self, inodes: dict[int, int]) -> "_Change":
        """The same with other numbers."""
        names = tuple((name, inode and inodes[inode]) for name, inode in self.names)
        return _Change(names, inodes.get(self.inode, 0), self.size)


@dataclass(frozen=True)
class Fault:
    """Calls that fail: `calls` are names as in OPERATIONS, `part` is a pattern that is found in the path."""

    calls: frozenset[str]
    number: int
    part: str = ""


class Disk:
    """One machine's. `root` is the folder of its present process; paths are kept relative to it."""

    def __init__(self, base: str, chance: random.Random) -> None:
        self._base = base
        self._chance = chance
        self._generation = 0
        self.boots = 1
        self.root = f"{base}.0"
        os.makedirs(self.root)
        self._files: dict[int, _File] = {}
        # Names on the platter, and the changes that are not there yet.
        self._names: dict[str, int] = {}
        self._journal: list[_Change] = []
        self.full = False
        self.slow = 1.0
        self.faults: list[tuple[Fault, int]] = []
        # Called before each call; a crash may happen in it.
        self.on_call: Callable[[str, str], None] | None = None
        # Called with the path of each fsync that fails.
        self.on_failed_sync: Callable[[str], None] | None = None

    # ------------------------------------------------------------ what the system calls say

    def fail(self, fault: Fault, count: int = 1) -> None:
        self.faults.append((fault, count))

    def repair(self) -> None:
        """Nothing fails any more."""
        self.full = False
        self.slow = 1.0
        self.faults.clear()
        self.on_call = None

    @contextlib.contextmanager
    def looked_at(self) -> Iterator[None]:
        """Nothing fails in this block: the check of a run reads what is there, not the process."""
        full, faults, on_call = self.full, self.faults, self.on_call
        self.full, self.faults, self.on_call = False, [], None
        try:
            yield
        finally:
            self.full, self.faults, self.on_call = full, faults, on_call

    def check(self, call: str, path: str) -> None:
        """Raises: OSError where this call is to fail. call: open, reopen, allocate, shrink, write, sync,
        rename, unlink.
        """
        if self.full and call in ("open", "allocate", "write"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        for place, (fault, count) in enumerate(self.faults):
            if call in fault.calls and re.search(fault.part, path):
                if count <= 1:
                    del self.faults[place]
                else:
                    self.faults[place] = fault, count - 1
                if call == "sync" and self.on_failed_sync is not None:
                    self.on_failed_sync(path)
                raise OSError(fault.number, os.strerror(fault.number), path)

    def named(self, *names: tuple[str, int | None]) -> None:
        """The path now leads to that inode, or to nothing; on the platter when its folder is synced."""
        changes = tuple((os.path.relpath(path, self.root), inode) for path, inode in names)
        self._journal.append(_Change(changes))
        for _, inode in changes:
            if inode is not None:
                self._files.setdefault(inode, _File())

    def written(self, inode: int, start: int, size: int) -> None:
        """By a call: these blocks are to be written back, also when they hold what they held before."""
        seen = self._files.setdefault(inode, _File()).seen
        for number in range(start // BLOCK, (start + size - 1) // BLOCK + 1):
            seen.pop(number, None)

    def emptied(self, inode: int) -> None:
        """The file was opened to be written anew: all is to be written back, also what it held before."""
        self._files.setdefault(inode, _File()).seen.clear()

    def resized(self, inode: int, size: int) -> None:
        """The length of the file was set."""
        self._files.setdefault(inode, _File()).seen_size = size
        self._journal.append(_Change(inode=inode, size=size))

    def leaving(self, path: str) -> None:
        """The name is about to go: remember what the cache holds, for a power cut that keeps the name."""
        try:
            inode = os.stat(path).st_ino
        except OSError:
            return
        if inode in self._files:
            self._files[inode].last = _content(path)

    def begin_sync(self, cached: str, path: str, inode: int) -> Callable[[], None]:
        """What fsync is to bring to the platter is what the cache holds now; call the result at its end."""
        blocks, size = _content(cached)
        file = self._files.setdefault(inode, _File())
        return lambda: self._end_sync(path, inode, file, (blocks, size))

    def _end_sync(self, path: str, inode: int, file: _File, cached: tuple[Blocks, int]) -> None:
        """Raises: OSError (invariant 3)."""
        blocks, size = cached
        try:
            self.check("sync", path)
        except OSError:
            for number, block in blocks.items():
                if file.seen.get(number) != block and self._chance.random() < 0.5:
                    file.platter[number] = block
            file.seen, file.seen_size = blocks, size
            raise
        own = [number for number, each in enumerate(self._journal) if each.concerns(inode)]
        self._write_journal(own[-1] + 1 if own else 0)
        for number, block in blocks.items():
            if file.seen.get(number) != block:
                file.platter[number] = block
        for number in file.seen.keys() - blocks.keys():
            file.platter.pop(number, None)
        file.seen, file.seen_size = blocks, size
        file.platter_size = size

    def sync_folder(self, path: str) -> None:
        self.check("sync", path)
        self._write_journal(len(self._journal))

    def _write_journal(self, count: int) -> None:
        for change in self._journal[:count]:
            for name, inode in change.names:
                if inode is None:
                    self._names.pop(name, None)
                else:
                    self._names[name] = inode
            if change.inode:
                file = self._files[change.inode]
                file.platter_size = change.size
                file.platter = {
                    number: block
                    for number, block in file.platter.items()
                    if number * BLOCK < change.size
                }
        del self._journal[:count]

    # ------------------------------------------------------------ the end of a process

    def after_kill(self) -> str:
        """The folder for the next process, as the dead one left it."""
        old, new = self.root, self._next_root()
        moved: dict[int, int] = {}
        for name in _walk(old):
            inode = os.stat(os.path.join(old, name)).st_ino
            if inode in moved:
                os.link(self._by_inode(new, moved[inode]), os.path.join(new, name))
                continue
            path = _write(new, name, *_content(os.path.join(old, name)))
            moved[inode] = os.stat(path).st_ino
        for inode, file in list(self._files.items()):
            if inode not in moved:
                # Without a name; the platter may still have one.
                moved[inode] = -inode
                file.last = file.last or (file.seen, file.seen_size)
        self._files = {moved[inode]: file for inode, file in self._files.items()}
        self._names = {name: moved[inode] for name, inode in self._names.items() if inode in moved}
        self._journal = [change.moved(moved) for change in self._journal]
        self.root = new
        return new

    def cut_as(self, chance: random.Random) -> str:
        """The folder that a power cut now would leave when `chance` decides; nothing happens to this disk."""
        image = copy.copy(self)
        image._base = f"{self._base}-image"
        image._chance = chance
        image._files = copy.deepcopy(self._files)
        image._names, image._journal = dict(self._names), list(self._journal)
        return image.after_power_cut()

    def after_power_cut(self) -> str:
        """The folder for the next process: the platter, and some of what was on its way there."""
        old = self.root
        self.boots += 1
        cached: dict[int, tuple[Blocks, int]] = {}
        for name in _walk(old):
            path = os.path.join(old, name)
            cached.setdefault(os.stat(path).st_ino, _content(path))
        self._write_journal(self._chance.randint(0, len(self._journal)))
        self._journal.clear()
        new = self._next_root()
        files: dict[int, _File] = {}
        made: dict[int, str] = {}
        for name, inode in sorted(self._names.items()):
            if inode in made:
                path = os.path.join(new, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.link(made[inode], path)
                continue
            file = self._files[inode]
            blocks, size = self._left(file, cached.get(inode) or file.last or ({}, 0))
            made[inode] = path = _write(new, name, blocks, size)
            files[os.stat(path).st_ino] = _File(dict(blocks), size, blocks, size)
        inodes = {inode: os.stat(path).st_ino for inode, path in made.items()}
        self._names = {name: inodes[inode] for name, inode in self._names.items()}
        self._files = files
        self.root = new
        return new

    def _left(self, file: _File, cached: tuple[Blocks, int]) -> tuple[Blocks, int]:
        blocks = dict(file.platter)
        now, now_size = cached
        chance = self._chance
        none = bytes(BLOCK)
        for number in sorted(now.keys() | file.seen.keys()):
            new = now.get(number, none)
            if file.seen.get(number, none) == new:
                continue
            old = blocks.get(number, none)
            fate = chance.randrange(5)
            if fate < 2:
                blocks[number] = new
            elif fate == 2:
                blocks[number] = b"".join(
                    chance.choice((old, new))[at : at + SECTOR] for at in range(0, BLOCK, SECTOR)
                )
        size = file.platter_size
        if now_size != file.seen_size and chance.random() < 0.5:
            size = now_size
        return {n: block for n, block in blocks.items() if n * BLOCK < size}, size

    def _next_root(self) -> str:
        # Not `root` yet: what is written there now is no call of the product.
        self._generation += 1
        root = f"{self._base}.{self._generation}"
        os.makedirs(root)
        return root

    @staticmethod
    def _by_inode(root: str, inode: int) -> str:
        for name in _walk(root):
            if os.stat(os.path.join(root, name)).st_ino == inode:
                return os.path.join(root, name)
        raise LookupError(inode)


def _walk(root: str) -> Iterator[str]:
    """Names of all files below, in order."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            yield os.path.normpath(os.path.join(os.path.relpath(folder, root), name))


def _content(path: str) -> tuple[Blocks, int]:
    """The blocks that are not all zeros, and the length."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        found: Blocks = {}
        at = 0
        none = bytes(BLOCK)
        while at < size:
            try:
                start = os.lseek(descriptor, at, os.SEEK_DATA) // BLOCK * BLOCK
            except OSError:
                break
            at = os.lseek(descriptor, start, os.SEEK_HOLE)
            data = os.pread(descriptor, at - start, start)
            for place in range(0, len(data), BLOCK):
                block = data[place : place + BLOCK].ljust(BLOCK, b"\0")
                if block != none:
                    found[(start + place) // BLOCK] = block
        return found, size
    finally:
        os.close(descriptor)


def _write(root: str, name: str, blocks: Blocks, size: int) -> str:
    path = os.path.join(root, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        for number, block in blocks.items():
            os.pwrite(descriptor, block[: max(0, size - number * BLOCK)], number * BLOCK)
        os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)
    return path
