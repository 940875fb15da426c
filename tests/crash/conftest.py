"""What the kill loops share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.testing.folders import MEMORY, RunFolder
from tests.kit.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """It forks brokers, so that a start costs a tenth."""
    with Nursery() as found:
        yield found


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """In memory, where the system has files there: for a store that is opened a thousand times."""
    folder = RunFolder(MEMORY, "crash")
    try:
        yield Path(folder.path)
    finally:
        folder.remove()
