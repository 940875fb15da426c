"""Clients over gRPC stand where classic ones do: metrics, tracks, console, command line."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pocketmq.admin import Admin
from pocketmq.broker.figures.metrics import snapshot
from pocketmq.cli.app import run
from pocketmq.grpc.config import GrpcConfig
from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import ClientType, Code
from pocketmq.grpc.server import GrpcServer
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.codes import RequestCode
from tests.broker.serving import Peer
from tests.cli.servers import Server
from tests.console.console_peer import site
from tests.grpc.asking import Asking, asking
from tests.grpc.front_site import front, message, receive, send
from tests.kit.waiting import until_async as until


async def test_a_member_over_grpc_is_seen_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who has a message, and until when; that it speaks gRPC."""
    async with site(tmp_path) as place:
        broker = place.brokers["b"]
        broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
        async with (
            GrpcServer(broker, GrpcConfig(port=0)) as served,
            asking(served.address, "sdk@7") as client,
            asking(served.address, "sdk@8") as second,
        ):
            settings = classes["Settings"](client_type=ClientType.SIMPLE_CONSUMER)
            settings.subscription.group.name = "g"
            settings.subscription.subscriptions.add(
                topic={"name": "T"}, expression={"expression": "*"}
            )
            await client.talk(settings)
            await second.talk(settings)
            other = classes["Settings"](publishing={"topics": [{"name": "T"}]})
            await client.talk(other)
            sent = await send(client, message())
            [got] = await receive(client)

            families = {each.metric.name: each.samples for each in snapshot(broker)}
            [labels] = [labels for labels, _ in families["rocketmq_consumer_connections"]]
            assert {"g", "python", "grpc"} <= set(labels)
            [labels] = [labels for labels, _ in families["rocketmq_producer_connections"]]
            assert {"python", "grpc"} <= set(labels)

            async with Admin(name_server=place.name_server) as admin:
                track: Any = await admin.doctor.track(
                    topic="T", msg_id=sent.entries[0].message_id, group="g"
                )
            [found] = track["tracks"]
            assert (found["verdict"], "sdk@7" in found["text"]) == ("IN_FLIGHT", True)
            assert "delivered again at" in found["text"]
            assert got.body == b"hello"

            # It shares the queue with all that pop: the queue has no owner, and is read.
            shown = await place.user.read("/groups/g")
            members = [(row["clientId"], row["pops"], row["queues"]) for row in shown["members"]]
            assert members == [("sdk@7", True, []), ("sdk@8", True, [])]
            of_topic = await place.user.read("/topics/T/consumers")
            for [queue] in (shown["queues"], of_topic["groups"][0]["queues"]):
                assert (queue["owner"], queue["shared"]) == (None, True)
            words = ["group", "show", "g", "--namesrv", place.name_server, "--json"]
            assert await asyncio.to_thread(run, words) == 0
            told = json.loads(capsys.readouterr().out)
            assert [member["clientId"] for member in told["members"]] == ["sdk@7", "sdk@8"]
            assert [queue["shared"] for queue in told["queues"]] == [True]
            assert told["symptoms"] == []


