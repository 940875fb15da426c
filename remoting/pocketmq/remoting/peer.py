"""Peer: who asks, and can be told and asked things: the other end of a connection, of whatever front.

What decides and stores (the broker's tables and acts) knows clients as peers; frames, encodings and sockets
stay with whoever talks to them. A connection is one; so may be a session of another protocol.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

TURN_MS = 5


class PeerAnswer(NamedTuple):
    """What a peer answered."""

    code: int
    remark: str | None
    fields: dict[str, str] | None
    body: bytes


class Peer(Protocol):
    """Equal only to itself, so it can be the key of a table."""

    @property
    def address(self) -> str:
        """`ip:port` of the other end."""
        ...

    @property
    def host(self) -> bytes:
        """The same as records hold it: IP bytes and 4-byte port."""
        ...

    @property
    def protocol(self) -> str:
        """What it speaks, in the word of RocketMQ's metrics: remoting, grpc."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it is gone."""
        ...

    @property
    def writable(self) -> bool:
        """False once it is gone or going."""
        ...

    def tell(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Send a request that wants no answer. Raises: ConnectionLost when it is gone already."""
        ...

    async def ask(
        self, code: int, fields: Mapping[str, str], body: bytes, timeout_ms: int
    ) -> PeerAnswer:
        """Send a request and wait for its answer.

        Raises: RequestTimeout, ConnectionLost, TooManyRequests.
        """
        ...

    def when_read(self, run: Callable[[], None]) -> None:
        """Call `run`, which answers it, now or when it has read what it was sent before."""
        ...

    def abort(self) -> None:
        """End it at once."""
        ...

    def __hash__(self) -> int: ...
