"""Threads: a pool for blocking calls that still works when the system refuses new threads.

A pool of the standard library starts a thread when a call comes and none is free. Where that fails (a limit
for processes or memory that another program has used up) it raises RuntimeError, but keeps the call: it
runs later, perhaps after a newer one. Here the first thread is started with the pool, and takes over what
others cannot be started for.
"""

from concurrent.futures import ThreadPoolExecutor


class Threads(ThreadPoolExecutor):
    """At most `count` threads, at least one. Raises: RuntimeError at the start, if there is not even one."""

    def __init__(self, count: int, name: str) -> None:
        super().__init__(count, thread_name_prefix=name)
        self.submit(int)

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not any(thread.is_alive() for thread in self._threads):
                raise
