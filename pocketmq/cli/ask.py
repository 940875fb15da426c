"""ask: one blocking request and its answer, without an event loop: for health and doctor.

Imports the codec only, so that a health check every few seconds costs little.
"""

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.errors import ConnectFailed, FrameError, RequestTimeout
from pocketmq.remoting.frames import FrameDecoder

if TYPE_CHECKING:
    import ssl

    from pocketmq.remoting.credentials import Credentials


def ask(
    address: str,
    code: int,
    ext: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    timeout_ms: int = 3_000,
    credentials: "Credentials | None" = None,
    tls: "ssl.SSLContext | None" = None,
) -> RemotingCommand:
    """Send a request to `address` (`host:port`). Raises: ConnectFailed, RequestTimeout, FrameError.

    credentials: sign it. tls: encrypt it.
    """
    host, _, port = address.rpartition(":")
    try:
        number = int(port)
    except ValueError as error:
        raise ConnectFailed(address, "an address is host:port") from error
    seconds = timeout_ms / 1000
    try:
        connection = socket.create_connection((host.strip("[]"), number), seconds)
    except (OSError, OverflowError) as error:
        raise ConnectFailed(address, error) from error
    decoder, command = FrameDecoder(), RemotingCommand(code, ext, body, opaque=1)
    if credentials is not None:
        credentials.sign(command)
    with ExitStack() as opened:
        opened.enter_context(connection)
        try:
            if tls is not None:
                encrypted = tls.wrap_socket(connection, server_hostname=host.strip("[]"))
                connection = opened.enter_context(encrypted)
            connection.sendall(encode(command))
            while True:
                data = connection.recv(65_536)
                if not data:
                    raise FrameError(f"{address} closed the connection without an answer")
                for frame in decoder.feed(data):
                    answer = decode(frame)
                    if answer.is_response:
                        return answer
        except TimeoutError as error:
            raise RequestTimeout(address, f"request {code}", timeout_ms) from error
        except OSError as error:
            from pocketmq.remoting.transport.tls import not_connected

            raise not_connected(address, error, tls=tls is not None) from error
