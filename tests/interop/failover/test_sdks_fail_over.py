"""The SDKs of RocketMQ 5 and a classic Java client through kill -9 of the master of a set."""

import asyncio
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from pocketmq.admin import Admin
from tests.cli.servers import Server
from tests.interop import sdks
from tests.interop.conftest import Shared
from tests.interop.driver import Driver, PeerError, Session, message
from tests.interop.failover.cut_proxy import cutter
from tests.interop.failover.sets import NAME, BrokerSet, Controller
from tests.kit.ports import free_ports
from tests.kit.waiting import until


async def make_topics(namesrv: str) -> None:
    async with Admin(name_server=namesrv) as admin:
        await admin.topics.create("Kept", queues=4, broker=NAME)
        await admin.topics.create("Timed", queues=4, broker=NAME, attributes="+message.type=DELAY")


@pytest.mark.parametrize("java_client", ["5.5.0-ROCKETMQ"], indirect=True)
def test_clients_send_and_receive_at_the_new_master(
    tmp_path: Path, shared: Shared, java_client: Session
) -> None:
    names = Server(tmp_path, "namesrv", "--port", "0")
    namesrv = names.ready()["namesrv"]
    controller = Controller("pocket", tmp_path / "controller")
    brokers = BrokerSet(tmp_path, ["pocket", "pocket"], controller, namesrv)
    fronts = free_ports(2)
    endpoints = ";".join(f"127.0.0.1:{port}" for port in fronts)
    for port, broker in zip(fronts, brokers.members, strict=True):
        broker.config["grpcServerPort"] = port
    drivers = [
        shared.get(f"sdk-{name}", partial(sdks.start, name, shared.folder / name), Driver.close)
        for name in sdks.NAMES
    ]
    with ExitStack() as leave:
        for kill in (names.kill, controller.kill, brokers.kill):
            leave.callback(kill)
        controller.start()
        brokers.start()
        asyncio.run(make_topics(namesrv))
        classic = java_client.producer(
            namesrv, "classic", settings={"pollNameServerInterval": 1_000}
        )
        # The SDK for Node takes one address only: such as a load balancer's, which leads to the master.
        balancer = leave.enter_context(cutter(fronts[0]))
        opened = [
            sdks.Sdk(driver, balancer.address if driver.name == "sdk-node" else endpoints)
            for driver in drivers
        ]
        producers = [each.producer("Kept", "Timed") for each in opened]
        consumers = [
            each.simple(f"group-{each.name}", {"Kept": "*", "Timed": "*"}) for each in opened
        ]
        for producer in producers:
            producer.send({"topic": "Kept", "body": f"{producer.name} before"})
            body = f"{producer.name} timed before"
            producer.send({"topic": "Timed", "body": body, "delay_ms": 5_000})
        classic.send(message("Kept", "classic before"))
        brokers.members[0].kill()
        balancer.lead_to(fronts[1])
        wanted = {"classic before", "classic after"}
        for producer in producers:
            body = f"{producer.name} after"
            wanted |= {body, f"{producer.name} before", f"{producer.name} timed before"}
            after = {"topic": "Kept", "body": body}
            until(partial(producer.send, after), body, ignoring=PeerError)
        until(lambda: classic.send(message("Kept", "classic after")), "classic", ignoring=PeerError)
        for consumer in consumers:
            found: set[str] = set()

            def more(consumer: sdks.SimpleConsumer = consumer, found: set[str] = found) -> bool:
                found |= {each.text for each in consumer.receive(32)}
                return wanted <= found

            until(more, "all messages come from the new master", ignoring=PeerError)
        for each in opened:
            each.__exit__()
