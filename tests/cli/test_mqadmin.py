"""`mqadmin`, `mqbroker` and `mqnamesrv`: RocketMQ's words."""

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import typer

from pocketmq.admin import Admin
from pocketmq.cli.app import commands
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.mqadmin.answers import answers
from pocketmq.cli.mqadmin.main import run
from pocketmq.cli.mqadmin.printed import parse_time
from pocketmq.cli.mqadmin.table import COMMANDS, find
from tests.cli.servers import Server

# What is used every day.
_DAILY = """
updateTopic deleteTopic topicList topicRoute topicStatus topicClusterList updateTopicPerm updateOrderConf
allocateMQ updateSubGroup deleteSubGroup consumerProgress consumerStatus consumerConnection getConsumerConfig
resetOffsetByTime resetOffsetByTimeOld skipAccumulatedMessage cloneGroupOffset getConsumerStatus producer
producerConnection sendMessage consumeMessage printMsg printMsgByQueue queryMsgById queryMsgByKey
queryMsgByOffset queryMsgByUniqueKey queryMsgTraceById queryCq DecodeMessageId sendMsgStatus checkMsgSendRT
clusterList clusterRT brokerStatus brokerConsumeStats statsAll getBrokerConfig updateBrokerConfig
getNamesrvConfig updateNamesrvConfig wipeWritePerm addWritePerm updateKvConfig deleteKvConfig
"""
DAILY = _DAILY.split()

Say = Callable[..., str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("site")
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--no-console"]
    server = Server(folder, "up", *ports, "--data", "store", "--broker-name", "a")
    try:
        yield server.ready()
    finally:
        server.kill()


@pytest.fixture
def say(site: dict[str, str], capsys: pytest.CaptureFixture[str]) -> Say:
    def said(command: str, *words: object, code: int = 0) -> str:
        """What the command prints."""
        given = [command, *(str(word) for word in words), "-n", site["namesrv"]]
        found = run(given)
        shown = capsys.readouterr()
        assert found == code, shown.err
        return shown.out if code == 0 else shown.err

    return said


def _is_command(words: str) -> bool:
    """Whether `pocketmq WORDS` begins with a command that exists."""
    found: Any = typer.main.get_command(commands())
    for word in words.split():
        children = getattr(found, "commands", {})
        if not children:
            return True
        found = children.get(word)
        if found is None:
            return False
    return not getattr(found, "commands", {})


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def test_every_daily_command_is_served() -> None:
    served = {command.name for command in COMMANDS if command.module}
    assert served >= set(DAILY)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: str(each.name))
def test_each_row_of_the_table_is_whole(command: object) -> None:
    """A function that exists, or the command that does the same, or why no command does."""
    from pocketmq.cli.mqadmin.table import MqCommand

    assert isinstance(command, MqCommand)
    assert find(command.name.upper()) is command
    letters = [option.letter for option in command.options]
    assert len(set(letters)) == len(letters)
    assert not set("nh") & set(letters)
    assert set(command.one_of) <= set(letters)
    if command.module:
        assert callable(answers(command))
    if command.call and not command.call[0].isupper():
        path, *words = command.call
        asked = inspect.signature(attrgetter(path)(Admin(name_server="127.0.0.1:1")))
        pairs = [word.rpartition("=") for word in words]
        values = [word for name, _, word in pairs if not name]
        named = {name: word for name, _, word in pairs if name}
        asked.bind(*values, **named)
        given = {word.partition(":")[0] for word in (*values, *named.values()) if word[0] != "@"}
        assert given <= set(letters)
    assert bool(command.instead) != bool(command.why)
    if command.instead:
        assert _is_command(command.instead)


def test_topic_commands_take_rocketmqs_letters(say: Say, site: dict[str, str]) -> None:
    made = say("updateTopic", "-b", site["broker"], "-t", "T", "-r", 2, "-w", 3)
    assert f"create topic to {site['broker']} success." in made
    assert "TopicConfig [topicName=T, readQueueNums=2, writeQueueNums=3, perm=RW-" in made
    assert "T" in say("topicList").split()
    assert rows(say("topicStatus", "-t", "T"))[0][:4] == ["a", "0", "0", "0"]
    assert ["DefaultCluster", "a"] in [row[:2] for row in rows(say("topicRoute", "-t", "T", "-l"))]
    assert say("topicClusterList", "-t", "T") == "DefaultCluster\n"
    said = say("updateTopicPerm", "-c", "DefaultCluster", "-t", "T", "-p", 4)
    assert said == f"update topic perm from 6 to 4 in {site['broker']} success.\n"
    say("updateOrderConf", "-t", "T", "-m", "put", "-v", "a:3")
    assert "orderConf=[a:3]" in say("updateOrderConf", "-t", "T", "-m", "get")
    say("updateOrderConf", "-t", "T", "-m", "delete")
    assert '"queueId":0' in say("allocateMQ", "-t", "T", "-i", "one,two")
    say("deleteTopic", "-t", "T", "-c", "DefaultCluster")
    assert "T" not in say("topicList").split()


