"""Where Arrow takes memory from while rows are copied."""

import os

import pyarrow as pa


def use_thrifty_memory() -> None:
    """Take Arrow's memory from jemalloc, else from the C library, unless ARROW_DEFAULT_MEMORY_POOL is set.

    Batches come and go. mimalloc, Arrow's usual one, gives freed memory back to the system and gets it again
    page by page: a fifth of a copy's CPU.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" in os.environ:
        return
    try:
        pool = pa.jemalloc_memory_pool()
    except NotImplementedError:
        # Not in wheels for Windows, nor in every build.
        pool = pa.system_memory_pool()
    pa.set_memory_pool(pool)
