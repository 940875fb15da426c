"""One round of the index's task, apart from IndexService, which may be compiled: coroutines may not."""

import asyncio
from collections.abc import Sized
from importlib import import_module
from typing import Protocol

from pocketmq.remoting.clock import Clock
from pocketmq.store.errors import CannotIndex

# While others use the loop, reading the log again takes a quarter of it.
_OTHERS_SHARE = 3
_PAUSE_S = 0.05


class Indexing(Protocol):
    """The index, as its task sees it: index_service.IndexService."""

    has_numpy: bool

    @property
    def pending(self) -> Sized: ...
    @property
    def has_enough(self) -> bool: ...
    @property
    def wants_numpy(self) -> bool: ...
    @property
    def reads_log(self) -> bool: ...
    def step(self) -> int: ...


async def index_round(index: Indexing, wake: asyncio.Event, clock: Clock) -> None:
    """Index some of what was appended, once there is enough of it."""
    if not index.has_enough:
        # One step over many records is far cheaper than many over a few: let them gather.
        if not index.pending:
            await wake.wait()
        wake.clear()
        await asyncio.sleep(_PAUSE_S)
    if index.wants_numpy:
        # Importing numpy takes 0.14 s: in a thread, so that no send waits.
        for name in ("index.index_keys", "index.index_columns", "log.alike_batch"):
            try:
                await asyncio.get_running_loop().run_in_executor(
                    None, import_module, f"pocketmq.store.{name}"
                )
            except ImportError as error:
                # Its libraries are mapped now: a limit of memory, or files that an update has replaced.
                reason = str(error).strip().rpartition("\n")[2]
                raise CannotIndex(reason) from error
        index.has_numpy = True
    began_ms = clock.monotonic_ms()
    index.step()
    took_ms = clock.monotonic_ms() - began_ms
    await asyncio.sleep(0)
    if index.reads_log and clock.monotonic_ms() - began_ms > took_ms:
        await asyncio.sleep(_OTHERS_SHARE * took_ms / 1000)
