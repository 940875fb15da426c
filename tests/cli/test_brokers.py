"""`pocketmq up --brokers N`: several broker processes, one command."""

import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pocketmq.cli.app import run
from pocketmq.cli.commands.health import health
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.servers.broker_process import ending, pause_ms
from pocketmq.cli.servers.broker_set import chosen_count, folder_of, name_of, port_of
from pocketmq.client import Message, MessageQueue, Producer
from pocketmq.grpc.messages import classes
from tests.cli.servers import Server
from tests.grpc.asking import asking
from tests.kit.ports import free_ports
from tests.kit.waiting import until, until_async

PATIENCE_S = 60


def up(started: list[Server], folder: Path, *words: str, **variables: str) -> Server:
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--grpc-port", "0"]
    ports += ["--data", "store", "--broker-name", "b"]
    server = Server(folder, "up", *ports, *words, environment=variables)
    started.append(server)
    return server


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def brokers_of_console(address: str) -> set[str]:
    """Whom the one console, which is the parent's, shows."""
    with urllib.request.urlopen(f"{address}/api/cluster", timeout=PATIENCE_S) as answer:
        clusters = json.load(answer)["clusters"]
    return {broker["broker"] for cluster in clusters for broker in cluster["brokers"]}


def listed(text: str) -> list[str]:
    return text.split(",")


async def send_to_each(namesrv: str, topic: str, body: bytes) -> dict[str, MessageQueue]:
    """One message to a queue of every broker that has the topic; where, by broker name."""
    async with Producer("p", name_server=namesrv) as producer:
        await producer.send(Message(topic, b"makes the topic"))
        chosen = {queue.broker_name: queue for queue in await producer.queues(topic)}
        for queue in chosen.values():
            await producer.send(Message(topic, body), queue=queue)
        return chosen


async def bodies(namesrv: str, topic: str) -> list[bytes]:
    from pocketmq.admin import Admin

    async with Admin(name_server=namesrv) as admin:
        return [message.body async for message in admin.messages.between(topic)]


async def create(namesrv: str, topic: str) -> list[str]:
    from pocketmq.admin import Admin

    async with Admin(name_server=namesrv) as admin:
        return await admin.topics.create(topic, queues=2)


def page(address: str) -> tuple[int, str]:
    """Status and text of a page, of a failing one too."""
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_a_grpc_client_sees_the_queues_of_all(started: list[Server], folder: Path) -> None:
    """Each with the port of its broker, whichever of them it asks."""
    ready = up(started, folder, "--brokers", "2", "--no-console", "--grpc-port", "0").ready()
    ports = [int(address.rpartition(":")[2]) for address in listed(ready["grpc"])]
    assert len(ports) == 2
    await create(ready["namesrv"], "T")
    request = classes["QueryRouteRequest"](topic={"name": "T"})
    async with asking(listed(ready["grpc"])[0]) as client:

        async def seen() -> bool:
            answer = await client.ask("QueryRoute", request)
            places = [queue.broker.endpoints.addresses[0].port for queue in answer.message_queues]
            return sorted(places) == sorted([*ports, *ports])

        await until_async(seen, "two queues of each")


def test_one_port_tells_the_figures_and_the_health_of_all(
    started: list[Server], folder: Path
) -> None:
    """Prometheus and probes need not know how many brokers there are."""
    server = up(started, folder, "--brokers", "2", "--console-port", "0")
    ready = server.ready()
    console = ready["console"]
    status, text = page(f"{console}/metrics")
    assert status == 200
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    [topics] = [family for family in families if family.name == "rocketmq_topic_number"]
    assert sorted(sample.labels["node_id"] for sample in topics.samples) == ["b", "b-1"]
    assert page(f"{console}/health")[0] == page(f"{console}/ready")[0] == 200

    pids = [listed(ready["pids"])[1]]

    def seen_ill() -> bool:
        # The pause before it is started again grows with each death.
        pids.extend(re.findall(r"serves again name=b-1 pid=(\d+)", server.log_path.read_text()))
        with suppress(ProcessLookupError):
            os.kill(int(pids[-1]), signal.SIGKILL)
        status, text = page(f"{console}/health")
        return status == 503 and "b-1: its process has ended and is being restarted" in text

    until(seen_ill, "that one broker is ill")
    until(lambda: page(f"{console}/health")[0] == 200, "well again")
    until(lambda: 'node_id="b-1"' in page(f"{console}/metrics")[1], "its figures are back")


