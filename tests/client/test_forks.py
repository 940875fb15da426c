"""Clients and fork(): gunicorn --preload, Celery's prefork pool, multiprocessing. Nothing waits for ever."""

import asyncio
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from pocketmq.admin import Admin
from pocketmq.client import ForkedClient, LitePullConsumer, Message
from pocketmq.client import Producer as AsyncProducer
from pocketmq.client.sync import Producer, PushConsumer
from pocketmq.testing import InProcess, ServerProcess

_PATIENCE_S = 60


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    """A process: the children of this one would have its sockets."""
    with ServerProcess() as server:
        yield server.namesrv


def in_child(work: Callable[[], object]) -> str:
    """Return what work() returned, or raised, in a forked child."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # From Python 3.12 on: this process has threads, which is what it is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            text = str(work())
        except BaseException as error:  # noqa: BLE001 - the parent judges it
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    end = time.monotonic() + _PATIENCE_S
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(read)
            return "still waiting"
        time.sleep(0.01)
    with open(read, "rb") as pipe:
        return pipe.read().decode()


def sent_by(producer: Producer) -> str:
    return producer.send(Message("Forked", b"x")).status.name


def test_a_child_has_clients_of_its_own_while_its_parent_has_one(name_server: str) -> None:
    def own() -> str:
        with Producer("child", name_server=name_server) as producer:
            return sent_by(producer)

    def own_with_asyncio() -> str:
        async def main() -> str:
            async with AsyncProducer("child", name_server=name_server) as producer:
                return (await producer.send(Message("Forked", b"x"))).status.name

        return asyncio.run(main())

    with Producer("parent", name_server=name_server) as parent:
        assert sent_by(parent) == "SEND_OK"
        assert in_child(own) == "SEND_OK"
        assert in_child(own_with_asyncio) == "SEND_OK"
        assert in_child(lambda: in_child(own)) == "SEND_OK"
        assert sent_by(parent) == "SEND_OK"
    assert in_child(own) == "SEND_OK"


@pytest.mark.parametrize(
    "call",
    [
        sent_by,
        lambda producer: producer.send_oneway(Message("Forked", b"x")),
        lambda producer: producer.begin_send(Message("Forked", b"x")).result(),
        lambda producer: producer.begin_send(Message("Forked", b"x"), timeout_ms=5).result(),
        lambda producer: producer.queues("Forked"),
        lambda producer: producer.start(),
    ],
)
def test_an_inherited_client_refuses_each_call_at_once(
    name_server: str, call: Callable[[Producer], object]
) -> None:
    with Producer("parent", name_server=name_server) as parent:
        sent_by(parent)
        refused = in_child(lambda: call(parent))
        assert refused.startswith(f"ForkedClient: this client was started by process {os.getpid()}")
        assert sent_by(parent) == "SEND_OK"


def test_shutdown_in_a_child_leaves_the_parents_client_alone(name_server: str) -> None:
    def leaves() -> str:
        parent.shutdown()
        parent.shutdown()
        consumer.shutdown()
        try:
            return sent_by(parent)
        except ForkedClient:
            return "refused"

    consumer = PushConsumer("listens", listener=lambda *_: None, name_server=name_server)
    consumer.subscribe("Forked")
    with Producer("parent", name_server=name_server) as parent, consumer:
        sent_by(parent)
        assert in_child(leaves) == "refused"
        assert sent_by(parent) == "SEND_OK"


async def test_an_inherited_asyncio_client_refuses_each_call(name_server: str) -> None:
    """A frame that a child wrote would stand in the parent's connection."""
    message = Message("Forked", b"x")
    async with AsyncProducer("parent", name_server=name_server) as parent:
        await parent.send(message)
        for call in (
            lambda: asyncio.run(parent.send(message)),
            lambda: asyncio.run(parent.submit(message)),
            lambda: asyncio.run(parent.start()),
        ):
            assert in_child(call).startswith("ForkedClient: producer 'parent' was started by")
        assert in_child(lambda: asyncio.run(parent.shutdown())) == "None"
        assert (await parent.send(message)).status.name == "SEND_OK"


def test_a_client_started_after_a_fork_has_its_own_id(name_server: str) -> None:
    """Two members of a group with one id would get the same queues."""
    consumer = LitePullConsumer("workers", name_server=name_server)
    assert in_child(lambda: consumer.client_id) != consumer.client_id
    named = LitePullConsumer("workers", name_server=name_server, instance_name="the same")
    assert in_child(lambda: named.client_id) == named.client_id
    producer = Producer("later", name_server=name_server)

    def started() -> str:
        producer.start()
        return sent_by(producer)

    assert in_child(started) == "SEND_OK"


def test_a_child_of_a_test_leaves_its_broker_alone() -> None:
    with InProcess() as server:
        server.send("Kept", "before")
        assert in_child(server.stop) == "None"
        assert in_child(lambda: server.send("Kept", "child")).startswith("ForkedClient: ")
        server.send("Kept", "after")
        assert [each.body for each in server.messages("Kept")] == [b"before", b"after"]


async def test_an_inherited_admin_client_is_refused_at_once(
    name_server: str,
) -> None:
    async with Admin(name_server=name_server) as admin:
        before = await admin.topics.names()

        def ask() -> object:
            async def run() -> object:
                async with AsyncExitStack() as stack:
                    stack.push_async_exit(admin)
                    return await admin.topics.names()

            return asyncio.Runner().run(run())

        assert in_child(ask).startswith("ForkedClient: this admin client was started by process")
        assert await admin.topics.names() == before
