"""MessageAdmin: find them by id, key or time; track, resend or hand them to a consumer."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress

from pocketmq.admin.cluster import Cluster
from pocketmq.admin.dead_letters import RESENT_FROM, DeadLetterAdmin
from pocketmq.admin.groups import GroupAdmin
from pocketmq.admin.topics import TopicAdmin
from pocketmq.admin.tracks import Track, track
from pocketmq.admin.types import ConsumeResultOfOne
from pocketmq.client.errors import NoRoute, QueryNotFound
from pocketmq.client.pull.pull_result import PullStatus
from pocketmq.client.send.result import SendResult
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.model.message_codec import (
    INFLATED_SIZE_MAX,
    parse_offset_msg_id,
    properties_to_text,
    to_messages,
)
from pocketmq.model.names import (
    AUTO_CREATE_TOPIC,
    TIMER_TOPIC,
    TOOLS_GROUP,
    TRANS_HALF_TOPIC,
)
from pocketmq.model.record import read_records
from pocketmq.model.unique_key import UniqueKeys
from pocketmq.remoting import fastjson, headers
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import MessageCodecError, RemotingError
from pocketmq.remoting.flags import MessageSysFlag

SENDER_GROUP = "TOOLS_PRODUCER"
_FOREVER_MS = (1 << 63) - 1
_PULL_COUNT = 32
_CALL_TIMEOUT_MS = 15_000
_PULL_SUBSCRIPTION = 4


class MessageAdmin:
    """The operations of `admin.messages`."""

    def __init__(
        self,
        site: Cluster,
        topics: TopicAdmin,
        groups: GroupAdmin,
        clock: Clock,
        unique_keys: UniqueKeys,
    ) -> None:
        self._site = site
        self._api = site.api
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._unique_keys = unique_keys
        self._dead_letters = DeadLetterAdmin(site, topics, groups)

    # ------------------------------------------------------------ by id and key

    async def by_offset_id(self, msg_id: str, topic: str | None = None) -> MessageExt:
        """Return the message of an offset id, from the broker that the id names.

        Raises: MessageCodecError if the id is malformed; BrokerFailed if there is no message.
        """
        address, position = parse_offset_msg_id(msg_id)
        message = await self._api.view_message(address, position, topic)
        message.broker_name = await self._broker_name(address)
        return message

    async def _broker_name(self, address: str) -> str:
        for broker in await self._site.brokers():
            if broker.address == address:
                return broker.name
        return ""

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = 64,
        begin_ms: int = 0,
        end_ms: int = _FOREVER_MS,
        left_out: dict[str, RemotingError] | None = None,
    ) -> list[MessageExt]:
        """Return the messages that have the key, newest last.

        left_out: gets the brokers that do not answer, by name, if others do. Without it, raises: their
        RemotingError. Raises: NoRoute.
        """
        found = await self._query(topic, key, count_max, begin_ms, end_ms, left_out, unique=False)
        return [message for message in found if key in (message.keys or "").split(" ")]

    async def by_unique_key(self, topic: str, unique_key: str) -> list[MessageExt]:
        """Return the messages with a client's message id: one, or the copies of retries. Raises: NoRoute."""
        found = await self._query(topic, unique_key, 32, 0, _FOREVER_MS, None, unique=True)
        return [m for m in found if m.properties.get("UNIQ_KEY") == unique_key]

    async def _query(
        self,
        topic: str,
        key: str,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        left_out: dict[str, RemotingError] | None,
        *,
        unique: bool,
    ) -> list[MessageExt]:
        found: list[MessageExt] = []
        if topic in (TIMER_TOPIC, TRANS_HALF_TOPIC):
            # These have no route: each broker keeps its own.
            masters = [(each.name, each.address) for each in await self._site.masters()]
        else:
            masters = await self._site.masters_of(topic)
        for name, address in masters:
            try:
                answer = await self._api.query_message(
                    address, topic, key, count_max, begin_ms, end_ms, unique=unique
                )
            except RemotingError as error:
                if left_out is None or len(left_out) + 1 == len(masters):
                    raise
                left_out[name] = error
                continue
            for message in answer:
                message.broker_name = name
                if message.topic == topic:
                    found.append(message)
        return sorted(found, key=lambda m: (m.store_timestamp, m.queue_offset))[-count_max:]

    async def by_id(self, msg_id: str, topic: str | None = None) -> MessageExt:
        """Return the message of any id: an offset id, or with `topic` a client's message id.

        Raises: QueryNotFound, NoRoute, MessageCodecError, BrokerFailed.
        """
        if topic is not None:
            found = await self.by_unique_key(topic, msg_id)
            if found:
                return found[-1]
        try:
            address, _ = parse_offset_msg_id(msg_id)
            if topic is None or any(
                broker.address == address for broker in await self._site.brokers()
            ):
                return await self.by_offset_id(msg_id, topic)
        except MessageCodecError:
            if topic is None:
                raise
        raise QueryNotFound(
            ResponseCode.QUERY_NOT_FOUND,
            "no message has this id",
            "",
            f"message {msg_id}, topic {topic!r}",
        )

    # ------------------------------------------------------------ by place and time

    async def at(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """Return the message at an offset of a queue; None if absent."""
        addresses = dict(await self._site.masters_of(queue.topic))
        found, _ = await self._pull(addresses[queue.broker_name], queue, offset, 1)
        return found[0] if found and found[0].queue_offset == offset else None

    async def last(
        self, queue: MessageQueue, count: int, expression: str = "*"
    ) -> tuple[list[MessageExt], int]:
        """Return the newest messages of a queue, and the offset behind them, for `since`.

        With an expression, at most those among the newest `count` entries.
        """
        addresses = dict(await self._site.masters_of(queue.topic))
        address = addresses[queue.broker_name]
        end = await self._api.max_offset(address, queue)
        begin = max(await self._api.min_offset(address, queue), end - count)
        stored = self.within(queue, begin, end, expression, address=address)
        return [message async for message in stored][-count:], end

    async def since(
        self, queue: MessageQueue, offset: int, expression: str = "*", *, address: str | None = None
    ) -> tuple[list[MessageExt], int]:
        """Return some messages from `offset` on, and the next offset: the same one if none are there.

        address: the broker to ask, if the topic has no route (system topics).
        """
        if address is None:
            address = dict(await self._site.masters_of(queue.topic))[queue.broker_name]
        messages, following = await self._pull(address, queue, offset, _PULL_COUNT, expression)
        return messages, max(following, offset)

    async def within(
        self,
        queue: MessageQueue,
        begin: int,
        end: int,
        expression: str = "*",
        *,
        address: str | None = None,
    ) -> AsyncIterator[MessageExt]:
        """Yield the messages of a queue in offsets [begin, end), in order. address: see `since`."""
        if address is None:
            address = dict(await self._site.masters_of(queue.topic))[queue.broker_name]
        at, following = begin - 1, begin
        while at < following < end:
            at = following
            messages, following = await self._pull(address, queue, at, _PULL_COUNT, expression)
            for message in messages:
                if message.queue_offset >= end:
                    return
                yield message

    async def between(
        self,
        topic: str,
        *,
        begin_ms: int = 0,
        end_ms: int | None = None,
        queues: Iterable[MessageQueue] | None = None,
        expression: str = "*",
        left_out: dict[str, RemotingError] | None = None,
    ) -> AsyncIterator[MessageExt]:
        """Yield the messages stored in [begin_ms, end_ms), queue by queue in their order.

        The ends of the queues are read once: later messages are not waited for. left_out: gets the brokers
        that do not answer, or do not any more, by name. Without it, raises: their RemotingError. Raises:
        NoRoute.
        """
        addresses = dict(await self._site.masters_of(topic))
        chosen = queues
        if chosen is None:
            chosen = (await self._site.route(topic)).subscribe_queues(topic)
        for queue in chosen:
            if left_out and queue.broker_name in left_out:
                continue
            address = addresses[queue.broker_name]
            try:
                at = await self._api.min_offset(address, queue)
                if begin_ms > 0:
                    at = max(at, await self._api.search_offset(address, queue, begin_ms))
                end = await self._api.max_offset(address, queue)
                async for message in self.within(queue, at, end, expression, address=address):
                    if end_ms is not None and message.store_timestamp >= end_ms:
                        break
                    if message.store_timestamp >= begin_ms:
                        yield message
            except RemotingError as error:
                if left_out is None:
                    raise
                left_out[queue.broker_name] = error

    async def _pull(
        self,
        address: str,
        queue: MessageQueue,
        offset: int,
        count: int,
        expression: str = "*",
    ) -> tuple[list[MessageExt], int]:
        """Pull messages from `offset` on; return them and the next offset. Never waits, commits nothing."""
        header = headers.PullMessageHeader(
            consumer_group=TOOLS_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=_PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=expression,
            expression_type="TAG",
        )
        result, body = await self._api.pull(address, header.ext(), _CALL_TIMEOUT_MS)
        messages: list[MessageExt] = []
        if result.status is PullStatus.FOUND:
            unpacked = 0
            for record in read_records(body):
                if unpacked >= INFLATED_SIZE_MAX:
                    # The next pull begins with it.
                    return messages, record.queue_offset
                found = to_messages(record, queue.broker_name)
                if record.sys_flag & MessageSysFlag.COMPRESSED:
                    unpacked += sum(len(message.body) for message in found)
                messages += found
        return messages, result.next_begin_offset

    # ------------------------------------------------------------ sending

    async def send(
        self, queue: MessageQueue, body: bytes, properties: Mapping[str, str] | None = None
    ) -> SendResult:
        """Send one message to one queue, with a new unique key and without retries.

        properties: TAGS, KEYS, DELAY and the caller's own. Raises: NoRoute, BrokerRefused, RemotingError.
        """
        addresses = dict(await self._site.masters_of(queue.topic))
        if queue.broker_name not in addresses:
            raise NoRoute(
                queue.topic, self._api.requests.name_servers, f"not on {queue.broker_name!r}"
            )
        found = {"UNIQ_KEY": self._unique_keys.make(), "WAIT": "true", **(properties or {})}
        header = headers.SendMessageV2Header(
            producer_group=SENDER_GROUP,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=self._clock.now_ms(),
            flag=0,
            properties=properties_to_text(found),
            reconsume_times=0,
            batch=None,
        )
        return await self._api.send(
            addresses[queue.broker_name],
            RequestCode.SEND_MESSAGE_V2,
            header.ext(),
            body,
            unique_key=found["UNIQ_KEY"],
            queue=queue,
            timeout_ms=_CALL_TIMEOUT_MS,
        )

    # ------------------------------------------------------------ dead letters

    async def resend_dead(self, message: MessageExt, group: str) -> SendResult:
        """Send a dead letter to its group again, and to no other: see DeadLetterAdmin.resend."""
        return await self._dead_letters.resend(message, group)

    async def sent_again(self, message: MessageExt, group: str) -> list[int]:
        """Return when a dead letter was resent to its group (ms), as far as the copies are still stored."""
        key = message.properties.get("UNIQ_KEY")
        copies: list[MessageExt] = []
        for topic in self._dead_letters.places(message, group) if key else ():
            with suppress(NoRoute):
                copies += await self.by_unique_key(topic, key or "")
        # A copy that fails leaves its properties to the next one, whose count of failures is higher.
        return sorted(
            each.store_timestamp
            for each in copies
            if each.properties.get(RESENT_FROM) == message.offset_msg_id
            and each.reconsume_times == 0
        )

    # ------------------------------------------------------------ what became of it

    async def track(self, message: MessageExt, *, group: str | None = None) -> list[Track]:
        """Track a message in each group of its topic, or in one."""
        try:
            groups = [group] if group else await self._topics.groups(message.topic)
        except NoRoute:
            return []
        async with asyncio.TaskGroup() as tasks:
            asked = [
                tasks.create_task(track(self._groups, message, each), name=f"track {each}")
                for each in groups
            ]
        return [task.result() for task in asked]

    async def consume_directly(
        self, message: MessageExt, group: str, client_id: str
    ) -> ConsumeResultOfOne:
        """Hand a stored message to one online consumer, bypassing queues and offsets.

        Raises: BrokerRefused (not online, no answer within 10 s).
        """
        offset_id = message.offset_msg_id
        address, _ = parse_offset_msg_id(offset_id)
        answer = await self._api.requests.ask(
            address,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            headers.ConsumeMessageDirectlyHeader(
                consumer_group=group, client_id=client_id, msg_id=offset_id, topic=message.topic
            ),
            timeout_ms=_CALL_TIMEOUT_MS,
            about=f"message {offset_id}, group {group!r}, client {client_id!r}",
        )
        data = fastjson.loads(answer.body)
        return ConsumeResultOfOne(
            str(data.get("consumeResult")),
            int(data.get("spentTimeMills") or 0),
            data.get("remark"),
        )
