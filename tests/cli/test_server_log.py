"""The servers' log: a flood of lines from one place of the code is cut, and says so."""

import io
import json
import logging
import signal
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.servers.log_file import JsonFormatter, LogFile
from pocketmq.cli.servers.server_log import LINES_AT_ONCE, LineLimit, start_logging
from pocketmq.cli.servers.server_options import ServerOptions, parse
from pocketmq.client.errors import BrokerFailed
from pocketmq.controller import Controller, ControllerConfig
from pocketmq.controller.keeping import FileKeeper
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.remoting.clock import ManualClock, SystemClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.store import ConfigFile
from pocketmq.testing import InProcess
from tests.cli.servers import Server
from tests.kit.waiting import until


def test_each_place_writes_a_hundred_lines_and_then_one_a_second() -> None:
    clock = ManualClock()
    limit = LineLimit(clock.monotonic_ms)
    written: list[str] = []

    def line(place: int, number: int) -> None:
        record = logging.LogRecord(
            *("pocketmq", logging.WARNING, "send.py", place, "refused n=%d", (number,), None)
        )
        if limit.filter(record):
            written.append(record.getMessage())

    for number in range(10_000):
        line(1, number)
    assert written == [f"refused n={number}" for number in range(LINES_AT_ONCE)]
    line(2, 0)
    assert written.pop() == "refused n=0"
    written.clear()
    for second in range(5):
        clock.advance_ms(1_000)
        for _ in range(1_000):
            line(1, second)
    assert written == [
        "refused n=0 (and 9900 similar lines left out)",
        *(f"refused n={second} (and 999 similar lines left out)" for second in range(1, 5)),
    ]
    # After a quiet time there is room for as many as at first.
    clock.advance_ms(LINES_AT_ONCE * 1_000)
    written.clear()
    for number in range(LINES_AT_ONCE + 1):
        line(1, number)
    assert len(written) == LINES_AT_ONCE


def test_a_hostile_name_cannot_break_log_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor does it turn the direction of the text: an escape may be one character of Unicode, too."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    root.handlers = []
    hostile = "\r\x1b[2J\x85\x9b2J\u2028\u202e\u2066\n2026-11-21 12:00:00,123 INFO forged"
    try:
        start_logging(ServerOptions("broker"))
        logging.getLogger("pocketmq").info("peer=%s end", hostile)
    finally:
        root.handlers, root.level = before, level
    [line, rest] = written.getvalue().splitlines()
    assert line.endswith(r"peer=\r\x1b[2J\x85\x9b2J\u2028\u202e\u2066")
    assert rest == "  2026-11-21 12:00:00,123 INFO forged end"


def record(text: str, **more: Any) -> logging.LogRecord:
    made = {"name": "pocketmq.t", "levelno": logging.INFO, "levelname": "INFO", "msg": text, **more}
    return logging.makeLogRecord(made)


def test_a_json_line_holds_hostile_text_and_the_trace() -> None:
    try:
        raise ValueError("no\nroom")
    except ValueError as error:
        failed = record("a %s", args=("\u2028\x1b[2J\n{",), exc_info=(type(error), error, None))
    written = JsonFormatter("broker-a").format(failed)
    assert written.isascii()
    assert "\n" not in written
    line = json.loads(written)
    assert line["message"] == "a \u2028\x1b[2J\n{"
    assert (line["level"], line["module"], line["process"]) == ("INFO", "pocketmq.t", "broker-a")
    assert line["trace"] == "ValueError: no\nroom"
    assert datetime.fromisoformat(line["time"]).utcoffset() == timedelta(0)


