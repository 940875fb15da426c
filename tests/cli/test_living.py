"""The command line to live in: sites by name, tables that follow, the busiest topics, measuring."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli.app import GROUPS, SINGLE, run
from pocketmq.cli.commands import watch
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.servers.server_options import HELP
from pocketmq.testing import InProcess
from tests.cli.machine_keys import checked
from tests.cli.servers import COMMAND


@pytest.fixture(scope="module")
def server() -> Iterator[InProcess]:
    with InProcess() as running:
        running.send("Orders", "x")
        yield running


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What a command prints as JSON."""
    assert run([*words, "--json"]) == 0
    return checked(words, json.loads(capsys.readouterr().out))


def started(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True)


def test_a_context_is_saved_selected_and_used(
    server: InProcess,
    capsys: pytest.CaptureFixture[str],
    config_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The selected one, then the environment, then --namesrv; secrets are the owner's alone."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("POCKETMQ_SECRET_KEY", "12345678")
    saved = shown(capsys, "context", "save", "test", "-n", server.namesrv, "--access-key", "me")
    assert (saved["namesrv"], saved["accessKey"], saved["selected"]) == (
        server.namesrv,
        "me",
        True,
    )
    monkeypatch.delenv("POCKETMQ_SECRET_KEY")
    assert "12345678" not in str(shown(capsys, "context", "list"))
    file = config_home / "pocketmq" / "contexts.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "Orders" in shown(capsys, "topic", "list")
    shown(capsys, "context", "select", "kept")
    assert run(["topic", "list"]) == 1
    monkeypatch.setenv("NAMESRV_ADDR", server.namesrv)
    assert "Orders" in shown(capsys, "topic", "list")
    monkeypatch.setenv("POCKETMQ_CONTEXT", "kept")
    assert run(["topic", "list"]) == 1
    assert "Orders" in shown(capsys, "topic", "list", "-n", server.namesrv)
    monkeypatch.setenv("POCKETMQ_CONTEXT", "nope")
    with pytest.raises(CannotBegin, match="context list"):
        run(["topic", "list"])


def test_a_named_context_is_that_of_one_command(server: InProcess) -> None:
    """Its name may stand before the command, or behind it."""
    subprocess.run([*COMMAND, "context", "save", "test", "-n", server.namesrv], check=True)
    words = [*COMMAND, "topic", "list", "--json", "--context", "test"]
    listed = subprocess.run(words, capture_output=True, check=True)
    assert "Orders" in json.loads(listed.stdout)


def test_a_context_knows_its_authorities_from_every_folder(
    capsys: pytest.CaptureFixture[str],
    config_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What the options say is left in the environment of the command's process.
    monkeypatch.setenv("POCKETMQ_TLS_CA", "")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CannotBegin, match="there is no file"):
        run(["context", "save", "safe", "--tls-ca", "ca.pem"])
    (tmp_path / "ca.pem").touch()
    saved = shown(capsys, "context", "save", "safe", "--tls-ca", "ca.pem")
    assert (saved["tls"], saved["tlsCa"]) == (True, str(tmp_path / "ca.pem"))


def test_a_list_is_shown_again_until_ctrl_c(server: InProcess) -> None:
    """What has come meanwhile is in the next one."""
    child = started("topic", "list", "-n", server.namesrv, "--watch", "0.05")
    assert child.stdout is not None
    with child:
        assert any(line == "Orders\n" for line in child.stdout)
        server.send("Later", "x")
        assert any(line == "Later\n" for line in child.stdout)
        child.send_signal(signal.SIGINT)
        child.stdout.read()
    assert child.returncode == 0


@pytest.mark.parametrize(
    "words", ["topic delete T --watch 1", "topic list --watch no", "group list --watch=0"]
)
def test_watch_takes_showing_commands_and_an_interval(words: str) -> None:
    with pytest.raises(CannotBegin, match="--watch"):
        watch.taken_out(words.split())


def test_top_shows_rates_and_the_worst_groups(
    server: InProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(5):
        server.send("Busy", str(number))
    at = ["-n", server.namesrv]
    assert run(["group", "create", "behind", *at]) == 0
    assert run(["offset", "reset", "behind", "Busy", "--to", "earliest", "--yes", *at]) == 0
    capsys.readouterr()
    found = shown(capsys, "top", "-n", server.namesrv, "--every", "0.1")
    assert {row["topic"]: row["messages"] for row in found["topics"]}["Busy"] == 5
    assert found["failing"] == []
    first = found["groups"][0]
    assert (first["group"], first["lag"], first["emptyInS"]) == ("behind", 5, None)
    assert run(["top", "-n", server.namesrv, "--every", "0.1", "--once"]) == 0
    assert "empty in s" in capsys.readouterr().out


def test_top_names_brokers_that_do_not_serve(
    server: InProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = server.running.parts.messages.store.side_tasks
    # No task of the broker has this name: a round of its own that goes well ends a trouble.
    tasks.failed("a-round", OSError("the disk is full"))
    try:
        [row] = shown(capsys, "top", "-n", server.namesrv)["failing"]
        assert row["broker"] == "pocketmq"
        assert "a-round fails and is tried again: the disk is full" in row["state"]
        assert run(["top", "-n", server.namesrv, "--once"]) == 0
        assert "the disk is full" in capsys.readouterr().out
    finally:
        tasks.went_well("a-round")


def test_what_a_member_of_a_group_prints_is_committed(
    server: InProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next member of the group continues behind it."""
    for number in range(3):
        server.send("Eaten", str(number))
    words = [
        "message",
        "consume",
        "Eaten",
        "--group",
        "eaters",
        "--from-first",
        "-n",
        server.namesrv,
    ]
    bodies = []
    for _ in range(3):
        assert run([*words, "--count", "1", "--json"]) == 0
        bodies.append(json.loads(capsys.readouterr().out)["body"])
    assert sorted(bodies) == ["0", "1", "2"]
    progress = shown(capsys, "offset", "show", "eaters", "-n", server.namesrv)
    assert sum(row["lag"] for row in progress) == 0


@pytest.mark.parametrize(
    ("topic", "said"), [("Quiet", ""), ("Nowhere", "the topic does not exist yet")]
)
def test_an_idle_member_says_on_a_terminal_that_it_waits(
    server: InProcess, topic: str, said: str
) -> None:
    """Once, on standard error; what comes then is consumed."""
    if not said:
        assert run(["topic", "create", topic, "-n", server.namesrv]) == 0
    ours, theirs = pty.openpty()
    words = ["message", "consume", topic, "--group", f"{topic}_readers", "--from-first"]
    command = [*COMMAND, *words, "--count", "1", "-n", server.namesrv]
    told = b""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True) as child:
        os.close(theirs)
        while b"Ctrl-C to stop" not in told:
            told += os.read(ours, 4096)
        server.send(topic, "at last")
        shown_then, _ = child.communicate()
    os.close(ours)
    assert said.encode() in told
    assert "at last" in shown_then
    assert child.returncode == 0


def got(server: InProcess, capsys: pytest.CaptureFixture[str]) -> int:
    """Messages that consumers got today."""
    [numbers] = shown(capsys, "cluster", "numbers", "-n", server.namesrv).values()
    return int(numbers["msgGetTotalTodayNow"])


def test_a_measurement_sweeps_sizes_and_rates(
    server: InProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-n", server.namesrv, "--count", "30", "--size", "32,64", "--rate", "0,2000"]
    rows = shown(capsys, "bench", "produce", *words)
    assert [(row["size"], row["rate"]) for row in rows] == [
        (32, 0),
        (32, 2000),
        (64, 0),
        (64, 2000),
    ]
    assert all(
        sum(each["messages"] for each in row["latency"]) == row["messages"] == 30 for row in rows
    )
    # 30 messages at 2,000 a second take 15 ms at least.
    assert all(row["seconds"] >= 0.014 for row in rows if row["rate"])
    # Of the 120 that the topic holds none is read: the figures would be those of old messages.
    read = got(server, capsys)
    [row] = shown(capsys, "bench", "both", "-n", server.namesrv, "--count", "30")
    assert row["messages"] == 30
    assert got(server, capsys) == read + 30
    for listed in ("group", "topic"):
        assert "pocketmq-bench" not in str(shown(capsys, listed, "list", "--all", *words[:2]))
    assert run(["bench", "produce", *words, "--csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("size,rate,messages,")
    assert len(lines) == 5
    assert run(["bench", "produce", *words, "--histogram"]) == 0
    assert "###" in capsys.readouterr().out
    shown(capsys, "topic", "create", "Hollow", "-n", server.namesrv)
    assert run(["bench", "consume", "--topic", "Hollow", "--csv", "-n", server.namesrv]) == 0
    # An empty line would be a row.
    assert capsys.readouterr().out == ""


def test_a_terminal_shows_how_far_a_measurement_is(server: InProcess) -> None:
    """A bar on standard error, gone when it is done; the figures stand alone on standard output."""
    ours, theirs = pty.openpty()
    words = ["bench", "produce", "-n", server.namesrv, "--count", "40", "--rate", "200", "--csv"]
    as_terminal = {**os.environ, "TERM": "xterm"}
    child = subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=theirs, text=True, env=as_terminal
    )
    os.close(theirs)
    shown = b""
    with child, suppress(OSError):
        # An error, once the child has ended and all is read.
        while True:
            shown += os.read(ours, 65_536)
    os.close(ours)
    assert child.returncode == 0
    assert b"1/1  128 B" in shown


def test_ctrl_c_keeps_what_was_measured(server: InProcess) -> None:
    words = [
        "bench",
        "produce",
        "-n",
        server.namesrv,
        "--count",
        "100000",
        "--rate",
        "200",
        "--csv",
    ]
    child = started(*words, "--topic", "Long")
    server.wait_for_messages("Long", 5)
    child.send_signal(signal.SIGINT)
    assert child.stdout is not None
    _, row = child.stdout.read().splitlines()
    child.stdout.close()
    assert child.wait() == 0
    assert int(row.split(",")[2]) > 0


# Starts each command as a process of its own would, in a fork after what all of them need: Python and typer.
_COMMANDS_IN_FORKS = """
import json, os, sys, typer
from pocketmq.cli.__main__ import main
for words in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        sys.stdout = open(os.devnull, "w")
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
        os.write(1, (json.dumps([words, code, list(sys.modules)]) + "\\n").encode())
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_no_command_imports_what_it_does_not_use(server: InProcess, tmp_path: Path) -> None:
    """What made every command start in three times as long: each other's modules, the store, numpy, pydantic.

    Counted in modules, since a clock on a busy machine proves nothing: 180 of them are 0.1 CPU-s.
    """
    asking = ["topic", "list", "-n", server.namesrv]
    # A command of a group imports what the group does: its module.
    called = [[word, "--help"] for word in ("", *GROUPS, *SINGLE, *HELP, "health")]
    called[0] = ["--help"]
    called += [["message", "send", "--help"], ["context", "list"], asking]
    (tmp_path / "commitlog").mkdir()
    nothing_to_copy = ["store", "archive", str(tmp_path), str(tmp_path / "archive")]
    only_looking = ["migrate", "--broker", "pocketmq", "-n", server.namesrv, "--check"]
    data = ["--data", str(tmp_path / "data")]
    outwards, inwards = (
        [*only_looking, "--to", "f"],
        [*only_looking, *data, "--from", server.namesrv],
    )
    called += [nothing_to_copy, outwards, inwards]
    done = subprocess.run(
        [sys.executable, "-c", _COMMANDS_IN_FORKS],
        input=json.dumps(called),
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == called
    assert len(rows) > 20
    for words, code, modules in rows:
        imported = set(modules)
        assert code in (0, None), words
        if words == nothing_to_copy:
            assert not imported & {"pyarrow.compute", "pyarrow.fs", "asyncio"}
            continue
        if words in (outwards, inwards):
            # It may become a broker, but looks first.
            assert not imported & {"numpy", "pocketmq.store", "pocketmq.broker.broker"}
            continue
        assert not imported & {
            "numpy",
            "pocketmq.store",
            "pocketmq.broker",
            "prometheus_client",
            "pydantic",
        }, words
        # A server's help is parsed where its event loop is.
        assert ("asyncio" in imported) == (words == asking or words[0] in HELP), words
        # A table takes rich, a question to a cluster the client, a server its event loop.
        most = {"context list": 240, "topic list": 310}.get(" ".join(words[:2]))
        most = most or (220 if words[0] in HELP else 180)
        assert len(imported) <= most, words
        groups = {name for name in imported if name.endswith("_commands")}
        # Dead letters and delays are shown as messages are.
        assert len(groups) <= 2, words
