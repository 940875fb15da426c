"""Credentials, and how they sign a request: the same rule for clients and brokers.

The content is the values of all header fields, AccessKey among them, in the order of their names,
followed by the body; the signature is Base64 of its HMAC-SHA1. It is computed last, when all other fields are
set. Source: AclClientRPCHook, AclUtils, AclSigner, RocketMQ 4.9.7 and 5.5.0.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import IllegalArgument

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


def signing_order(names: Iterable[str]) -> list[str]:
    """Sort names of fields in the order in which their values are signed: as Java sorts strings."""
    return sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


def digest(
    secret_key: str, values: Iterable[str], body: bytes | bytearray | memoryview
) -> hmac.HMAC:
    """Return the HMAC-SHA1 over the values, in the given order, and the body."""
    made = hmac.new(secret_key.encode(), "".join(values).encode(), hashlib.sha1)
    made.update(body)
    return made


@dataclass(frozen=True, slots=True)
class Credentials:
    """For a broker with ACL: an access key, its secret and, for temporary ones, a token."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise IllegalArgument("credentials need an access key and a secret key")

    def sign(self, command: RemotingCommand) -> None:
        """Add AccessKey, SecurityToken and Signature to the request; an old signature is replaced."""
        ext = dict(command.ext or {})
        ext.pop(SIGNATURE, None)
        ext[ACCESS_KEY] = self.access_key
        if self.security_token:
            ext[SECURITY_TOKEN] = self.security_token
        ext[SIGNATURE] = self.signature(ext, command.body)
        command.ext = ext

    def signature(self, fields: Mapping[str, str], body: bytes | bytearray | memoryview) -> str:
        """Return Base64 of the HMAC-SHA1 over the fields' values, sorted by name, and the body."""
        made = digest(self.secret_key, (fields[name] for name in signing_order(fields)), body)
        return base64.b64encode(made.digest()).decode("ascii")


def signature_holds(
    secret_key: str, ext: Mapping[str, str], body: bytes | bytearray | memoryview
) -> bool:
    """Return True if a request's fields and body were signed with this secret."""
    given = ext.get(SIGNATURE, "")
    try:
        raw = base64.b64decode(given, validate=True)
    except ValueError:
        return False
    names = signing_order(set(ext) - {SIGNATURE})
    # 4.9's server leaves the mark out, its clients sign it; Go's client leaves the token out.
    for without in (None, _UNIQUE_KEY_QUERY, SECURITY_TOKEN):
        if without is not None and without not in ext:
            continue
        made = digest(secret_key, (ext[name] for name in names if name != without), body)
        if hmac.compare_digest(made.digest(), raw):
            return True
    return False
