"""Access: whether a call is permitted: its signature, and its account's rights.

    authorization: MQv2-HMAC-SHA1 Credential=AK, SignedHeaders=x-mq-date-time, Signature=HEX

The signature is the HMAC-SHA1 of the header x-mq-date-time. It covers nothing else and never expires: only
TLS prevents its reuse. The accounts are those of plain_acl.yml, the same for both protocols. Source:
AuthenticationContext, DefaultAuthorizationContextBuilder, RocketMQ 5.5.0.
"""

import hmac
import re
from collections.abc import Callable
from typing import Any

from pocketmq.broker.bearer import AccessDenied, BearerAccess, Wanted
from pocketmq.grpc.answers import Failed
from pocketmq.grpc.call import Call
from pocketmq.grpc.clients import GrpcClient
from pocketmq.grpc.schema import ClientType, Code

_HEADER = re.compile(
    r"MQv2-HMAC-SHA1\s+Credential=([^/,\s]+)[^,]*,\s*SignedHeaders=[^,]*,\s*Signature=([0-9a-fA-F]{40})\s*"
)

Needs = Callable[[Any], Wanted]


class Access:
    """Checks the broker's accounts; None: everybody may do everything (is_open)."""

    def __init__(self, accounts: BearerAccess | None) -> None:
        self._accounts = accounts
        self.is_open = accounts is None

    def check(self, call: Call, wanted: Wanted) -> None:
        """Check a call. Raises: Failed (UNAUTHORIZED)."""
        if self._accounts is None:
            return
        match = _HEADER.fullmatch(call.text(b"authorization"))
        key, given = (match[1], match[2]) if match is not None else (None, "")
        moment = call.metadata.get(b"x-mq-date-time", b"")

        def holds(secret: str) -> bool:
            made = hmac.new(secret.encode(), moment, "sha1").hexdigest()
            return hmac.compare_digest(made, given.lower())

        try:
            self._accounts.check_bearer(call.connection.peer, key, holds, wanted)
        except AccessDenied as denied:
            raise Failed(Code.UNAUTHORIZED, str(denied)) from None

    def note(self, call: Call, client: GrpcClient) -> None:
        """Remember a client's account: it decides if the client is asked about a topic's transactions."""
        if self._accounts is not None:
            match = _HEADER.fullmatch(call.text(b"authorization"))
            self._accounts.note(client, match[1] if match is not None else "")


def publishes(request: Any) -> Wanted:
    return Wanted(publish=(request.topic.name,))


def publishes_messages(request: Any) -> Wanted:
    return Wanted(publish=tuple({message.topic.name for message in request.messages}))


def looks_at(request: Any) -> Wanted:
    return Wanted(either=(request.topic.name,))


def consumes(request: Any) -> Wanted:
    return Wanted(subscribe=(request.topic.name,), groups=(request.group.name,))


def consumes_queue(request: Any) -> Wanted:
    topic = request.message_queue.topic.name
    return Wanted(subscribe=(topic,), groups=(request.group.name,))


def looks_at_queue(request: Any) -> Wanted:
    return Wanted(subscribe=(request.message_queue.topic.name,))


def is_member(request: Any) -> Wanted:
    return Wanted(groups=(request.group.name,)) if request.group.name else Wanted()


def beats(request: Any) -> Wanted:
    producer = request.client_type == ClientType.PRODUCER
    return Wanted() if producer else is_member(request)


def settles(settings: Any) -> Wanted:
    """Return the rights that a client's settings need."""
    if settings.HasField("publishing"):
        return Wanted(publish=tuple(topic.name for topic in settings.publishing.topics))
    subscription = settings.subscription
    group = subscription.group.name
    return Wanted(
        subscribe=tuple(entry.topic.name for entry in subscription.subscriptions),
        groups=(group,) if group else (),
    )
