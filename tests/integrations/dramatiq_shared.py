"""What Dramatiq's cases share, filled in with ours: only the run of test_dramatiq_suite.py imports it."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dramatiq
import pytest
from dramatiq.rate_limits import backends as limits
from dramatiq.results import backends as results

from pocketmq.integrations.dramatiq import PocketmqBroker


class Stub(PocketmqBroker):
    """Ours under the name of theirs: fail_fast is not waiting for what fails, which is right here, too."""

    def join(self, queue_name: str, *, timeout: int | None = None, fail_fast: bool = True) -> None:
        super().join(queue_name, timeout=timeout)


@contextmanager
def worker(*args: Any, **options: Any) -> Iterator[dramatiq.Worker]:
    running = dramatiq.Worker(*args, **options)
    running.start()
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def stub_broker() -> Iterator[Stub]:
    broker = Stub(os.environ["POCKETMQ_SERVER"], prefix=f"{uuid.uuid4().hex[:8]}_")
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    yield broker
    broker.flush_all()
    broker.close()


@pytest.fixture
def stub_worker(stub_broker: Stub) -> Iterator[dramatiq.Worker]:
    with worker(stub_broker, worker_timeout=100, worker_threads=32) as running:
        yield running


@pytest.fixture
def result_backend() -> results.StubBackend:
    return results.StubBackend()


@pytest.fixture
def rate_limiter_backend() -> limits.StubBackend:
    return limits.StubBackend()