async def test_the_port_costs_nothing_before_its_first_client(tmp_path: Path) -> None:
    """What serves it is not imported; a broker with the port is as small and as soon there as one without.

    A start of half a second is counted in modules, since a clock on a busy machine proves nothing.
    """
    server = Server(
        tmp_path,
        "up",
        *("--namesrv-port", "0", "--broker-port", "0", "--grpc-port", "0"),
        *("--data", "store", "--no-console"),
        environment={"PYTHONPROFILEIMPORTTIME": "1"},
    )
    try:
        ready = await asyncio.to_thread(server.ready)
        log = server.log_path.read_text().splitlines()
        modules = {line.rpartition("|")[2].strip() for line in log if line.startswith("import t")}
        assert len(modules) <= 500
        part = {name for name in modules if name.startswith(("pocketmq.grpc", "google"))}
        assert part == {"pocketmq.grpc", "pocketmq.grpc.config", "pocketmq.grpc.server"}
        process = Path(f"/proc/{server.process.pid}")
        status = process.joinpath("status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        assert int(line.split()[1]) * 1024 <= 60e6
        assert "upb" not in process.joinpath("maps").read_text()
        async with asking(ready["grpc"]) as client:
            request = classes["QueryRouteRequest"](topic={"name": "T"})
            answer = await client.ask("QueryRoute", request)
            assert answer.status.code == Code.TOPIC_NOT_FOUND
        assert "upb" in process.joinpath("maps").read_text()
    finally:
        server.kill()


CODES = RequestCode


async def told_by(client: Asking, stream: int, answered: int) -> Any:
    """The next command on a Telemetry call after so many."""
    answer = client.answers[stream]
    await until(lambda: len(answer.messages) > answered)
    return classes["TelemetryCommand"].FromString(answer.messages[answered])


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (Code.OK, "CR_SUCCESS"),
        (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"),
        (Code.MESSAGE_CORRUPTED, "CR_RETURN_NULL"),
        (Code.NOT_IMPLEMENTED, None),
    ],
)
async def test_direct_consumption_returns_the_members_answer(
    tmp_path: Path, code: Code, result: str | None
) -> None:
    """309, over its Telemetry call; answers with another nonce, or of another client, are passed over."""
    async with AsyncExitStack() as stack:
        broker, server = await stack.enter_async_context(front(tmp_path))
        client = await stack.enter_async_context(asking(server.address))
        other = await stack.enter_async_context(asking(server.address, "other@1"))
        tool = await stack.enter_async_context(await Peer.at(broker))
        subscribed = {"topic": {"name": "T"}, "expression": {"type": 1, "expression": "*"}}
        subscription = {"group": {"name": "g"}, "subscriptions": [subscribed]}
        settings = classes["Settings"](
            client_type=ClientType.PUSH_CONSUMER, subscription=subscription
        )
        streams = [(await each.talk(settings))[0] for each in (client, other)]
        sent = await tool.produce("T", b"body", TAGS="a")
        assert sent.ext is not None
        ask = {"consumerGroup": "g", "clientId": "client@1", "msgId": sent.ext["msgId"]}
        opaque = tool.send(CODES.CONSUME_MESSAGE_DIRECTLY, ask)
        asked = await told_by(client, streams[0], 1)
        assert asked.verify_message_command.message.body == b"body"
        system = asked.verify_message_command.message.system_properties
        assert (system.tag, system.delivery_attempt) == ("a", 1)
        nonce = asked.verify_message_command.nonce
        command = classes["TelemetryCommand"]
        wrong = command(verify_message_result={"nonce": nonce + "1"}, status={"code": Code.OK})
        right = command(
            verify_message_result={"nonce": nonce}, status={"code": code, "message": "why"}
        )
        other.send(streams[1], command(verify_message_result={"nonce": nonce}))
        client.send(streams[0], wrong)
        client.send(streams[0], right)
        answer = await tool.answer(opaque)
        if result is None:
            assert (answer.code, answer.remark) == (1, "50100 why")
        else:
            assert answer.code == 0
            assert json.loads(bytes(answer.body))["consumeResult"] == result


async def test_a_member_reports_its_threads_unless_it_leaves(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        broker, server = await stack.enter_async_context(front(tmp_path))
        client = await stack.enter_async_context(asking(server.address))
        tool = await stack.enter_async_context(await Peer.at(broker))
        subscription = {"group": {"name": "g"}}
        settings = classes["Settings"](
            client_type=ClientType.PUSH_CONSUMER, subscription=subscription
        )
        stream, _ = await client.talk(settings)
        ask = {"consumerGroup": "g", "clientId": "client@1"}
        opaque = tool.send(CODES.GET_CONSUMER_RUNNING_INFO, {**ask, "jstackEnable": True})
        asked = await told_by(client, stream, 1)
        stacks = {
            "nonce": asked.print_thread_stack_trace_command.nonce,
            "thread_stack_trace": "main: runs",
        }
        command = classes["TelemetryCommand"]
        client.send(stream, command(thread_stack_trace=stacks, status={"code": Code.OK}))
        answer = await tool.answer(opaque)
        assert json.loads(bytes(answer.body))["jstack"] == "main: runs"
        plain = await tool.ask(CODES.GET_CONSUMER_RUNNING_INFO, ask)
        assert "uses gRPC, which does not support this request" in (plain.remark or "")
        opaque = tool.send(CODES.GET_CONSUMER_RUNNING_INFO, {**ask, "jstackEnable": True})
        await told_by(client, stream, 2)
        await client.ask("NotifyClientTermination", classes["NotifyClientTerminationRequest"]())
        answer = await tool.answer(opaque)
        assert (answer.code, "has left" in (answer.remark or "")) == (1, True)
