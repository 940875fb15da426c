"""The transport under load: unread answers, answers in steps, TLS, connections and descriptors."""

import asyncio
import contextlib
import resource
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.command import RemotingCommand, encode
from pocketmq.remoting.errors import (
    ConnectFailed,
    ConnectionLost,
    IllegalArgument,
)
from pocketmq.remoting.transport.connection import Connection
from pocketmq.remoting.transport.dispatch import Steps
from pocketmq.remoting.transport.limits import ConnectionLimits
from pocketmq.remoting.transport.tls import ServerTls, TlsConfig, client_context
from tests.kit.waiting import until_async
from tests.remoting.connection_peer import (
    ECHO,
    HOW_FAR,
    LARGE,
    LONG,
    Peer,
    client,
    running,
)


def certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder / "cert.pem", folder / "key.pem"


def files(folder: Path) -> dict[str, str]:
    chain, key = certificate(folder)
    return {"certificate_path": str(chain), "key_path": str(key)}


async def test_without_a_certificate_tls_works_with_a_self_signed_one() -> None:
    """wire.md 7.4: stock brokers answer TLS out of the box."""
    async with running(Peer(), ManualClock(), tls=ServerTls(TlsConfig())) as (_, address):
        async with client(tls=client_context()) as secure:
            assert (await secure.invoke(address, RemotingCommand(ECHO))).code == 0


