"""`pocketmq up --replicas 3 --controller`, `pocketmq controller`: a set that elects its master."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.cli.servers import COMMAND, Server
from tests.house.doc_blocks import ROOT, blocks
from tests.kit.etcd import etcd_of
from tests.kit.waiting import until

_PAGE = ROOT / "docs" / "failover.md"


def rows(namesrv: str) -> list[dict[str, Any]]:
    command = [*COMMAND, "ha", "status", "--namesrv", namesrv, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def master_of(namesrv: str) -> str:
    return next((row["address"] for row in rows(namesrv) if row["role"] == "SYNC_MASTER"), "")


def test_the_program_of_the_page_kills_each_and_loses_nothing(
    started: list[Server], tmp_path: Path
) -> None:
    words = ["--replicas", "3", "--controller", "--data", "set"]
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--broker-name", "b"]
    ports += ["--console-port", "0"]
    server = Server(tmp_path, "up", *words, *ports)
    started.append(server)
    ready = server.ready()
    assert ready["controller"].startswith("127.0.0.1:")
    [program] = blocks(_PAGE, "python")
    path = tmp_path / "kill_each.py"
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
    assert int(done.stdout.splitlines()[-1].split()[0]) >= 300
    namesrv = ready["namesrv"]
    master = until(lambda: master_of(namesrv), "one leads")
    other = until(
        lambda: next((row["address"] for row in rows(namesrv) if row["address"] != master), ""),
        "another one is there",
    )

    def promoted() -> bool:
        command = [*COMMAND, "ha", "promote", other, "--namesrv", namesrv]
        subprocess.run(command, capture_output=True, check=False)
        return master_of(namesrv) == other

    until(promoted, "it is in sync, and leads by the operator's choice")
    shown = rows(namesrv)
    assert {row["controller"] for row in shown} == {ready["controller"]}
    assert all(set(row["brokersInSync"]) <= {1, 2, 3} for row in shown)
    command = [*COMMAND, "ha", "elections", "--namesrv", namesrv, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    newest, *earlier = json.loads(done.stdout)
    assert newest["master"] == other
    assert newest["epoch"] == max(row["epoch"] for row in shown)
    assert [each["epoch"] for each in earlier] == list(range(newest["epoch"] - 1, 0, -1))[
        : len(earlier)
    ]
    with httpx.Client(base_url=f"{ready['console']}/api", trust_env=False) as user:
        user.get("/session")
        assert user.get("/replicas").json()["elections"] == [newest, *earlier]
    assert server.stop() == 0


def test_a_controller_alone(started: list[Server], tmp_path: Path) -> None:
    server = Server(tmp_path, "controller", "--port", "0", "--data", "ctl")
    started.append(server)
    ready = server.ready()
    assert ready["file"] == str(tmp_path / "ctl" / "controller.json")
    assert server.stop() == 0
    (tmp_path / "ctl").mkdir()
    (tmp_path / "ctl" / "controller.json").write_text('{"b": {"cluster": 1}}')
    again = Server(tmp_path, "controller", "--port", "0", "--data", "ctl")
    started.append(again)
    assert again.end() == 2
    assert "cannot be read" in again.last_line()


def logged(server: Server, line: str) -> bool:
    return line in server.log_path.read_text()


def test_two_controllers_with_etcd(started: list[Server], tmp_path: Path) -> None:
    pem, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2"
    places = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(pem)]
    subprocess.run([*command.split(), *places], check=True, capture_output=True)
    with etcd_of(tmp_path, certificate=pem) as etcd:
        settings = {"": etcd.urls[0], "CaPath": pem, "CertPath": pem, "KeyPath": key}
        where = [
            word
            for name, value in settings.items()
            for word in ("--set", f"controllerEtcd{name}={value}")
        ]
        for number in range(2):
            own = ["--set", f"controllerId=c{number}", "--data", f"c{number}"]
            server = Server(tmp_path, "controller", "--port", "0", *own, *where)
            started.append(server)
            assert server.ready()["etcd"] == etcd.urls[0]
            until(lambda: " address=" in started[0].log_path.read_text(), "the first one leads")
        for server, line in zip(started, ("this controller leads", "another"), strict=True):
            until(partial(logged, server, line), "it works with etcd")
        assert [server.stop() for server in started] == [0, 0]
    bad = Server(tmp_path, "controller", "--port", "0", "--set", "controllerEtcd=localhost:2379")
    started.append(bad)
    assert bad.end() == 2
    assert "takes URLs as http://10.0.0.1:2379, not 'localhost:2379'" in bad.last_line()


def test_a_controller_needs_replicas(started: list[Server], tmp_path: Path) -> None:
    server = Server(tmp_path, "up", "--controller")
    started.append(server)
    assert server.end() == 2
    assert "add --replicas 3" in server.last_line()
