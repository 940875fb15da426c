"""Credentials and how a request is signed with them (wire.md 7.1).

The content is the values of all header fields, AccessKey among them, in the order of their names,
followed by the body; the signature is Base64 of its HMAC-SHA1. It is made last, when every other field
stands. Source: AclClientRPCHook, AclUtils, AclSigner, RocketMQ 4.9.7 and 5.5.0.
"""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import IllegalArgument

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a broker with ACL wants: an access key, its secret and, for temporary ones, a token."""

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

    def signature(self, fields: dict[str, str], body: bytes | bytearray | memoryview) -> str:
        """Base64 of the HMAC-SHA1 over the fields' values in order of their names, and the body."""
        names = sorted(fields, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        content = "".join(fields[name] for name in names).encode("utf-8") + bytes(body)
        digest = hmac.new(self.secret_key.encode("utf-8"), content, hashlib.sha1).digest()
        return base64.b64encode(digest).decode("ascii")
