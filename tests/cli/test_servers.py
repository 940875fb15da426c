"""The three server commands as a shell sees them: the ready line, signals, and what cannot begin."""

import json
import os
import pty
import resource
import signal
import socket
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli.app import run
from pocketmq.cli.exits import CannotBegin
from tests.cli.servers import COMMAND, Server
from tests.kit.ports import free_ports
from tests.kit.waiting import until
from tests.remoting.test_connection_limits import certificate


def up(started: list[Server], folder: Path, *words: str, **variables: str) -> Server:
    ports = ["--namesrv-port", "0", "--broker-port", "0"]
    server = Server(folder, "up", *ports, *words, environment=variables)
    started.append(server)
    return server


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_says_ready_serves_and_stops_cleanly(
    started: list[Server], folder: Path, number: signal.Signals
) -> None:
    """One line that begins with `ready`; SIGTERM or Ctrl-C end it with exit code 0."""
    server = up(started, folder, "--data", "store")
    ready = server.ready()
    assert ready["pid"] == str(server.process.pid)
    assert ready["store"] == str(folder / "store")
    for name in ("namesrv", "broker"):
        host, _, port = ready[name].rpartition(":")
        assert host == "127.0.0.1"
        with socket.create_connection((host, int(port)), 30):
            pass
    assert (folder / "store" / "abort").exists()
    assert server.stop(number) == 0
    assert not (folder / "store" / "abort").exists()


def test_it_may_open_as_many_files_as_the_machine_allows_it(
    started: list[Server], folder: Path
) -> None:
    """A shell's soft limit of 1,024 would be gone with a thousand clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        server = up(started, folder, "--data", "store")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    server.ready()
    assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    assert server.stop() == 0


def test_a_name_server_without_a_directory_keeps_nothing(
    started: list[Server], folder: Path
) -> None:
    server = Server(folder, "namesrv", "--port", "0")
    started.append(server)
    ready = server.ready()
    assert set(ready) == {"namesrv", "pid"}
    assert server.stop() == 0
    assert [path.suffix for path in folder.iterdir()] == [".log"]


def test_a_broker_registers_at_the_name_server_that_it_is_given(
    started: list[Server], folder: Path
) -> None:
    (folder / "namesrv.conf").write_text(
        "orderMessageEnabel=true\nrocketmqHome=/opt\nenableControllerInNamesrv=true\n"
        "controllerListenPort=0\n"
    )
    namesrv = Server(folder, "namesrv", "--port", "0", "-c", "namesrv.conf")
    started.append(namesrv)
    ready = namesrv.ready()
    address = ready["namesrv"]
    assert ready["controller"].startswith("127.0.0.1:")
    said = namesrv.log_path.read_text()
    assert "ignored an unknown setting: orderMessageEnabel (did you mean 'orderMessageEn" in said
    assert "rocketmqHome" not in said
    broker = Server(folder, "broker", "--namesrv", address, "--port", "0", "--data", "store")
    started.append(broker)
    assert broker.ready()["namesrv"] == address
    assert "broker registered" in namesrv.log_path.read_text()
    assert broker.stop() == 0
    assert "broker removed" in namesrv.log_path.read_text()
    assert namesrv.stop() == 0


@pytest.mark.parametrize("option", ["--namesrv-port", "--broker-port"])
def test_a_port_in_use_ends_it_at_once_with_one_line(folder: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        server = Server(folder, "up", "--namesrv-port", "0", "--broker-port", "0", option, port)
        assert server.end() == 2
    assert f"port {port} on 127.0.0.1 is in use" in server.last_line()
    assert option in server.last_line()
    assert "Traceback" not in server.log_path.read_text()
    assert not (folder / "data").exists()


def test_a_locked_store_ends_the_start_with_one_line(started: list[Server], folder: Path) -> None:
    first = up(started, folder, "--data", "store")
    first.ready()
    second = up(started, folder, "--data", "store")
    assert second.end() == 2
    assert second.last_line().startswith("pocketmq: the store ")
    assert f"in use by another broker, process {first.process.pid} (" in second.last_line()
    assert "Traceback" not in second.log_path.read_text()
    assert first.stop() == 0


def test_access_rules_that_cannot_be_read_end_it_with_one_line(folder: Path) -> None:
    server = Server(
        folder, "up", "--namesrv-port", "0", "--broker-port", "0", "--set", "aclEnable=true"
    )
    assert server.end() == 2
    assert "aclEnable=true needs a readable" in server.last_line()
    assert "plain_acl.yml" in server.last_line()
    assert "Traceback" not in server.log_path.read_text()


def test_a_directory_that_is_a_file_ends_it_with_one_line(folder: Path) -> None:
    (folder / "file").write_text("x")
    server = Server(
        folder, "up", "--namesrv-port", "0", "--broker-port", "0", "--data", "file/store"
    )
    assert server.end() == 2
    assert "Traceback" not in server.log_path.read_text()
    assert "file/store" in server.last_line()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--namesrv-port", "70000"], "70000"),
        (["--namesrv-port", "x"], "'x' is not a port"),
        (["--no-such-option"], "--no-such-option"),
        (["-c", "missing.conf"], "cannot read missing.conf"),
        (["--set", "flushDiskType"], "NAME=VALUE"),
        (["--set", "flushDiskTyp=SYNC_FLUSH"], "did you mean 'flushDiskType'?"),
        (["--set", "flushDiskType=NEVER"], "SYNC_FLUSH"),
        (["--host", "192.0.2.77"], "is not an address of this machine"),
        (["--log-level", "LOUD"], "DEBUG"),
    ],
)
def test_a_bad_option_is_one_line_that_says_what_to_do(
    folder: Path, words: list[str], said: str
) -> None:
    server = Server(folder, "up", *words)
    assert server.end() == 2
    assert server.last_line().startswith("pocketmq: ")
    assert said in server.last_line()
    assert len(server.log_path.read_text().splitlines()) <= 2


def settings(folder: Path, *words: str, **variables: str) -> dict[str, str]:
    """What --print-config shows on standard output: properties alone."""
    return dict(line.split("=", 1) for line in printed(folder, *words, **variables)[0])


def printed(folder: Path, *words: str, **variables: str) -> tuple[list[str], list[str]]:
    """The lines of --print-config on standard output, and on standard error."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("POCKETMQ_")}
    clean.pop("NAMESRV_ADDR", None)
    shown = subprocess.run(
        [*COMMAND, *words, "--print-config"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**clean, **variables},
        check=True,
    )
    return shown.stdout.splitlines(), shown.stderr.splitlines()


