"""What client calls raise, grouped by what the caller can do about it.

    CallerError       the call itself is wrong for this cluster: repeating it fails again; fix it
      IllegalArgument IllegalTopic IllegalGroup IllegalMessage MessageTooLarge NotRunning (ForkedClient)
      NoRoute TopicNotExist NoPermission Unauthorised MessageIllegal SubscriptionIllegal GroupNotExist
      RequestNotSupported NotANameServer
    TransientError    nothing was done: the same call may work later or elsewhere
      Unreachable NoAnswer BrokerBusy BrokerNotServing BrokerFailed SubscriptionNotReady ConsumerNotOnline
    OutcomeUnknown    it may have been done: repeat it only if doing it twice is harmless
      AnswerTimeout ConnectionBroken AnswerUnreadable StoredUnsafely

A send that was tried several times raises SendFailed (TransientError) if nothing was stored for certain and
SendOutcomeUnknown (OutcomeUnknown) otherwise; `attempts` holds each try. Every refusal by a broker is also
a `pocketmq.remoting.errors.RequestRefused` with its `code`, `remark` and `address`.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from pocketmq.remoting.codes import ResponseCode, response_name
from pocketmq.remoting.errors import (
    CallerError as CallerError,
)
from pocketmq.remoting.errors import (
    ConnectFailed,
    IllegalArgument,
    PocketMQError,
    RemotingError,
    RequestRefused,
    RequestTimeout,
    TooManyRequests,
)
from pocketmq.remoting.errors import (
    NotANameServer as NotANameServer,
)

_FAQ = re.compile(r"\s*See https?://rocketmq\.apache\.org/\S+ for further details\.?")
"""The link that RocketMQ's servers add: of no help with what runs here."""


class TransientError(PocketMQError):
    """Nothing was done; the same call may work later or at another broker."""

    retriable = True


class OutcomeUnknown(PocketMQError):
    """It may or may not have been done; repeating the call may do it twice."""

    retriable = True


# ------------------------------------------------------------ before anything is sent


class IllegalTopic(IllegalArgument):
    """A topic name that RocketMQ does not allow, or one that belongs to the system."""


class IllegalGroup(IllegalArgument):
    """A group name that RocketMQ does not allow."""


class IllegalMessage(IllegalArgument):
    """A message without topic or body, or with properties that cannot travel."""


class MessageTooLarge(IllegalMessage):
    """A body beyond max_message_size."""


class NotRunning(CallerError):
    """Called before start() or after shutdown()."""


class ForkedClient(NotRunning):
    """Called in a child process for a client that its parent started before the fork."""


class NoRoute(CallerError):
    """The name servers know no broker for the topic, or none that accepts its messages.

    closed: brokers have the topic, but no queue of it can be written to.
    """

    def __init__(
        self, topic: str, name_servers: Sequence[str], why: str = "", *, closed: bool = False
    ) -> None:
        super().__init__(
            f"topic {topic!r} accepts no messages: its brokers have no queue that can be written to. If it "
            f"was paused: pocketmq topic create {topic} --perm rw. If its master is down, start it; see: "
            f"pocketmq topic show {topic}"
            if closed
            else f"topic {topic!r} has no route at the name servers {', '.join(name_servers)}"
            + (f" ({_FAQ.sub('', why)})" if why else "")
            + f". Create it with: pocketmq topic create {topic}; a producer's first message creates it, too, "
            "if a broker has autoCreateTopicEnable=true"
        )
        self.topic = topic


# ------------------------------------------------------------ no answer


class Unreachable(RemotingError, TransientError):
    """No connection: nothing was sent."""


class NoAnswer(RemotingError, TransientError):
    """A read-only request got no answer: nothing was changed."""


class ConnectionBroken(RemotingError, OutcomeUnknown):
    """The connection closed while waiting for the answer."""


class AnswerTimeout(RemotingError, OutcomeUnknown):
    """The answer did not come in time."""


class AnswerUnreadable(RemotingError, OutcomeUnknown):
    """The answer is a SUCCESS without its outcome: a field is missing, or is no number."""


_MAY_HAVE_ACTED = "; it may have acted all the same"


def from_remoting(
    error: RemotingError, address: str, what: str, *, only_asks: bool = False
) -> RemotingError:
    """Map a transport error to the client's; `what` names the request, its topic and group.

    only_asks: the request is read-only, so it is always safe to repeat.
    """
    if isinstance(error, ConnectFailed):
        return Unreachable(f"{what}: {error}")
    if isinstance(error, TooManyRequests):
        return Unreachable(f"{what}: {error}. Wait for earlier calls to finish before making more")
    if only_asks:
        if isinstance(error, RequestTimeout):
            why = f"{address} did not answer within {error.timeout_ms} ms"
        else:
            why = f"the connection to {address} ended before the answer came"
        return NoAnswer(f"{what}: {why}. Nothing was changed: try again, or increase the timeout")
    if isinstance(error, RequestTimeout):
        return AnswerTimeout(
            f"{what}: {address} did not answer within {error.timeout_ms} ms{_MAY_HAVE_ACTED}. Repeat it if "
            "doing it twice does no harm, or increase the timeout"
        )
    return ConnectionBroken(
        f"{what}: the connection to {address} ended before the answer came ({error}){_MAY_HAVE_ACTED}. "
        "Repeat it if doing it twice does no harm"
    )


