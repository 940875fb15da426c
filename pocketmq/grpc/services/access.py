"""GrpcAccess: whether a call is permitted: its signature, and its account's rights.

    authorization: MQv2-HMAC-SHA1 Credential=AK, SignedHeaders=x-mq-date-time, Signature=HEX

The signature is the HMAC-SHA1 of the header x-mq-date-time. It covers nothing else and never expires: only
TLS prevents its reuse. The accounts are those of plain_acl.yml, the same for both protocols. Source:
AuthenticationContext, DefaultAuthorizationContextBuilder, RocketMQ 5.5.0.
"""

import hmac
import logging
import re
from collections.abc import Callable
from typing import Any

from pocketmq.broker.access.denial_log import Denial
from pocketmq.broker.access.fronts import AccessDenied, BearerAccess, NeededRights
from pocketmq.grpc.answers import StatusFailure
from pocketmq.grpc.clients import GrpcClient
from pocketmq.grpc.http2.call import GrpcCall
from pocketmq.grpc.schema import ClientType, Code

# The key is possessive: what follows takes the same characters, and a text without a comma would be tried at
# every length of both.
_HEADER = re.compile(
    r"MQv2-HMAC-SHA1\s+Credential=([^/,\s]++)[^,]*,\s*SignedHeaders=[^,]*,\s*Signature=([0-9a-fA-F]{40})\s*"
)

Needs = Callable[[Any], NeededRights]

log = logging.getLogger(__name__)

# An SDK that is refused asks again each second.
_PAUSE_MS = 60_000
_REFUSALS_MAX = 1_000


class _Refusals:
    """Logs a refusal in full the first time; while it persists, one line a minute says how often it occurred.

    It is the same one from the same machine for the same reason, whatever was called.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        # When it was logged last, and how often it occurred since.
        self._told: dict[tuple[str, str], tuple[int, int]] = {}

    def note(self, call: GrpcCall, reason: str, user: str) -> Denial | None:
        """Log or count a refusal; return what was logged."""
        peer, now_ms = call.connection.peer, self._monotonic_ms()
        which = call.connection.ip, reason
        told = self._told.get(which)
        path = call.text(b":path").rpartition("/")[2][:100]
        if told is None:
            if len(self._told) >= _REFUSALS_MAX:
                self._told.clear()
            log.warning(
                "access denied call=%s peer=%s client=%r reason=%r; the same again is counted",
                path,
                peer,
                call.text(b"x-mq-client-id")[:255],
                reason,
            )
            self._told[which] = now_ms, 0
            return Denial(user, peer, path, reason)
        at_ms, times = told[0], told[1] + 1
        if now_ms - at_ms >= _PAUSE_MS:
            log.warning(
                "access is still denied call=%s peer=%s reason=%r times=%d seconds=%d",
                path,
                peer,
                reason,
                times,
                (now_ms - at_ms) // 1_000,
            )
            self._told[which] = now_ms, 0
            return Denial(user, peer, path, reason, times)
        self._told[which] = at_ms, times
        return None


class GrpcAccess:
    """Checks the broker's accounts; None: every client may do everything (is_open)."""

    def __init__(self, accounts: BearerAccess | None, monotonic_ms: Callable[[], int]) -> None:
        self._accounts = accounts
        self._refusals = _Refusals(monotonic_ms)
        self.is_open = accounts is None

    def check(self, call: GrpcCall, wanted: NeededRights) -> None:
        """Check a call. Raises: StatusFailure (UNAUTHORIZED)."""
        if self._accounts is None:
            return
        match = _HEADER.fullmatch(call.text(b"authorization"))
        key, given = (match[1], match[2]) if match is not None else (None, "")
        moment = call.metadata.get(b"x-mq-date-time", b"")

        def holds(secret: str) -> bool:
            made = hmac.new(secret.encode(), moment, "sha1").hexdigest()
            return hmac.compare_digest(made, given.lower())

        self._check(call, key, holds, wanted)

    def check_words(
        self, call: GrpcCall, access_key: str, secret_key: str, wanted: NeededRights
    ) -> None:
        """Check a call of a client that cannot sign, and gives its secret. Raises: StatusFailure."""
        given = secret_key.encode()
        self._check(
            call,
            access_key or None,
            lambda secret: hmac.compare_digest(secret.encode(), given),
            wanted,
        )

    def _check(
        self,
        call: GrpcCall,
        key: str | None,
        holds: Callable[[str], bool],
        wanted: NeededRights,
    ) -> None:
        if self._accounts is None:
            return
        try:
            self._accounts.check_bearer(call.connection, key, holds, wanted)
        except AccessDenied as denied:
            denial = self._refusals.note(call, str(denied), key or "")
            if denial is not None:
                self._accounts.denials.logged(denial)
            raise StatusFailure(Code.UNAUTHORIZED, str(denied)) from None

    def account_of(self, call: GrpcCall) -> str:
        """Return the access key that a checked call names; empty without one, and without accounts."""
        if self._accounts is None:
            return ""
        match = _HEADER.fullmatch(call.text(b"authorization"))
        return match[1] if match is not None else ""

    def note(self, client: GrpcClient) -> None:
        """Remember a client's account: it decides if the client is asked about a topic's transactions."""
        if self._accounts is not None:
            self._accounts.note(client, client.account)


def publishes(request: Any) -> NeededRights:
    return NeededRights(publish=(request.topic.name,))


def publishes_messages(request: Any) -> NeededRights:
    return NeededRights(publish=tuple({message.topic.name for message in request.messages}))


def looks_at(request: Any) -> NeededRights:
    return NeededRights(either=(request.topic.name,))


def consumes(request: Any) -> NeededRights:
    return NeededRights(subscribe=(request.topic.name,), groups=(request.group.name,))


def consumes_queue(request: Any) -> NeededRights:
    topic = request.message_queue.topic.name
    return NeededRights(subscribe=(topic,), groups=(request.group.name,))


def looks_at_queue(request: Any) -> NeededRights:
    return NeededRights(subscribe=(request.message_queue.topic.name,))


def is_member(request: Any) -> NeededRights:
    return NeededRights(groups=(request.group.name,)) if request.group.name else NeededRights()


def beats(request: Any) -> NeededRights:
    producer = request.client_type == ClientType.PRODUCER
    return NeededRights() if producer else is_member(request)


def settles(settings: Any) -> NeededRights:
    """Return the rights that a client's settings need."""
    if settings.HasField("publishing"):
        return NeededRights(publish=tuple(topic.name for topic in settings.publishing.topics))
    subscription = settings.subscription
    group = subscription.group.name
    return NeededRights(
        subscribe=tuple(entry.topic.name for entry in subscription.subscriptions),
        groups=(group,) if group else (),
    )
