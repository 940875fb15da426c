"""The commands that administer a site, against a running one."""

import asyncio
import json
import random
import signal
import subprocess
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pocketmq.admin import Admin
from pocketmq.cli.app import run
from pocketmq.cli.exits import CannotBegin, ExitCode
from pocketmq.cli.moments import parse_moment, show_moment
from pocketmq.client import Message, Producer, TransactionState
from pocketmq.client.sync import TransactionProducer
from pocketmq.remoting.admin_headers import DeleteTopicHeader
from pocketmq.remoting.codes import RequestCode
from tests.broker.serving import At, Peer
from tests.cli.machine_keys import checked
from tests.cli.servers import COMMAND, Server
from tests.kit.waiting import until

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("site")
    server = Server(
        folder,
        *("up", "--namesrv-port", "0", "--broker-port", "0", "--data", "store"),
        *("--broker-name", "a"),
    )
    yield server.ready()["namesrv"]
    server.kill()


@pytest.fixture
def ask(namesrv: str, capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(*words: str, code: int = 0) -> Any:
        """The JSON that a command prints."""
        assert run([*words, "--namesrv", namesrv, "--json"]) == code
        return checked(words, json.loads(capsys.readouterr().out))

    return asked


def send(ask: Ask, topic: str, body: str, *more: str) -> dict[str, Any]:
    (row,) = ask("message", "send", topic, body, *more)
    assert row["status"] == "SEND_OK"
    found: dict[str, Any] = row
    return found


def test_the_cluster_is_listed_with_its_numbers_and_settings(ask: Ask) -> None:
    (broker,) = ask("cluster", "list")
    assert (broker["broker"], broker["brokerId"], broker["state"]) == ("a", 0, "ok")
    assert ask("cluster", "numbers")["a"]["brokerVersionDesc"] == "V4_9_7"
    changed = ask("cluster", "config", "--set", "flushIntervalCommitLog=321")
    assert changed == {"a": {"flushIntervalCommitLog": "321"}}
    assert ask("cluster", "config")["a"]["flushIntervalCommitLog"] == "321"


def test_fields_of_bodies_stand_beside_the_messages_own(
    ask: Ask,
    namesrv: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    bodies = ('{"id":17,"broker":"theirs","sum":2.5}', "no JSON")
    ids = [send(ask, "Bodies", body, "--key", "same")["msgId"] for body in bodies]
    schema = "id INT, broker STRING, sum DOUBLE"
    words = ("message", "find", "Bodies", "--key", "same", "--body-schema", schema)
    found = {row["msgId"]: row["bodyFields"] for row in ask(*words)}
    assert found.keys() == set(ids)
    good, bad = (found[one] for one in ids)
    assert good == {"id": 17, "broker": "theirs", "sum": 2.5, "_body_error": None}
    assert bad["id"] is None
    assert "JSON" in bad["_body_error"]
    for more in (words, ("message", "find", "Bodies", "--id", ids[0], *words[-2:])):
        assert run([*more, "--namesrv", namesrv]) == 0
        shown = capsys.readouterr().out
        # Neither hides the other.
        assert ids[0] in shown
        assert {"theirs", "17", "2.5"} <= set(shown.split())


def test_a_topic_is_created_shown_and_deleted(ask: Ask, namesrv: str) -> None:
    assert ask("topic", "create", "Made", "--queues", "3", "--perm", "r") == {
        "topic": "Made",
        "brokers": ["a"],
    }
    # What an option does not say stays as it was.
    ask("topic", "create", "Made", "--perm", "rw")
    ask("topic", "create", "Made", "--read-queues", "4")
    ask("topic", "create", "Made", "--perm", "r")
    shown = ask("topic", "show", "Made")
    assert shown["brokers"][0] | {"addresses": []} == {
        "broker": "a",
        "addresses": [],
        "readQueues": 4,
        "writeQueues": 3,
        "perm": "r--",
    }
    assert [row["queueId"] for row in shown["queues"]] == [0, 1, 2]
    assert "Made" in ask("topic", "list")
    assert "TBW102" not in ask("topic", "list")
    assert "TBW102" in ask("topic", "list", "--all")
    with pytest.raises(CannotBegin, match="--yes"):
        run(["topic", "delete", "Made", "--namesrv", namesrv])
    ask("topic", "delete", "Made", "--yes")
    assert "Made" not in ask("topic", "list")
    assert run(["topic", "show", "Made", "--namesrv", namesrv]) == 1


def test_what_living_brokers_have_is_found_while_another_is_gone(
    ask: Ask, namesrv: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stopped broker is named, and the exit code says that something may be missing."""
    ask("topic", "create", "Half", "--queues", "1")
    sent = send(ask, "Half", "one", "--keys", "k")
    broker = {"brokerName": "gone", "brokerAddr": "127.0.0.1:1", "brokerId": "0"}
    fields = {**broker, "clusterName": "DefaultCluster", "haServerAddr": ""}
    table = {"topicConfigSerializeWrapper": {"topicConfigTable": {"Half": {"topicName": "Half"}}}}

    body = json.dumps(table).encode()
    with asyncio.Runner() as runner:
        # The name server forgets a broker whose connection is closed.
        peer = runner.run(Peer.at(At(namesrv)))
        assert runner.run(peer.ask(RequestCode.REGISTER_BROKER, fields, body)).code == 0
        for words in (("--keys", "k"), ("--since", "1h")):
            find = ["message", "find", "Half", *words, "--namesrv", namesrv, "--json"]
            assert run(find) == 1
            printed = capsys.readouterr()
            assert [each["msgId"] for each in json.loads(printed.out)] == [sent["msgId"]]
            assert printed.err.startswith("messages of broker gone are missing here: ")
        assert runner.run(peer.ask(RequestCode.UNREGISTER_BROKER, fields)).code == 0
        runner.run(peer.close())


def test_messages_are_sent_followed_found_and_tracked(
    ask: Ask, namesrv: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """S88, S89: a group that is offline is NOT_ONLINE."""
    ask("topic", "create", "Mail", "--queues", "2")
    first = send(ask, "Mail", "one", "--tag", "A", "--keys", "k1 k2", "--queue", "0")
    second = send(ask, "Mail", "two", "--tag", "B", "--property", "color=red", "--queue", "1")
    assert run(["message", "tail", "Mail", "--namesrv", namesrv, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["body"] for line in lines] == ["one", "two"]
    assert lines[1]["properties"]["color"] == "red"
    for words in (("--id", first["msgId"]), ("--id", first["offsetMsgId"]), ("--keys", "k2")):
        (found,) = ask("message", "find", "Mail", *words)
        assert (found["body"], found["queueId"], found["broker"]) == ("one", 0, "a")
    assert len(ask("message", "find", "Mail", "--since", "1h")) == 2
    (found,) = ask("message", "find", "Mail", "--since", "1h", "--tag", "B")
    assert found["msgId"] == second["msgId"]
    assert ask("message", "find", "Mail", "--since", "1h", "--until", "30m", code=1) == []
    ask("offset", "reset", "reader", "Mail", "--to", "latest", "--yes")
    for named in (["Mail", first["msgId"]], [first["msgId"]], [first["offsetMsgId"]]):
        (track,) = ask("message", "track", *named)
        assert (track["group"], track["trackType"]) == ("reader", "NOT_ONLINE")
        assert track["verdict"] == "SKIPPED_BY_RESET"
        assert "was set from 0 to 1" in track["text"]
    with pytest.raises(CannotBegin, match="one of --id"):
        run(["message", "find", "Mail", "--namesrv", namesrv])
    assert run(["message", "track", "Mail", "none", "--namesrv", namesrv]) == 1


def succeeds(words: list[str]) -> bool:
    return run(words) == 0


def test_the_track_of_a_waiting_message_says_that_it_waits(
    ask: Ask, namesrv: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages that wait for a level, a time or a commit go to no group yet."""
    ask("topic", "create", "Soon", "--queues", "1")
    (level,) = ask("message", "send", "Soon", "x", "--delay-level", "16")
    (timed,) = ask("message", "send", "Soon", "x", "--deliver-at", "+1h")

    def unknown(_: object) -> TransactionState:
        return TransactionState.UNKNOWN

    with TransactionProducer("halves", check=unknown, name_server=namesrv) as producer:
        half = producer.send_in_transaction(Message("Soon", b"x"), unknown).send_result.msg_id
    waiting = {
        level["msgId"]: "it waits until ",
        timed["offsetMsgId"]: "it waits until ",
        half: "a half message",
    }
    for msg_id, words in waiting.items():
        for named in ([msg_id], ["Soon", msg_id]):
            # The index is written a moment later.
            track = ["message", "track", *named, "--namesrv", namesrv]
            until(partial(succeeds, track), msg_id)
            said = capsys.readouterr().out
            assert words in said
            assert "'Soon'" in said
        assert ask("message", "track", msg_id) == []
        (found,) = ask("message", "find", "Soon", "--id", msg_id)
        assert (found["body"], found["properties"]["REAL_TOPIC"]) == ("x", "Soon")


def test_tail_follows_what_arrives_until_it_is_interrupted(ask: Ask, namesrv: str) -> None:
    """message tail -f; Ctrl-C is its normal end."""
    ask("topic", "create", "Followed", "--queues", "2")
    send(ask, "Followed", "before")
    words = ["message", "tail", "Followed", "-f", "--json", "--namesrv", namesrv]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        assert json.loads(tail.stdout.readline())["body"] == "before"
        for place in range(2):
            send(ask, "Followed", f"after {place}", "--queue", str(place))
            assert json.loads(tail.stdout.readline())["body"] == f"after {place}"
        tail.send_signal(signal.SIGINT)
        assert tail.wait(60) == 0


def test_offsets_of_a_group_are_moved_and_copied(ask: Ask) -> None:
    ask("topic", "create", "Moved", "--queues", "1")
    for place in range(3):
        send(ask, "Moved", f"m{place}")
    ask("group", "create", "g")
    planned = ask("offset", "reset", "g", "Moved", "--to", "latest", "--dry-run")
    assert planned == [{"topic": "Moved", "broker": "a", "queueId": 0, "from": 0, "to": 3}]
    assert ask("offset", "show", "g") == []
    ask("offset", "reset", "g", "Moved", "--to", "latest", "--yes")
    (row,) = ask("offset", "show", "g", "--topic", "Moved")
    assert (row["consumerOffset"], row["brokerOffset"], row["lag"]) == (3, 3, 0)
    assert ask("offset", "set", "g", "Moved", "0", "1", "--yes")[0]["to"] == 1
    assert ask("offset", "copy", "g", "h", "Moved", "--yes")[0] == {
        "topic": "Moved",
        "broker": "a",
        "queueId": 0,
        "from": 0,
        "to": 1,
    }
    assert ask("offset", "show", "h", "--topic", "Moved")[0]["lag"] == 2
    assert ask("group", "show", "h")["members"] == []
    # Two messages that have just arrived are no reason to alarm.
    [absent] = ask("doctor", "group", "h")["symptoms"]
    assert (absent["kind"], absent["severity"]) == ("NOBODY_ONLINE", "info")
    ask("group", "create", "h", "--batch")
    assert ask("doctor", "group", "h")["symptoms"] == []


def test_a_group_is_created_changed_listed_and_deleted(ask: Ask, namesrv: str) -> None:
    assert ask("group", "create", "G", "--retry-max", "3")["brokers"] == ["a"]
    ask("group", "create", "G", "--no-consume")
    shown = ask("doctor", "group", "G", code=1)["symptoms"]
    assert [each["kind"] for each in shown] == ["GROUP_DISABLED"]
    assert shown[0]["advice"].endswith("pocketmq group create G --consume")

    async def retries() -> int:
        async with Admin(name_server=namesrv) as admin:
            return (await admin.groups.configs())["a"]["G"].retry_max_times

    assert asyncio.run(retries()) == 3
    row = next(row for row in ask("group", "list") if row["group"] == "G")
    assert (row["members"], row["lag"]) == (0, 0)
    ask("group", "delete", "G", "--yes")
    assert "G" not in [row["group"] for row in ask("group", "list")]


def test_an_offset_behind_the_end_is_no_backlog_for_any_command(ask: Ask) -> None:
    ask("topic", "create", "Ahead", "--queues", "2")
    ask("group", "create", "ahead")
    for _ in range(4):
        send(ask, "Ahead", "x")
    ends = {row["queueId"]: row["maxOffset"] for row in ask("topic", "show", "Ahead")["queues"]}
    ask("offset", "set", "ahead", "Ahead", "0", "50", "--yes")
    ask("offset", "set", "ahead", "Ahead", "1", "0", "--yes")
    shown = {row["queueId"]: row["lag"] for row in ask("offset", "show", "ahead")}
    assert shown == {0: 0, 1: ends[1]}
    (row,) = [row for row in ask("group", "list") if row["group"] == "ahead"]
    queues = ask("group", "show", "ahead")["queues"]
    assert row["lag"] == sum(each["lag"] for each in queues) == ends[1]


def test_a_group_is_deleted_with_its_topics(ask: Ask) -> None:
    """Those of its pops, too, but not that of another group whose name is alike."""
    ask("topic", "create", "Fed", "--queues", "1")
    for group in ("eater", "eater_x"):
        ask("group", "create", group)
    for topic in ("%RETRY%eater", "%DLQ%eater", "%RETRY%eater_Fed", "%RETRY%eater_x"):
        ask("topic", "create", topic, "--queues", "1")
    ask("group", "delete", "eater", "--with-topics", "--yes")
    assert [each for each in ask("topic", "list", "--all") if "eater" in each] == ["%RETRY%eater_x"]


def test_a_topic_left_at_name_servers_only_can_be_managed(ask: Ask, namesrv: str) -> None:
    """Its route stays at the name servers; the advice to create it was given by `topic create`."""

    async def half(topic: str) -> None:
        async with Admin(name_server=namesrv) as admin:
            [broker] = await admin.site.masters()
            header = DeleteTopicHeader(topic)
            await admin.site.api.requests.ask(
                broker.address, RequestCode.DELETE_TOPIC_IN_BROKER, header
            )

    for topic in ("HalfA", "HalfB"):
        ask("topic", "create", topic, "--queues", "4")
        asyncio.run(half(topic))
    assert ask("topic", "show", "HalfA")["queues"] == []
    ask("topic", "create", "HalfA", "--queues", "4")
    assert len(ask("topic", "show", "HalfA")["queues"]) == 4
    ask("topic", "delete", "HalfB", "--yes")
    assert "HalfB" not in ask("topic", "list")


def test_a_group_is_reset_to_what_was_stored_at_a_time_or_later(ask: Ask) -> None:
    """Not to the message stored next to the time; now leaves nothing."""
    ask("topic", "create", "Timed", "--queues", "1")
    ask("group", "create", "timed")
    times: list[int] = []
    for number in range(4):
        until(lambda: not times or time.time_ns() // 1_000_000 > times[-1] + 3, "another time")
        send(ask, "Timed", str(number))
        times.append(ask("message", "find", "Timed", "--since", "1h")[-1]["storeTimestamp"])

    def reset(to: str) -> int:
        (row,) = ask("offset", "reset", "timed", "Timed", "--to", to, "--yes")
        (shown,) = ask("offset", "show", "timed")
        assert shown["consumerOffset"] == row["to"]
        return int(row["to"])

    assert [reset(str(each)) for each in times] == [0, 1, 2, 3]
    assert [reset(str(each + 1)) for each in times] == [1, 2, 3, 4]
    assert [reset(str(each - 1)) for each in times] == [0, 1, 2, 3]
    assert reset("earliest") == 0
    for word in ("now", "latest", str(times[-1] + 3_600_000)):
        assert reset(word) == 4, word


def test_dead_letters_are_listed_exported_and_given_back(
    ask: Ask, namesrv: str, tmp_path: Path
) -> None:
    ask("group", "create", "sick")
    assert ask("dlq", "list", "sick") == []
    for topic in ("%DLQ%sick", "%RETRY%sick"):
        ask("topic", "create", topic, "--queues", "1")
    letter = send(ask, "%DLQ%sick", "dead", "--property", "RETRY_TOPIC=Mail", "--tag", "A")
    (found,) = ask("dlq", "list", "sick")
    assert (found["body"], found["msgId"], found["sentAgain"]) == ("dead", letter["msgId"], [])
    out = tmp_path / "dead.jsonl"
    assert run(["dlq", "export", "sick", "--out", str(out), "--namesrv", namesrv]) == 0
    assert json.loads(out.read_text())["properties"]["RETRY_TOPIC"] == "Mail"
    (row,) = ask("dlq", "resend", "sick", letter["msgId"], "--yes")
    assert row["status"] == "SEND_OK"
    (again,) = ask("message", "find", "%RETRY%sick", "--since", "1h")
    assert (again["body"], again["tags"], again["reconsumeTimes"]) == ("dead", "A", 0)
    (found,) = ask("dlq", "list", "sick")
    assert found["sentAgain"] == [again["storeTimestamp"]]
    with pytest.raises(CannotBegin, match="no such dead letter"):
        run(["dlq", "resend", "sick", "nothing", "--yes", "--namesrv", namesrv])


def test_what_was_exported_is_imported_again_byte_by_byte(
    ask: Ask, namesrv: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bodies of any bytes, among them such as are no text; with their ids, tags, keys and properties."""
    generator = random.Random(17)
    bodies = [generator.randbytes(size) for size in (1, 7, 300, 5_000)] + [
        b"\xff\x00",
        "añ".encode(),
        # What text files take for the end of a line, but JSON lines do not.
        "a\u2028b\x85c".encode(),
    ]
    for topic in ("Bytes", "Back", "%DLQ%dying"):
        ask("topic", "create", topic, "--queues", "1")
    ask("group", "create", "dying")

    async def send_all() -> None:
        async with Producer("P", name_server=namesrv) as producer:
            for topic in ("Bytes", "%DLQ%dying"):
                [queue] = await producer.queues(topic)
                for number, body in enumerate(bodies):
                    message = Message(topic, body, tags="t", keys=f"k{number}")
                    message.properties["mine"] = f"\t{number}"
                    await producer.send(message, queue=queue)

    asyncio.run(send_all())
    kept = ("msgId", "tags", "keys", "bodyBase64")

    def told(rows: list[dict[str, Any]]) -> list[Any]:
        return [[*(row[name] for name in kept), row["properties"]["mine"]] for row in rows]

    before = ask("message", "find", "Bytes", "--since", "1h")
    assert [b64decode(row["bodyBase64"]) for row in before] == bodies
    file = tmp_path / "found.json"
    file.write_text(json.dumps(before))
    assert ask("message", "import", str(file), "--topic", "Back")["imported"] == len(bodies)
    assert told(ask("message", "find", "Back", "--since", "1h")) == told(before)
    letters = tmp_path / "dead.jsonl"
    dead = told(ask("dlq", "list", "dying"))
    ask("dlq", "export", "dying", "--out", str(letters))
    ask("topic", "delete", "%DLQ%dying", "--yes")
    assert ask("dlq", "import", "dying", str(letters))["imported"] == len(bodies)
    assert told(ask("dlq", "list", "dying")) == dead
    # Nothing of a file is stored if a topic of it is missing, though brokers create topics for producers.
    file.write_text(json.dumps([{"topic": "Back", "body": "x"}, {"topic": "Nope", "body": "x"}]))
    assert run(["message", "import", str(file), "--namesrv", namesrv]) == ExitCode.FAILED
    assert (
        "topic create Nope; a producer's first message creates it, too" in capsys.readouterr().err
    )
    assert told(ask("message", "find", "Back", "--since", "1h")) == told(before)
    # One that the broker refuses stops the rest, and the error says where to continue.
    rows = [{"topic": "Rest", "body": text} for text in ("one", "x" * (5 << 20), "three")]
    ask("topic", "create", "Rest", "--queues", "1")
    file.write_text("\n".join(map(json.dumps, rows)))
    assert run(["message", "import", str(file), "--namesrv", namesrv]) == ExitCode.FAILED
    assert "before number 2 of the file are stored; resume with --skip 1" in capsys.readouterr().err
    assert ask("message", "import", str(file), "--skip", "2")["imported"] == 1
    assert [row["body"] for row in ask("message", "find", "Rest", "--since", "1h")] == [
        "one",
        "three",
    ]
    file.write_text('{"topic": "T", "bodyBase64": "?"}')
    with pytest.raises(CannotBegin, match="message 1 of"):
        run(["message", "import", str(file), "--namesrv", namesrv])


def test_delayed_messages_are_counted_and_shown(ask: Ask) -> None:
    ask("topic", "create", "Later", "--queues", "1")
    send(ask, "Later", "later", "--delay-level", "18", "--key", "slow")
    levels = {row["level"]: row for row in ask("delay", "list")}
    assert (levels[18]["waiting"], levels[18]["name"], levels[17]["waiting"]) == (1, "2h", 0)
    (row,) = ask("delay", "show", "18")
    assert (row["topic"], row["keys"], row["body"]) == ("Later", "slow", "later")


def test_timed_messages_are_shown_and_recalled(
    ask: Ask, namesrv: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ask("topic", "create", "Timed", "--queues", "1")
    made = send(ask, "Timed", "in an hour", "--deliver-at", "+1h")
    (waiting,) = [row for row in ask("delay", "list") if row["topic"] == "Timed"]
    assert (waiting["level"], waiting["name"], waiting["waiting"]) == (None, "own time", 1)
    (row,) = [row for row in ask("delay", "show") if row["topic"] == "Timed"]
    assert row["msgId"] == made["msgId"]
    assert ask("delay", "recall", "Timed", row["recallHandle"])["recalled"] == made["msgId"]
    # The broker takes every recall; that there is nothing left to recall is for the command to say.
    again = ["delay", "recall", "--namesrv", namesrv, "Timed"]
    assert run([*again, row["recallHandle"]]) == ExitCode.FAILED
    assert "was recalled or delivered before" in capsys.readouterr().err
    assert [each["waiting"] for each in ask("delay", "list") if each["topic"] == "Timed"] in (
        [],
        [0],
    )
    with pytest.raises(CannotBegin, match="recall handle is invalid: 'nonsense'"):
        run([*again, "nonsense"])


def test_bench_counts_what_it_did(ask: Ask) -> None:
    ask("topic", "create", "Fast", "--queues", "2")
    [made] = ask("bench", "produce", "--topic", "Fast", "--count", "50", "--in-flight", "8")
    assert made["messages"] == 50
    assert made["messagesPerS"] > 0
    [read] = ask("bench", "consume", "--topic", "Fast", "--count", "40")
    assert read["messages"] == 40


def test_a_site_that_is_not_there_is_exit_code_1_and_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["topic", "list", "--namesrv", "127.0.0.1:1"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("pocketmq: ")
    assert "cannot connect to 127.0.0.1:1" in shown.err
    assert len(shown.err.splitlines()) == 1


def test_people_get_tables(namesrv: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "list", "--namesrv", namesrv]) == 0
    assert "DefaultCluster" in capsys.readouterr().out
    with pytest.raises(CannotBegin, match="No such command"):
        run(["no-such-command"])


def test_times_are_read_as_people_write_them() -> None:
    now = 1_700_000_000_000
    assert parse_moment("now", now) == now
    assert parse_moment("90s ago", now) == parse_moment("90s", now) == now - 90_000
    assert parse_moment("1d", now) == now - 86_400_000
    assert parse_moment("1700000000123") == 1_700_000_000_123
    assert parse_moment("2023-11-14T22:13:20+00:00") == now
    assert parse_moment(show_moment(now)) == now
    with pytest.raises(CannotBegin, match="is not a time"):
        parse_moment("soon")
