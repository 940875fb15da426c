"""`pocketmq health` and `pocketmq doctor net`, against servers that are there, and that are not."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from pocketmq.cli.address import check_advertised, container_warning
from pocketmq.cli.app import run
from pocketmq.cli.commands.health import health
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.network_check import _suspicion, _unreachable
from pocketmq.testing import InProcess
from tests.broker.serving import serving
from tests.cli.machine_keys import checked
from tests.cli.servers import Server


def up(started: list[Server], folder: Path, *words: str) -> dict[str, str]:
    server = Server(
        folder, "up", "--namesrv-port", "0", "--broker-port", "0", "--data", "store", *words
    )
    started.append(server)
    return server.ready()


async def test_health_tells_what_fails_in_a_broker_that_knows_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("accounts: [{accessKey: operator, secretKey: not-a-secret, admin: true}]")
    async with serving(tmp_path / "store", acl_enable=True, acl_file=str(accounts)) as broker:
        words = ["--namesrv", "-", "--broker", broker.listen_address]

        async def said() -> tuple[int, str]:
            code = await asyncio.to_thread(health, words)
            return code, capsys.readouterr().out.removeprefix(f"broker {broker.listen_address}: ")

        tasks = broker.parts.messages.store.side_tasks
        # No task of the broker has this name: a round of its own that goes well ends a trouble.
        tasks.failed("a-round", OSError("the disk is full"))
        assert await said() == (0, "ok\n")
        monkeypatch.setenv("POCKETMQ_ACCESS_KEY", "operator")
        monkeypatch.setenv("POCKETMQ_SECRET_KEY", "not-a-secret")
        trouble = "a-round fails and is tried again: the disk is full\n"
        assert await said() == (1, trouble)
        tasks.went_well("a-round")
        assert await said() == (0, "ok\n")


def test_health_shows_damage_that_a_broker_serves_around(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is well all the same: a restart would mend nothing. Damage that a reader meets is shown, too."""
    root = tmp_path / "store"
    with InProcess(store=str(root)) as server:
        server.create_topic("T", queues=1)
        for body in (b"first", b"second", b"third"):
            server.send("T", body)
    [log] = (root / "commitlog").iterdir()
    log.write_bytes(log.read_bytes().replace(b"second", b"sXcond"))
    with InProcess(store=str(root)) as server:
        assert health(["--namesrv", "-", "--broker", server.broker, "--json"]) == 0
        [row] = checked(["health"], json.loads(capsys.readouterr().out))
        assert row["state"] == "ok"
        [finding] = row["findings"]
        assert re.match(r"LOG_DAMAGED commitlog at \d+: .*CRC.*pocketmq store repair", finding)
        assert health(["--namesrv", "-", "--broker", server.broker]) == 0
        assert f": ok\n  {finding}\n" in capsys.readouterr().out


def test_the_doctor_names_what_fails_in_a_broker_that_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk: all could be reached, no group was sick, and the doctor was content."""
    with InProcess(store=str(tmp_path / "store")) as server:
        words = ["doctor", "--namesrv", server.namesrv]
        assert run(words) == 0
        tasks = server.running.parts.messages.store.side_tasks
        tasks.failed("a-round", OSError("the disk is full"))
        capsys.readouterr()
        assert run(words) == 1
        wanted = "fails: a-round fails and is tried again: the disk is full\n"
        assert wanted in capsys.readouterr().out


def test_health_says_by_its_exit_code_whether_both_answer(
    started: list[Server],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready = up(started, tmp_path)
    both = ["--namesrv", ready["namesrv"], "--broker", ready["broker"]]
    assert health([*both, "--timeout-ms", "30000"]) == 0
    assert capsys.readouterr().out.count(": ok\n") == 2
    # A name server's own brokers are meant, not one that happens to be at the default port.
    assert health([*both[:2], "--timeout-ms", "30000"]) == 0
    assert f"broker {ready['broker']}: ok" in capsys.readouterr().out
    # What is set for every other command counts here, too; each name server of a list is asked.
    monkeypatch.setenv("NAMESRV_ADDR", f"{ready['namesrv']};127.0.0.1:1")
    assert health(["--timeout-ms", "30000"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [lines[0], lines[2]] == [
        f"namesrv {ready['namesrv']}: ok",
        f"broker {ready['broker']}: ok",
    ]
    assert "127.0.0.1:1" in lines[1]
    monkeypatch.setenv("POCKETMQ_NAMESRV_ADDR", ready["namesrv"])
    assert health(["--timeout-ms", "30000"]) == 0
    capsys.readouterr()
    # The wrong port is called by what listens there.
    http = ready["console"].removeprefix("http://")
    for wrong, said in ((ready["broker"], "answers like a broker"), (http, "answers HTTP")):
        assert health(["--namesrv", wrong, "--broker", "-", "--timeout-ms", "30000"]) == 1
        assert f"is not a name server, it {said}" in capsys.readouterr().out
    started[0].stop()
    assert health([*both[:2], "--timeout-ms", "500"]) == 1
    assert "none is registered" in capsys.readouterr().out
    assert health([*both, "--timeout-ms", "500"]) == 1
    assert "cannot connect" in capsys.readouterr().out
    assert health(["--namesrv", "-", "--broker", "-"]) == 0


def test_health_fails_for_a_sync_master_without_slaves(
    started: list[Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ready = up(started, tmp_path, "--set", "brokerRole=SYNC_MASTER")
    where = ["--namesrv", "-", "--broker", ready["broker"], "--timeout-ms", "30000"]
    assert health(where) == 1
    assert "SYNC_MASTER has 0 slaves in sync" in capsys.readouterr().out


def doctor(
    namesrv: str, capsys: pytest.CaptureFixture[str], timeout_ms: int = 30_000
) -> tuple[int, list[dict[str, object]]]:
    code = run(["doctor", "net", "--namesrv", namesrv, "--timeout-ms", str(timeout_ms), "--json"])
    return code, checked(["doctor", "net"], json.loads(capsys.readouterr().out))


def test_doctor_finds_nothing_where_all_can_be_reached(
    started: list[Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ready = up(started, tmp_path)
    code, findings = doctor(ready["namesrv"], capsys)
    assert code == 0
    assert [finding["ok"] for finding in findings] == [True, True]


def test_doctor_names_a_brokers_address_that_only_it_can_reach(
    started: list[Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a client outside a container sees: connect to 172.17.0.2:10911 failed."""
    # An address of TEST-NET-1, which no host has: dialling it fails or times out.
    ready = up(started, tmp_path, "--set", "brokerIP1=192.0.2.17")
    code, findings = doctor(ready["namesrv"], capsys, 5_000)
    assert code == 1
    name_server, broker = findings
    assert name_server["ok"]
    assert "192.0.2.17" in str(broker["check"])
    # It has looked where the name server is, and found the broker there.
    assert "does answer at 127.0.0.1" in str(broker["advice"])
    assert "brokerIP1=127.0.0.1" in str(broker["advice"])


