"""Clients connect, stay and leave: Telemetry, Heartbeat, NotifyClientTermination.

A client's settings say what it consumes or produces; they are returned with the server's part added: how
often to retry, how long to wait. Source: ClientActivity, GrpcClientSettingsManager, 5.5.0.
"""

import contextlib
import logging
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

from pocketmq.broker.access.fronts import NeededRights
from pocketmq.broker.acts.clients import Heartbeat, Membership
from pocketmq.broker.lite.names import NAME_SIZE_MAX, LiteGroup
from pocketmq.broker.refused import Refused
from pocketmq.grpc.answers import OK, StatusFailure
from pocketmq.grpc.clients import GrpcClient
from pocketmq.grpc.encode import message_alone
from pocketmq.grpc.http2.call import GrpcCall, GrpcError, GrpcStatus, Method, framed
from pocketmq.grpc.mapping import BODY_SIZE_MAX, set_ms
from pocketmq.grpc.messages import TelemetryCommand, classes
from pocketmq.grpc.schema import LITE, SERVICE, ClientType, Code, FilterType
from pocketmq.grpc.services import access
from pocketmq.grpc.services.backoff import pause_ms
from pocketmq.grpc.services.context import RequestContext, parsed, when_all
from pocketmq.model.record import read_record
from pocketmq.model.retry_policy import own_policy
from pocketmq.model.subscription import SubscriptionData, build_subscription
from pocketmq.model.tables import GroupConfig
from pocketmq.remoting.codes import RequestCode, Version
from pocketmq.remoting.errors import ConnectionLost, IllegalArgument
from pocketmq.remoting.java_number import INT_MAX
from pocketmq.remoting.transport.turns import Turns

log = logging.getLogger(__name__)

RECEIVE_COUNT = 32
_SEND_ATTEMPTS = 3
_SUBSCRIPTIONS_MAX = 1_000
# Of one client: each of its heartbeats is one in all of them.
_TOPICS_MAX, _GROUPS_MAX = 5_000, 100
_EXPRESSION_SIZE_MAX = 65_536
# Memory that a subscription takes, a character of its text, and a tag.
_ENTRY_SIZE, _CHARACTER_SIZE, _TAG_SIZE = 1_000, 2, 300
_S = 1_000
_M = 60 * _S
# Source: CustomizedRetryPolicy, RocketMQ 5.5.0.
_BACKOFF_MS = (
    *(1 * _S, 5 * _S, 10 * _S, 30 * _S, 1 * _M, 2 * _M, 3 * _M, 4 * _M, 5 * _M, 6 * _M),
    *(7 * _M, 8 * _M, 9 * _M, 10 * _M, 20 * _M, 30 * _M, 60 * _M, 120 * _M),
)
PASSIVE = "CONSUME_PASSIVELY"
_PASSIVE = (ClientType.PUSH_CONSUMER, ClientType.LITE_PUSH_CONSUMER)


