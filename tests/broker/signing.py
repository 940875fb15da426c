"""Signed requests, as the official clients sign them."""

import base64
import hashlib
import hmac

from pocketmq.remoting.command import RemotingCommand


def signed(
    code: int,
    ext: dict[str, str],
    body: bytes = b"",
    *,
    key: str = "RocketMQ",
    secret: str = "12345678",
    leave_out: str = "",
) -> RemotingCommand:
    fields = {**ext, "AccessKey": key}
    content = "".join(fields[name] for name in sorted(fields) if name != leave_out).encode() + body
    digest = hmac.new(secret.encode(), content, hashlib.sha1).digest()
    return RemotingCommand(code, {**fields, "Signature": base64.b64encode(digest).decode()}, body)