def test_options_beat_variables_beat_files_beat_defaults(folder: Path) -> None:
    """CLI > POCKETMQ_* > NAMESRV_ADDR > file > default."""
    (folder / "broker.conf").write_text(
        "brokerName=file\nbrokerClusterName=file\nnamesrvAddr=file:1\nflushDiskType=SYNC_FLUSH\n"
        "fileReservedTime=48\nsendMessageThreadPoolNums=16\nnoSuchThing=1\n"
    )
    words = ["broker", "-c", "broker.conf", "--broker-name", "option"]
    variables = {
        "POCKETMQ_BROKER_NAME": "variable",
        "POCKETMQ_BROKERCLUSTERNAME": "variable",
        "NAMESRV_ADDR": "variable:1",
    }
    shown = settings(folder, *words, **variables)
    assert shown["brokerName"] == "option"
    assert shown["brokerClusterName"] == "variable"
    assert shown["namesrvAddr"] == "variable:1"
    assert shown["flushDiskType"] == "SYNC_FLUSH"
    assert shown["fileReservedTime"] == "48"
    assert shown["listenPort"] == "10911"
    variables["POCKETMQ_NAMESRV_ADDR"] = "stronger:1"
    assert settings(folder, *words, **variables)["namesrvAddr"] == "stronger:1"
    named = ["broker", "-n", "option:1"]
    assert settings(folder, *named, **variables)["namesrvAddr"] == "option:1"