# ------------------------------------------------------------ refusals


# RocketMQ's words, which its clients know, and then what it is here.
_HERE = "etc. Here: "


class BrokerRefused(RequestRefused):
    """An answer with a code other than SUCCESS.

    advice: the next step, said unless the remark names its own. remark: whole, as the broker sent it.
    """

    advice = ""

    def __init__(self, code: int, remark: str | None, address: str, what: str) -> None:
        super().__init__(code, remark, address, what)
        # What no single broker has answered, such as an id that none of them knows, has no address.
        refused = f"was refused by {address}" if address else "failed"
        text = f"{what} {refused} with {response_name(code)}"
        _, here, own = (remark or "").partition(_HERE)
        said = _FAQ.sub("", own or remark or "").rstrip()
        text += f": {said}" if said else ""
        # Many of the broker's own sentences end with a full stop.
        advised = self.advice and not here and self._is_vague(said)
        self.args = (f"{text.removesuffix('.')}. {self.advice}" if advised else text,)

    @classmethod
    def _is_vague(cls, said: str) -> bool:
        """Return True if the remark leaves open what to do."""
        return True


class TopicNotExist(BrokerRefused, CallerError):
    """TOPIC_NOT_EXIST (17)."""

    advice = "Create the topic with: pocketmq topic create TOPIC, then repeat the call"


class NoPermission(BrokerRefused, CallerError):
    """NO_PERMISSION (16)."""

    advice = (
        "Check the permissions of the broker, topic and group (pocketmq topic show TOPIC) and the "
        "rights of the access key"
    )


class Unauthorised(BrokerRefused, CallerError):
    """The broker checks signatures and did not accept ours."""

    advice = (
        "Pass credentials=Credentials(access_key, secret_key) that the broker's ACL file allows"
    )


class MessageIllegal(BrokerRefused, CallerError):
    """MESSAGE_ILLEGAL (13) or INVALID_PARAMETER (29)."""

    advice = (
        "Send a smaller body (the broker's maxMessageSize) or fewer properties (32767 bytes), to a queue "
        "that the topic has"
    )

    @classmethod
    def _is_vague(cls, said: str) -> bool:
        # RocketMQ's remark for all of them; others name the one thing that is wrong.
        return not said or "maybe" in said


class SubscriptionIllegal(BrokerRefused, CallerError):
    """SUBSCRIPTION_PARSE_FAILED (23)."""

    advice = "Correct the tag expression (A || B) or the SQL92 expression"


class GroupNotExist(BrokerRefused, CallerError):
    """SUBSCRIPTION_GROUP_NOT_EXIST (26)."""

    advice = (
        "Create the group with: pocketmq group create GROUP (autoCreateSubscriptionGroup is off)"
    )


class RequestNotSupported(BrokerRefused, CallerError):
    """REQUEST_CODE_NOT_SUPPORTED (3)."""

    advice = "This server is too old for the call, or has the feature switched off"


class SubscriptionNotReady(BrokerRefused, TransientError):
    """SUBSCRIPTION_NOT_EXIST (24), _NOT_LATEST (25), FILTER_DATA_* (27, 28)."""

    advice = (
        "The broker does not know this member's subscription yet, or another member of the group "
        "subscribes to something else: all members of a group must have the same subscriptions"
    )


class BrokerBusy(BrokerRefused, TransientError):
    """SYSTEM_BUSY (2) or FLOW_CONTROL (215)."""

    advice = "Send more slowly, or to more brokers"


class BrokerNotServing(BrokerRefused, TransientError):
    """SERVICE_NOT_AVAILABLE (14), SLAVE_NOT_AVAILABLE (11), GO_AWAY (1500)."""

    advice = "The broker is starting, stopping, or a slave, or its disk is full: see its log"


class ConsumerNotOnline(BrokerRefused, TransientError):
    """CONSUMER_NOT_ONLINE (206): no member of the group is connected."""

    advice = "Start a consumer of the group first"


class QueryNotFound(BrokerRefused, CallerError):
    """QUERY_NOT_FOUND (22): the requested item is not stored."""


class IllegalOperation(BrokerRefused, CallerError):
    """ILLEGAL_OPERATION (604): what was asked for cannot be, such as a schedule that never comes."""


class BrokerFailed(BrokerRefused, TransientError):
    """SYSTEM_ERROR (1) and every code without a class of its own."""

    advice = "See the broker's log"


