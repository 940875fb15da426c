"""The blocking client: answers by their request, time-outs that end the connection, TLS and signatures."""

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.credentials import Credentials
from pocketmq.remoting.errors import ConnectFailed, ConnectionLost, RequestTimeout
from pocketmq.remoting.frames import FrameDecoder
from pocketmq.remoting.transport.blocking import BlockingConnection, ask
from pocketmq.remoting.transport.tls import client_context
from tests.remoting.test_connection_limits import certificate

CODE = RequestCode.GET_BROKER_CONFIG
WITHIN_S = 60


class Peer:
    """A server of one connection, which a test plays in another thread."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(WITHIN_S)
        self._tls = tls
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"

    def accept(self) -> socket.socket:
        near, _ = self._listening.accept()
        near.settimeout(WITHIN_S)
        return near if self._tls is None else self._tls.wrap_socket(near, server_side=True)

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    found = Peer()
    yield found
    found.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def requests(near: socket.socket, count: int) -> list[RemotingCommand]:
    frames, found = FrameDecoder(), list[RemotingCommand]()
    while len(found) < count:
        found += [decode(frame) for frame in frames.feed(near.recv(65_536))]
    return found


def test_answers_in_any_order_reach_their_requests(peer: Peer, threads: ThreadPoolExecutor) -> None:
    def play() -> None:
        with peer.accept() as near:
            first, second = requests(near, 2)
            stray = RemotingCommand(0, {}, b"stray", opaque=first.opaque + 10).answer(0)
            answers = [stray, second.answer(0, body=b"second"), first.answer(0, body=b"first")]
            near.sendall(b"".join(map(encode, answers)))

    played: Future[None] = threads.submit(play)
    with BlockingConnection(peer.address, timeout_ms=WITHIN_S * 1000) as connection:
        opaques = [connection.request(CODE) for _ in range(2)]
        bodies = [bytes(connection.answer(each, "a test").body) for each in opaques]
        assert bodies == [b"first", b"second"]
    played.result()


def test_an_answer_out_of_time_ends_the_connection(peer: Peer, threads: ThreadPoolExecutor) -> None:
    """The answer may still come: no later request may take it for its own."""

    def play() -> bytes:
        with peer.accept() as near:
            requests(near, 1)
            return near.recv(1)

    played = threads.submit(play)
    connection = BlockingConnection(peer.address, timeout_ms=50)
    with pytest.raises(RequestTimeout, match="a test"):
        connection.answer(connection.request(CODE), "a test")
    assert played.result(WITHIN_S) == b""
    with pytest.raises(ConnectionLost):
        connection.request(CODE)


def test_requests_are_signed_and_encrypted(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    chain, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    peer = Peer(context)

    def play() -> RemotingCommand:
        with peer.accept() as near:
            [request] = requests(near, 1)
            near.sendall(encode(request.answer(ResponseCode.SYSTEM_BUSY, "busy")))
            return request

    played = threads.submit(play)
    answer = ask(
        peer.address,
        CODE,
        timeout_ms=WITHIN_S * 1000,
        credentials=Credentials("key", "secret"),
        tls=client_context(verify=True, trust=chain),
    )
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, "busy")
    request = played.result()
    assert request.ext is not None
    signed = request.ext.pop("Signature")
    assert request.ext == {"AccessKey": "key"}
    assert signed == Credentials("key", "secret").signature(request.ext, b"")
    peer.close()


def test_a_certificate_that_is_not_trusted_is_named(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    chain, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    peer = Peer(context)
    played = threads.submit(peer.accept)
    with pytest.raises(ConnectFailed, match="its certificate is not trusted"):
        ask(peer.address, CODE, timeout_ms=WITHIN_S * 1000, tls=client_context(verify=True))
    assert isinstance(played.exception(), OSError)
    peer.close()


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:port", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConnectFailed):
        ask(address, CODE)


def test_without_tls_it_imports_neither_ssl_nor_an_event_loop() -> None:
    """A health check begins every few seconds."""
    code = (
        "import sys, pocketmq.remoting.transport.blocking\n"
        "sys.exit(bool({'ssl', 'asyncio'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
