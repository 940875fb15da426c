"""Alarm rules about groups: the file, when they hold, and a real web hook that is told in the end."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.client import Message, Producer
from pocketmq.console.time import alarm_hook
from pocketmq.console.time.alarms import AlarmFacts, Alarms, Rule, parse_rules
from pocketmq.remoting.errors import IllegalArgument
from tests.console.console_peer import site
from tests.kit.waiting import until_async

URL = "http://127.0.0.1:1/hook"


def told(alarms: Alarms, at_ms: int, **groups: AlarmFacts) -> list[tuple[str, str]]:
    return [(each["group"], each["status"]) for _, each in alarms.look(at_ms, groups)]


def test_an_alarm_is_raised_when_it_has_held_long_enough_said_again_and_resolved() -> None:
    rule = Rule("late", "orders-*", URL, lag=10, for_s=60, again_s=600)
    alarms = Alarms([rule])
    assert told(alarms, 0, **{"orders-a": AlarmFacts(lag=11), "other": AlarmFacts(lag=99)}) == []
    assert [each.told_ms for each in alarms.held] == [None]
    assert told(alarms, 59_999, **{"orders-a": AlarmFacts(lag=11)}) == []
    assert told(alarms, 60_000, **{"orders-a": AlarmFacts(lag=12)}) == [("orders-a", "raised")]
    assert told(alarms, 659_000, **{"orders-a": AlarmFacts(lag=12)}) == []
    assert told(alarms, 660_000, **{"orders-a": AlarmFacts(lag=12)}) == [("orders-a", "again")]
    assert told(alarms, 661_000, **{"orders-a": AlarmFacts(lag=10)}) == [("orders-a", "resolved")]
    assert alarms.held == []
    # Shorter than for_s: never said.
    assert told(alarms, 700_000, **{"orders-a": AlarmFacts(lag=11)}) == []
    assert told(alarms, 701_000, **{"orders-a": AlarmFacts(lag=1)}) == []
    assert alarms.held == []


def test_what_is_not_known_neither_raises_nor_resolves_and_a_group_that_is_gone_resolves() -> None:
    rule = Rule("any", "*", URL, members=2, waiting_s=5, symptoms=("DEAD_LETTERS",))
    alarms = Alarms([rule])
    assert told(alarms, 0, g=AlarmFacts()) == []
    assert told(alarms, 1, g=AlarmFacts(members=1)) == [("g", "raised")]
    assert told(alarms, 2, g=AlarmFacts(members=None, waiting_ms=0, symptoms=[])) == []
    assert told(alarms, 3, g=AlarmFacts(members=2, waiting_ms=6_000, symptoms=["LAG"])) == []
    assert alarms.held[0].reasons == [{"figure": "waiting_s", "value": 6, "limit": 5}]
    assert told(alarms, 4) == [("g", "resolved")]
    assert told(alarms, 5, g=AlarmFacts(symptoms=["DEAD_LETTERS"])) == [("g", "raised")]
    alarms.replace([rule, Rule("more", "x", URL, lag=1)])
    assert len(alarms.held) == 1
    alarms.replace([])
    assert alarms.held == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-5_000, 100_000), st.sampled_from([None, 0, 5, 50])), max_size=40
    ),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_whatever_the_clock_and_the_figures_do_each_raise_has_one_end(
    looks: list[tuple[int, int | None]], for_s: int, again_s: int
) -> None:
    alarms = Alarms([Rule("r", "g", URL, lag=10, for_s=for_s, again_s=again_s)])
    at_ms, is_raised = 0, False
    for step, lag in looks:
        at_ms += step
        for _, status in told(alarms, at_ms, g=AlarmFacts(lag=lag)):
            assert (status == "raised") is not is_raised
            is_raised = status != "resolved"
            assert (lag == 50) is is_raised
        assert is_raised == any(each.told_ms is not None for each in alarms.held)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[alarm]", "not TOML"),
        ("x = 1", "nothing else"),
        ('[[alarm]]\ngroup = "g"\nlag = 1', "a group and a url"),
        ('[[alarm]]\ngroup = "g"\nurl = "ftp://x"\nlag = 1', "http"),
        (f'[[alarm]]\ngroup = "g"\nurl = "{URL}"', "watches nothing"),
        (f'[[alarm]]\ngroup = "g"\nurl = "{URL}"\nlag = -1', "from 0 on"),
        (f'[[alarm]]\ngroup = "g"\nurl = "{URL}"\nlags = 1', "'lags'"),
        (f'[[alarm]]\ngroup = "g"\nurl = "{URL}"\nsymptoms = "LAG"', "list of texts"),
        (f'[[alarm]]\ngroup = "g"\nurl = "{URL}"\nlag = 1\n' * 2, "called 'g'"),
    ],
)
def test_a_fault_in_the_rules_is_named(text: str, says: str) -> None:
    with pytest.raises(IllegalArgument, match=says):
        parse_rules(text)


class Hook(ThreadingHTTPServer):
    """A web hook that answers with `answers`, one after the other, then 204."""

    daemon_threads = True

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[dict[str, str], dict[str, Any]]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/a?secret=1"


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((dict(self.headers), body))
        status = self.server.answers.pop(0) if self.server.answers else 204
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def hook(*answers: int) -> Iterator[Hook]:
    with Hook(*answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("answers", "state", "tries"),
    [
        ((503, 429), "delivered", 3),
        ((404,), "given up", 1),
        ((302,) * alarm_hook.TRIES, "given up", alarm_hook.TRIES),
    ],
)
async def test_a_notice_is_sent_again_until_it_is_told_or_hopeless(
    answers: tuple[int, ...], state: str, tries: int
) -> None:
    with hook(*answers) as server:
        watch = alarm_hook.AlarmWatch("", None, None, pause_ms=1)  # type: ignore[arg-type]
        rule = Rule("r", "g", server.url, headers={"Authorization": "Bearer x"})
        delivery = alarm_hook.NoticeDelivery(rule, {"status": "raised", "group": "g"})
        await watch._tell(delivery)
        assert (delivery.state, delivery.tries) == (state, tries)
        assert len(server.seen) == tries
        assert server.seen[0][0]["Authorization"] == "Bearer x"
        assert server.seen[-1][1] == {"status": "raised", "group": "g"}


def test_a_hook_that_answers_byte_by_byte_does_not_hold_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its thread was one of the event loop's pool, which a program waits for when it ends."""
    monkeypatch.setattr(alarm_hook, "_WITHIN_S", 0.2, raising=False)
    is_over, connections = threading.Event(), 0

    def answer(listener: socket.socket) -> None:
        nonlocal connections
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections += 1
                with connection, suppress(OSError):
                    connection.sendall(b"HTTP/1.1 204 ")
                    for _ in range(500):
                        if is_over.wait(0.02):
                            break
                        connection.sendall(b"X")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        try:
            watch = alarm_hook.AlarmWatch("", None, None, pause_ms=1)  # type: ignore[arg-type]
            rule = Rule("r", "g", f"http://127.0.0.1:{listener.getsockname()[1]}/")
            delivery = alarm_hook.NoticeDelivery(rule, {"status": "raised", "group": "g"})
            began_s = time.monotonic()
            asyncio.run(watch._tell(delivery))
            assert time.monotonic() - began_s < 8
            assert (delivery.state, delivery.tries) == ("given up", alarm_hook.TRIES)
            assert "no answer within" in str(delivery.error)
            # One thread at a time, however often it is tried.
            assert connections == 1
        finally:
            is_over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


