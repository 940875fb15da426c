"""`pocketmq lake` as its user runs it, in a process of its own."""

import json
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pocketmq.cli.__main__ import main
from tests.kit.waiting import PATIENCE_S
from tests.lake.lakes import add, check, held, stored, tables
from tests.store.bulk_stores import WrittenStore


class Following:
    """A process whose lines are read as they come."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pocketmq.cli", "lake", *words, "--follow", "--every", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def line(self) -> str:
        return self._lines.get(timeout=PATIENCE_S).strip()

    def stop(self) -> tuple[int, str]:
        """Ctrl-C; returns exit code and errors."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(PATIENCE_S)
        self._reader.join()
        assert self.process.stderr is not None
        errors = self.process.stderr.read()
        self.process.stdout.close()  # type: ignore[union-attr]
        self.process.stderr.close()
        return code, errors


def test_follow_adds_what_is_stored_until_ctrl_c(tmp_path: Path) -> None:
    store = WrittenStore(tmp_path / "broker-a" / "store", log_file_size=1 << 14)
    warehouse = tmp_path / "warehouse"
    add(store, 0, 40)
    following = Following(
        str(store.root), str(warehouse), "--json", "--compact", "--keep-snapshots", "7d",
        "--partition", "month,tags",
    )  # fmt: skip
    try:
        assert json.loads(following.line()) == {"rows": 40, "tables": 1, "commits": 1}
        add(store, 40, 20)
        add(store, 60, 5, topic="Refunds")
        rows, commits = 0, 0
        while rows < 25:
            line = json.loads(following.line())
            rows, commits = rows + line["rows"], line["commits"]
    finally:
        code, errors = following.stop()
    assert (code, errors) == (0, "")
    assert commits >= 3
    assert held(warehouse) == stored(store)
    assert check(warehouse, store.root).compared == 65
    with tables(warehouse) as (catalog, names):
        assert names == ["pocketmq.Orders", "pocketmq.Refunds"]
        assert len(catalog.load_table(names[0]).spec().fields) == 2


def test_delta_says_in_a_line_what_it_does_not_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = WrittenStore(tmp_path / "broker-a" / "store")
    add(store, 0, 4)
    words = ["lake", str(store.root), str(tmp_path / "warehouse"), "--format", "delta"]

    def said(*more: str) -> str:
        assert main([*words, *more]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        return line

    assert "a Delta table needs no catalog" in said("--catalog", "x")
    assert "OPTIMIZE and VACUUM" in said("--compact")
    log = tmp_path / "warehouse" / "pocketmq" / "Orders" / "_delta_log"
    (log / f"{0:020}.json").write_text("{")
    assert "Truncated record" in said()
