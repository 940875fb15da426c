"""SendEngine: chooses a queue, sends, tries elsewhere when that may help (wire.md 4.7).

The attempts of one message are a small state machine without I/O (`SendAttempts`): it says where to send
next and what a failure means. The engine around it resolves addresses, packs bodies and asks the broker.

1. A message keeps its unique key through all attempts of one send, so that readers can tell doubles.
2. The caller's Message is never changed.
3. All attempts together stay within the time-out.
Source: DefaultMQProducerImpl, RocketMQ 4.9.7.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pocketmq.client import batch
from pocketmq.client.errors import (
    Attempt,
    BrokerRefused,
    IllegalMessage,
    MessageTooLarge,
    NoRoute,
    TransientError,
    Unauthorised,
    all_attempts_failed,
)
from pocketmq.client.fault_strategy import FaultStrategy
from pocketmq.client.namespace import AUTO_CREATE_TOPIC, is_retry_topic, with_namespace
from pocketmq.client.route import NoQueueToSendTo, TopicPublishInfo, TopicRoute
from pocketmq.client.send_result import SendResult, SendStatus
from pocketmq.client.unique_key import UniqueKeys
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import PocketMQError, RemotingError
from pocketmq.remoting.flags import Compression, MessageSysFlag
from pocketmq.remoting.message import Message, MessageQueue, Property
from pocketmq.remoting.message_codec import (
    PROPERTIES_SIZE_MAX,
    compress,
    properties_to_text,
)

if TYPE_CHECKING:
    from pocketmq.client.instance import MQClientInstance

log = logging.getLogger(__name__)

RETRY_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Refusals after which another broker is tried (5.x's set)."""

REPLY = "reply"
# Plain strings: asking an enum member for its value costs as much as the look-up it is for.
_TAGS = Property.TAGS.value
_KEYS = Property.KEYS.value
_UNIQ_KEY = Property.UNIQ_KEY.value
_MSG_TYPE = Property.MSG_TYPE.value
_SEND = int(RequestCode.SEND_MESSAGE_V2)
_SEND_REPLY = int(RequestCode.SEND_REPLY_MESSAGE_V2)
_PREPARED = int(MessageSysFlag.TRANSACTION_PREPARED)
_DELAYING = (
    Property.DELAY.value,
    Property.TIMER_DELAY_MS.value,
    Property.TIMER_DELAY_SEC.value,
    Property.TIMER_DELIVER_MS.value,
    "__STARTDELIVERTIME",
)


@dataclass(frozen=True, slots=True)
class SendSettings:
    """What a producer is told about sending; sizes in bytes, times in ms."""

    send_timeout_ms: int = 3_000
    retry_times: int = 2
    max_message_size: int = 4 * 1024 * 1024
    compress_over: int = 4096
    compression: Compression = Compression.ZLIB
    compress_level: int = 5
    retry_when_not_stored_ok: bool = False
    create_topic_key: str = AUTO_CREATE_TOPIC
    default_topic_queue_nums: int = 4


class SendAttempts:
    """The attempts of one send, without I/O: where next, and whether a failure is final."""

    def __init__(
        self,
        info: TopicPublishInfo,
        strategy: FaultStrategy,
        clock: Clock,
        *,
        attempts_max: int,
        timeout_ms: int,
    ) -> None:
        self.attempts: list[Attempt] = []
        self._info = info
        self._strategy = strategy
        self._clock = clock
        self._attempts_max = attempts_max
        self._deadline_ms = clock.monotonic_ms() + timeout_ms
        self._began_ms = 0
        self._last_broker: str | None = None

    def next_queue(self) -> MessageQueue:
        """Where the next attempt goes. Raises: NoQueueToSendTo."""
        queue = self._strategy.choose(self._info, self._last_broker)
        self._last_broker = queue.broker_name
        self._began_ms = self._clock.monotonic_ms()
        return queue

    @property
    def left_ms(self) -> int:
        """Time left for all further attempts."""
        return self._deadline_ms - self._clock.monotonic_ms()

    def succeeded(self) -> None:
        assert self._last_broker is not None
        self._strategy.update(self._last_broker, self._cost_ms, isolate=False)

    def failed(self, error: PocketMQError) -> bool:
        """Note a failure. Returns: whether another attempt is to be made."""
        assert self._last_broker is not None
        self.attempts.append(Attempt(self._last_broker, self._cost_ms, error))
        self._strategy.update(self._last_broker, self._cost_ms, isolate=True)
        return may_retry(error) and len(self.attempts) < self._attempts_max and self.left_ms > 0

    @property
    def _cost_ms(self) -> int:
        return self._clock.monotonic_ms() - self._began_ms


