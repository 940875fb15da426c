"""Spark collects garbage after every call of its Python processes, and looks at all that they have imported.

That took 10 ms of CPU a call, two calls a query and one a task: as much as a third of what a short query
costs in Python.
"""

import gc
import os

_settled = False


def settle() -> None:
    """Leave what is there now out of later collections: once a process, when most is imported.

    Spark tells by its environment that it uses a process again; any other is not ours to change.
    """
    global _settled
    if not _settled and os.environ.get("SPARK_REUSE_WORKER"):
        # Once only: garbage that is there stays for ever, and that of imports alone is little.
        gc.freeze()
    _settled = True
