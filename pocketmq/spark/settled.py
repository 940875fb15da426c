"""Four habits of Spark's Python processes, and how to end them: two cost a short query as much as its work.

Spark collects garbage after every call of theirs, and looks at all that they have imported: 10 ms of CPU a
call, two calls a query and one a task.

glibc gives the memory of each batch's arrays back to the system, and takes it anew for the next batch, with a
fault for every page of 4 KiB: 30 ms of CPU for a GiB of log, where only tags are read.

PySpark's daemon prints the traceback of a BrokenPipeError where Spark closes the socket of a process that has
something to say: of a task where a LIMIT is reached, and of any process where the session stops.

An error reaches the user as the last line of a traceback, ten to thirty lines below Spark's own words.
"""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from pocketmq.remoting.errors import CallerError, PocketMQError

if TYPE_CHECKING:
    import socket

    Worker = Callable[[socket.socket, bool], int]

# What Spark calls of sources, readers and writers.
_CALLS = (
    "__init__", "schema", "reader", "streamReader", "writer", "streamWriter", "partitions", "read", "write",
    "commit", "abort", "initialOffset", "latestOffset", "prepareForTriggerAvailableNow", "reportLatestOffset",
)  # fmt: skip

# What runs in the processes that Spark starts.
_OF_SPARK = ("pyspark.", "pocketmq.spark.daemon")
_T = TypeVar("_T")
_settled = False
# Blocks of up to this size stay with the process when they are freed, together twice as much. Batches are
# smaller.
_KEPT = 16 << 20


def settle() -> None:
    """Leave what is there now out of later collections: once a process, when most is imported.

    The environment shows that Spark uses a process again; any other process is left as it is.
    """
    global _settled
    if not _settled and os.environ.get("SPARK_REUSE_WORKER"):
        # Once only: garbage that is there stays for ever, and that of imports alone is little.
        gc.freeze()
        # The daemon of planners cannot be chosen: spark.python.daemon.module is that of tasks.
        daemon: Any = sys.modules["__main__"]
        if getattr(daemon.__spec__, "name", "") == "pyspark.daemon" and hasattr(daemon, "worker"):
            daemon.worker = quiet(daemon.worker)
    _settled = True


def quiet(worker: "Worker") -> Any:
    """Return a daemon's function that serves a call, without the text for an answer that is never read."""

    def serve(sock: "socket.socket", authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except BrokenPipeError:
            # As the daemon does after its text.
            os._exit(1)

    return serve


def keep_freed() -> None:
    """Keep what a task frees for its next batch, in a process that Spark uses again.

    A block that glibc had from the system raises, when it is freed, the size from which it has blocks from
    there, and twice that is what it keeps of free memory: mallopt(3), "dynamic mmap threshold". Nothing is
    written to the block, so it costs a call. Other allocators take no notice.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):
        import numpy as np

        np.empty(_KEPT, np.uint8)


def sentence_first(kind: type[_T]) -> type[_T]:
    """Let an error that one of Spark's calls of this class raises begin with its sentence.

    The traceback follows, unless the error is one that the caller can mend.
    """
    for name in _CALLS:
        call = vars(kind).get(name)
        if call is not None:
            setattr(kind, name, _told(call))
    return kind


def _told(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def told(*given: Any, **named: Any) -> Any:
        try:
            result = call(*given, **named)
        except PocketMQError as error:
            _say_first(error)
            raise
        return _each(result) if isinstance(result, Iterator) else result

    return told


def _each(rows: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from rows
    except PocketMQError as error:
        _say_first(error)
        raise


def _say_first(error: PocketMQError) -> None:
    """Have Spark write the error without a traceback, which becomes a note below it.

    The process ends with the error, and its environment with it.
    """
    main = getattr(sys.modules["__main__"].__spec__, "name", "")
    if not main.startswith(_OF_SPARK) or "SPARK_HIDE_TRACEBACK" in os.environ:
        return
    os.environ["SPARK_HIDE_TRACEBACK"] = "1"
    if not isinstance(error, CallerError):
        import traceback

        frames = "".join(traceback.format_tb(error.__traceback__))
        error.add_note(f"Traceback (most recent call last):\n{frames}")