async def test_a_group_that_falls_behind_tells_the_hook_and_again_when_it_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker, console and web hook for real; the rules' file changes while it runs."""
    path = tmp_path / "alarms.toml"
    path.write_text("")
    with hook(500) as server:
        async with site(tmp_path, console={"alarm_file": str(path)}) as running:
            user = running.user
            await user.do("PUT", "/topics/T", {"readQueues": 1, "writeQueues": 1})
            await user.do("PUT", "/groups/orders-a", {})
            place = {"topic": "T", "broker": "b", "queueId": 0, "offset": 0}
            await user.do("POST", "/groups/orders-a/offset", place)
            async with Producer("P", name_server=running.name_server) as producer:
                for _ in range(3):
                    await producer.send(Message("T", b"x"))
            rules = f'[[alarm]]\ngroup = "orders-*"\nlag = 2\nurl = "{server.url}"\n'
            path.write_text(rules + "lags = 3")

            async def shown(**wanted: Any) -> dict[str, Any] | None:
                found: dict[str, Any] = await user.read("/alarms")
                return (
                    found if all(bool(found[key]) == each for key, each in wanted.items()) else None
                )

            found = await until_async(lambda: shown(fault=True), "the fault is shown")
            assert found is not None
            assert "'lags'" in found["fault"]
            path.write_text(rules)
            found = await until_async(lambda: shown(alarms=True, fault=False), "the alarm holds")
            assert found is not None
            assert found["rules"][0]["hook"] == "http://127.0.0.1"
            assert "secret" not in json.dumps(found)
            assert found["alarms"][0]["reasons"] == [{"figure": "lag", "value": 3, "limit": 2}]
            await until_async(lambda: len(server.seen) == 2, "told again after the 500")
            await user.do("POST", "/groups/orders-a/offset", {**place, "offset": 3})
            await until_async(lambda: len(server.seen) == 3, "told that it is over")
            found = await user.read("/alarms")
            assert found["alarms"] == []
            assert [(each["status"], each["tries"]) for each in found["deliveries"]] == [
                ("resolved", 1),
                ("raised", 2),
            ]
    assert [each["status"] for _, each in server.seen] == ["raised", "raised", "resolved"]
    assert server.seen[0][1]["group"] == "orders-a"