def test_each_broker_has_its_own_metrics_port(started: list[Server], folder: Path) -> None:
    """metricsExporterType=PROM: one port after the other."""
    [port] = free_ports(1)
    words = ("metricsExporterType=PROM", f"metricsPromExporterPort={port}")
    server = up(started, folder, "--brokers", "2", "--no-console", "-D", words[0], "-D", words[1])
    urls = listed(server.ready()["metrics"])
    assert urls == [f"http://127.0.0.1:{port}/metrics", f"http://127.0.0.1:{port + 1}/metrics"]
    for url, name in zip(urls, ("b", "b-1"), strict=True):
        assert f'node_id="{name}"' in page(url)[1]


async def test_a_killed_broker_returns_with_address_and_messages(
    started: list[Server], folder: Path
) -> None:
    """A child that dies is started again; what it acknowledged is there."""
    server = up(started, folder, "--brokers", "2", "--console-port", "0")
    ready = server.ready()
    assert listed(ready["name"]) == ["b", "b-1"]
    assert ready["brokers"] == "2"
    addresses, pids = listed(ready["broker"]), [int(pid) for pid in listed(ready["pids"])]
    assert brokers_of_console(ready["console"]) == {"b", "b-1"}
    assert await create(ready["namesrv"], "Spread") == ["b", "b-1"]
    chosen = await send_to_each(ready["namesrv"], "Spread", b"acknowledged")
    assert set(chosen) == {"b", "b-1"}

    os.kill(pids[1], signal.SIGKILL)
    log = server.log_path
    until(lambda: "a broker serves again name=b-1" in log.read_text(), "it was not started again")
    assert "a broker died and is being restarted name=b-1 how=SIGKILL" in log.read_text()
    assert (await bodies(ready["namesrv"], "Spread")).count(b"acknowledged") == 2
    again = await send_to_each(ready["namesrv"], "Spread", b"after")
    assert set(again) == {"b", "b-1"}
    host, _, port = addresses[1].rpartition(":")
    with socket.create_connection((host, int(port)), 30):
        pass
    assert alive(pids[0])

    assert server.stop() == 0
    assert not alive(pids[0])
    for number in range(2):
        assert not (Path(folder_of(str(folder / "store"), number)) / "abort").exists()
    assert "Traceback" not in log.read_text()


def test_brokers_stop_cleanly_when_their_parent_is_killed(
    started: list[Server], folder: Path
) -> None:
    """No orphan: the end of a pipe tells them, whatever ended the parent."""
    server = up(started, folder, "--brokers", "2")
    ready = server.ready()
    pids = [int(pid) for pid in listed(ready["pids"])]
    server.process.kill()
    server.process.wait()
    until(lambda: not any(map(alive, pids)), "a broker lives on without its parent")
    assert not (folder / "store" / "abort").exists()
    assert not (folder / "store" / "broker-1" / "abort").exists()


async def test_adding_brokers_keeps_the_messages_of_the_first(
    started: list[Server], folder: Path
) -> None:
    """A folder of a single broker is the first one's; a folder of several starts as many."""
    server = up(started, folder)
    ready = server.ready()
    await create(ready["namesrv"], "Kept")
    await send_to_each(ready["namesrv"], "Kept", b"alone")
    assert server.stop() == 0

    server = up(started, folder, POCKETMQ_BROKERS="2")
    ready = server.ready()
    assert b"alone" in await bodies(ready["namesrv"], "Kept")
    await create(ready["namesrv"], "Both")
    await send_to_each(ready["namesrv"], "Both", b"company")
    assert server.stop(signal.SIGINT) == 0

    server = up(started, folder)
    ready = server.ready()
    assert ready["brokers"] == "2"
    assert "readonly" not in ready
    assert (await bodies(ready["namesrv"], "Both")).count(b"company") == 2
    assert server.stop() == 0


async def test_with_fewer_brokers_the_others_are_read_only(
    started: list[Server], folder: Path
) -> None:
    """And take messages again when as many are asked for as before."""
    server = up(started, folder, "--brokers", "2")
    ready = server.ready()
    await create(ready["namesrv"], "Drained")
    assert set(await send_to_each(ready["namesrv"], "Drained", b"before")) == {"b", "b-1"}
    assert server.stop() == 0

    server = up(started, folder, "--brokers", "1")
    ready = server.ready()
    assert (ready["brokers"], ready["readonly"]) == ("2", "b-1")
    assert set(await send_to_each(ready["namesrv"], "Drained", b"fewer")) == {"b"}
    found = await bodies(ready["namesrv"], "Drained")
    assert (found.count(b"before"), found.count(b"fewer")) == (2, 1)
    assert server.stop() == 0
    assert "read_only=b-1" in server.log_path.read_text()

    server = up(started, folder, "--brokers", "2")
    ready = server.ready()
    assert "readonly" not in ready
    assert set(await send_to_each(ready["namesrv"], "Drained", b"again")) == {"b", "b-1"}
    assert server.stop() == 0