def test_variables_name_options_too(folder: Path) -> None:
    shown = settings(
        folder, "broker", POCKETMQ_DATA="kept", POCKETMQ_HOST="0.0.0.0", POCKETMQ_BROKER_PORT="7"
    )
    assert shown["storePathRootDir"] == str(folder / "kept")
    assert (shown["bindAddress"], shown["listenPort"]) == ("0.0.0.0", "7")


def test_an_empty_variable_is_one_that_is_not_set(folder: Path) -> None:
    """Compose files pass on values that were left out, and files from Windows a carriage return."""
    usual = settings(folder, "up")
    names = [f"POCKETMQ_{name.replace('.', '_').upper()}" for name in usual]
    options = ("DATA", "HOST", "BROKER_PORT", "NAMESRV_PORT", "BROKERS", "CONFIG", "LOG_LEVEL")
    names += [f"POCKETMQ_{name}" for name in options]
    assert settings(folder, "up", NAMESRV_ADDR="", **dict.fromkeys(names, "")) == usual
    assert settings(folder, "up", NAMESRV_ADDR=" ", **dict.fromkeys(names, " \r")) == usual
    given = {"FLUSH_DISK_TYPE": "SYNC_FLUSH", "BROKER_PORT": "7", "LOG_LEVEL": "INFO"}
    given |= {"ACL_ENABLE": "true", "BROKER_NAME": "b", "DATA": "kept"}
    with_return = {f"POCKETMQ_{name}": f" {value}\r" for name, value in given.items()}
    without = {f"POCKETMQ_{name}": value for name, value in given.items()}
    assert settings(folder, "up", **with_return) == settings(folder, "up", **without) != usual


def test_the_old_words_of_rocketmq_start_the_same(folder: Path) -> None:
    assert settings(folder, "mqbroker", "-n", "a:1")["namesrvAddr"] == "a:1"
    assert settings(folder, "mqnamesrv")["listenPort"] == "9876"


def test_help_names_every_option(folder: Path) -> None:
    shown = subprocess.run([*COMMAND, "up", "--help"], capture_output=True, text=True, check=True)
    for option in ("--data", "--host", "--namesrv-port", "--broker-port", "--config"):
        assert option in shown.stdout


def test_name_server_values_are_kept_in_the_data_directory(
    started: list[Server], folder: Path
) -> None:
    """A gRPC port is one while it is open; without one there is nothing to keep."""
    closed: dict[str, object] = {"configTable": {"POCKETMQ_GRPC": {}}}
    for number, (words, kept) in enumerate([(["--grpc-port", "-1"], None), ([], closed)]):
        server = up(started, folder, "--data", f"store{number}", *words)
        server.ready()
        assert server.stop() == 0
        file = folder / f"store{number}" / "namesrv" / "kvConfig.json"
        assert (json.loads(file.read_text()) if file.exists() else None) == kept


def test_a_port_that_was_not_requested_may_be_anothers_by_now(
    started: list[Server], folder: Path
) -> None:
    """The process of several brokers names each one's gRPC port before that broker begins."""
    [taken] = free_ports(1)
    words = ["--port", "0", "--data", "store", "--grpc-port", str(taken)]
    with socket.create_server(("127.0.0.1", taken)):
        server = Server(folder, "broker", *words, "--grpc-port-is-wish")
        started.append(server)
        assert server.ready()["grpc"] not in ("", f"127.0.0.1:{taken}")
        requested = Server(folder, "broker", *words[:3], "other", *words[4:])
        assert requested.end() == 2
        assert "--grpc-port" in requested.log_path.read_text()
    assert server.stop() == 0


def test_a_vip_port_two_below_is_listened_on_when_it_is_free(
    started: list[Server], folder: Path
) -> None:
    """Wire trap 28: 4.9 slaves fetch topics from listenPort - 2."""
    [port] = free_ports(1)
    server = Server(
        folder, "up", "--namesrv-port", "0", "--broker-port", str(port), "--data", "store"
    )
    started.append(server)
    assert server.process.stdout is not None
    assert server.process.stdout.readline().startswith("ready")
    with socket.create_connection(("127.0.0.1", port - 2), 30):
        pass
    assert server.stop() == 0


