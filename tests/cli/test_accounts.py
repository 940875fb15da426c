"""`pocketmq account`, and mqadmin's five commands that do the same, at a broker that checks signatures."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pocketmq.cli import app
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.mqadmin import main as mqadmin
from pocketmq.client import Credentials, Message
from pocketmq.client.sync import Producer
from pocketmq.remoting.errors import PocketMQError
from tests.cli.servers import Server

SECRET = "secret-words"
ACCOUNTS = f"accounts: [{{accessKey: operator, secretKey: {SECRET}, admin: true}}]\n"
Say = Callable[..., str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], Path]]:
    folder = tmp_path_factory.mktemp("accounts")
    file = folder / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--no-console", "--broker-name", "a"]
    access = ["--set", "aclEnable=true", "--set", f"aclFile={file}"]
    server = Server(folder, "up", *ports, "--data", "store", *access)
    try:
        yield server.ready(), file
    finally:
        server.kill()


@pytest.fixture
def say(
    site: tuple[dict[str, str], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Say:
    monkeypatch.setenv("POCKETMQ_ACCESS_KEY", "operator")
    monkeypatch.setenv("POCKETMQ_SECRET_KEY", SECRET)

    def said(run: Callable[[list[str]], int], *words: str, code: int = 0) -> str:
        assert run([*words, "-n", site[0]["namesrv"]]) == code
        shown = capsys.readouterr()
        return shown.err if code else shown.out

    return said


def may_send(namesrv: str, key: str) -> bool:
    try:
        signer = Credentials(key, SECRET)
        with Producer("p", name_server=namesrv, credentials=signer, retry_times=0) as producer:
            producer.send(Message("T", b"x"))
    except PocketMQError:
        return False
    return True


def test_an_account_is_made_used_changed_and_deleted(
    say: Say, site: tuple[dict[str, str], Path]
) -> None:
    namesrv = site[0]["namesrv"]
    say(app.run, "topic", "create", "T")
    assert not may_send(namesrv, "orders-app")
    rights = ("--topic", "T=PUB|SUB", "--group", "g=SUB")
    say(app.run, "account", "set", "orders-app", "--secret", SECRET, *rights)
    assert may_send(namesrv, "orders-app")
    rows: list[dict[str, Any]] = json.loads(say(app.run, "account", "list", "--json"))
    assert [row["accessKey"] for row in rows] == ["operator", "orders-app"]
    assert (
        rows[1] | {"broker": "a", "topicPerms": ["T=PUB|SUB"], "defaultTopicPerm": "DENY"}
        == rows[1]
    )
    assert SECRET not in say(app.run, "account", "list")
    say(app.run, "account", "set", "orders-app", "--secret", SECRET, "--topic", "T=SUB")
    assert not may_send(namesrv, "orders-app")
    say(app.run, "account", "delete", "orders-app", "--yes")
    assert len(json.loads(say(app.run, "account", "list", "--json"))) == 1
    said = say(app.run, "account", "delete", "orders-app", "--yes", code=1)
    assert "has no account 'orders-app'" in said


def test_a_secret_comes_from_a_file_or_gets_a_warning(
    say: Say, site: tuple[dict[str, str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is the same in both cases: the account can send."""
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    rights = ("--topic", "T=PUB", "--group", "p=PUB")
    words = ("account", "set", "by-file", *rights)
    say(app.run, "topic", "create", "T")
    at = ("-n", site[0]["namesrv"])
    assert app.run([*words, "--secret-file", str(file), *at]) == 0
    assert capsys.readouterr().err == ""
    assert may_send(site[0]["namesrv"], "by-file")
    assert app.run([*words, "--secret", SECRET, *at]) == 0
    assert "list of processes" in capsys.readouterr().err
    with pytest.raises(CannotBegin, match="is empty"):
        app.run([*words, "--secret-file", "/dev/null", *at])
    say(app.run, "account", "delete", "by-file", "--yes")


def test_mqadmins_five_commands_do_the_same(say: Say, site: tuple[dict[str, str], Path]) -> None:
    ready, file = site
    at = ("-b", ready["broker"])
    run = mqadmin.run
    perms = ("-t", "T=PUB", "-g", "g=SUB,h=DENY", "-i", "DENY", "-u", "SUB", "-m", "false")
    said = say(run, "updateAclConfig", *at, "-a", "made-here", "-s", SECRET, *perms)
    assert said == f"create or update plain access config to {ready['broker']} success.\n"
    assert may_send(ready["namesrv"], "made-here")
    said = say(run, "getAclConfig", "-c", "DefaultCluster")
    assert "  groupPerms        : [g=SUB, h=DENY]\n" in said
    assert SECRET not in said
    (row,) = [
        line.split()
        for line in say(run, "clusterAclConfigVersion", *at).splitlines()
        if line.startswith("DefaultCluster")
    ]
    assert row[1:4] == ["a", ready["broker"], str(file)]
    said = say(run, "deleteAclConfig", "-c", "DefaultCluster", "-a", "made-here")
    assert said.endswith("account's accesskey is:made-here\n")
    say(run, "updateGlobalWhiteAddr", *at, "-g", "192.0.2.1,192.0.2.2")
    content = yaml.safe_load(file.read_text())
    assert content["globalWhiteRemoteAddresses"] == ["192.0.2.1", "192.0.2.2"]
    assert [each["accessKey"] for each in content["accounts"]] == ["operator"]
