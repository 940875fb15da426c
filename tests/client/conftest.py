"""A server that the tests of a file share."""

from collections.abc import Iterator

import pytest

from pocketmq.testing import InProcess


@pytest.fixture(scope="module")
def server() -> Iterator[InProcess]:
    with InProcess() as running:
        yield running
