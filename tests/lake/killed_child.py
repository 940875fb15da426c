"""Runs `pocketmq lake` and its upkeep again and again, and kills each run at a step.

    killed_child.py STORE WAREHOUSE iceberg|delta

Reads the number of a step from each line of standard input, forks, and lets the fork copy the store until it
has come to that step, where it kills itself with -9. 0: it is not killed. Answers with the number of steps
that the run made, or -9. A fork costs a tenth of a new process, which imports pyiceberg.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile

from pocketmq.lake import expire
from pocketmq.lake.catalog import opened_catalog
from pocketmq.lake.copy import LakeCopy
from pocketmq.lake.delta import DeltaLakeTable, DeltaTables
from pocketmq.lake.files import FileSource
from pocketmq.lake.iceberg import IcebergTables
from pocketmq.lake.maintain import Upkeep
from tests.lake.lakes import SMALL, source

# What changes anything on the disk; each is two steps: before it, and after it.
STEPS: list[tuple[object, str]] = [
    (SqlCatalog, "create_namespace"),
    (SqlCatalog, "create_table"),
    # Data, manifests, lists of manifests and metadata: afterwards the file is there, and empty.
    (PyArrowFile, "create"),
    (FileSource, "make_durable"),
    (SqlCatalog, "commit_table"),
    (expire, "delete_file"),
    (DeltaTable, "create_write_transaction"),
    (DeltaLakeTable, "_write_file"),
]
UPKEEP = Upkeep(merge=True, keep_ms=-(1 << 45), few=1, unnamed_ms=-(1 << 45))


class Steps:
    """Counts steps, and kills this process at one of them."""

    def __init__(self, last: int) -> None:
        self.made = 0
        self._last = last
        for kind, name in STEPS:
            setattr(kind, name, self._counted(getattr(kind, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*words: Any, **more: Any) -> Any:
            self._step()
            result = call(*words, **more)
            self._step()
            return result

        return counted

    def _step(self) -> None:
        self.made += 1
        if self.made == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def run(store: Path, warehouse: Path, table_format: str, last: int) -> int:
    steps = Steps(last)
    if table_format == "delta":
        LakeCopy(DeltaTables(str(warehouse)), source(store), SMALL).round()
        return steps.made
    with opened_catalog(str(warehouse)) as catalog:
        copy = LakeCopy(IcebergTables(catalog), source(store), SMALL)
        copy.round()
        copy.maintain(UPKEEP)
    return steps.made


def main() -> None:
    store, warehouse = map(Path, sys.argv[1:3])
    for line in sys.stdin:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, str(run(store, warehouse, sys.argv[3], int(line))).encode())
            os._exit(0)
        os.close(writer)
        _, status = os.waitpid(child, 0)
        made = os.read(reader, 20).decode()
        os.close(reader)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        sys.stdout.write(("-9" if killed else made or "failed") + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
