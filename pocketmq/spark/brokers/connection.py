"""One socket to a broker or a name server, for planners and tasks: how to connect, and requests under way.

Owner: the BrokerClient that opened it. A connection that has failed is not used again.
"""

import itertools
import select
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.credentials import Credentials
from pocketmq.remoting.errors import ConnectFailed, ConnectionLost, IllegalArgument, RequestTimeout
from pocketmq.remoting.frames import FrameDecoder
from pocketmq.remoting.header import Header
from pocketmq.remoting.transport.tls import client_context
from pocketmq.spark.options import Options

_READ_SIZE = 1 << 18
# Never used twice, so that an answer of a new connection is not taken for one that an old one owed.
_OPAQUES = itertools.count(1)
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True)
class BrokerAccess:
    """How to connect; primitives only, so that it travels to executors.

    first_contact_ms: how long to wait for name servers that have never answered; None: as for any other
    fault.
    """

    name_server: str
    timeout_ms: int = 3000
    access_key: str = ""
    secret_key: str = ""
    use_tls: bool = False
    security_token: str = ""
    retry_timeout_ms: int = 1000
    first_contact_ms: int | None = None

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.access_key, self.secret_key, self.security_token or None)

    @classmethod
    def of(cls, options: Options, *, planning: bool = False) -> "BrokerAccess":
        """Read the options. planning: for the driver, where a name server that never answered is probably a
        wrong one.

        Raises: IllegalArgument when only one of the two keys is given.
        """
        if bool(options.access_key) != bool(options.secret_key):
            raise IllegalArgument("accessKey and secretKey belong together: give both or none")
        if options.security_token and not options.access_key:
            raise IllegalArgument(
                "option securityToken needs accessKey and secretKey: give both, too"
            )
        return cls(
            options.name_server,
            options.pull_timeout_ms,
            options.access_key,
            options.secret_key,
            options.use_tls,
            options.security_token,
            options.retry_timeout_ms,
            options.first_contact_ms if planning else None,
        )


class BrokerConnection:
    """One socket. Answers may arrive in any order; each is kept for its request, and others are not."""

    def __init__(self, address: str, access: BrokerAccess) -> None:
        self.address = address
        self._access = access
        self._frames = FrameDecoder()
        self._owed: set[int] = set()
        self._answers: dict[int, RemotingCommand] = {}
        self._unsent = memoryview(b"")
        host, _, port = address.rpartition(":")
        try:
            raw = socket.create_connection(
                (host.strip("[]"), int(port)), timeout=access.timeout_ms / 1000
            )
        except (OSError, OverflowError, ValueError) as error:
            raise ConnectFailed(address, error) from error
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket: socket.socket = raw
        if access.use_tls:
            try:
                self._socket = client_context().wrap_socket(raw, server_hostname=host)
            except (OSError, ssl.SSLError) as error:
                raw.close()
                raise ConnectFailed(address, error) from error

    def request(self, code: RequestCode, header: Header | None = None, body: bytes = b"") -> int:
        """Send a request; return the opaque for answer(). Raises: ConnectionLost."""
        command = self._command(code, header, body)
        try:
            self._socket.settimeout(self._access.timeout_ms / 1000)
            self._socket.sendall(encode(command))
        except OSError as error:
            raise self._lost_in_send(error) from error
        return command.opaque

    def _command(self, code: RequestCode, header: Header | None, body: bytes) -> RemotingCommand:
        ext = header.ext() if header is not None else {}
        command = RemotingCommand(code, ext, body, opaque=next(_OPAQUES))
        if self._access.access_key:
            self._access.credentials.sign(command)
        self._owed.add(command.opaque)
        return command

    def _lost_in_send(self, error: OSError) -> ConnectionLost:
        return ConnectionLost(
            f"lost the connection to {self.address} while sending a request: {error}"
        )

    # ---- many requests, without a wait: a peer that stops reading until its answers are taken is no deadlock

    def begin(self, requests: Sequence[tuple[RequestCode, Header]]) -> list[int]:
        """Take requests that step() sends; return their opaques."""
        commands = [self._command(code, header, b"") for code, header in requests]
        self._unsent = memoryview(b"".join(encode(c) for c in commands))
        return [c.opaque for c in commands]

    def step(self) -> bool:
        """Send and receive what is possible now; return whether anything was. Raises: ConnectionLost."""
        return self._send_some() | self._receive_some()

    def _send_some(self) -> bool:
        if not self._unsent:
            return False
        self._socket.settimeout(0)
        try:
            sent = self._socket.send(self._unsent[:_READ_SIZE])
        except _NOT_NOW:
            return False
        except OSError as error:
            raise self._lost_in_send(error) from error
        self._unsent = self._unsent[sent:]
        return True

    def _receive_some(self) -> bool:
        self._socket.settimeout(0)
        try:
            data = self._socket.recv(_READ_SIZE)
        except _NOT_NOW:
            return False
        except OSError as error:
            raise ConnectionLost(f"lost the connection to {self.address}: {error}") from error
        self._take(data, "asking")
        return True

    def arrived(self) -> dict[int, RemotingCommand]:
        """Return the answers that step() received since the last call, by opaque."""
        found, self._answers = self._answers, {}
        return found

    def watch(self, poll: select.poll) -> None:
        """Register what step() waits for."""
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))

    def answer(self, opaque: int, what: str) -> RemotingCommand:
        """Wait for the answer to a request. Raises: RequestTimeout, ConnectionLost."""
        end = time.monotonic() + self._access.timeout_ms / 1000
        while opaque not in self._answers:
            left = end - time.monotonic()
            if left <= 0:
                raise RequestTimeout(self.address, f"a request ({what})", self._access.timeout_ms)
            try:
                self._socket.settimeout(left)
                data = self._socket.recv(_READ_SIZE)
            except TimeoutError:
                raise RequestTimeout(
                    self.address, f"a request ({what})", self._access.timeout_ms
                ) from None
            except OSError as error:
                raise ConnectionLost(f"lost the connection to {self.address}: {error}") from error
            self._take(data, what)
        return self._answers.pop(opaque)

    def _take(self, data: bytes, what: str) -> None:
        if not data:
            raise ConnectionLost(f"{self.address} closed the connection while {what}")
        for frame in self._frames.feed(data):
            command = decode(frame)
            if command.is_response and command.opaque in self._owed:
                self._owed.discard(command.opaque)
                self._answers[command.opaque] = command

    def close(self) -> None:
        self._socket.close()
