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


SECRET = "secret-words"


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of a broker that checks signatures, but for those from this machine."""
    folder = tmp_path_factory.mktemp("guarded")
    accounts = folder / "plain_acl.yml"
    accounts.write_text(
        "globalWhiteRemoteAddresses: [127.0.0.1]\n"
        "accounts: [{accessKey: gone-soon, secretKey: secret-words},"
        " {accessKey: stays-here, secretKey: secret-words}]\n"
    )
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--no-console"]
    access = ("--set", "aclEnable=true", "--set", f"aclFile={accounts}")
    server = Server(folder, "up", *ports, "--data", "store", *access)
    try:
        yield server.ready()["namesrv"]
    finally:
        server.kill()


@pytest.fixture(scope="session")
def peopled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The name server of a broker with users, and a folder with a plain_acl.yml."""
    folder = tmp_path_factory.mktemp("peopled")
    account = f"{{accessKey: orders-app, secretKey: {SECRET}, topicPerms: [T=PUB]}}"
    (folder / "plain_acl.yml").write_text(f"accounts: [{account}]\n")
    first = json.dumps({"username": "operator", "password": SECRET})
    enabled = ("authenticationEnabled=true", "authorizationEnabled=true")
    settings = (*enabled, f"initAuthenticationUser={first}")
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--no-console", "--broker-name", "a"]
    sets = [word for each in settings for word in ("--set", each)]
    server = Server(folder, "up", *ports, "--data", "store", *sets)
    try:
        yield server.ready()["namesrv"], folder
    finally:
        server.kill()


@pytest.fixture
def signed_site(peopled: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> str:
    """Its name server, for commands that are signed by its super user, in that folder."""
    namesrv, folder = peopled
    monkeypatch.chdir(folder)
    monkeypatch.setenv("POCKETMQ_ACCESS_KEY", "operator")
    monkeypatch.setenv("POCKETMQ_SECRET_KEY", SECRET)
    return namesrv
