"""TLS over bytes in memory, and the contexts of both ends (wire.md 7.4).

A server decides by the first byte of a connection, which has been read by then; so the handshake runs over
memory buffers here, not in the transport.
"""

import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pocketmq.remoting.errors import ConnectFailed, IllegalArgument
from pocketmq.remoting.settings import Settings, key, parse_properties

log = logging.getLogger(__name__)

_CHUNK = 65_536
_HANDSHAKE = 0x16


class NotAccepted(Exception):
    """The peer speaks what this server does not accept; the text says what that is."""


@dataclass
class TlsConfig(Settings):
    """A server's TLS, with the names of RocketMQ's tls.properties. Source: TlsSystemConfig, 4.9.7."""

    mode: str = key(
        "permissive",
        name="tls.server.mode",
        choices=("disabled", "permissive", "enforcing"),
        help="Whether TLS is refused, accepted alongside plain connections, or required.",
    )
    certificate_path: str = key(
        "",
        name="tls.server.certPath",
        help="The server's certificate chain, PEM. If empty, a self-signed one is created when first needed.",
    )
    key_path: str = key("", name="tls.server.keyPath", help="The certificate's private key, PEM.")
    key_password: str = key("", name="tls.server.keyPassword", help="Password of the private key.")
    client_auth: str = key(
        "none",
        name="tls.server.need.client.auth",
        choices=("none", "optional", "require"),
        help="Whether clients must show a certificate.",
    )
    trust_path: str = key(
        "",
        name="tls.server.trustCertPath",
        help="Certificate authorities that sign clients' certificates, PEM.",
    )
    config_file: str = key(
        "",
        name="tls.config.file",
        help="A RocketMQ tls.properties file; its values override those given directly.",
    )

    @classmethod
    def read(cls, properties: Mapping[str, str]) -> Self:
        """Return the settings among `properties`, and in the file that they name.

        Raises: IllegalArgument for a bad value, or unreadable files.
        """
        config = cls.from_properties(properties)
        if config.config_file:
            try:
                text = Path(config.config_file).read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise IllegalArgument(f"tls.config.file {config.config_file}: {error}") from error
            config = cls.from_properties({**properties, **parse_properties(text)})
        for path in (config.certificate_path, config.key_path, config.trust_path):
            if path and not Path(path).is_file():
                raise IllegalArgument(f"the TLS file {path} does not exist")
        return config


class ServerTls:
    """How a server treats connections that begin with a handshake, and those that do not.

    The context is created for the first TLS client: a start without one costs nothing.
    """

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._context: ssl.SSLContext | None = None
        self._tried = False
        self.plain_allowed = config.mode != "enforcing"
        # The states of the files: those in use, and those at the last look.
        self._used = self._seen = self._states()

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files of certificates, key and authorities; none if the certificate is its own."""
        config = self._config
        if not config.certificate_path or config.mode == "disabled":
            return ()
        paths = (config.certificate_path, config.key_path, config.trust_path)
        return tuple(path for path in paths if path)

    def _states(self) -> list[tuple[int, int, int] | None]:
        return [_state(path) for path in self.files]

    def context(self) -> ssl.SSLContext | None:
        """Return the context; None refuses TLS, with the reason logged once."""
        if not self._tried and self._config.mode != "disabled":
            self._tried = True
            try:
                self._context = self._make()
            except (OSError, ssl.SSLError, ImportError) as error:
                log.error(
                    "TLS connections are refused: %r; set tls.server.certPath and tls.server.keyPath, "
                    "or install cryptography for a self-signed certificate",
                    str(error),
                )
        return self._context

    def reload(self) -> None:
        """Read the files again; if they cannot be used, the old context stays, and the log says why."""
        self._used = self._states()
        if not self._tried or not self._config.certificate_path:
            # Not read yet; or a certificate of its own, which clients may have been given to trust.
            return
        try:
            self._context = self._make()
        except (OSError, ssl.SSLError) as error:
            log.error("the TLS files cannot be read again, the old ones stay: %r", str(error))
        else:
            log.info("the TLS files were read again files=%s", ",".join(self.files))

    def look(self) -> None:
        """Read the files again if they have changed, and were the same at the last look."""
        states = self._states()
        if states != self._used and states == self._seen:
            self.reload()
        self._seen = states

    def _make(self) -> ssl.SSLContext:
        config = self._config
        if not config.certificate_path:
            return _self_signed()
        context = server_context(
            Path(config.certificate_path),
            Path(config.key_path or config.certificate_path),
            key_password=config.key_password or None,
            trust=Path(config.trust_path) if config.trust_path else None,
        )
        context.verify_mode = {
            "none": ssl.CERT_NONE,
            "optional": ssl.CERT_OPTIONAL,
            "require": ssl.CERT_REQUIRED,
        }[config.client_auth]
        return context


def _state(path: str) -> tuple[int, int, int] | None:
    """Return what differs when a file is replaced or written; None if it is absent."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _self_signed() -> ssl.SSLContext:
    """Return a context for CN=localhost, like a stock RocketMQ broker's. Raises: ImportError."""
    import tempfile
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    # A client that trusts this certificate also checks the address to which it connected.
    loopback = (x509.IPAddress(ip_address(text)) for text in ("127.0.0.1", "::1"))
    places = [x509.DNSName("localhost"), *loopback]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName(places), critical=False)
        .sign(private, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM) + private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    # ssl loads a key from a file only; this one is deleted before the first client connects.
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(pem)
        file.flush()
        return server_context(Path(file.name), Path(file.name))


class TlsLayer:
    """One server-side TLS session over memory."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._established = False
        self._early: list[bytes] = []

    def feed(self, data: bytes) -> tuple[bytes, bytes, bool]:
        """Process bytes from the peer; return (plain text, bytes to send back, whether the peer has ended).

        Raises: ssl.SSLError if the handshake or a record is bad.
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
        """Encrypt plain text into bytes to send; before the end of the handshake it is kept."""
        if not self._established:
            self._early.append(text)
            return b""
        self._session.write(text)
        return self._outgoing.read()


def server_context(
    certificate: Path, key: Path, *, key_password: str | None = None, trust: Path | None = None
) -> ssl.SSLContext:
    """Return a server's context; `trust` makes it require client certificates signed by those."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key, key_password)
    # gRPC clients insist on it; others do not ask.
    context.set_alpn_protocols(["h2"])
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
    """Return a client's context. Like RocketMQ's clients it does not verify unless `verify` is set."""
    context = ssl.create_default_context(cafile=str(trust) if trust else None)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


def not_connected(address: str, error: Exception, *, tls: bool) -> ConnectFailed:
    """Describe a connection error: a reset has no text of its own."""
    words = str(error) or type(error).__name__
    if not tls or isinstance(error, ConnectionRefusedError):
        return ConnectFailed(address, words)
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectFailed(
            address,
            f"its certificate is not trusted ({error.verify_message})",
            "Trust the authority that signed it: its file is cafile of ssl.create_default_context, and "
            "--tls-ca of a command",
        )
    return ConnectFailed(
        address, f"the TLS handshake failed ({words})", "Does that port speak TLS?"
    )


def layer_for(data: bytes, server: "ServerTls | None") -> "TlsLayer | None":
    """Return the TLS layer for a connection that begins with `data`; None if plain. Raises: NotAccepted."""
    if data[0] == _HANDSHAKE:
        context = None if server is None else server.context()
        if context is None:
            raise NotAccepted("TLS, which this server does not accept")
        return TlsLayer(context)
    if server is not None and not server.plain_allowed:
        raise NotAccepted("without TLS, which this server does not accept")
    return None
