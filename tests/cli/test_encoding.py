"""What commands print where standard output lacks the characters: escapes of JSON, and never a traceback."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.cli.encoding import texts
from pocketmq.cli.exits import CannotBegin
from pocketmq.client import Message
from pocketmq.client.sync import Producer
from tests.cli.servers import Server

BODY = "café 订单 🎉"
LACKING = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Its name server and its store: one message of characters that no Latin encoding has."""
    folder = tmp_path_factory.mktemp("site")
    server = Server(folder, *("up", "--namesrv-port", "0", "--broker-port", "0", "--data", "store"))
    namesrv = server.ready()["namesrv"]
    with Producer("P", name_server=namesrv) as producer:
        message = Message("Words", BODY.encode(), tags="标签", keys="钥匙")
        producer.send(message)
    yield namesrv, folder / "store"
    server.kill()


def run(
    words: list[str], lacking: dict[str, str], namesrv: str
) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "NAMESRV_ADDR": namesrv, **lacking}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, env=env, capture_output=True, timeout=120, check=False)


@pytest.mark.parametrize("name", LACKING)
def test_a_command_prints_escapes_for_what_the_terminal_lacks(
    name: str, site: tuple[str, Path]
) -> None:
    namesrv, store = site
    cli = "pocketmq.cli"
    for words in (
        [cli, "--help"],
        [cli, "message", "find", "Words", "--key", "钥匙"],
        [cli, "store", "dump", str(store)],
        ["pocketmq.cli.mqadmin.main", "printMsg", "-t", "Words"],
    ):
        done = run(words, LACKING[name], namesrv)
        assert (done.returncode, done.stderr) == (0, b""), words
    for words in (
        [cli, "message", "find", "Words", "--since", "1h", "--json"],
        [cli, "store", "dump", str(store), "--json"],
        [cli, "store", "export", str(store)],
    ):
        done = run(words, LACKING[name], namesrv)
        assert done.returncode == 0
        assert b"Error" not in done.stderr
        # A file of messages is UTF-8, wherever it goes.
        text = done.stdout.decode("utf-8" if "export" in words else "latin-1")
        rows = json.loads(text) if text.startswith("[") else map(json.loads, text.splitlines())
        assert "标签" in json.dumps(list(rows), ensure_ascii=False), words


def test_an_argument_that_is_no_text_is_refused_in_one_line(site: tuple[str, Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pocketmq.cli", "topic", "show", b"\xff\xfe"],
        env={**os.environ, "NAMESRV_ADDR": site[0]},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert b"is not text" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff")
    assert texts([odd, "é"]) == [odd, "é"]
    with pytest.raises(CannotBegin, match="not text"):
        texts(["\udcff"])
