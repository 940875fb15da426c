"""A store that tests write to."""

from pathlib import Path

import pytest

from tests.store.bulk_stores import WrittenStore


@pytest.fixture
def store(tmp_path: Path) -> WrittenStore:
    return WrittenStore(tmp_path / "broker-a" / "store", log_file_size=1 << 14)
