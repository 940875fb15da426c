"""docs/lake.md: its command and programs run in order, and read the same rows."""

import re
import subprocess
import sys
from pathlib import Path

from tests.house.doc_blocks import ROOT, blocks
from tests.store.bulk_stores import Message, WrittenStore

PAGE = ROOT / "docs" / "lake.md"
MINE = [b for b in blocks(PAGE, "python", "sh") if "lake/test_docs" in b.words.get("run by", "")]


def test_the_page_runs(tmp_path: Path) -> None:
    store = WrittenStore(tmp_path / "data" / "broker-a" / "store")
    store.add(
        Message(topic="Orders", queue_id=i % 2, properties=b"TAGS\x01t%d\x02" % (i % 3))
        for i in range(90)
    )

    def run(*words: str) -> str:
        """In a process of its own: polars changes the environment when it is imported."""
        found = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True)
        return found.stdout

    def here(text: str) -> str:
        # In one go: the folder of the tests may have one of these names itself.
        return re.sub(r"/(?=data/|lake\b)", f"{tmp_path}/", text)

    for command in [here(b.text).split() for b in MINE if b.language == "sh"]:
        assert command.pop(0) == "pocketmq"
        assert "pocketmq.Orders: 90 rows" in run("-m", "pocketmq.cli", *command)
    programs = [here(b.text) for b in MINE if b.language == "python"]
    shown = run("-c", "\nprint('=====')\n".join(programs)).split("=====")
    assert "queueOffset: int64" in shown[0]
    for text in shown[1:3]:
        words = text.replace("│", " ").replace("┆", " ").split()
        assert {"t0", "t1", "t2"} <= set(words)
        assert words.count("30") == 3
    assert "[[30,30,30]]" in "".join(shown[3].split())