def test_the_log_keeps_control_characters_out_of_the_terminal(folder: Path) -> None:
    import logging

    from pocketmq.cli.servers.server_log import LineFormatter

    record = logging.LogRecord("x", logging.INFO, "f", 1, "a\x1b[31mred\r%s\x9b", ("b\nc",), None)
    assert LineFormatter("%(message)s").format(record) == "a\\x1b[31mred\\rb\n  c\\x9b"


def test_a_stop_that_could_not_write_all_fails_with_a_line(tmp_path: Path) -> None:
    """A supervisor must not take it for a clean stop."""
    server = Server(tmp_path, "up", "--namesrv-port", "0", "--broker-port", "0", "--no-console")
    try:
        server.ready()
        checkpoint = tmp_path / "data" / "checkpoint"
        checkpoint.unlink(missing_ok=True)
        # A folder cannot be replaced by a file: the last step of a stop fails.
        (checkpoint / "in the way").mkdir(parents=True)
        assert server.stop() == 1
        assert "not everything reached the disk" in server.last_line()
        assert (tmp_path / "data" / "abort").exists()
    finally:
        server.kill()


def test_a_command_encrypts_and_checks_who_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--tls-ca: the right authority is let in, another one refused with a sentence."""
    ours, others = tmp_path / "ours", tmp_path / "others"
    for folder in (ours, others):
        folder.mkdir()
    chain, key = certificate(ours)
    foreign, _ = certificate(others)
    tls = {"tls.server.mode": "enforcing", "tls.server.certPath": chain, "tls.server.keyPath": key}
    words = [word for name, value in tls.items() for word in ("--set", f"{name}={value}")]
    server = Server(tmp_path, "up", "--namesrv-port", "0", "--broker-port", "0", *words)
    try:
        namesrv = server.ready()["namesrv"]
        monkeypatch.delenv("POCKETMQ_TLS_CA", raising=False)
        # The variable that the option stands for is put back when the test ends.
        monkeypatch.setenv("POCKETMQ_TLS_CA", "")
        assert run(["--tls-ca", str(chain), "topic", "list", "-n", namesrv]) == 0
        assert run(["--tls-ca", str(chain), "doctor", "net", "-n", namesrv]) == 0
        assert run(["--tls-ca", str(foreign), "topic", "list", "-n", namesrv]) == 1
        assert "its certificate is not trusted" in capsys.readouterr().err
        with pytest.raises(CannotBegin, match="cannot read the authorities in nowhere"):
            run(["--tls-ca", "nowhere", "topic", "list", "-n", namesrv])
        monkeypatch.setenv("POCKETMQ_TLS_CA", str(chain))
        assert run(["health", "-n", namesrv]) == 0
        monkeypatch.setenv("POCKETMQ_TLS_CA", str(foreign))
        capsys.readouterr()
        assert run(["health", "-n", namesrv]) == 1
        assert "its certificate is not trusted" in capsys.readouterr().out
    finally:
        server.kill()


@pytest.mark.parametrize("words", [("namesrv",), ("up",), ("up", "--brokers", "2")], ids=str)
def test_a_hangup_ends_no_server_and_brings_new_certificates(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """A terminal was closed, or an operator has put a new certificate where the old one was."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    chain, key = certificate(first)
    new_chain, new_key = certificate(second)
    tls = {"tls.server.certPath": chain, "tls.server.keyPath": key}
    settings = [word for name, value in tls.items() for word in ("--set", f"{name}={value}")]
    ports = (
        ["--port", "0"] if words == ("namesrv",) else ["--namesrv-port", "0", "--broker-port", "0"]
    )
    server = Server(tmp_path, *words, *ports, *settings)
    try:
        ready = server.ready()
        addresses = [
            each
            for name in ("namesrv", "broker")
            for each in ready.get(name, "").split(",")
            if each
        ]
        old = [shown_by(each) for each in addresses]
        os.replace(new_chain, chain)
        os.replace(new_key, key)
        # No signal: the files are looked at.
        until(
            lambda: all(shown_by(each) not in old for each in addresses),
            "the new certificates are shown",
        )
        key.write_text("no key")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "the old ones stay" in server.log_path.read_text(), "the log says so")
        assert all(shown_by(each) not in old for each in addresses)
        assert server.stop() == 0
    finally:
        server.kill()


