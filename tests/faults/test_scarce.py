"""A system that gives a broker no more threads or memory: what needs one fails or waits, the rest works."""

import asyncio
import importlib
import threading
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from pocketmq.remoting.transport.threads import Threads
from tests.broker.serving import Peer, serving
from tests.faults.test_disk_faults import Work, nothing_missing, settings
from tests.kit.waiting import until_async


def no_more(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_pool_does_what_it_can_with_the_threads_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One by one and in order; and none at all is said when it is made."""
    pool = Threads(4, "few")
    monkeypatch.setattr(threading.Thread, "start", no_more)
    done: list[int] = []
    first, gate = threading.Event(), threading.Event()

    def hold() -> None:
        first.set()
        gate.wait()

    held = pool.submit(hold)
    first.wait()
    calls = [pool.submit(done.append, number) for number in range(10)]
    gate.set()
    for call in (held, *calls):
        call.result()
    assert done == list(range(10))
    pool.shutdown()
    with pytest.raises(RuntimeError, match="new thread"):
        Threads(1, "none")


async def test_a_broker_without_more_threads_or_memory_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first table saved in a new thread ended it, and so did an index without memory for numpy."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(Threads(8, "few"))
    lacking = True

    def import_module(name: str) -> ModuleType:
        if lacking:
            raise ImportError("many words\n\nOriginal error was: failed to map segment\n")
        return importlib.import_module(name)

    monkeypatch.setattr("pocketmq.store.index.index_round.import_module", import_module)
    async with serving(tmp_path, **settings()) as broker, await Peer.at(broker) as peer:
        tasks = broker.parts.messages.store.side_tasks
        tasks.retry_ms = 20
        with monkeypatch.context() as short:
            short.setattr(threading.Thread, "start", no_more)
            work = Work(peer)
            for _ in range(2):
                await work.round()
            await until_async(lambda: tasks.troubles)
            assert "numpy" in tasks.troubles["index"].reason
            assert "failed to map segment. Give" in tasks.troubles["index"].reason
        await until_async(partial(nothing_missing, work, peer))
        lacking = False
        await until_async(lambda: not tasks.troubles)
