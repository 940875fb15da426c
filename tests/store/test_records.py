"""Where the next record of a damaged log begins."""

import mmap
from pathlib import Path

import pytest

from pocketmq.files import records
from pocketmq.files.records import next_record
from tests.store.stores import running_store, send


@pytest.mark.parametrize("searched", [1, 2, 3, 7, 64, 1 << 16])
async def test_the_next_record_is_found_wherever_the_search_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searched: int
) -> None:
    """In pieces, since a search of the whole map ended early releases of Python 3.11."""
    async with running_store(tmp_path) as store:
        for number in range(3):
            send(store, body=b"%d" % number)
        begins = [0]
        for _ in range(2):
            size = int.from_bytes(bytes(store.raw(begins[-1], 4) or b""), "big")
            begins.append(begins[-1] + size)
        end = store.commit_log_max_position
    monkeypatch.setattr(records, "_SEARCHED", searched)
    with (tmp_path / "commitlog" / f"{0:020d}").open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    assert next_record(view, 0, end, 0) == begins[0]
    assert next_record(view, 1, end, 0) == begins[1]
    assert next_record(view, begins[1] + 1, end, 0) == begins[2]
    assert next_record(view, begins[2] + 1, len(view), 0) is None