def may_retry(error: PocketMQError) -> bool:
    """Whether another broker may take what this one did not."""
    if isinstance(error, BrokerRefused):
        return error.code in RETRY_CODES and not isinstance(error, Unauthorised)
    return isinstance(error, (RemotingError, TransientError))


@dataclass(slots=True)
class Outgoing:
    """A message or batch ready to be sent to any queue."""

    topic: str
    code: int
    body: bytes
    ext: dict[str, str]
    unique_key: str
    message: Message
    body_size: int
    message_type: int = 0


class SendHook(Protocol):
    """Called around each attempt: the trace of a producer is one."""

    def before(self, outgoing: Outgoing, queue: MessageQueue, address: str) -> object: ...

    def after(
        self, token: object, result: SendResult | None, error: PocketMQError | None
    ) -> None: ...


class SendEngine:
    """Sends for one producer group. Owner: a producer, or a consumer for what it gives back."""

    def __init__(
        self,
        instance: "MQClientInstance",
        group: str,
        settings: SendSettings,
        *,
        namespace: str | None = None,
        latency_fault_tolerance: bool = False,
    ) -> None:
        self.group = group
        self.settings = settings
        self.hooks: list[SendHook] = []
        self.strategy = FaultStrategy(
            instance.clock, instance.random_index, enabled=latency_fault_tolerance
        )
        self._instance = instance
        self._namespace = namespace
        self._clock = instance.clock
        self._keys = UniqueKeys(instance.config.client_ip, instance.clock)
        self._infos: dict[str, tuple[TopicRoute, TopicPublishInfo]] = {}

    @property
    def topics(self) -> list[str]:
        """The topics that were sent to, whose routes are kept fresh."""
        return list(self._infos)

    # ------------------------------------------------------------ what is sent

    def outgoing(self, message: Message, sys_flag: int = 0) -> Outgoing:
        """Check and pack one message. Raises: IllegalMessage, MessageTooLarge."""
        topic = with_namespace(self._namespace, message.topic)
        body = message.body
        self._check_body(body, message.topic)
        properties = self._properties(message)
        settings = self.settings
        if len(body) >= settings.compress_over:
            packed = compress(body, settings.compression, settings.compress_level)
            if len(packed) < len(body):
                body = packed
                sys_flag |= int(MessageSysFlag.COMPRESSED) | int(settings.compression) << 8
        code = _SEND_REPLY if properties.get(_MSG_TYPE) == REPLY else _SEND
        ext = self._ext(topic, sys_flag, message.flag)
        if is_retry_topic(topic):
            # What a client puts back by itself says so in the header, not in the properties.
            times = properties.pop(Property.RECONSUME_TIME.value, None)
            times_max = properties.pop(Property.MAX_RECONSUME_TIMES.value, None)
            if times is not None:
                ext["j"] = times
            if times_max is not None:
                ext["l"] = times_max
        ext["i"] = self._properties_text(properties)
        return Outgoing(
            topic,
            code,
            body,
            ext,
            properties[_UNIQ_KEY],
            message,
            len(message.body),
            _message_type(properties, sys_flag),
        )

    def outgoing_batch(self, messages: Sequence[Message]) -> Outgoing:
        """Check and pack a batch that fits. Raises: IllegalMessage, MessageTooLarge."""
        topic = with_namespace(self._namespace, messages[0].topic)
        members: list[Message] = []
        for message in messages:
            self._check_body(message.body, message.topic)
            properties = self._properties(message)
            self._properties_text(properties)
            members.append(Message(topic, message.body, flag=message.flag, properties=properties))
        body = batch.encode(members)
        ext = self._ext(topic, 0, messages[0].flag)
        ext["m"] = "true"
        outer = {}
        if Property.WAIT.value in members[0].properties:
            outer[Property.WAIT.value] = members[0].properties[Property.WAIT.value]
        ext["i"] = properties_to_text(outer)
        keys = ",".join(member.properties[_UNIQ_KEY] for member in members)
        return Outgoing(
            topic,
            int(RequestCode.SEND_BATCH_MESSAGE),
            body,
            ext,
            keys,
            members[0],
            sum(len(member.body) for member in members),
        )

    def _properties(self, message: Message) -> dict[str, str]:
        properties = dict(message.properties)
        # The attributes win: they are what the caller sees and may have changed.
        if message.tags is not None:
            properties[_TAGS] = message.tags
        if message.keys is not None:
            properties[_KEYS] = message.keys
        if _UNIQ_KEY not in properties:
            properties[_UNIQ_KEY] = self._keys.make()
        if self._namespace:
            properties[Property.INSTANCE_ID.value] = self._namespace
        return properties

    def _properties_text(self, properties: dict[str, str]) -> str:
        text = properties_to_text(properties)
        if text.count("\x01") != len(properties) or text.count("\x02") != len(properties):
            raise IllegalMessage(
                "a property's name or value holds the character 1 or 2, which separate properties"
            )
        size = len(text) if text.isascii() else len(text.encode("utf-8"))
        if size > PROPERTIES_SIZE_MAX:
            raise IllegalMessage(
                f"the properties have {size} bytes together; at most {PROPERTIES_SIZE_MAX} travel. Put "
                "large values into the body"
            )
        return text

    def _check_body(self, body: bytes, topic: str) -> None:
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise IllegalMessage(f"the body must be bytes, not {type(body).__name__}: encode it")
        if not body:
            raise IllegalMessage(f"a message to topic {topic!r} has no body; it needs one byte")
        if len(body) > self.settings.max_message_size:
            raise MessageTooLarge(
                f"the body has {len(body)} bytes; at most {self.settings.max_message_size} are sent. "
                "Split it, or raise max_message_size here and maxMessageSize at the broker"
            )

    def _ext(self, topic: str, sys_flag: int, flag: int) -> dict[str, str]:
        """SendMessageV2Header but for the queue (e, n) and the properties (i)."""
        settings = self.settings
        return {
            "a": self.group,
            "b": topic,
            "c": settings.create_topic_key,
            "d": str(settings.default_topic_queue_nums),
            "f": str(sys_flag),
            "g": str(self._clock.now_ms()),
            "h": str(flag),
            "j": "0",
            "k": "false",
            "m": "false",
        }

    # ------------------------------------------------------------ sending

    async def send(
        self,
        outgoing: Outgoing,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
        retry_times: int | None = None,
    ) -> SendResult:
        """Send, trying other brokers when that may help; a chosen queue is tried once.

        Raises: NoRoute, BrokerRefused, SendFailed, SendOutcomeUnknown.
        """
        timeout = timeout_ms if timeout_ms is not None else self.settings.send_timeout_ms
        if queue is not None:
            queue = MessageQueue(outgoing.topic, queue.broker_name, queue.queue_id)
            return await self._send_to(outgoing, queue, timeout)
        info, guessed = await self._publish_info(outgoing.topic)
        retries = self.settings.retry_times if retry_times is None else retry_times
        plan = SendAttempts(
            info,
            self.strategy,
            self._clock,
            attempts_max=1 + retries,
            timeout_ms=timeout,
        )
        while True:
            target = self._next(plan, outgoing.topic)
            try:
                result = await self._send_to(outgoing, target, max(1, plan.left_ms))
                if (
                    result.status is not SendStatus.SEND_OK
                    and self.settings.retry_when_not_stored_ok
                    and plan.failed(_NotStoredSafely(result.status))
                ):
                    continue
            except PocketMQError as error:
                if plan.failed(error):
                    log.warning(
                        "send failed, another attempt topic=%s broker=%s reason=%r",
                        outgoing.topic,
                        target.broker_name,
                        str(error),
                    )
                    continue
                if len(plan.attempts) == 1:
                    raise
                raise all_attempts_failed(outgoing.topic, self.group, plan.attempts) from error
            plan.succeeded()
            if guessed:
                # The broker has created the topic and registered it: the next send asks for the route.
                self._infos.pop(outgoing.topic, None)
            return result

    def _next(self, plan: SendAttempts, topic: str) -> MessageQueue:
        try:
            return plan.next_queue()
        except NoQueueToSendTo as error:
            raise NoRoute(topic, self._instance.config.name_servers, str(error)) from error

    async def _send_to(
        self, outgoing: Outgoing, queue: MessageQueue, timeout_ms: int
    ) -> SendResult:
        instance = self._instance
        address = instance.addresses.master(queue.broker_name)
        if address is None:
            address = await instance.master_address(queue.topic, queue.broker_name)
        ext = outgoing.ext.copy()
        ext["e"] = str(queue.queue_id)
        ext["n"] = queue.broker_name
        tokens = (
            [hook.before(outgoing, queue, address) for hook in self.hooks] if self.hooks else []
        )
        try:
            result = await instance.api.send(
                address,
                outgoing.code,
                ext,
                outgoing.body,
                unique_key=outgoing.unique_key,
                queue=queue,
                timeout_ms=timeout_ms,
            )
        except PocketMQError as error:
            self._after(tokens, None, error)
            raise
        if tokens:
            self._after(tokens, result, None)
        return result

    def _after(
        self, tokens: list[object], result: SendResult | None, error: PocketMQError | None
    ) -> None:
        for hook, token in zip(self.hooks, tokens, strict=True):
            hook.after(token, result, error)

    async def send_oneway(self, outgoing: Outgoing, *, queue: MessageQueue | None = None) -> None:
        """Send without an answer. Raises: NoRoute, Unreachable; a refusal is never known."""
        if queue is None:
            info, _ = await self._publish_info(outgoing.topic)
            plan = SendAttempts(info, self.strategy, self._clock, attempts_max=1, timeout_ms=0)
            queue = self._next(plan, outgoing.topic)
        address = await self._instance.master_address(outgoing.topic, queue.broker_name)
        ext = outgoing.ext | {"e": str(queue.queue_id), "n": queue.broker_name}
        await self._instance.api.send_oneway(address, outgoing.code, ext, outgoing.body)

    # ------------------------------------------------------------ where

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """The queues that can be written to. Raises: NoRoute."""
        info, _ = await self._publish_info(with_namespace(self._namespace, topic))
        if not info.ok:
            raise NoRoute(topic, self._instance.config.name_servers, "no queue can be written to")
        return list(info.queues)

    async def _publish_info(self, topic: str) -> tuple[TopicPublishInfo, bool]:
        """The queues of a topic, and whether they are a guess for a topic yet to be created."""
        instance = self._instance
        route = instance.routes.get(topic)
        if route is not None:
            known = self._infos.get(topic)
            if known is not None and known[0] is route:
                return known[1], False
        try:
            route = await instance.route(topic)
        except NoRoute:
            return await self._guess(topic), True
        info = TopicPublishInfo.of(topic, route, instance.random_index())
        self._infos[topic] = (route, info)
        return info, False

    async def _guess(self, topic: str) -> TopicPublishInfo:
        """The brokers that create topics by themselves. Raises: NoRoute of the topic itself."""
        instance = self._instance
        try:
            template = await instance.api.topic_route(self.settings.create_topic_key)
        except NoRoute as error:
            raise NoRoute(topic, instance.config.name_servers) from error
        instance.addresses.learn(template)
        limited = template.limited_to(self.settings.default_topic_queue_nums)
        return TopicPublishInfo.of(topic, limited, instance.random_index())


class _NotStoredSafely(TransientError):
    def __init__(self, status: SendStatus) -> None:
        super().__init__(f"stored, but with status {status}")


def _message_type(properties: dict[str, str], sys_flag: int) -> int:
    """MessageType of a trace: 0 normal, 1 transaction half, 3 delayed (wire.md 4.9)."""
    if sys_flag & _PREPARED:
        return 1
    for name in _DELAYING:
        if name in properties:
            return 3
    return 0


SelectQueue = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses one of a topic's queues."""
