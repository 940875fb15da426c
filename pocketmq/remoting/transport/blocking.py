"""The blocking client: one socket to a server, requests under way, no event loop.

Of health checks and `doctor net`, and of Spark's planners and tasks. The codec is the one of all; connections
are signed (credentials) and encrypted (TLS) as those of the asyncio client are.

1. Answers may arrive in any order: each is kept for its request, and others are dropped.
2. A connection that has failed, or whose answer did not come in time, is closed and not used again.
3. ssl is imported by those that use it only: a health check runs every few seconds.
Owner: the caller that opened it.
"""

import itertools
import select
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.errors import ConnectFailed, ConnectionLost, RequestTimeout
from pocketmq.remoting.frames import FrameDecoder
from pocketmq.remoting.header import Header

if TYPE_CHECKING:
    import ssl

    from pocketmq.remoting.credentials import Credentials

_READ_SIZE = 1 << 18
# Never used twice, so that an answer of a new connection is not taken for one that an old one owed.
OPAQUES = itertools.count(1)


def ask(
    address: str,
    code: int,
    *,
    timeout_ms: int = 3_000,
    credentials: "Credentials | None" = None,
    tls: "ssl.SSLContext | None" = None,
) -> RemotingCommand:
    """Send one request without fields to `address` (`host:port`); return its answer, whatever its code.

    Raises: ConnectFailed, ConnectionLost, RequestTimeout, FrameError.
    """
    with BlockingConnection(
        address, timeout_ms=timeout_ms, credentials=credentials, tls=tls
    ) as connection:
        return connection.answer(connection.request(code), f"request {code}")


class BlockingConnection:
    """One socket."""

    def __init__(
        self,
        address: str,
        *,
        timeout_ms: int,
        credentials: "Credentials | None" = None,
        tls: "ssl.SSLContext | None" = None,
    ) -> None:
        """Connect. timeout_ms: for connecting, and for each send and answer. Raises: ConnectFailed."""
        self.address = address
        self._timeout_ms = timeout_ms
        self._credentials = credentials
        self._frames = FrameDecoder()
        self._owed: set[int] = set()
        self._answers: dict[int, RemotingCommand] = {}
        self._unsent = memoryview(b"")
        self._not_now: tuple[type[OSError], ...] = (BlockingIOError,)
        host, _, port = address.rpartition(":")
        try:
            number = int(port)
        except ValueError as error:
            raise ConnectFailed(address, "an address is host:port") from error
        host = host.strip("[]")
        try:
            self._socket = socket.create_connection((host, number), timeout=timeout_ms / 1000)
        except (OSError, OverflowError) as error:
            raise ConnectFailed(address, error) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._encrypt(tls, host)

    def _encrypt(self, tls: "ssl.SSLContext", host: str) -> None:
        from ssl import SSLWantReadError, SSLWantWriteError

        from pocketmq.remoting.transport.tls import not_connected

        self._not_now = (BlockingIOError, SSLWantReadError, SSLWantWriteError)
        raw = self._socket
        try:
            self._socket = tls.wrap_socket(raw, server_hostname=host)
        except OSError as error:
            raw.close()
            raise not_connected(self.address, error, tls=True) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    # ------------------------------------------------------------ one after the other

    def request(self, code: int, header: Header | None = None, body: bytes = b"") -> int:
        """Send a request; return the opaque for answer(). Raises: ConnectionLost."""
        command = self._command(code, header, body)
        try:
            self._socket.settimeout(self._timeout_ms / 1000)
            self._socket.sendall(encode(command))
        except OSError as error:
            raise self._lost("while sending a request", error) from error
        return command.opaque

    def answer(self, opaque: int, what: str) -> RemotingCommand:
        """Wait for the answer to a request. Raises: RequestTimeout, ConnectionLost, FrameError."""
        end = time.monotonic() + self._timeout_ms / 1000
        while opaque not in self._answers:
            try:
                self._socket.settimeout(max(end - time.monotonic(), 0.000_001))
                data = self._socket.recv(_READ_SIZE)
            except TimeoutError as error:
                self.close()
                raise RequestTimeout(
                    self.address, f"a request ({what})", self._timeout_ms
                ) from error
            except OSError as error:
                raise self._lost("", error) from error
            self._take(data, what)
        return self._answers.pop(opaque)

    def _command(self, code: int, header: Header | None, body: bytes) -> RemotingCommand:
        ext = header.ext() if header is not None else {}
        command = RemotingCommand(code, ext, body, opaque=next(OPAQUES))
        if self._credentials is not None:
            self._credentials.sign(command)
        self._owed.add(command.opaque)
        return command

    def _lost(self, when: str, error: OSError) -> ConnectionLost:
        self.close()
        moment = f" {when}" if when else ""
        words = str(error) or type(error).__name__
        return ConnectionLost(f"lost the connection to {self.address}{moment}: {words}")

    # ------------------------------------------------------------ many, without a wait
    # A peer that stops reading until its answers are taken is no deadlock.

    def begin(self, requests: Sequence[tuple[int, Header]]) -> list[int]:
        """Take requests that step() sends; return their opaques."""
        commands = [self._command(code, header, b"") for code, header in requests]
        self._unsent = memoryview(b"".join(encode(each) for each in commands))
        return [each.opaque for each in commands]

    def step(self) -> bool:
        """Send and receive what is possible now; return whether anything was.

        Raises: ConnectionLost, FrameError.
        """
        return self._send_some() | self._receive_some()

    def _send_some(self) -> bool:
        if not self._unsent:
            return False
        self._socket.settimeout(0)
        try:
            sent = self._socket.send(self._unsent[:_READ_SIZE])
        except self._not_now:
            return False
        except OSError as error:
            raise self._lost("while sending a request", error) from error
        self._unsent = self._unsent[sent:]
        return True

    def _receive_some(self) -> bool:
        self._socket.settimeout(0)
        try:
            data = self._socket.recv(_READ_SIZE)
        except self._not_now:
            return False
        except OSError as error:
            raise self._lost("", error) from error
        self._take(data, "asking")
        return True

    def arrived(self) -> dict[int, RemotingCommand]:
        """Return the answers that step() received since the last call, by opaque."""
        found, self._answers = self._answers, {}
        return found

    def watch(self, poll: "select.poll") -> None:
        """Register what step() waits for."""
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))

    def _take(self, data: bytes, what: str) -> None:
        if not data:
            self.close()
            raise ConnectionLost(f"{self.address} closed the connection while {what}")
        for frame in self._frames.feed(data):
            command = decode(frame)
            if command.is_response and command.opaque in self._owed:
                self._owed.discard(command.opaque)
                self._answers[command.opaque] = command
