"""ProtocolDetector: what a server makes of the first bytes of a connection, and of all bytes of a TLS one.

    first byte 0x16          TLS, from the end of the handshake on the same as plain
    PRI * HTTP/2.0           HTTP/2, the form of gRPC: the transport is handed to the gRPC server
    anything else            frames; a detector that is `open` has no more to do

Owner: the Connection that it was made for.
"""

import asyncio
import logging
import ssl
from typing import Protocol

from pocketmq.remoting.transport.tls import NotAccepted, ServerTls, TlsLayer, layer_for

log = logging.getLogger(__name__)

# A frame of such a length is refused.
_HTTP2 = b"PRI * HTTP/2.0"


class ConnectionTaker(Protocol):
    """A server or proxy that takes connections that a server has accepted."""

    def accept(self) -> asyncio.Protocol:
        """Return the protocol that serves the next connection."""
        ...


class UndetectedConnection(Protocol):
    """The connection whose first bytes are looked at: connection.Connection."""

    peer: str

    def encrypt_by(self, layer: TlsLayer) -> None: ...

    def leave(self) -> asyncio.Transport: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class ProtocolDetector:
    """Attributes: open (the peer speaks plain frames)."""

    def __init__(self, tls: ServerTls | None, http2: ConnectionTaker | None = None) -> None:
        """tls: None refuses handshakes. http2: takes a peer that begins with HTTP/2."""
        self._server_tls = tls
        self._http2 = http2
        self._layer: TlsLayer | None = None
        self.open = False

    def take(
        self, connection: UndetectedConnection, transport: asyncio.Transport | None, data: bytes
    ) -> bytes:
        """Return what there is to decode for the connection; nothing, if it has ended or is another's."""
        if self._layer is None:
            try:
                layer = layer_for(data, self._server_tls)
            except NotAccepted as refusal:
                log.warning("connection closed: peer=%s speaks %s", connection.peer, refusal)
                connection.abort()
                return b""
            if layer is None:
                if self._http2 is not None and data.startswith(_HTTP2):
                    _hand_over(connection.leave(), self._http2.accept(), data)
                    return b""
                self.open = True
                return data
            self._layer = layer
            connection.encrypt_by(layer)
        return self._decrypt(self._layer, connection, transport, data)

    @staticmethod
    def _decrypt(
        layer: TlsLayer,
        connection: UndetectedConnection,
        transport: asyncio.Transport | None,
        data: bytes,
    ) -> bytes:
        try:
            plain, answer, ended = layer.feed(data)
        except ssl.SSLError as error:
            log.warning(
                "connection closed: TLS failed peer=%s reason=%r", connection.peer, str(error)
            )
            connection.abort()
            return b""
        if answer and transport is not None:
            transport.write(answer)
        if ended:
            connection.close()
        return plain


def _hand_over(transport: asyncio.Transport, other: asyncio.Protocol, data: bytes) -> None:
    """Let another protocol have the transport."""
    transport.set_protocol(other)
    other.connection_made(transport)
    # It may have been refused, as one too many.
    if not transport.is_closing():
        other.data_received(data)
