"""Servers that end with the test; and no test reads or writes the contexts of the developer."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.servers import Server


@pytest.fixture(autouse=True)
def config_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """$XDG_CONFIG_HOME, with a context `kept` that is not selected."""
    folder = tmp_path_factory.mktemp("config")
    (folder / "pocketmq").mkdir(parents=True)
    contexts = {"selected": None, "contexts": {"kept": {"NAMESRV_ADDR": "127.0.0.1:1"}}}
    (folder / "pocketmq" / "contexts.json").write_text(json.dumps(contexts))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    return folder


@pytest.fixture
def started() -> Iterator[list[Server]]:
    servers: list[Server] = []
    yield servers
    for server in servers:
        server.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
