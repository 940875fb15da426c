"""What peers and senders write steers no terminal: not by an error, nor by a name, nor within JSON."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from pocketmq.cli.__main__ import main
from pocketmq.cli.commands import group as group_commands
from pocketmq.cli.commands.message import _print_message
from pocketmq.cli.exits import complain, visible
from pocketmq.cli.mqadmin.main import main as mqadmin
from pocketmq.cli.mqadmin.printed import Template, say
from pocketmq.cli.output import json_text, print_line, yaml_text
from pocketmq.model.message import MessageExt
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.server import RemotingServer
from tests.kit.waiting import until

# Sets the title of the window, clears the screen (twice: by one character of Unicode, too), turns the text.
HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b2J\x85\u202e\u2066\u200f\u061c\u2028\r"
STEERING = set("\x1b\x07\x9b\x85\u202e\u2066\u200f\u061c\u2028\r")


def answer(request: RemotingCommand, _connection: object) -> RemotingCommand:
    if request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
        body = fastjson.dumps({"topicList": ["T" + HOSTILE]})
        return request.answer(ResponseCode.SUCCESS, None, None, body)
    return request.answer(ResponseCode.SYSTEM_ERROR, "no " + HOSTILE)


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    """The address of a name server that says such things."""
    found: list[str] = []
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    async def serve() -> None:
        async with RemotingServer({}, SystemClock(), default_handler=answer) as server:
            host, port = await server.listen("127.0.0.1", 0)
            found.append(f"{host}:{port}")
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        until(lambda: found, "the name server listens")
        yield found[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (main, ["topic", "list"]),
        (main, ["topic", "show", "T"]),
        (main, ["cluster", "list", "--json"]),
        (main, ["message", "find", "T", "--key", "k"]),
        (main, ["health"]),
        (main, ["health", "--json"]),
        (mqadmin, ["topicList"]),
        (mqadmin, ["clusterList"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_no_answer_steers_the_terminal(
    namesrv: str,
    command: Callable[..., int],
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)
    monkeypatch.setattr("sys.argv", ["command", *words])
    command()
    shown = capsys.readouterr()
    assert shown.out or shown.err
    assert not STEERING & set(shown.out + shown.err)


@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_the_same_value_and_steers_nothing(indent: int | None) -> None:
    """`message find --json` shows what anybody has sent."""
    value: Any = {"body": HOSTILE + "中 \U0001f600", "keys": [HOSTILE], HOSTILE: 1}
    text = json_text(value, indent=indent)
    assert json.loads(text) == value
    assert not STEERING & set(text)
    assert "中 \U0001f600" in text


def test_yaml_is_the_same_value_and_steers_nothing() -> None:
    """`subs export` shows what members are named, and `subs plan` reads it again."""
    value: Any = [
        {
            "group": "g" + HOSTILE,
            "tags": ["中 \U0001f600", HOSTILE, "plain", "\u202e'\\"],
            HOSTILE: 1,
        },
        {"subscription": "no: \u2066yes\n\nlong " + "word " * 40 + "\u200f"},
    ]
    text = yaml_text(value)
    assert yaml.safe_load(text) == value
    assert not STEERING & set(text)
    assert "中 \U0001f600" in yaml_text(["中 \U0001f600"])
    assert yaml_text([{"a": "plain"}]) == "- a: plain\n"


def test_warnings_of_the_client_in_a_command_steer_nothing(
    namesrv: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A command has no log of its own: what its libraries warn of goes to standard error."""
    monkeypatch.setattr("logging.root.handlers", [])
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)
    monkeypatch.setattr("sys.argv", ["command", "topic", "list"])
    main()
    capfd.readouterr()
    logging.getLogger("pocketmq.client").warning("fetch failed %s", f"T{HOSTILE}\nbroker: ok")
    said = capfd.readouterr().err
    assert said == f"fetch failed T{visible(HOSTILE)}\n  broker: ok\n"


def test_what_a_sender_wrote_begins_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A tag with an end of line in it would be read as another message."""
    message = MessageExt("T", b"b\nc", properties={"TAGS": "t\n2026 b/0@1", "KEYS": "k\n1"})
    _print_message(message, as_json=False)
    assert capsys.readouterr().out.count("\n") == 1


def test_a_line_keeps_its_tabs_and_has_one_end(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(f"a\tb{HOSTILE}\n  c 中")
    assert capsys.readouterr().out == f"a\tb{visible(HOSTILE)}\\n  c 中\n"
    assert visible("\x1b\r\x9b\u202e") == r"\x1b\r\x9b\u202e"


FAKED = "fine\nwell: nothing is wrong"


def test_no_text_of_a_peer_begins_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`group show` printed what a member had reported, as if the command had said it."""
    found: dict[str, Any] = {
        "members": [],
        "mode": None,
        "queues": [],
        "symptoms": [{"severity": "bad", "text": f"member {FAKED}"}],
    }
    monkeypatch.setattr("pocketmq.cli.commands.group.with_admin", lambda *_: found)
    group_commands.show("g", "somewhere")
    print_line(f"a topic {FAKED}")
    say(Template("{}  {}").of(("T", FAKED)))
    complain(f"refused: {FAKED}")
    shown = capsys.readouterr()
    for line in (shown.out + shown.err).splitlines():
        assert not line.startswith("well")
    assert "bad: member fine\\nwell: nothing is wrong" in shown.out