def test_all_brokers_share_accounts_and_commands_sign(
    started: list[Server],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = folder / "store" / "config"
    config.mkdir(parents=True)
    (config / "plain_acl.yml").write_text(
        "accounts:\n  - accessKey: operator\n    secretKey: secret-of-op\n    admin: true\n"
    )
    server = up(started, folder, "--brokers", "2", "--no-console", "--set", "aclEnable=true")
    ready = server.ready()
    where = ["--namesrv", ready["namesrv"], "--json"]
    assert run(["topic", "create", "T", *where]) == 1
    assert "POCKETMQ_SECRET_KEY" in capsys.readouterr().err
    monkeypatch.setenv("POCKETMQ_ACCESS_KEY", "operator")
    with pytest.raises(CannotBegin, match="a secret key"):
        run(["topic", "list", *where])
    monkeypatch.setenv("POCKETMQ_SECRET_KEY", "secret-of-op")
    assert run(["topic", "create", "T", *where]) == 0
    assert json.loads(capsys.readouterr().out)["brokers"] == ["b", "b-1"]
    assert run(["message", "send", "T", "signed", *where]) == 0
    assert json.loads(capsys.readouterr().out)[0]["status"] == "SEND_OK"
    for broker in listed(ready["broker"]):
        assert health(["--namesrv", ready["namesrv"], "--broker", broker]) == 0
    assert server.stop() == 0


def test_a_port_in_use_ends_all_with_one_line(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        base = port - 10
        words = ["--namesrv-port", "0", "--broker-port", str(base), "--brokers", "2"]
        server = Server(folder, "up", *words)
        assert server.end() == 2
    assert f"port {port} on 127.0.0.1 is in use" in server.last_line()
    assert "Traceback" not in server.log_path.read_text()


def test_a_broker_that_cannot_start_ends_all_with_its_line(
    started: list[Server], folder: Path
) -> None:
    (folder / "store").mkdir()
    (folder / "store" / "broker-1").write_text("a file where a folder belongs")
    server = up(started, folder, "--brokers", "2")
    assert server.end() == 2
    said = [
        line for line in server.log_path.read_text().splitlines() if line.startswith("pocketmq: ")
    ]
    assert "broker-1" in said[0]
    assert (
        said[-1] == "pocketmq: broker b-1 could not start (exit code 2); its own last line says why"
    )
    assert "Traceback" not in server.log_path.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--brokers", "0"], "'0' is not a count"),
        (["--brokers", "65"], "a number from 1 to 64"),
        (["--brokers", "2", "--set", "storePathCommitLog=x"], "cannot share that folder"),
        (["--brokers", "2", "--set", "tls.server.mode=enforcing"], "permissive"),
        (["--brokers", "2", "--broker-port", "65530"], "exceed 65535"),
        (["--brokers", "2", "--set", "flushDiskTyp=x"], "did you mean 'flushDiskType'?"),
    ],
)
def test_what_several_brokers_cannot_have_is_one_line(
    folder: Path, words: list[str], said: str
) -> None:
    server = Server(folder, "up", *words)
    assert server.end() == 2
    assert server.last_line().startswith("pocketmq: ")
    assert said in server.last_line()


def test_the_first_broker_is_what_a_single_one_would_be() -> None:
    assert (name_of("n", 0), folder_of("/d", 0), port_of(10911, 0)) == ("n", "/d", 10911)
    assert (name_of("n", 2), folder_of("/d", 2), port_of(10911, 2)) == ("n-2", "/d/broker-2", 10931)
    assert port_of(0, 3) == 0


def test_every_folder_gets_a_broker_unless_more_are_asked(tmp_path: Path) -> None:
    data = str(tmp_path)
    assert chosen_count(None, str(tmp_path / "missing")) == 1
    (tmp_path / "broker-2").mkdir()
    (tmp_path / "broker-x").mkdir()
    assert chosen_count(None, data) == 3
    assert chosen_count(4, data) == 4
    assert chosen_count(2, data) == 3
    with pytest.raises(CannotBegin, match="1 to 64"):
        chosen_count(65, data)


def test_restart_pauses_double_until_a_broker_serves_well() -> None:
    pauses = [0]
    for _ in range(9):
        pauses.append(pause_ms(pauses[-1], 100))
    assert pauses[1:] == [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000]
    assert pause_ms(30_000, 60_000) == 200
    assert ending(-signal.SIGSEGV) == "SIGSEGV"
