"""`pocketmq subs`: export what runs, change it, learn what the change does."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.cli.app import run
from pocketmq.cli.exits import CannotBegin
from pocketmq.client import ConsumeContext, MessageExt
from pocketmq.client.sync import PushConsumer
from pocketmq.testing import InProcess
from tests.kit.waiting import until


@pytest.fixture(scope="module")
def server() -> Iterator[InProcess]:
    with InProcess() as running:
        running.send("Orders", "x")

        def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
            pass

        consumer = PushConsumer("readers", listener=listener, name_server=running.namesrv)
        consumer.subscribe("Orders", "paid || new")
        with consumer:
            until(consumer.assignment, "its queues")
            yield running


def test_what_runs_is_exported_and_planned_without_a_finding(
    server: InProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    at = ["-n", server.namesrv]
    assert run(["subs", "export", *at]) == 0
    exported = capsys.readouterr().out
    file = tmp_path / "subs.yaml"
    file.write_text(exported)
    assert run(["subs", "plan", str(file), *at]) == 0
    assert "readers: nothing is lost" in capsys.readouterr().out
    file.write_text(exported.replace("new || paid", "paid || shipped"))
    assert run(["subs", "plan", str(file), *at]) == 1
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("lost", "shipped", "dropped", "1. stop sending new"))
    assert run(["subs", "plan", str(file), *at, "--allow", "lost", "--allow", "dropped"]) == 0
    assert run(["subs", "plan", str(file), *at, "--allow", "lost"]) == 1
    with pytest.raises(CannotBegin, match="it is one of"):
        run(["subs", "plan", str(file), *at, "--allow", "all"])


def test_a_program_describes_its_consumers_without_starting_them(
    server: InProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A consumer, a function that makes one, blocking or not; the names are those of the wire."""
    (tmp_path / "shop.py").write_text(
        "from pocketmq.client import PushConsumer, sync\n"
        "async def listener(messages, context): ...\n"
        "readers = sync.PushConsumer('readers', listener=listener, name_server='nowhere:1')\n"
        "readers.subscribe('Orders', 'new || paid')\n"
        "def other():\n"
        "    made = PushConsumer('other', listener=listener, name_server='nowhere:1', namespace='n')\n"
        "    made.subscribe('Orders')\n"
        "    return made\n"
    )
    words = [sys.executable, "-m", "pocketmq.client", "--describe"]
    ran = subprocess.run(
        [*words, "shop:readers", "shop:other"], cwd=tmp_path, capture_output=True, check=True
    )
    readers, other = json.loads(ran.stdout)
    assert (other["group"], other["subscriptions"]) == ("n%other", {"n%Orders": "*"})
    file = tmp_path / "subs.json"
    file.write_text(json.dumps([readers]))
    assert run(["subs", "plan", str(file), "-n", server.namesrv, "--json"]) == 0
    [plan] = json.loads(capsys.readouterr().out)
    assert (plan["group"], plan["consequences"]) == ("readers", [])
    wrong = subprocess.run([*words, "shop:sync"], cwd=tmp_path, capture_output=True)
    assert (wrong.returncode, b"not a consumer" in wrong.stderr) == (2, True)
