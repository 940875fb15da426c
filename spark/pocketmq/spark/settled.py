"""Two habits of Spark's Python processes that cost a short query as much as its work, and how to end them.

Spark collects garbage after every call of theirs, and looks at all that they have imported: 10 ms of CPU a
call, two calls a query and one a task.

glibc gives the memory of each batch's arrays back to the system, and takes it anew for the next batch, with a
fault for every page of 4 KiB: 30 ms of CPU for a GiB of log, where only tags are read.
"""

import gc
import os

_settled = False
# Blocks of up to this size stay with the process when they are freed, together twice as much. Batches are
# smaller.
_KEPT = 16 << 20


def settle() -> None:
    """Leave what is there now out of later collections: once a process, when most is imported.

    Spark tells by its environment that it uses a process again; any other is not ours to change.
    """
    global _settled
    if not _settled and os.environ.get("SPARK_REUSE_WORKER"):
        # Once only: garbage that is there stays for ever, and that of imports alone is little.
        gc.freeze()
    _settled = True


def keep_freed() -> None:
    """Keep what a task frees for its next batch, in a process that Spark uses again.

    A block that glibc had from the system raises, when it is freed, the size from which it has blocks from
    there, and twice that is what it keeps of free memory: mallopt(3), "dynamic mmap threshold". Nothing is
    written to the block, so it costs a call. Other allocators take no notice.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):
        import numpy as np

        np.empty(_KEPT, np.uint8)
