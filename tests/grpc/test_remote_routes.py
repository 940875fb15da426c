"""Several brokers: a client sees the queues of all, each with the front of its broker."""

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.grpc.config import NAMESPACE, GrpcConfig
from pocketmq.grpc.messages import classes
from pocketmq.grpc.remote_routes import RemoteRoutes
from pocketmq.grpc.schema import Code
from pocketmq.grpc.server import GrpcServer
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.remoting.clock import SystemClock
from tests.broker.serving import serving
from tests.grpc.asking import Asking, asking
from tests.kit.waiting import until_async as until


@asynccontextmanager
async def site(
    folder: Path, *names: str
) -> AsyncIterator[tuple[NameServer, list[tuple[Broker, GrpcServer]]]]:
    """Brokers of these names with a port each, which know each other by a name server over the wire."""
    async with AsyncExitStack() as stack:
        config = NamesrvConfig(listen_port=0, bind_address="127.0.0.1")
        name_server = await stack.enter_async_context(NameServer(config, SystemClock()))
        address = await name_server.listen()
        found = []
        for name in names:
            settings: dict[str, Any] = {"broker_name": name, "namesrv_addr": address}
            broker = await stack.enter_async_context(serving(folder / name, **settings))
            front = GrpcServer(broker, GrpcConfig(port=0))
            found.append((broker, await stack.enter_async_context(front)))
        yield name_server, found


async def route(client: Asking, topic: str) -> list[tuple[str, int, int]]:
    """(broker, port, queue) of each queue."""
    asked = classes["QueryRouteRequest"](topic={"name": topic})
    answer = await client.ask("QueryRoute", asked)
    return [
        (queue.broker.name, queue.broker.endpoints.addresses[0].port, queue.id)
        for queue in answer.message_queues
    ]


async def test_a_route_names_the_queues_of_all_brokers_with_their_own_fronts(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, "a", "b") as (names, [(a, front_a), (b, front_b)]):
        for broker, queues in ((a, 2), (b, 1)):
            broker.parts.tables.topics.update(TopicConfig("T", queues, queues))
        b.parts.tables.topics.update(TopicConfig("OnlyB", 1, 1))
        for broker in (a, b):
            broker.parts.tables.groups.update(GroupConfig("g"))

        async def known() -> bool:
            both = await a.outward.announcements.announced(NAMESPACE) or {}
            told = [names.local.route(topic) or {} for topic in ("T", "OnlyB")]
            served = [len(each.get("queueDatas", ())) for each in told]
            return set(both) == {"a", "b"} and served == [2, 1]

        async with asking(front_a.address) as client, asking(front_b.address) as other:
            await until(known, "the name server to know both")
            expected = [("a", front_a.port, 0), ("a", front_a.port, 1), ("b", front_b.port, 0)]
            assert sorted(await route(client, "T")) == sorted(await route(other, "T")) == expected
            # A simple consumer takes the queues in turn: the brokers alternate.
            assert [queue for *_, queue in await route(client, "T")] == [0, 0, 1]
            assert await route(client, "OnlyB") == [("b", front_b.port, 0)]
            named: dict[str, Any] = {"topic": {"name": "T"}, "group": {"name": "g"}}
            asked = classes["QueryAssignmentRequest"](**named)
            answer = await client.ask("QueryAssignment", asked)
            assigned = [each.message_queue for each in answer.assignments]
            assert [(each.broker.name, each.id) for each in assigned] == [("a", -1), ("b", -1)]
            nowhere = classes["QueryRouteRequest"](topic={"name": "Nowhere"})
            answer = await client.ask("QueryRoute", nowhere)
            assert answer.status.code == Code.TOPIC_NOT_FOUND


async def test_a_front_that_is_killed_is_forgotten(tmp_path: Path) -> None:
    """Its entry does not change any more; who notices takes it away."""
    async with site(tmp_path, "a", "b") as (names, [(a, _), (b, front_b)]):
        b.parts.tables.topics.update(TopicConfig("T", 1, 1))
        now_ms = 0
        told = a.outward.announcements
        seen = RemoteRoutes("a", a.outward.routes, told, lambda: now_ms)

        async def known() -> bool:
            both = await told.announced(NAMESPACE) or {}
            return "b" in both and bool(names.local.route("T"))

        await until(known, "the route of b's topic")
        # It tells nothing more; the rest is told in its name.
        await front_b.__aexit__(None, None, None)
        for moment in ("1", "2"):
            await told.announce(NAMESPACE, "b", f"127.0.0.1:99 {moment}")
            now_ms += 119_000
            assert [each.port for each in await seen.of("T")] == [99]
        now_ms += 120_000
        assert await seen.of("T") == []
        assert "b" not in (await told.announced(NAMESPACE) or {})


async def test_a_front_that_stops_is_no_longer_announced(tmp_path: Path) -> None:
    async with site(tmp_path, "a", "b") as (_, [(a, _), (_, front_b)]):

        async def announced() -> set[str]:
            return set(await a.outward.announcements.announced(NAMESPACE) or {})

        async def both() -> bool:
            return await announced() == {"a", "b"}

        await until(both, "both fronts")
        await front_b.__aexit__(None, None, None)
        assert await announced() == {"a"}


async def test_a_port_in_use_is_left_for_a_free_one_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A second `pocketmq up` starts as well, and its user is told where the SDKs find it."""
    caplog.set_level(logging.INFO)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        async with serving(tmp_path) as broker:
            async with GrpcServer(broker, GrpcConfig(port=taken), port_is_wish=True) as server:
                assert server.port != taken
    assert f"port {taken} is in use: gRPC is on {server.port} instead" in caplog.text