def test_a_group_is_set_to_pop_and_a_wrong_mode_is_refused(say: Say) -> None:
    """RocketMQ 5.5.0's text."""
    cluster = ("-c", "DefaultCluster")
    say("updateTopic", *cluster, "-t", "P")
    say("updateSubGroup", *cluster, "-g", "p")
    said = say("setConsumeMode", *cluster, "-t", "P", "-g", "p", "-m", "pop", "-q", 2)
    assert said.endswith("topic[P] group[p] consume mode[POP] popShareQueueNum[2]\n")
    wrong = say("setConsumeMode", *cluster, "-t", "P", "-g", "p", "-m", "push", code=1)
    assert "a group's mode is PULL or POP, not 'PUSH'" in wrong


def test_messages_are_sent_found_and_printed(say: Say, site: dict[str, str]) -> None:
    say("updateTopic", "-c", "DefaultCluster", "-t", "M", "-r", 1, "-w", 1)
    say("updateSubGroup", "-c", "DefaultCluster", "-g", "g", "-r", 3)
    ((broker, queue, status, msg_id),) = rows(
        say("sendMessage", "-t", "M", "-p", "hello", "-c", "A", "-k", "k1")
    )
    assert (broker, queue, status) == ("a", "0", "SEND_OK")
    assert rows(say("queryMsgByKey", "-t", "M", "-k", "k1")) == [[msg_id, "0", "0"]]
    found = say("queryMsgByUniqueKey", "-t", "M", "-i", msg_id)
    assert "Tags:                [A]" in found
    assert "WARN: No Consumer" in found
    assert say("queryMsgByOffset", "-t", "M", "-b", "a", "-i", 0, "-o", 0).startswith("OffsetID:")
    offset_id = say("queryMsgByOffset", "-t", "M", "-b", "a", "-i", 0, "-o", 0).split()[1]
    assert "Message Body:        hello" in say("queryMsgById", "-i", offset_id)
    for command in ("printMsg", "consumeMessage"):
        assert f"MSGID: {msg_id} MessageExt [brokerName=a" in say(command, "-t", "M")
    counted = say("printMsgByQueue", "-t", "M", "-a", "a", "-i", 0, "-f", "true")
    assert rows(counted) == [["Tag:", "A", "Count:", "1"]]
    assert "max: 1, min: 0" in say("queryCq", "-t", "M", "-q", 0, "-i", 0)
    assert "ip=127.0.0.1" in say("DecodeMessageId", "-i", msg_id)
    assert "sendStatus=SEND_OK" in say("sendMsgStatus", "-b", "a", "-c", 1)
    assert "Avg RT:" in say("checkMsgSendRT", "-t", "M", "-a", 2)
    assert "no trace of" in say("queryMsgTraceById", "-i", msg_id, "-t", "M", code=1)
    assert "no trace of" in say("queryMsgTraceById", "-i", msg_id, "-t", "M", code=1)
    assert "has no message" in say("queryMsgByUniqueKey", "-t", "M", "-i", "0" * 32, code=1)


def test_offsets_of_groups_are_shown_and_moved(say: Say) -> None:
    say("updateTopic", "-c", "DefaultCluster", "-t", "O", "-r", 1, "-w", 1)
    policy = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000]}}'
    five = ("-o", "true", "-p", policy, "--attributes", "+group.mode=strict,-other")
    made = say("updateSubGroup", "-c", "DefaultCluster", "-g", "og", "-q", 2, *five)
    assert "consumeMessageOrderly=true" in made
    assert "as JSON" in say("updateSubGroup", "-c", "A", "-g", "og", "-p", "[]", code=2)
    for _ in range(2):
        say("sendMessage", "-t", "O", "-p", "x")
    assert rows(say("resetOffsetByTime", "-g", "og", "-t", "O", "-s", 0))[1:] == [["a", "0", "0"]]
    progress = say("consumerProgress", "-g", "og")
    assert rows(progress)[0][:6] == ["O", "a", "0", "2", "0", "2"]
    assert "Diff Total: 2" in progress
    skipped = rows(say("skipAccumulatedMessage", "-g", "og", "-t", "O"))
    assert skipped == [["a", "0", "2", "0", "2", "2"]]
    assert "Diff Total: 0" in say("consumerProgress", "-g", "og")
    assert "#SlaveNum\t0\n#InSyncSlaveNum\t0\n#SlaveAddr" in say("haStatus", "-c", "DefaultCluster")
    assert rows(say("brokerConsumeStats", "-b", "a"))[0][:7] == ["O", "og", "a", "0", "2", "2", "0"]
    moved = rows(say("resetOffsetByTimeOld", "-g", "og", "-t", "O", "-s", 0))
    assert moved == [["a", "0", "2", "2", "0", "0"]]
    assert "success" in say("cloneGroupOffset", "-s", "og", "-d", "copy", "-t", "O")
    assert "Diff Total: 2" in say("consumerProgress", "-g", "copy")
    assert "og" in {row[0] for row in rows(say("consumerProgress"))}
    kept = say("getConsumerConfig", "-g", "og")
    assert "retryQueueNums                          =  2" in kept
    assert "{'group.mode': 'strict'}" in kept
    assert "{'next': [1000]}" in kept
    assert "NOT_ONLINE" in say("consumerConnection", "-g", "og", code=1)
    assert "NOT_ONLINE" in say("getConsumerStatus", "-g", "og", "-t", "O", code=1)
    assert rows(say("consumerStatus", "-g", "og"))
    for topic in ("%RETRY%og", "%DLQ%og", "%RETRY%og_O"):
        say("updateTopic", "-c", "DefaultCluster", "-t", topic)
    say("updateSubGroup", "-c", "DefaultCluster", "-g", "og_O")
    gone = say("deleteSubGroup", "-c", "DefaultCluster", "-g", "og", "-r", "true")
    assert gone.startswith("delete subscription group [og] from broker [")
    assert "og" not in {row[0] for row in rows(say("consumerProgress"))}
    # As RocketMQ's; the third is of the group og_O.
    left = [row[0] for row in rows(say("topicList")) if "og" in row[0]]
    assert left == ["%RETRY%og_O"]


