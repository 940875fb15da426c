"""Writes through memory maps, seen one by one: what the files hold should the process end amid one of them.

    maps = TornMaps(tmp_path, monkeypatch)
    maps.on_write = look                look(site) is called amid each write below the folder

A store to a mapped page cannot fail like a call: where it is refused (a block that is not there, a file that
someone cut off) the kernel ends the process by SIGBUS, and Python cannot catch that. So no error is put
in; instead half of the bytes are written, and the files, which show what the maps hold, can be copied
as the dead process would leave them.
"""

import mmap
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from pocketmq.store.index.index_columns import IndexColumns
from tests.faults.faulty_disk import site


class TornMaps:
    """All maps of files below `root` that are made while this is in place, and what writes to them."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on_write: Callable[[str], None] = lambda where: None
        self._root = str(root)
        self._real = mmap.mmap
        monkeypatch.setattr(mmap, "mmap", self._map)
        for module in [m for name, m in sys.modules.items() if name.startswith("pocketmq.")]:
            for name, value in list(vars(module).items()):
                if type(value) is struct.Struct:
                    monkeypatch.setattr(module, name, _Struct(value.format))
        make = IndexColumns.__init__

        def made(columns: Any, file: Any) -> None:
            make(columns, file)
            columns._slot_array = self._array(columns._slot_array)
            columns._entry_array = self._array(columns._entry_array)

        monkeypatch.setattr(IndexColumns, "__init__", made)

    def _map(self, descriptor: int, *args: Any, **how: Any) -> mmap.mmap:
        if (
            how
            or descriptor < 0
            or not os.readlink(f"/proc/self/fd/{descriptor}").startswith(self._root)
        ):
            return self._real(descriptor, *args, **how)
        made = _Map(descriptor, *args)
        made.torn = self
        return made

    def _array(self, array: Any) -> Any:
        made = array.view(_Array)
        made.torn = self
        return made

    def amid(self) -> None:
        """A write has begun."""
        where = site()
        if where:
            self.on_write(where)


class _Map(mmap.mmap):
    torn: TornMaps

    def __setitem__(self, place: Any, data: Any) -> None:
        start, end, _ = place.indices(len(self))
        middle = (start + end) // 2
        super().__setitem__(slice(start, middle), bytes(data[: middle - start]))
        self.torn.amid()
        super().__setitem__(slice(middle, end), bytes(data[middle - start :]))


class _Struct(struct.Struct):
    def pack_into(self, buffer: Any, offset: int, *values: Any) -> None:
        if isinstance(buffer, _Map):
            buffer[offset : offset + self.size] = self.pack(*values)
        else:
            super().pack_into(buffer, offset, *values)


class _Array(numpy.ndarray[Any, Any]):
    """Of the index: its slots, or its entries."""

    torn: TornMaps | None = None

    def __array_finalize__(self, of: Any) -> None:
        self.torn = getattr(of, "torn", None)

    def __setitem__(self, place: Any, data: Any) -> None:
        if self.torn is not None:
            self.torn.amid()
        super().__setitem__(place, data)
