"""Peer: the other end of a connection, of whatever front: it sends requests and can be sent some.

The broker's tables and acts know clients as peers; frames, encodings and sockets stay in the fronts. A
connection is a peer; a session of another protocol may be one, too.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

TURN_MS = 5


class PeerAnswer(NamedTuple):
    """A peer's answer."""

    code: int
    remark: str | None
    fields: dict[str, str] | None
    body: bytes


class Peer(Protocol):
    """Equal only to itself, so it can be the key of a table."""

    @property
    def address(self) -> str:
        """Return `ip:port` of the other end."""
        ...

    @property
    def host(self) -> bytes:
        """Return the same in the form of records: IP bytes and 4-byte port."""
        ...

    @property
    def protocol(self) -> str:
        """Return its protocol, in the words of RocketMQ's metrics: remoting, grpc."""
        ...

    @property
    def closed(self) -> bool:
        """Return True if it is disconnected."""
        ...

    @property
    def writable(self) -> bool:
        """Return False once it is disconnected or closing."""
        ...

    def tell(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Send a request without an answer. Raises: ConnectionLost if it is already disconnected."""
        ...

    async def ask(
        self, code: int, fields: Mapping[str, str], body: bytes, timeout_ms: int
    ) -> PeerAnswer:
        """Send a request and wait for its answer.

        Raises: RequestTimeout, ConnectionLost, TooManyRequests.
        """
        ...

    def when_read(self, run: Callable[[], None]) -> None:
        """Call `run`, which answers it, now or once it has read earlier data."""
        ...

    def abort(self) -> None:
        """Disconnect at once."""
        ...

    def __hash__(self) -> int: ...