def test_tls_settings_come_from_rocketmqs_file_too(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    file = tmp_path / "tls.properties"
    file.write_text(
        f"tls.server.mode=enforcing\ntls.server.certPath={chain}\ntls.server.keyPath={key}\n"
    )
    config = TlsConfig.read({"tls.config.file": str(file), "tls.server.mode": "disabled"})
    assert (config.mode, config.certificate_path) == ("enforcing", str(chain))
    with pytest.raises(IllegalArgument, match=r"none\.pem does not exist"):
        TlsConfig.read({"tls.server.certPath": "none.pem"})
    with pytest.raises(IllegalArgument, match="one of disabled, permissive, enforcing"):
        TlsConfig.read({"tls.server.mode": "strict"})


async def test_tls_and_plain_share_a_port_by_the_first_byte(tmp_path: Path) -> None:
    """wire.md 7.4: permissive mode."""
    tls = ServerTls(TlsConfig(**files(tmp_path)))
    async with running(Peer(), ManualClock(), tls=tls) as (_, address):
        async with client() as plain, client(tls=client_context()) as secure:
            for remoting in (plain, secure):
                body = b"z" * 200_000
                answer = await remoting.invoke(address, RemotingCommand(ECHO, body=body))
                assert bytes(answer.body) == body


async def test_enforcing_tls_refuses_plain_peers(tmp_path: Path) -> None:
    """wire.md 7.4: enforcing mode; and a server without a certificate refuses TLS."""
    tls = ServerTls(TlsConfig(mode="enforcing", **files(tmp_path)))
    async with running(Peer(), ManualClock(), tls=tls) as (_, address):
        async with client() as plain, client(tls=client_context()) as secure:
            with pytest.raises(ConnectionLost):
                await plain.invoke(address, RemotingCommand(ECHO))
            assert (await secure.invoke(address, RemotingCommand(ECHO))).code == 0
    async with (
        running(Peer(), ManualClock()) as (_, address),
        client(tls=client_context()) as secure,
    ):
        with pytest.raises((ConnectFailed, ssl.SSLError)):
            await secure.invoke(address, RemotingCommand(ECHO))


async def test_a_peer_that_does_not_read_is_not_read_from() -> None:
    """Back-pressure: replies that wait for a peer stay bounded."""
    async with running(Peer(), ManualClock()) as (server, address):
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        count = 300
        writer.write(encode(RemotingCommand(LARGE)) * count)
        await until_async(lambda: any(c._outbox.is_blocked for c in server.connections))
        (connection,) = server.connections
        transport = connection._transport
        assert transport is not None
        most = 0
        expected = count * (600_000 + len(encode(RemotingCommand(0, flag=1))))
        received = 0
        while received < expected:
            received += len(await reader.read(1 << 20))
            most = max(most, transport.get_write_buffer_size())
        assert received == expected
        assert most < 5_000_000
        writer.close()


async def test_a_large_frame_arrives_once_stalled_ones_are_closed() -> None:
    """Three peers stop within frames of 2 MB, of which 3 MB are kept at a time."""
    clock = ManualClock()
    limits = ConnectionLimits(input_size_max=3 << 20)
    async with running(Peer(), clock, limits=limits) as (server, address), client() as remoting:
        host, _, port = address.rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        for _, writer in silent:
            writer.write((2 << 20).to_bytes(4, "big") + bytes((2 << 20) - 1))
        await until_async(lambda: server.shared_limits.input_size > 3 << 20)
        connection = await remoting.connection(address)
        large = connection.begin(RemotingCommand(ECHO, body=bytes(1 << 20)))

        def is_done() -> bool:
            clock.advance_ms(1_000)
            server.close_stalled()
            return large.done()

        await until_async(is_done)
        assert len((await large).body) == 1 << 20
        for _, writer in silent:
            writer.close()


async def test_an_answer_in_steps_lets_others_be_served_between() -> None:
    """A handler that is a generator: a turn is 5 ms, here of a clock that each step turns."""
    clock = ManualClock()
    peer = Peer()
    steps: list[int] = []

    def long(request: RemotingCommand, connection: Connection) -> Steps:
        for number in range(30):
            steps.append(number)
            clock.advance_ms(3)
            yield
        return request.answer(0, "done")

    def how_far(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return request.answer(0, str(len(steps)))

    peer.handlers.update({LONG: long, HOW_FAR: how_far})
    async with running(peer, clock) as (_, address), client() as remoting, client() as others:
        await others.invoke(address, RemotingCommand(HOW_FAR))
        waits = (await remoting.connection(address)).begin(RemotingCommand(LONG))
        behind = (await remoting.connection(address)).begin(RemotingCommand(HOW_FAR))
        seen: list[int] = []
        while not waits.done():
            seen.append(int((await others.invoke(address, RemotingCommand(HOW_FAR))).remark or ""))
        assert (await waits).remark == "done"
        assert any(0 < number < 30 for number in seen)
        # What the same peer asked behind it was answered behind it.
        assert (await behind).remark == "30"


async def test_a_stepwise_answer_ends_with_its_connection_or_error() -> None:
    clock = ManualClock()
    peer = Peer()
    ended: list[str] = []

    def long(request: RemotingCommand, connection: Connection) -> Steps:
        try:
            while True:
                clock.advance_ms(3)
                if request.remark == "fails":
                    raise LookupError("in a step")
                yield
        finally:
            ended.append(request.remark or "")

    peer.handlers[LONG] = long
    async with running(peer, clock) as (_, address), client() as remoting:
        failed = await remoting.invoke(address, RemotingCommand(LONG, remark="fails"))
        assert failed.remark == "LookupError: in a step"
        connection = await remoting.connection(address)
        waits = connection.begin(RemotingCommand(LONG, remark="for ever"))
        await asyncio.sleep(0)
        connection.close()
        with pytest.raises(ConnectionLost):
            await waits
        await until_async(lambda: ended == ["fails", "for ever"])


async def test_what_tls_peers_read_late_comes_whole() -> None:
    """40 answers of 600 KB: more than the buffers of both ends hold, so that they wait unencrypted."""
    async with running(Peer(), ManualClock(), tls=ServerTls(TlsConfig())) as (_, address):
        async with client(tls=client_context()) as secure:
            connection = await secure.connection(address)
            answers = [connection.begin(RemotingCommand(LARGE)) for _ in range(40)]
            bodies = {bytes((await each).body) for each in answers}
            assert bodies == {b"x" * 300_000 + b"y" * 300_000}


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_the_connection_with_most_unread_bytes_is_closed(
    secure: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Each connection is bounded; a thousand of them would take a gigabyte all the same."""
    limits = ConnectionLimits(output_size_max=2 << 20)  # 20 TLS peers hold 128 KiB encrypted each
    tls = ServerTls(TlsConfig()) if secure else None
    context = client_context() if secure else None
    async with running(Peer(), ManualClock(), tls=tls, limits=limits) as (server, address):
        host, _, port = address.rpartition(":")
        opened = []
        for _ in range(20):
            _, writer = await asyncio.open_connection(host, int(port), ssl=context)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(encode(RemotingCommand(LARGE)) * 40)
            opened.append(writer)
        await until_async(lambda: server.shared_limits.dropped_count > 0)
        assert server.shared_limits.output_size <= limits.output_size_max
        assert "unread bytes" in caplog.text
        for writer in opened:
            writer.transport.abort()


async def test_connections_beyond_the_limit_are_closed_as_they_come(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = ConnectionLimits(count_max=2)
    async with running(Peer(), ManualClock(), limits=limits) as (server, address):
        host, _, port = address.rpartition(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        with contextlib.suppress(ConnectionError):
            assert await opened[2][0].read() == b""
        assert server.shared_limits.refused_count == 1
        assert "2 connections are open, which is the limit" in caplog.text
        for _, writer in opened:
            writer.close()


@pytest.mark.parametrize(
    ("soft", "most"), [(65_536, 57_344), (256, 192), (60, 16), (resource.RLIM_INFINITY, 0)]
)
async def test_connections_leave_descriptors_for_files(
    monkeypatch: pytest.MonkeyPatch, soft: int, most: int
) -> None:
    """An eighth, at least 64: else idle clients would keep the store from opening its files."""
    monkeypatch.setattr(resource, "getrlimit", lambda _limit: (soft, soft))
    async with running(Peer(), ManualClock()) as (server, _):
        assert server.shared_limits.limits.count_max == most
