"""What the kill loops share."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """It forks brokers, so that a start costs a tenth."""
    with Nursery() as found:
        yield found


_MEMORY = "/dev/shm"


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """In memory, where the system has files there: for a store that is opened a thousand times."""
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="pocketmq-crash-", dir=_MEMORY) as folder:
        yield Path(folder)
