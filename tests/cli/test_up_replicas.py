"""`pocketmq up --replicas N`: a master and its slaves, one command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.servers import COMMAND, Server
from tests.house.doc_blocks import ROOT, blocks
from tests.kit.waiting import until

_PAGE = ROOT / "docs" / "replicas.md"


def test_the_program_of_the_page_kills_either_and_loses_nothing(
    started: list[Server], tmp_path: Path
) -> None:
    """Both are started again on their folders; every message that was acknowledged is there."""
    words = ["--replicas", "2", "--data", "pair", "--namesrv-port", "0", "--broker-port", "0"]
    server = Server(tmp_path, "up", *words, "--broker-name", "b", "--no-console")
    started.append(server)
    ready = server.ready()
    master, slave = ready["broker"].split(",")
    assert (ready["name"], ready["replicas"]) == ("b", "2")
    assert (tmp_path / "pair" / "replica-1").is_dir()

    def rows() -> list[dict[str, object]]:
        command = [*COMMAND, "ha", "status", "--namesrv", ready["namesrv"], "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found: list[dict[str, object]] = json.loads(done.stdout)
        return found

    until(lambda: rows()[0]["inSync"] == 1, "the slave is in sync")
    assert [(row["address"], row["role"]) for row in rows()] == [
        (master, "SYNC_MASTER"),
        (slave, "SLAVE"),
    ]
    # By the address that an operator knows, not by its HA port.
    assert [row["follows"] for row in rows()] == ["", master]
    words = ["ha", "promote", slave, "--namesrv", ready["namesrv"]]
    refused = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith(
        "pocketmq: changing the broker's role (promote) was refused by "
    )
    assert f"the master {master} is online and answers as SYNC_MASTER" in refused.stderr
    [program] = blocks(_PAGE, "python")
    path = tmp_path / "kill_one.py"
    path.write_text(program.text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(path), ready["namesrv"], *ready["pids"].split(",")],
        capture_output=True,
        text=True,
        check=False,
        # It reads until it has everything: without this a lost message would hold up the run.
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("acknowledged, none lost\n")
    assert int(done.stdout.split()[0]) >= 300
    log = server.log_path.read_text()
    assert log.count("a broker died and is being restarted name=b") == 2
    assert server.stop() == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--replicas", "1"], "a number from 2 to 64"),
        (["--replicas", "2", "--brokers", "2"], "cannot be combined"),
    ],
)
def test_what_cannot_begin(
    words: list[str], reason: str, started: list[Server], tmp_path: Path
) -> None:
    server = Server(tmp_path, "up", *words)
    started.append(server)
    assert server.end() == 2
    assert reason in server.last_line()