def test_the_configuration_is_read_again_on_request(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGHUP and `cluster reload`: what may change changes; the rest is named; a change by hand holds."""
    conf = folder / "broker.conf"
    conf.write_text("brokerName=a\nflushIntervalCommitLog=400\ntraceOn=true\n")
    words = ("--namesrv-port", "0", "--broker-port", "0", "-c", "broker.conf")
    server = Server(folder, "up", *words)
    try:
        namesrv = server.ready()["namesrv"]

        def asked(*command: str) -> Any:
            assert run(["cluster", *command, "-n", namesrv, "--json"]) == 0
            return json.loads(capsys.readouterr().out)

        changed = asked("config", "--set", "flushIntervalCommitLog=300", "--set", "traceOn=false")
        assert changed == {"a": {"flushIntervalCommitLog": "300", "traceOn": "false"}}
        conf.write_text("brokerName=a\nflushIntervalCommitLog=200\ntraceOn=true\nhaListenPort=1\n")
        (row,) = asked("reload")
        assert (row["changed"], row["needsRestart"], row["failure"]) == (
            ["flushIntervalCommitLog"],
            ["haListenPort"],
            "",
        )
        now = asked("config")["a"]
        assert (now["flushIntervalCommitLog"], now["traceOn"]) == ("200", "false")
        conf.write_text("brokerName=a\nflushIntervalCommitLog=100\n")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: asked("config")["a"]["flushIntervalCommitLog"] == "100", "it is read again")
        conf.write_text("brokerName=a\nflushIntervalCommitLog=soon\n")
        assert run(["cluster", "reload", "-n", namesrv]) == 1
        assert "must be a number, not 'soon'" in capsys.readouterr().out
        assert server.stop() == 0
    finally:
        server.kill()
    conf.write_text("brokerName=a\nflushIntervalCommitLog=100\n")
    asks = ("up", "-c", "broker.conf", "--set", "listenPort=1")
    shown = settings(folder, *asks)
    assert (shown["flushIntervalCommitLog"], shown["traceOn"]) == ("100", "false")
    sources = dict(
        line.split(" is from ", 1) for line in printed(folder, *asks)[1] if " is from " in line
    )
    assert sources.pop("traceOn").startswith("a change while the broker ran (by 127.0.0.1:")
    assert sources == {
        "brokerName": "the file broker.conf",
        "flushIntervalCommitLog": "the file broker.conf",
        "listenPort": "an option",
    }


def shown_by(address: str) -> str:
    """The certificate that a port shows, PEM."""
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port)))


def test_a_port_that_answers_http_is_told_in_one_line() -> None:
    """No line of a log before it."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        asked = [*COMMAND, "topic", "list", "-n", f"127.0.0.1:{http.server_port}"]
        ended = subprocess.run(asked, capture_output=True, text=True, check=False)
        http.shutdown()
        thread.join()
    assert ended.returncode == 1
    assert ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert line.startswith("pocketmq: name_server=")


def test_a_terminal_shows_ready_once(tmp_path: Path) -> None:
    """Log and ready line go to the same screen there."""
    ours, theirs = pty.openpty()
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--no-console"]
    process = subprocess.Popen([*COMMAND, "up", *ports], stdout=theirs, stderr=theirs, cwd=tmp_path)
    os.close(theirs)
    shown = b""
    try:
        while b"pid=" not in shown:
            shown += os.read(ours, 65_536)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        while True:
            try:
                more = os.read(ours, 65_536)
            except OSError:
                # The other end is closed: all has been read.
                break
            if not more:
                break
            shown += more
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert shown.count(b"ready namesrv=") == 1
