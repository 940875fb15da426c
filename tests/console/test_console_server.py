"""The console as the shell sees it: its port, when it is loaded, what happens when it cannot be."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.console.config import DEFAULT_PORT
from tests.cli.servers import Server

_FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Server]]:
    servers: list[Server] = []
    yield servers
    for server in servers:
        server.kill()


def up(started: list[Server], folder: Path, *words: str, **variables: str) -> Server:
    server = Server(folder, "up", *_FREE_PORTS, *words, environment=variables)
    started.append(server)
    return server


def read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_up_prints_the_consoles_address_and_ends_cleanly_with_a_browser_open(
    started: list[Server], tmp_path: Path
) -> None:
    """`pocketmq up` prints its address; loopback; an open stream does not hold up the end."""
    server = up(started, tmp_path, "--console-port", "0")
    address = server.ready()["console"]
    assert address.startswith("http://127.0.0.1:")
    session = read(f"{address}/api/session")
    assert session["reason"] == "bound to loopback: full rights without login"
    with urllib.request.urlopen(f"{address}/api/live", timeout=60) as live:
        assert live.readline() == b"event: overview\n"
        assert server.stop(signal.SIGTERM) == 0


def test_a_default_port_in_use_is_left_for_a_free_one_and_a_chosen_one_ends_the_start(
    started: list[Server], tmp_path: Path, taken: int
) -> None:
    """A second `pocketmq up` starts as well; an explicit wish is not silently bent."""
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", DEFAULT_PORT))
            other.listen()
        except OSError:
            pass  # another program has it: just as well
        server = up(started, tmp_path)
        address = server.ready()["console"]
        assert address.rpartition(":")[2] not in (str(DEFAULT_PORT), "0")
        assert f"port {DEFAULT_PORT} is in use: the console listens on" in (
            server.log_path.read_text()
        )
        assert server.stop() == 0
    for words, variables in (
        (("--console-port", str(taken)), {}),
        ((), {"POCKETMQ_CONSOLE_PORT": str(taken)}),
        (("--set", f"consolePort={taken}"), {}),
    ):
        server = up(started, tmp_path, *words, **variables)
        assert server.end() == 2
        assert f"port {taken} on 127.0.0.1 is in use" in server.last_line()
        assert "--console-port" in server.last_line()


@pytest.mark.parametrize("words", [("--no-console",), ("--console-port", "-1")])
def test_there_is_none_when_nobody_wants_it(
    started: list[Server], tmp_path: Path, words: tuple[str, ...]
) -> None:
    """--no-console."""
    server = up(started, tmp_path, *words)
    assert "console" not in server.ready()
    assert server.stop() == 0


def test_half_a_login_ends_the_start(started: list[Server], tmp_path: Path) -> None:
    """The door is never left open by a forgotten password."""
    server = up(started, tmp_path, "--console-port", "0", "--set", "consoleUser=op")
    assert server.end() == 2
    assert "consolePassword" in server.last_line()


_LAZY = """
import asyncio, sys, urllib.request
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.cli.servers.broker_server import BrokerServer
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.server import ConsoleServer

HEAVY = ("starlette", "uvicorn", "jinja2", "prometheus_client", "pocketmq.client", "pocketmq.admin")

def loaded():
    return [name for name in HEAVY if name in sys.modules]

async def main():
    print(loaded())
    console = ConsoleServer(ConsoleConfig(port=0), {"name_server": sys.argv[1]})
    console.bind()
    print(loaded())
    async with console:
        while "pocketmq.console.state" not in sys.modules:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        print(loaded())
        url = console.address + "/api/session"
        await asyncio.to_thread(lambda: urllib.request.urlopen(url).read())
        print("uvicorn" in sys.modules)

asyncio.run(main())
"""


def test_the_web_server_is_loaded_when_the_first_browser_comes(
    started: list[Server], tmp_path: Path
) -> None:
    """Start to ready under 1 s with the console, idle memory: nothing heavy before it is needed."""
    namesrv = up(started, tmp_path, "--no-console").ready()["namesrv"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _LAZY, namesrv],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[]",
        "[]",
        "['pocketmq.client', 'pocketmq.admin']",
        "True",
    ]


def test_idle_memory_stays_under_80_mb_with_the_console_open(
    started: list[Server], tmp_path: Path
) -> None:
    """Idle memory under 80 MB with the console."""
    server = up(started, tmp_path, "--console-port", "0")
    address = server.ready()["console"]
    for path in ("/api/overview", "/api/topics", "/api/groups", "/metrics"):
        with urllib.request.urlopen(address + path, timeout=60) as answer:
            assert answer.status == 200
    status = Path(f"/proc/{server.process.pid}/status")
    if not status.exists():
        pytest.skip("memory is read from /proc")
    [line] = [each for each in status.read_text().splitlines() if each.startswith("VmRSS")]
    assert int(line.split()[1]) < 80 * 1024
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(address + "/api/none", timeout=60)
    assert server.stop() == 0
