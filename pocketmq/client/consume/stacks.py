"""Stacks of this process, as jstack prints them, and where its tasks stand: a listener is often a task."""

import asyncio
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_OWN = str(Path(__file__).parents[2])
_LOOP = str(Path(asyncio.__file__).parent)


def process_stacks() -> str:
    """Return the stacks of all threads, and of the tasks of the running loop that are in others' code.

    Tasks that stand at the same line are counted.
    """
    return "\n".join([*_threads(), *_tasks()])


def _threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # pyright: ignore[reportPrivateUsage]
        lines = "".join(traceback.format_stack(frame))
        yield f"{names.get(ident, 'thread')} TID: {ident}\n{lines}\n"


def _tasks() -> Iterator[str]:
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        return
    stacks = [[*_awaited(task.get_coro())] for task in tasks - {asyncio.current_task()}]
    counts = Counter(
        "".join(traceback.StackSummary.extract(frames).format())
        for frames in ([(each, each.f_lineno) for each in stack] for stack in stacks)
        if any(not each.f_code.co_filename.startswith((_OWN, _LOOP)) for each, _ in frames)
    )
    for lines, count in counts.most_common():
        yield f"{count} task{'' if count == 1 else 's'} at\n{lines}\n"


def _awaited(coroutine: Any) -> Iterator[FrameType]:
    """Yield the frames of a coroutine and of what it awaits, the outermost first."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            yield frame
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
