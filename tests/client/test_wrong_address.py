"""A name server's address that is something else's: the error says what, and never that anything was done."""

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pocketmq.admin import Admin
from pocketmq.client import Message, Producer
from pocketmq.client.errors import CallerError, NotANameServer, OutcomeUnknown, TransientError
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.transport import probe as what_listens
from pocketmq.testing import InProcess
from tests.remoting.test_connection_limits import certificate as make_certificate


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a handshake takes longer than a user would wait for advice.

    Not for tests in which neither side sends anything: they would wait as long.
    """
    monkeypatch.setattr(what_listens, "_WITHIN_S", 30.0)


async def failure(address: str, **options: object) -> PocketMQError:
    """What sending raises with this name server."""
    settings = {"request_timeout_ms": 500, **options}
    producer = Producer("P", name_server=address, **settings)  # type: ignore[arg-type]
    async with producer:
        with pytest.raises(PocketMQError) as caught:
            await producer.send(Message("T", b"x"))
    assert not isinstance(caught.value, OutcomeUnknown)
    return caught.value


@pytest.mark.usefixtures("patient")
async def test_a_brokers_port(server: InProcess) -> None:
    found = await failure(server.broker)
    assert isinstance(found, NotANameServer)
    assert isinstance(found, CallerError)
    assert str(found).startswith(
        f"name_server={server.broker} is not a name server, it answers like a br"
    )
    async with Admin(name_server=server.broker) as admin:
        with pytest.raises(NotANameServer, match="9876"):
            await admin.brokers()


@pytest.mark.usefixtures("patient")
async def test_an_http_port() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        found = await failure(f"127.0.0.1:{http.server_port}")
        http.shutdown()
        thread.join()
    assert isinstance(found, NotANameServer)
    assert "it answers HTTP" in str(found)


@pytest.fixture
async def tls_port(tmp_path: Path) -> AsyncIterator[int]:
    cert, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listening = await asyncio.start_server(close, "127.0.0.1", 0, ssl=context)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


@pytest.mark.usefixtures("patient")
async def test_a_port_that_wants_tls(tls_port: int) -> None:
    found = await failure(f"127.0.0.1:{tls_port}")
    assert isinstance(found, NotANameServer)
    assert "tls=True" in str(found)


async def test_a_look_up_without_an_answer_is_transient_and_says_whose() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with listening:
        address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        found = await failure(address)
    assert isinstance(found, TransientError)
    assert str(found) == (
        f"looking up where the topic is (topic 'T'): {address} did not answer within 500 ms. Nothing was "
        "changed: try again, or increase the timeout"
    )


@pytest.mark.usefixtures("patient")
async def test_tls_asked_of_a_port_without_it_is_told(server: InProcess) -> None:
    found = await failure(server.namesrv, tls=True)
    assert str(found).endswith("). Does that port speak TLS?")