class Sessions:
    """The services."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        node = context.parts.node
        # Members whose groups may have been changed.
        self._unsettled = Turns[GrpcClient](node.clock, node.call_soon, self._settle_again)
        self._seen_version = context.parts.tables.groups.data_version

    def methods(self) -> dict[bytes, Method]:
        context = self._context
        telemetry = Method(self.telemetry, is_session=True)
        return {
            f"/{SERVICE}/Telemetry".encode(): telemetry,
            **context.method("Heartbeat", self.heartbeat, access.beats),
            **context.method("NotifyClientTermination", self.leave, access.is_member),
        }

    # ------------------------------------------------------------ telemetry

    def telemetry(self, call: GrpcCall, data: bytes | None) -> Iterator[None]:
        """Handle a message on a client's Telemetry call. Raises: GrpcError."""
        if data is None:
            call.finish()
            return
        command = parsed(TelemetryCommand, data)
        kind = command.WhichOneof("command")
        try:
            if kind == "settings":
                _check_counts(command.settings)
                self._context.access.check(call, access.settles(command.settings))
                yield from self._settle(call, command.settings)
            else:
                self._context.access.check(call, NeededRights())
                self._context.clients.of(call).questions.answered(command)
        except (StatusFailure, Refused) as error:
            failed = StatusFailure.by(error) if isinstance(error, Refused) else error
            if failed.code is Code.UNAUTHORIZED:
                call.write(framed(TelemetryCommand(status=failed.status).SerializeToString()))
                call.finish()
                return
            raise GrpcError(
                GrpcStatus.INVALID_ARGUMENT,
                f"process client telemetryCommand failed. {failed}",
            ) from None

    def _settle(self, call: GrpcCall, settings: Any) -> Iterator[None]:
        """Apply a client's settings. Raises: StatusFailure, Refused."""
        context = self._context
        client = context.clients.of(call)
        if settings.HasField("publishing"):
            topics = {context.topic_of(topic) for topic in settings.publishing.topics}
            if len(client.topics | topics) > _TOPICS_MAX:
                raise StatusFailure(
                    Code.BAD_REQUEST, f"a client produces to at most {_TOPICS_MAX} topics"
                )
            client.topics |= topics
        elif settings.HasField("subscription"):
            group = context.group_of(settings.subscription.group)
            if context.parts.tables.groups.find(group) is None:
                raise StatusFailure(
                    Code.CONSUMER_GROUP_NOT_FOUND,
                    f"group {group} does not exist; create it with: pocketmq group create {group}",
                )
            known = client.memberships.get(group)
            old = {each.topic: each for each in (known.subscriptions if known else ())}
            asked = {}
            for entry in settings.subscription.subscriptions:
                topic = context.topic_of(entry.topic)
                asked[topic] = self._subscription(old.get(topic), topic, entry.expression)
                yield
            _enter(client, _membership(group, settings.client_type, asked.values()))
        else:
            raise StatusFailure(
                Code.BAD_REQUEST, "there is no publishing or subscription data in settings"
            )
        client.settings = settings
        client.telemetry = call
        client.connection = call.connection
        context.access.note(client)
        context.clients.keep(client, _size_of(client))
        yield from self._beat(client)
        client.told = self.settled(settings)
        answer = framed(TelemetryCommand(status=OK, settings=client.told).SerializeToString())
        saves = context.acts.clients.saves()
        if saves:
            when_all(saves, lambda: call.write(answer))
        else:
            call.write(answer)

    def _subscription(
        self, old: SubscriptionData | None, topic: str, expression: Any
    ) -> SubscriptionData:
        """Return it as classic clients have it; an unchanged one keeps its version. Raises: StatusFailure."""
        if len(expression.expression) > _EXPRESSION_SIZE_MAX:
            raise StatusFailure(
                Code.ILLEGAL_FILTER_EXPRESSION,
                f"an expression has at most {_EXPRESSION_SIZE_MAX} characters, not "
                f"{len(expression.expression)}",
            )
        kind = "SQL92" if expression.type == FilterType.SQL else "TAG"
        try:
            asked = build_subscription(
                topic, expression.expression or "*", kind, self._context.parts.node.clock.now_ms()
            )
        except IllegalArgument as error:
            raise StatusFailure(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None
        if old is not None and (old.sub_string, old.expression_type) == (
            asked.sub_string,
            asked.expression_type,
        ):
            asked.sub_version = old.sub_version
        return asked

    def _beat(self, client: GrpcClient) -> Iterator[None]:
        """Send the broker a heartbeat for the client, in steps. Raises: Refused."""
        return self._beat_in(client, list(client.memberships.values()), sorted(client.topics))

    def _beat_in(
        self, client: GrpcClient, members: list[Membership], topics: list[str]
    ) -> Iterator[None]:
        """Send one for some of its groups and topics. Raises: Refused."""
        beat = Heartbeat(client.client_id, client.language, Version.V5_5_0, members, topics)
        for _ in self._context.acts.clients.heartbeat(beat, client):
            yield
            if client.closed:
                # It said goodbye on another connection, or was removed: it is not to be entered again.
                return

    def settled(self, settings: Any) -> Any:
        """Return a client's settings with the server's part added."""
        answer = classes["Settings"]()
        answer.CopyFrom(settings)
        answer.metric.on = False
        if settings.HasField("publishing"):
            answer.publishing.max_body_size = BODY_SIZE_MAX
            answer.publishing.validate_message_type = self._context.config.type_check
            _backoff(answer.backoff_policy, _SEND_ATTEMPTS, 10, 1_000)
            return answer
        subscription = answer.subscription
        group = self._context.parts.tables.groups.get(subscription.group.name)
        group = group or GroupConfig(subscription.group.name)
        subscription.fifo = group.extra.get("consumeMessageOrderly") is True
        subscription.receive_batch_size = RECEIVE_COUNT
        set_ms(subscription.long_polling_timeout, self._context.config.polling_ms_max)
        if settings.client_type in LITE:
            quota = LiteGroup.of(group).quota
            subscription.lite_subscription_quota = min(max(quota, 0), INT_MAX)
            subscription.max_lite_topic_size = NAME_SIZE_MAX
        _retry(answer.backoff_policy, group)
        return answer

    def pause_ms(self, client: GrpcClient, group: str, attempt: int) -> int:
        """Return how long a push consumer is to wait after an attempt; 0 for other clients."""
        member, found = client.memberships.get(group), self._context.parts.tables.groups.get(group)
        if member is None or member.consume_type != PASSIVE or found is None:
            return 0
        policy = classes["RetryPolicy"]()
        _retry(policy, found)
        return pause_ms(policy, attempt)

    def refresh(self) -> None:
        """Send changed settings to members whose groups were changed.

        Ours: the proxy sends them only when a client asks, every five minutes.
        """
        version = self._context.parts.tables.groups.data_version
        if version == self._seen_version:
            return
        self._seen_version = version
        self._unsettled.add(
            [each for each in self._context.clients.by_id.values() if each.memberships]
        )

    def _settle_again(self, client: GrpcClient) -> None:
        if client.writable and client.settings is not None:
            settings = self.settled(client.settings)
            if settings != client.told:
                client.told = settings
                # A client that does not read receives them in the answer to its own next settings.
                with contextlib.suppress(ConnectionLost):
                    client.command(TelemetryCommand(status=OK, settings=settings))

    # ------------------------------------------------------------ heartbeat, goodbye

    def heartbeat(
        self, request: Any, client: GrpcClient, call: GrpcCall
    ) -> Generator[None, None, Any]:
        answer = classes["HeartbeatResponse"](status=OK)
        context = self._context
        kind = request.client_type
        if not kind and client.settings is not None:
            # SDKs before 5.0.5 leave it out here, and their producers' heartbeats are empty.
            kind = client.settings.client_type
        if kind != ClientType.PRODUCER and (kind or request.group.name):
            group = context.group_of(request.group)
            if group not in client.memberships:
                # A client whose settings this broker has not seen: what it asks for, it says later.
                _enter(client, _membership(group, kind, ()))
        yield from self._beat(client)
        saves = context.acts.clients.saves()
        if not saves:
            return answer
        when_all(saves, lambda: call.reply(answer.SerializeToString()))
        return None

    def came_by(
        self, client: GrpcClient, group: str, kind: int, topic: str, by: Any
    ) -> Iterator[None] | None:
        """Register a client without settings that receives as a member; None: it is one already.

        Raises: StatusFailure, also while the steps are taken, Refused.
        """
        known = client.memberships.get(group)
        if known is not None and any(each.topic == topic for each in known.subscriptions):
            return None
        asked = {each.topic: each for each in (known.subscriptions if known else ())}
        asked[topic] = self._subscription(None, topic, by)
        member = _membership(group, kind, asked.values())
        _enter(client, member)
        self._context.clients.keep(client, _size_of(client))
        return self._beat_in(client, [member], [])

    def produces(self, client: GrpcClient, topic: str) -> None:
        """Note that a client sends half messages to a topic: it can be asked about them. Raises: Refused."""
        if topic not in client.topics and len(client.topics) < _TOPICS_MAX:
            client.topics.add(topic)
            for _ in self._beat_in(client, [], [topic]):
                pass

    def leave(self, request: Any, client: GrpcClient, call: GrpcCall) -> Generator[None, None, Any]:
        # As a classic client unregisters: the groups must not take it for a lost one.
        leave = self._context.acts.clients.leave
        for group in list(client.memberships):
            leave(client, consumer=group, producer=None)
            yield
        for topic in list(client.topics):
            leave(client, consumer=None, producer=topic)
            yield
        self._context.clients.remove(client, "it said goodbye")
        return classes["NotifyClientTerminationResponse"](status=OK)


def translate(client: GrpcClient, code: int, fields: Mapping[str, str], body: bytes) -> Any:
    """Return the command for a request of the broker; None: SDK clients have no use for it."""
    if code == RequestCode.NOTIFY_UNSUBSCRIBE_LITE:
        taken = TelemetryCommand()
        taken.notify_unsubscribe_lite_command.lite_topic = fields["liteTopic"]
        return taken
    if code != RequestCode.CHECK_TRANSACTION_STATE:
        return None
    record = read_record(body, check_crc=False)
    command = TelemetryCommand()
    recover = command.recover_orphaned_transaction_command
    recover.transaction_id = fields.get("transactionId") or fields.get("msgId") or ""
    # As at the proxy, whose listeners see a first attempt.
    attempt = 1 + record.reconsume_times
    asked = message_alone(record, client.language, record.topic, attempt=attempt)
    recover.message.MergeFromString(asked)
    return command


def _check_counts(settings: Any) -> None:
    """Check them before they are walked. Raises: StatusFailure."""
    if len(settings.publishing.topics) > _TOPICS_MAX:
        raise StatusFailure(Code.BAD_REQUEST, f"a client produces to at most {_TOPICS_MAX} topics")
    if len(settings.subscription.subscriptions) > _SUBSCRIPTIONS_MAX:
        raise StatusFailure(
            Code.BAD_REQUEST, f"a group has at most {_SUBSCRIPTIONS_MAX} subscriptions"
        )


def _enter(client: GrpcClient, member: Membership) -> None:
    """Note what a client consumes. Raises: StatusFailure."""
    if member.group not in client.memberships and len(client.memberships) >= _GROUPS_MAX:
        raise StatusFailure(Code.BAD_REQUEST, f"a client is in at most {_GROUPS_MAX} groups")
    others = sum(
        len(each.subscriptions)
        for each in client.memberships.values()
        if each.group != member.group
    )
    if len(member.subscriptions) > _SUBSCRIPTIONS_MAX:
        raise StatusFailure(
            Code.BAD_REQUEST, f"a group has at most {_SUBSCRIPTIONS_MAX} subscriptions"
        )
    if others + len(member.subscriptions) > _TOPICS_MAX:
        raise StatusFailure(
            Code.BAD_REQUEST,
            f"a client has at most {_TOPICS_MAX} subscriptions in all its groups: use a client for each",
        )
    client.memberships[member.group] = member


def _size_of(client: GrpcClient) -> int:
    """Estimate the memory of a client's settings: its own, those sent to it, and the broker's entries."""
    kept = 0 if client.settings is None else 2 * client.settings.ByteSize()
    kept += sum(_ENTRY_SIZE + len(topic) for topic in client.topics)
    for member in client.memberships.values():
        kept += _ENTRY_SIZE
        for each in member.subscriptions:
            kept += _ENTRY_SIZE + _CHARACTER_SIZE * len(each.sub_string)
            kept += _TAG_SIZE * len(each.tags_set)
    return kept


def _membership(group: str, kind: int, asked: Iterable[SubscriptionData]) -> Membership:
    return Membership(
        group,
        PASSIVE if kind in _PASSIVE else "CONSUME_ACTIVELY",
        "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
        list(asked),
    )


def _retry(policy: Any, group: GroupConfig) -> None:
    """Fill in a group's own policy, as 5.x tools store it, or RocketMQ's."""
    attempts = min(group.retry_max_times + 1, INT_MAX)
    try:
        own = own_policy(group.extra.get("groupRetryPolicy"))
    except (AttributeError, TypeError, ValueError):
        log.warning("cannot read the retry policy of a group group=%s", group.group)
        own = None
    if own is not None and not own.pauses:
        _backoff(policy, attempts, own.initial_ms, own.max_ms, own.multiplier)
        return
    policy.max_attempts = attempts
    policy.ClearField("strategy")
    for ms in _BACKOFF_MS if own is None else own.pauses:
        set_ms(policy.customized_backoff.next.add(), ms)


def _backoff(
    policy: Any, attempts: int, initial_ms: int, max_ms: int, multiplier: float = 2
) -> None:
    policy.max_attempts = attempts
    policy.ClearField("strategy")
    backoff = policy.exponential_backoff
    set_ms(backoff.initial, initial_ms)
    set_ms(backoff.max, max_ms)
    backoff.multiplier = multiplier