def test_the_cluster_is_shown_and_set(say: Say, site: dict[str, str]) -> None:
    (row,) = rows(say("clusterList"))
    assert row[:4] == ["DefaultCluster", "a", "0", site["broker"]]
    assert len(rows(say("clusterList", "-m"))[0]) == 6
    assert rows(say("clusterRT", "-a", 2))[0][:2] == ["DefaultCluster", "a"]
    assert "putTps" in say("brokerStatus", "-b", "a")
    assert "#Topic" in say("statsAll")
    where = ("-b", site["broker"])
    said = say("updateBrokerConfig", *where, "-k", "flushIntervalCommitLog", "-v", 321)
    assert said == f"update broker config success, {site['broker']}\n"
    shown = say("getBrokerConfig", *where)
    assert f"{'flushIntervalCommitLog':<50}=  321" in shown
    refused = say("updateBrokerConfig", *where, "-k", "flushDiskTyp", "-v", "x", code=2)
    assert "did you mean 'flushDiskType'" in refused
    assert "listenPort" in say("getNamesrvConfig")
    for command in ("wipeWritePerm", "addWritePerm"):
        assert f"in name server[{site['namesrv']}] OK" in say(command, "-b", "a")
    say("updateKvConfig", "-s", "space", "-k", "key", "-v", "value")
    say("deleteKvConfig", "-s", "space", "-k", "key")
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert say(command) == "success\n"
    say("producer", "-b", "a")
    assert "no producer is online" in say("producerConnection", "-g", "none", "-t", "T", code=2)
    changed = say("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    assert changed.startswith(f"update name server config success![{site['namesrv']}]")
    assert f"{'orderMessageEnable':<50}=  true" in say("getNamesrvConfig")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["topcList"], "did you mean 'topicList'?"),
        (["exportMetadata"], "use: pocketmq topic list --all --json"),
        (["createUser"], "is not served"),
        (["updateTopic", "-t", "T"], "needs -b or -c"),
        (["topicStatus"], "-t/--topic"),
        (["topicStatus", "-t", "T", "-x"], "mqadmin topicStatus -h"),
        (["updateTopic", "-t", "T", "-b", "a", "-r", "many"], "takes a number"),
        (["updateTopic", "-t", "T", "-b", "a", "-r", "1_6"], "takes a number"),
    ],
)
def test_what_cannot_begin_is_one_line_that_says_what_to_do(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert run(words) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("mqadmin: ")
    assert said in shown
    assert shown.count("\n") == 1


def test_help_lists_what_is_served_and_the_options_of_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([]) == 0
    listed = capsys.readouterr().out
    assert all(f"   {name} " in listed for name in DAILY)
    assert run(["help", "updateTopic"]) == 0
    shown = capsys.readouterr().out
    assert "--readQueueNums" in shown
    assert "pocketmq topic create" in shown


def test_times_are_those_of_rocketmqs_tools() -> None:
    at = parse_time("2026-11-21#12:00:00:250", 0)
    assert at % 1000 == 250
    with pytest.raises(CannotBegin, match="is not a time"):
        parse_time("noon", 0)


@pytest.mark.parametrize("script", ["mqbroker", "mqnamesrv", "mqadmin"])
def test_the_words_of_rocketmq_are_commands_of_the_installation(script: str) -> None:
    """Their flags, too: -c, -n, -p, -m, -h."""
    program = Path(sys.executable).parent / script
    assert program.exists(), "install again: pip install -e ."
    shown = subprocess.run([str(program), "-h"], capture_output=True, text=True, check=True)
    assert "usage: " in shown.stdout
    if script != "mqadmin":
        settings = subprocess.run(
            [str(program), "-n", "127.0.0.1:1", "-p"], capture_output=True, text=True, check=True
        )
        assert "listenPort=" in settings.stdout
