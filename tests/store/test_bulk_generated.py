"""A large generated store against its generator: every body, tag and key, in bounded memory."""

import os
from pathlib import Path

import pytest

from benchmarks import bulk_store
from benchmarks.bench_bulk import verify

# The full size, 1 GiB: POCKETMQ_BULK_MIB=1024 pytest tests/store/test_bulk_generated.py
MIB = int(os.environ.get("POCKETMQ_BULK_MIB", "64"))


@pytest.mark.slow
def test_a_generated_store_is_counted_and_hashed_against_its_generator(tmp_path: Path) -> None:
    """What is held at a time does not grow with the store."""
    root = tmp_path / "bench"
    messages = MIB * 854
    # Two log files at least, so that one end of a file is in it.
    size = bulk_store.write_store(root, messages, log_file_size=min(1 << 30, MIB << 19))
    assert size > (MIB << 20) * 0.99
    before = _anonymous()
    peak = 0

    def look(_: int) -> None:
        nonlocal peak
        peak = max(peak, _anonymous() - before)

    assert verify(root, messages, batch_bytes=1 << 20, each=look).startswith(f"{messages} messages")
    # A few batches of 1 MiB (Arrow's and the generator's), and what the allocators keep.
    assert peak < 32 << 20


def _anonymous() -> int:
    """Bytes of memory of our own; mapped files are the page cache's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) << 10
    pytest.skip("this system does not say what memory a process has of its own")
