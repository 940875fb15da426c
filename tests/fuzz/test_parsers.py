"""R12: whatever bytes come, each parser gives a value or its own error, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.store import MessageStore, StoreError
from tests.fuzz.mutation import fuzz
from tests.fuzz.targets import BATCHES, TARGETS
from tests.store.stores import HOST, open_store


@pytest.fixture
def examples(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--fuzz-examples"))


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_read_or_refused(name: str, examples: int) -> None:
    fuzz(TARGETS[name].check, TARGETS[name].corpus, examples)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    found = open_store(tmp_path, mapped_file_size_commit_log=1 << 24)
    yield found
    found.close()


def test_a_batch_is_stored_whole_or_refused(store: MessageStore, examples: int) -> None:
    def check(data: bytes) -> None:
        before = store.max_offset("T", 0)
        try:
            stored = store.append_batch("T", 0, data, b"CLUSTER\x01c\x02", 0, 1, HOST)
        except StoreError:
            assert store.max_offset("T", 0) == before
        else:
            assert store.max_offset("T", 0) == before + stored.count

    fuzz(check, BATCHES, examples)