def test_doctor_says_when_there_is_no_name_server(capsys: pytest.CaptureFixture[str]) -> None:
    code, findings = doctor("127.0.0.1:1", capsys)
    assert code == 1
    assert "pocketmq up" in str(findings[0]["advice"])
    assert run(["doctor", "net", "--namesrv", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().out.startswith("BAD name server 127.0.0.1:1: cannot connect")


def test_doctor_knows_the_usual_mistakes_by_the_address() -> None:
    assert "container" in _unreachable("172.17.0.2:10911")
    assert "connects to itself" in _suspicion("127.0.0.1:10911", "10.1.2.3:9876")
    assert "not an address that can be connected to" in _suspicion("0.0.0.0:10911", "10.1.2.3:9876")
    assert _suspicion("127.0.0.1:10911", "127.0.0.1:9876") == ""
    assert "resolves" in _unreachable("broker-a:10911")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("0.0.0.0", "not an address that clients can connect to"),
        ("no such host", "does not resolve"),
    ],
)
def test_an_unreachable_advertised_address_ends_the_start(
    tmp_path: Path, address: str, said: str
) -> None:
    """A wrong brokerIP1 is told at the start, not by a client hours later."""
    server = Server(tmp_path, "up", "--namesrv-port", "0", "--set", f"brokerIP1={address}")
    assert server.end() == 2
    assert said in server.last_line()
    assert "brokerIP1" in server.last_line()


def test_a_name_as_advertised_address_must_resolve() -> None:
    check_advertised("")
    check_advertised("192.0.2.1")
    check_advertised("broker.example", lambda name: "192.0.2.1")
    with pytest.raises(CannotBegin, match="/etc/hosts"):
        check_advertised("3f2a9c81d7e0", unknown)


def unknown(name: str) -> str:
    """A resolver that knows no host, as a client's does for a container's host name."""
    raise OSError(f"{name}: Name or service not known")


def test_a_container_whose_address_is_automatic_is_warned_of(tmp_path: Path) -> None:
    """The most asked question of RocketMQ's Docker users."""
    (tmp_path / ".dockerenv").touch()

    def warning(host: str, was_set: bool, **environment: str) -> str:
        return container_warning(host, was_set, "172.17.0.2:10911", environment, tmp_path)

    assert "POCKETMQ_BROKER_IP1" in warning("0.0.0.0", False)
    assert "172.17.0.2:10911" in warning("0.0.0.0", False)
    assert warning("0.0.0.0", True) == ""
    assert warning("127.0.0.1", False) == ""
    assert warning("0.0.0.0", False, KUBERNETES_SERVICE_HOST="10.0.0.1") == ""
    (tmp_path / ".dockerenv").unlink()
    assert warning("0.0.0.0", False) == ""


def test_listening_on_all_addresses_advertises_a_reachable_one(
    started: list[Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0.0.0.0 is never told to clients."""
    ready = up(started, tmp_path, "--host", "0.0.0.0")
    host = ready["broker"].rpartition(":")[0]
    assert host not in ("0.0.0.0", "")
    port = ready["namesrv"].rpartition(":")[2]
    code, findings = doctor(f"{host}:{port}", capsys)
    assert (code, [finding["ok"] for finding in findings]) == (0, [True, True])
