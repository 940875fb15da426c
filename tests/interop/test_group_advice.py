"""What the articles advise: who knows of groups, and how a release finds members that differ."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.client import ConsumeContext, MessageExt, PushConsumer
from pocketmq.remoting.codes import RequestCode, ResponseCode, Version
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.frames import FrameDecoder
from tests.interop.asking import connection_of
from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic
from tests.interop.driver import Session
from tests.kit.waiting import until_async

ROOT = Path(__file__).parents[2]
ABOUT_CONSUMERS = (
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.HEART_BEAT,
)


@pytest.mark.parametrize("java_client", ["4.9.8-JSON"], indirect=True)
def test_a_broker_knows_its_4_9_members_and_the_name_server_knows_no_consumer(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """S83, S94: who asks the name server about a group learns that it does not know such a request."""
    make_topic(broker, topic)
    java_client.push_consumer(broker.namesrv, group, topic)
    [member] = connection_of(broker.address, group)["connectionSet"]
    assert member["language"] == "JAVA"
    # V4_9_4 and the ones behind it are numbered by two; 5.0.0 is far away.
    assert Version.V4_9_4 < member["version"] < Version.V4_9_4 + 40
    answers = answers_before_the_route(broker.namesrv, group, topic)
    if broker.kind == "pocketmq":
        assert len(answers) == len(ABOUT_CONSUMERS)
    # The real one gives no answer at all to some codes that it does not know.
    assert {each.code for each in answers} <= {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}


def answers_before_the_route(address: str, group: str, topic: str) -> list[RemotingCommand]:
    """What comes to requests about consumers until a request for a route is answered."""
    host, _, port = address.rpartition(":")
    decoder = FrameDecoder()
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    found: list[RemotingCommand] = []
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        for opaque, code in enumerate((*ABOUT_CONSUMERS, RequestCode.GET_ROUTEINFO_BY_TOPIC)):
            command = RemotingCommand(code, fields, opaque=opaque, language="JAVA")
            connection.sendall(encode(command))
        while True:
            data = connection.recv(65_536)
            assert data, "the name server closed the connection"
            for frame in decoder.feed(data):
                answer = decode(frame)
                if answer.opaque == len(ABOUT_CONSUMERS):
                    assert answer.code == ResponseCode.SUCCESS
                    return found
                found.append(answer)


def doctor(broker: RunningBroker, group: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pocketmq.cli", "group", "doctor", group]
    return subprocess.run(
        [*command, "-n", broker.namesrv], capture_output=True, text=True, check=False
    )


async def test_a_release_whose_members_differ_is_stopped_by_the_doctors_exit_code(
    pocket_broker: RunningBroker, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """S90, S91: the text names both members and says what to do; the exit code is the gate."""
    await asyncio.to_thread(make_topic, pocket_broker, topic)

    async def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
        pass

    def member(tag: str) -> PushConsumer:
        made = PushConsumer(
            group, listener=listener, name_server=pocket_broker.namesrv, instance_name=f"wants{tag}"
        )
        made.subscribe(topic, tag)
        return made

    async def diagnosis() -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(doctor, pocket_broker, group)

    async with member("tagA") as one:
        await until_async(lambda: len(one.assignment()) >= 5, "all queues")
        assert (await diagnosis()).returncode == 0
        async with member("tagB") as two:
            await until_async(lambda: len(one.assignment()) < 5, "half of the queues")
            found = await diagnosis()
            assert found.returncode == 1
            for words in (one.client_id, two.client_id, "tagA", "tagB"):
                assert words in found.stdout
            assert "give each subscription its own group" in found.stdout
        await until_async(lambda: len(one.assignment()) >= 5, "all queues again")
        assert (await diagnosis()).returncode == 0


def test_the_documentation_defines_a_group() -> None:
    """S90, S93: same topics, same tags, same listening logic; new kinds get a topic, tag or group."""
    text = " ".join((ROOT / "docs" / "model.md").read_text(encoding="utf-8").split())
    assert (
        "subscribe the same topics, with the same tags, and do the same with what they get" in text
    )
    assert (
        "Another subscription, another group; another kind of message, another topic or tag" in text
    )
