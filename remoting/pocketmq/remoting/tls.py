"""TLS as bytes in, bytes out, and the contexts of both ends (wire.md 7.4).

A server decides by the first byte of a connection, after it was read; so the handshake runs over
memory buffers here, not in the transport.
"""

import ssl
from pathlib import Path

_CHUNK = 65_536


class TlsLayer:
    """One server-side TLS session over memory."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._established = False
        self._early: list[bytes] = []

    def feed(self, data: bytes) -> tuple[bytes, bytes, bool]:
        """Bytes from the peer -> (plain text, bytes to send back, whether the peer has ended).

        Raises: ssl.SSLError when the handshake or a record is bad.
        """
        self._incoming.write(data)
        plain: list[bytes] = []
        ended = False
        try:
            if not self._established:
                self._session.do_handshake()
                self._established = True
                for text in self._early:
                    self._session.write(text)
                self._early.clear()
            while chunk := self._session.read(_CHUNK):
                plain.append(chunk)
            ended = True
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            ended = True
        return b"".join(plain), self._outgoing.read(), ended

    def encrypt(self, text: bytes) -> bytes:
        """Plain text -> bytes to send; before the handshake is over it waits for it."""
        if not self._established:
            self._early.append(text)
            return b""
        self._session.write(text)
        return self._outgoing.read()


def server_context(
    certificate: Path, key: Path, *, key_password: str | None = None, trust: Path | None = None
) -> ssl.SSLContext:
    """What a server needs; `trust` makes it ask clients for a certificate that those sign."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key, key_password)
    if trust is not None:
        context.load_verify_locations(trust)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(
    *,
    verify: bool = False,
    trust: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
) -> ssl.SSLContext:
    """What a client needs. RocketMQ's clients do not verify unless told so; nor does this."""
    context = ssl.create_default_context(cafile=str(trust) if trust else None)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context
