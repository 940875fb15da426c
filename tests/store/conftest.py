"""Timers in a folder of the test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.timers import Timers


@pytest.fixture
def timers(tmp_path: Path) -> Iterator[Timers]:
    made = Timers(tmp_path / "store")
    yield made
    made.close()
