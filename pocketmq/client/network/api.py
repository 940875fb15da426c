"""MQClientApi: each request that a client makes, as one typed call. Source: MQClientAPIImpl, 4.9.7.

Send and pull build their fields by hand, since they run for every message; a test compares them with the
header tables.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pocketmq.client.errors import (
    AnswerUnreadable,
    BrokerRefused,
    NoRoute,
    from_remoting,
    refusal,
)
from pocketmq.client.network.requests import ApiRequests
from pocketmq.client.network.route import TopicRoute
from pocketmq.client.pull.pull_result import PullResult, pull_answer
from pocketmq.client.send.result import SendResult, send_result
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.model.message_codec import to_message, to_messages
from pocketmq.model.queue_json import message_queue, queue_json
from pocketmq.model.record import read_record, read_records
from pocketmq.remoting import fastjson, headers
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import MessageCodecError, RemotingError
from pocketmq.remoting.requests import WaitingRouteHeader

# Answers to a pop that found nothing, has waited in vain, or may not wait.
NOTHING_POPPED = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.POLLING_TIMEOUT,
    ResponseCode.POLLING_FULL,
)


# The unpacked size of the answer to a query: 64 messages of the size that brokers take by default.
_QUERIED_SIZE_MAX = 256 << 20


class MQClientApi:
    """Requests to name servers and brokers. Times in ms, offsets in messages; requests: any other one."""

    def __init__(self, requests: ApiRequests) -> None:
        self.requests = requests
        self._remoting = requests.remoting
        self._encoding = requests.encoding

    # ------------------------------------------------------------ routes and membership

    async def topic_route(
        self, topic: str, timeout_ms: int | None = None, *, tell_when_known: bool | None = None
    ) -> TopicRoute:
        """Return the route of a topic. Raises: NoRoute if the name servers do not know it.

        tell_when_known: PocketMQ's name servers may send NOTIFY_TOPIC_KNOWN later.
        """
        found = await self.requests.ask_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            WaitingRouteHeader(topic, True, tell_when_known),
            timeout_ms=timeout_ms,
            about=f"topic {topic!r}",
            also=ResponseCode.TOPIC_NOT_EXIST,
        )
        if found.code == ResponseCode.SUCCESS and found.body:
            return TopicRoute.parse(found.body)
        raise NoRoute(topic, self.requests.name_servers, found.remark or "")

    async def heartbeat(
        self, address: str, body: bytes, timeout_ms: int | None = None
    ) -> RemotingCommand:
        """Send a heartbeat; the answer's version and fields say what the broker can do."""
        return await self.requests.ask(
            address, RequestCode.HEART_BEAT, None, body, timeout_ms=timeout_ms
        )

    async def unregister(
        self, address: str, client_id: str, producer_group: str | None, consumer_group: str | None
    ) -> None:
        await self.requests.ask(
            address,
            RequestCode.UNREGISTER_CLIENT,
            headers.UnregisterClientHeader(client_id, producer_group, consumer_group),
            about=f"group {(producer_group or consumer_group)!r}",
        )

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """Return the client ids of a group. Raises: BrokerFailed if it has no member."""
        found = await self.requests.ask(
            address,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            headers.GetConsumerListHeader(group),
            about=f"group {group!r}",
        )
        data = fastjson.loads(found.body) if found.body else {}
        return [str(each) for each in data.get("consumerIdList") or ()]

    async def check_client_config(
        self, address: str, client_id: str, group: str, subscription: Mapping[str, Any]
    ) -> None:
        """Ask whether the broker can filter by this expression. Raises: SubscriptionIllegal, ..."""
        body = {
            "clientId": client_id,
            "group": group,
            "namespace": "",
            "subscriptionData": subscription,
        }
        await self.requests.ask(
            address,
            RequestCode.CHECK_CLIENT_CONFIG,
            None,
            fastjson.dumps(body),
            about=f"group {group!r}, topic {subscription.get('topic')!r}",
        )

    async def lock_queues(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> set[MessageQueue]:
        """Lock queues for this client; return those that it holds now."""
        found = await self.requests.ask(
            address,
            RequestCode.LOCK_BATCH_MQ,
            None,
            _lock_body(group, client_id, queues),
            timeout_ms=1_000,
            about=f"group {group!r}",
        )
        data = fastjson.loads(found.body) if found.body else {}
        return {message_queue(each) for each in data.get("lockOKMQSet") or ()}

    async def unlock_queues(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> None:
        await self.requests.tell(
            address,
            RequestCode.UNLOCK_BATCH_MQ,
            None,
            _lock_body(group, client_id, queues),
            about=f"group {group!r}",
        )

    # ------------------------------------------------------------ sending

    async def send(
        self,
        address: str,
        code: int,
        ext: dict[str, str],
        body: bytes,
        *,
        unique_key: str,
        queue: MessageQueue,
        timeout_ms: int,
    ) -> SendResult:
        """Send a message or a batch. Raises: BrokerRefused, Unreachable, AnswerTimeout, ..."""
        command = RemotingCommand(code, ext, body, encoding=self._encoding)
        try:
            answer = await self._remoting.invoke(address, command, timeout_ms)
        except RemotingError as error:
            raise from_remoting(error, address, _about_send(ext)) from error
        result = send_result(answer, unique_key, queue)
        if result is None:
            raise _not_sent(answer, address, _about_send(ext))
        return result

    def frame(self, code: int, ext: dict[str, str], body: bytes, opaque: int) -> bytes:
        """Encode a request as `send` does, for writing to a connection directly."""
        command = RemotingCommand(code, ext, body, opaque=opaque, encoding=self._encoding)
        return self._remoting.encoded(command)

    @staticmethod
    def send_result(
        answer: RemotingCommand, unique_key: str, queue: MessageQueue, group: str, address: str
    ) -> SendResult | BrokerRefused | AnswerUnreadable:
        """Interpret the answer to a send."""
        result = send_result(answer, unique_key, queue)
        if result is None:
            about = _about_send_to(queue.topic, queue.queue_id, group)
            return _not_sent(answer, address, about)
        return result

    @staticmethod
    def send_failure(
        error: RemotingError, address: str, queue: MessageQueue, group: str
    ) -> RemotingError:
        """Return the client's error for a send whose connection failed."""
        return from_remoting(error, address, _about_send_to(queue.topic, queue.queue_id, group))

    async def send_oneway(self, address: str, code: int, ext: dict[str, str], body: bytes) -> None:
        try:
            await self._remoting.oneway(
                address, RemotingCommand(code, ext, body, encoding=self._encoding)
            )
        except RemotingError as error:
            raise from_remoting(error, address, _about_send(ext)) from error

    async def end_transaction(self, address: str, header: headers.EndTransactionHeader) -> None:
        await self.requests.tell(
            address,
            RequestCode.END_TRANSACTION,
            header,
            about=f"message {header.msg_id}, group {header.producer_group!r}",
        )

    async def recall(self, address: str, topic: str, group: str, handle: str) -> str:
        """Cancel a delayed message (5.x). Returns: its id."""
        found = await self.requests.ask(
            address,
            RequestCode.RECALL_MESSAGE,
            headers.RecallMessageHeader(topic, handle, group),
            about=f"topic {topic!r}",
        )
        return headers.RecallMessageResponseHeader.parse(found.ext).msg_id

    # ------------------------------------------------------------ pulling and offsets

    async def pull(
        self, address: str, ext: dict[str, str], timeout_ms: int, code: int = 11
    ) -> tuple[PullResult, bytes]:
        """Pull once; the messages are the answer's body, not decoded. Raises: BrokerRefused, ..."""
        command = RemotingCommand(code, ext, encoding=self._encoding)
        try:
            answer = await self._remoting.invoke(address, command, timeout_ms)
        except RemotingError as error:
            raise from_remoting(error, address, _about_pull(ext), only_asks=True) from error
        result = pull_answer(answer)
        if result is None:
            raise refusal(answer.code, answer.remark, address, _about_pull(ext))
        return result, bytes(answer.body)

    async def pop(
        self, address: str, header: headers.PopMessageHeader, timeout_ms: int
    ) -> tuple[headers.PopMessageResponseHeader, bytes] | None:
        """Pop once (5.x); the messages are not decoded. None: none came in time. Raises: BrokerRefused."""
        what = f"popping (topic {header.topic!r}, group {header.consumer_group!r})"
        command = self.requests.command(RequestCode.POP_MESSAGE, header)
        found = await self.requests.answer(address, command, timeout_ms, what)
        if found.code in NOTHING_POPPED:
            return None
        if found.code != ResponseCode.SUCCESS:
            raise refusal(found.code, found.remark, address, what)
        return headers.PopMessageResponseHeader.parse(found.ext), bytes(found.body)

    async def notification(
        self, address: str, header: headers.NotificationHeader, timeout_ms: int
    ) -> headers.NotificationResponseHeader:
        """Ask whether there is something to pop; the broker may hold the request. Raises: BrokerRefused."""
        about = f"topic {header.topic!r}, group {header.consumer_group!r}"
        found = await self.requests.ask(
            address, RequestCode.NOTIFICATION, header, timeout_ms=timeout_ms, about=about
        )
        return headers.NotificationResponseHeader.parse(found.ext)

    async def ack(self, address: str, header: headers.AckMessageHeader) -> None:
        """Acknowledge a popped message. Raises: BrokerRefused, e.g. for a receipt that is not valid."""
        await self.requests.ask(
            address, RequestCode.ACK_MESSAGE, header, about=_about_receipt(header)
        )

    async def change_invisible_time(
        self, address: str, header: headers.ChangeInvisibleTimeHeader
    ) -> headers.ChangeInvisibleTimeResponseHeader:
        """Change when a popped message is redelivered, counted from now. Raises: BrokerRefused."""
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        found = await self.requests.ask(address, code, header, about=_about_receipt(header))
        return headers.ChangeInvisibleTimeResponseHeader.parse(found.ext)

    async def send_message_back(
        self,
        address: str,
        message: MessageExt,
        group: str,
        delay_level: int,
        max_reconsume_times: int,
        timeout_ms: int,
    ) -> None:
        """Have the broker redeliver the message to the group, later."""
        await self.requests.ask(
            address,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            headers.ConsumerSendMsgBackHeader(
                message.commit_log_offset,
                group,
                delay_level,
                message.msg_id,
                message.topic,
                False,
                max_reconsume_times,
                message.broker_name or None,
            ),
            timeout_ms=timeout_ms,
            about=f"message {message.msg_id}, topic {message.topic!r}, group {group!r}",
        )

    async def query_consumer_offset(
        self, address: str, group: str, queue: MessageQueue
    ) -> int | None:
        """Return the committed offset; None if the broker has none."""
        found = await self.requests.ask(
            address,
            RequestCode.QUERY_CONSUMER_OFFSET,
            headers.QueryConsumerOffsetHeader(group, queue.topic, queue.queue_id),
            about=f"group {group!r}, {queue_text(queue)}",
            also=ResponseCode.QUERY_NOT_FOUND,
        )
        if found.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return headers.QueryConsumerOffsetResponseHeader.parse(found.ext).offset

    async def update_consumer_offset(
        self, address: str, group: str, queue: MessageQueue, offset: int, *, oneway: bool
    ) -> None:
        header = headers.UpdateConsumerOffsetHeader(group, queue.topic, queue.queue_id, offset)
        about = f"group {group!r}, {queue_text(queue)}"
        if oneway:
            await self.requests.tell(
                address, RequestCode.UPDATE_CONSUMER_OFFSET, header, about=about
            )
        else:
            await self.requests.ask(
                address, RequestCode.UPDATE_CONSUMER_OFFSET, header, about=about
            )

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        header = headers.GetMaxOffsetHeader(queue.topic, queue.queue_id)
        found = await self.requests.ask(
            address, RequestCode.GET_MAX_OFFSET, header, about=queue_text(queue)
        )
        return headers.GetMaxOffsetResponseHeader.parse(found.ext).offset

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        header = headers.GetMinOffsetHeader(queue.topic, queue.queue_id)
        found = await self.requests.ask(
            address, RequestCode.GET_MIN_OFFSET, header, about=queue_text(queue)
        )
        return headers.GetMinOffsetResponseHeader.parse(found.ext).offset

    async def search_offset(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after the time; the end if all are older.

        RocketMQ 4.9 knows no such question: its answer is the message stored next to the time.
        """
        header = headers.SearchOffsetHeader(queue.topic, queue.queue_id, timestamp_ms, "LOWER")
        found = await self.requests.ask(
            address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, about=queue_text(queue)
        )
        return headers.SearchOffsetResponseHeader.parse(found.ext).offset

    # ------------------------------------------------------------ looking messages up

    async def view_message(
        self, address: str, position: int, topic: str | None = None
    ) -> MessageExt:
        """Return the message at a position of the commit log. Raises: BrokerFailed if absent."""
        found = await self.requests.ask(
            address,
            RequestCode.VIEW_MESSAGE_BY_ID,
            headers.ViewMessageHeader(position, topic),
            about=f"position {position}",
        )
        return to_message(read_record(found.body))

    async def query_message(
        self,
        address: str,
        topic: str,
        key: str,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        *,
        unique: bool,
        timeout_ms: int = 15_000,
    ) -> list[MessageExt]:
        """Return messages by key from the index, not re-checked (it holds hashes); [] if none match."""
        found = await self.requests.ask(
            address,
            RequestCode.QUERY_MESSAGE,
            headers.QueryMessageHeader(topic, key, count_max, begin_ms, end_ms, unique),
            timeout_ms=timeout_ms,
            about=f"topic {topic!r}, key {key!r}",
            also=ResponseCode.QUERY_NOT_FOUND,
        )
        if found.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        messages: list[MessageExt] = []
        size = 0
        for record in read_records(found.body):
            messages += (of_record := to_messages(record))
            size += sum(len(message.body) for message in of_record)
            if size > _QUERIED_SIZE_MAX:
                raise MessageCodecError(
                    f"the messages of topic {topic!r} with key {key!r} at {address} unpack to more than "
                    f"{_QUERIED_SIZE_MAX >> 20} MiB: ask for fewer, or for a shorter time"
                )
        return messages


def _about_send(ext: Mapping[str, str]) -> str:
    return _about_send_to(ext.get("b"), ext.get("e"), ext.get("a"))


def _not_sent(
    answer: RemotingCommand, address: str, about: str
) -> BrokerRefused | AnswerUnreadable:
    """Return the error for an answer to a send that gives no result."""
    if answer.code == ResponseCode.SUCCESS:
        return AnswerUnreadable(
            f"{about}: {address} answered SUCCESS, but no queue and offset that can be read; the message may "
            "be stored. Send it again only if consumers can handle duplicates"
        )
    return refusal(answer.code, answer.remark, address, about)


def _about_send_to(topic: str | None, queue_id: object, group: str | None) -> str:
    return f"sending to topic {topic!r}, queue {queue_id}, by group {group!r}"


def _about_pull(ext: Mapping[str, str]) -> str:
    return (
        f"pulling topic {ext.get('topic')!r}, queue {ext.get('queueId')}, for group "
        f"{ext.get('consumerGroup')!r}"
    )


def _about_receipt(
    header: headers.AckMessageHeader | headers.ChangeInvisibleTimeHeader,
) -> str:
    return f"topic {header.topic!r}, queue {header.queue_id}, offset {header.offset}"


def queue_text(queue: MessageQueue) -> str:
    return f"topic {queue.topic!r}, broker {queue.broker_name!r}, queue {queue.queue_id}"


def _lock_body(group: str, client_id: str, queues: Iterable[MessageQueue]) -> bytes:
    return fastjson.dumps(
        {
            "clientId": client_id,
            "consumerGroup": group,
            "mqSet": [queue_json(queue) for queue in sorted(queues)],
        }
    )
