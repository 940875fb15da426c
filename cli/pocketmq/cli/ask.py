"""ask: one blocking request and its answer, without an event loop: for health and doctor.

Imports the codec only, so that a health check every few seconds costs little.
"""

import socket

from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.errors import ConnectFailed, FrameError, RequestTimeout
from pocketmq.remoting.frames import FrameDecoder


def ask(
    address: str,
    code: int,
    ext: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    timeout_ms: int = 3_000,
) -> RemotingCommand:
    """Send a request to `address` (`host:port`). Raises: ConnectFailed, RequestTimeout, FrameError."""
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
    decoder = FrameDecoder()
    with connection:
        try:
            connection.sendall(encode(RemotingCommand(code, ext, body, opaque=1)))
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
            raise ConnectFailed(address, error) from error