def test_a_log_file_is_opened_again_and_rotated(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = LogFile(str(path), 1)
    file.emit(record("before"))
    path.rename(tmp_path / "taken-by-logrotate")
    file.reopen()
    file.emit(record("after"))
    assert path.read_text("utf-8") == "after\n"
    for _ in range(7):
        file.emit(record("x" * (1 << 20)))
    file.close()
    kept = sorted(each.name for each in tmp_path.iterdir() if each.name.startswith("log"))
    assert kept == ["log", *(f"log.{number}" for number in range(1, 6))]


def test_a_server_writes_json_into_its_file_and_opens_it_again(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    words = ("namesrv", "--port", "0", "--log-file", str(path), "--log-format", "json")
    server = Server(tmp_path, *words)
    try:
        server.ready()
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        assert any(line["message"].startswith("ready ") for line in lines)
        path.rename(tmp_path / "old")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: path.exists() and "SIGHUP" in path.read_text("utf-8"), "a new file")
        assert server.stop() == 0
        assert server.log_path.read_text("utf-8") == ""
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--log-format", "xml"), "text, json"),
        (("--log-rotate", "5"), "needs --log-file"),
        (("--log-file", "/nowhere/log"), "cannot write the log"),
    ],
)
def test_bad_options_of_the_log_are_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(CannotBegin, match=says):
        start_logging(parse("broker", list(words)))


def test_levels_by_module_change_at_run_time() -> None:
    """And what is not a level is refused, with an example of one that is."""
    with InProcess({"logLevels": "pocketmq.store=WARNING"}) as server:
        assert logging.getLogger("pocketmq.store.index").getEffectiveLevel() == logging.WARNING
        update = server.admin.settings.update_broker
        update(server.broker, logLevels="pocketmq.broker.ha=DEBUG,pocketmq.namesrv=ERROR")
        assert logging.getLogger("pocketmq.broker.ha.x").getEffectiveLevel() == logging.DEBUG
        assert logging.getLogger("pocketmq.namesrv").level == logging.ERROR
        assert logging.getLogger("pocketmq.store").level == logging.NOTSET
        for wrong in (
            "DEBUG",
            "pocketmq=LOUD",
            "asyncio=DEBUG",
            "pocketmq=DEBUG pocketmq.store=INFO",
        ):
            with pytest.raises(BrokerFailed, match="such as"):
                update(server.broker, logLevels=wrong)
        update(server.broker, logLevels="")
        assert logging.getLogger("pocketmq.namesrv").level == logging.NOTSET


@pytest.mark.parametrize("kind", ["namesrv", "controller"])
async def test_levels_change_in_a_name_server_and_a_controller_alone(kind: str) -> None:
    """With all their settings shown; a path, or what needs a restart, is refused."""
    clock = SystemClock()
    server: NameServer | Controller
    if kind == "namesrv":
        server = NameServer(NamesrvConfig(listen_port=0), clock)
        change, show = RequestCode.UPDATE_NAMESRV_CONFIG, RequestCode.GET_NAMESRV_CONFIG
    else:
        config = ControllerConfig(listen_port=0)
        server = Controller(config, clock, FileKeeper(ConfigFile(config.path)))
        change, show = RequestCode.UPDATE_CONTROLLER_CONFIG, RequestCode.GET_CONTROLLER_CONFIG
    async with server, RemotingClient({}, clock) as client:
        await server.listen()

        async def ask(code: RequestCode, text: str = "") -> RemotingCommand:
            request = RemotingCommand(code, body=text.encode())
            return await client.invoke(server.address, request, 60_000)

        wanted = "pocketmq.namesrv=DEBUG,pocketmq.controller=ERROR"
        assert (await ask(change, f"logLevels={wanted}")).code == ResponseCode.SUCCESS
        try:
            assert logging.getLogger("pocketmq.controller").level == logging.ERROR
            assert f"logLevels={wanted}" in bytes((await ask(show)).body).decode()
            assert "such as" in ((await ask(change, "logLevels=LOUD")).remark or "")
            port = "listenPort" if kind == "namesrv" else "controllerListenPort"
            for text in ("kvConfigPath=/x", f"{port}=1"):
                assert (await ask(change, text)).code == ResponseCode.NO_PERMISSION
        finally:
            assert (await ask(change, "logLevels=")).code == ResponseCode.SUCCESS
        assert logging.getLogger("pocketmq.controller").level == logging.NOTSET