class StoredUnsafely(BrokerRefused, OutcomeUnknown):
    """FLUSH_DISK_TIMEOUT (10), FLUSH_SLAVE_TIMEOUT (12): stored, but without the requested guarantee."""


_REFUSALS: dict[int, type[BrokerRefused]] = {
    ResponseCode.SYSTEM_BUSY: BrokerBusy,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: RequestNotSupported,
    ResponseCode.FLUSH_DISK_TIMEOUT: StoredUnsafely,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: StoredUnsafely,
    ResponseCode.SLAVE_NOT_AVAILABLE: BrokerNotServing,
    ResponseCode.MESSAGE_ILLEGAL: MessageIllegal,
    ResponseCode.SERVICE_NOT_AVAILABLE: BrokerNotServing,
    ResponseCode.NO_PERMISSION: NoPermission,
    ResponseCode.TOPIC_NOT_EXIST: TopicNotExist,
    ResponseCode.QUERY_NOT_FOUND: QueryNotFound,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: SubscriptionIllegal,
    ResponseCode.SUBSCRIPTION_NOT_EXIST: SubscriptionNotReady,
    ResponseCode.SUBSCRIPTION_NOT_LATEST: SubscriptionNotReady,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: GroupNotExist,
    ResponseCode.FILTER_DATA_NOT_EXIST: SubscriptionNotReady,
    ResponseCode.FILTER_DATA_NOT_LATEST: SubscriptionNotReady,
    ResponseCode.INVALID_PARAMETER: MessageIllegal,
    ResponseCode.CONSUMER_NOT_ONLINE: ConsumerNotOnline,
    ResponseCode.FLOW_CONTROL: BrokerBusy,
    ResponseCode.ILLEGAL_OPERATION: IllegalOperation,
    ResponseCode.GO_AWAY: BrokerNotServing,
}

# What an ACL broker of 4.x says inside SYSTEM_ERROR (wire.md 7.2) and one of 5.x inside NO_PERMISSION.
_ACL_WORDS = (
    *("AclException", "AuthenticationException", "AuthorizationException", "signature"),
    *("no permission to access", "username cannot be null", "is for super users"),
)


def refusal(code: int, remark: str | None, address: str, what: str) -> BrokerRefused:
    """Return the error for an answer; `what` names the request, its topic and group."""
    kind = _REFUSALS.get(code, BrokerFailed)
    if kind in (BrokerFailed, NoPermission) and any(word in (remark or "") for word in _ACL_WORDS):
        kind = Unauthorised
    return kind(code, remark, address, what)


# ------------------------------------------------------------ sends that were tried several times


class Attempt(NamedTuple):
    """One try of a send: the broker's name, its cost in ms, and why it failed."""

    broker_name: str
    cost_ms: int
    error: PocketMQError


_QUEUE = re.compile(r", queue \d+,")
_NUMBER = re.compile(r"\d+")


def _joined(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Return attempts that failed alike together: at one broker, with errors that differ in numbers only."""
    alike: dict[tuple[str, type, str], list[Attempt]] = {}
    for each in attempts:
        words = _NUMBER.sub("#", str(each.error))
        alike.setdefault((each.broker_name, type(each.error), words), []).append(each)
    return list(alike.values())


def _told(equal: list[Attempt]) -> str:
    first = equal[0]
    # Whether it was stored, and what to do, is said once, of all attempts.
    text = str(first.error).partition(_MAY_HAVE_ACTED)[0]
    if len(equal) == 1:
        return f"{first.broker_name} after {first.cost_ms} ms: {text}"
    cost_ms = sum(each.cost_ms for each in equal)
    return f"{first.broker_name} {len(equal)} times in {cost_ms} ms: {_QUEUE.sub('', text)}"


class _AllAttemptsFailed(PocketMQError):
    def __init__(self, topic: str, group: str, attempts: Sequence[Attempt], advice: str) -> None:
        tries = "; ".join(_told(equal) for equal in _joined(attempts))
        super().__init__(
            f"sending to topic {topic!r} by group {group!r} failed {len(attempts)} times. {advice} ({tries})"
        )
        self.topic = topic
        self.group = group
        self.attempts = list(attempts)


class SendFailed(_AllAttemptsFailed, TransientError):
    """Every attempt failed and certainly none was stored."""


class SendOutcomeUnknown(_AllAttemptsFailed, OutcomeUnknown):
    """Every attempt failed, and at least one of them may have been stored."""


def all_attempts_failed(
    topic: str, group: str, attempts: Sequence[Attempt]
) -> SendFailed | SendOutcomeUnknown:
    """Return the error for a send whose retries are used up."""
    if any(isinstance(attempt.error, OutcomeUnknown) for attempt in attempts):
        return SendOutcomeUnknown(
            topic,
            group,
            attempts,
            "It may have been stored: send it again only if consumers can handle duplicates",
        )
    return SendFailed(topic, group, attempts, "Nothing was stored: it is safe to send it again")
