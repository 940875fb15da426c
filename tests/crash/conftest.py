"""What the kill loops share."""

from collections.abc import Iterator

import pytest
from tests.kit.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """It forks brokers, so that a start costs a tenth."""
    with Nursery() as found:
        yield found
