"""MQClientApi: each request that a client makes, as one typed call. Source: MQClientAPIImpl, 4.9.7.

Nothing is remembered here but which name server answers. Every failure is one of pocketmq.client.errors
and says what was asked of whom. Send and pull build their fields by hand, since they run for every
message; a test compares them with the header tables.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from pocketmq.client.errors import (
    BrokerRefused,
    NoRoute,
    Unreachable,
    from_remoting,
    not_a_name_server,
    refusal,
)
from pocketmq.client.in_flight import OpenConnection
from pocketmq.client.pull_result import PullResult, pull_answer
from pocketmq.client.queue_json import message_queue, queue_json
from pocketmq.client.route import TopicRoute
from pocketmq.client.send_result import SendResult, send_result
from pocketmq.remoting import fastjson, headers
from pocketmq.remoting.codes import RequestCode, ResponseCode, request_name
from pocketmq.remoting.command import Encoding, RemotingCommand
from pocketmq.remoting.errors import PocketMQError, RemotingError
from pocketmq.remoting.header import Header
from pocketmq.remoting.message import MessageExt, MessageQueue
from pocketmq.remoting.message_codec import to_message, to_messages
from pocketmq.remoting.record import read_record, read_records
from pocketmq.remoting.requests import PocketRequestCode

# Requests whose names begin so change nothing.
_ASKING = ("GET_", "QUERY_", "SEARCH_", "VIEW_", "CHECK_")
# Every name server since 4.0 answers them, and no broker does.
_OF_NAME_SERVERS = (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO)


class Remoting(Protocol):
    """What the api needs of RemotingClient."""

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int = 3_000
    ) -> RemotingCommand: ...

    async def oneway(self, address: str, command: RemotingCommand) -> None: ...

    def open_connection(self, address: str) -> OpenConnection | None:
        """The connection if it is open already and may be written to directly."""
        ...

    @property
    def signs(self) -> bool:
        """Whether requests are changed before they leave."""
        ...

    def encoded(self, command: RemotingCommand) -> bytes:
        """The frame as `invoke` would send it, signed where requests are signed."""
        ...


class MQClientApi:
    """Requests to name servers and brokers. Times in ms, offsets in messages."""

    def __init__(
        self,
        remoting: Remoting,
        name_servers: Sequence[str],
        *,
        timeout_ms: int = 3_000,
        encoding: Encoding = Encoding.JSON,
        what_listens: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        """what_listens: says of an address that does not answer what is there; None: nobody looks."""
        self._what_listens = what_listens
        self._remoting = remoting
        self.name_servers = tuple(name_servers)
        self._timeout_ms = timeout_ms
        self._encoding = int(encoding)
        self._name_server = 0

    # ------------------------------------------------------------ asking

    def _command(
        self,
        code: RequestCode | PocketRequestCode,
        header: Header | Mapping[str, str] | None,
        body: bytes = b"",
    ) -> RemotingCommand:
        ext = header.ext() if isinstance(header, Header) else dict(header) if header else None
        return RemotingCommand(int(code), ext, body, encoding=self._encoding)

    async def answer(
        self,
        address: str,
        code: RequestCode | PocketRequestCode,
        header: Header | Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
        about: str = "",
    ) -> RemotingCommand:
        """The answer whatever its code.

        Raises: Unreachable; NoAnswer to a request that only asks, else AnswerTimeout, ConnectionBroken.
        """
        command = self._command(code, header, body)
        try:
            return await self._remoting.invoke(address, command, timeout_ms or self._timeout_ms)
        except RemotingError as error:
            asks = request_name(code).startswith(_ASKING)
            raise from_remoting(error, address, _what(code, about), only_asks=asks) from error

    async def ask(
        self,
        address: str,
        code: RequestCode | PocketRequestCode,
        header: Header | Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
        about: str = "",
    ) -> RemotingCommand:
        """The answer, which is SUCCESS. Raises: BrokerRefused and what `answer` raises."""
        found = await self.answer(address, code, header, body, timeout_ms=timeout_ms, about=about)
        if found.code != ResponseCode.SUCCESS:
            raise refusal(found.code, found.remark, address, _what(code, about))
        return found

    async def tell(
        self,
        address: str,
        code: RequestCode,
        header: Header | Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        about: str = "",
    ) -> None:
        """Send one-way. Raises: Unreachable, ConnectionBroken."""
        try:
            await self._remoting.oneway(address, self._command(code, header, body))
        except RemotingError as error:
            raise from_remoting(error, address, _what(code, about)) from error

    async def answer_of_name_server(
        self,
        code: RequestCode,
        header: Header | Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
        about: str = "",
    ) -> RemotingCommand:
        """The answer of the first name server that gives one; it is asked first next time, too."""
        last: PocketMQError | None = None
        address = ""
        for _ in self.name_servers:
            address = self.name_servers[self._name_server % len(self.name_servers)]
            try:
                found = await self.answer(
                    address, code, header, body, timeout_ms=timeout_ms, about=about
                )
            except RemotingError as error:
                self._name_server += 1
                last = error
                continue
            if found.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and code in _OF_NAME_SERVERS:
                wrong = not_a_name_server(address, "broker")
                assert wrong is not None
                raise wrong
            return found
        assert last is not None
        if self._what_listens is not None and not isinstance(last, Unreachable):
            wrong = not_a_name_server(address, await self._what_listens(address))
            raise wrong or last
        raise last

    async def ask_name_server(
        self,
        code: RequestCode,
        header: Header | Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        about: str = "",
    ) -> RemotingCommand:
        """As answer_of_name_server, SUCCESS only."""
        found = await self.answer_of_name_server(code, header, body, about=about)
        if found.code != ResponseCode.SUCCESS:
            address = self.name_servers[self._name_server % len(self.name_servers)]
            raise refusal(found.code, found.remark, address, _what(code, about))
        return found

    # ------------------------------------------------------------ routes and membership

    async def topic_route(self, topic: str, timeout_ms: int | None = None) -> TopicRoute:
        """Raises: NoRoute when the name servers do not know the topic."""
        found = await self.answer_of_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            headers.GetRouteInfoHeader(topic, accept_standard_json_only=True),
            timeout_ms=timeout_ms,
            about=f"topic {topic!r}",
        )
        if found.code == ResponseCode.SUCCESS and found.body:
            return TopicRoute.parse(found.body)
        if found.code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUCCESS):
            raise NoRoute(topic, self.name_servers, found.remark or "")
        address = self.name_servers[self._name_server % len(self.name_servers)]
        raise refusal(
            found.code,
            found.remark,
            address,
            _what(RequestCode.GET_ROUTEINFO_BY_TOPIC, f"topic {topic!r}"),
        )

    async def heartbeat(
        self, address: str, body: bytes, timeout_ms: int | None = None
    ) -> RemotingCommand:
        """The answer, whose version and fields say what the broker can do."""
        return await self.ask(address, RequestCode.HEART_BEAT, None, body, timeout_ms=timeout_ms)

    async def unregister(
        self, address: str, client_id: str, producer_group: str | None, consumer_group: str | None
    ) -> None:
        await self.ask(
            address,
            RequestCode.UNREGISTER_CLIENT,
            headers.UnregisterClientHeader(client_id, producer_group, consumer_group),
            about=f"group {(producer_group or consumer_group)!r}",
        )

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """The client ids of a group. Raises: BrokerFailed when there is none."""
        found = await self.ask(
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
        await self.ask(
            address,
            RequestCode.CHECK_CLIENT_CONFIG,
            None,
            fastjson.dumps(body),
            about=f"group {group!r}, topic {subscription.get('topic')!r}",
        )

    async def lock_queues(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> set[MessageQueue]:
        """Lock queues for this client; returns those that are now its own."""
        found = await self.ask(
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
        await self.tell(
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
            raise refusal(answer.code, answer.remark, address, _about_send(ext))
        return result

    @property
    def plain_frames(self) -> bool:
        """Whether a frame may be put together by hand: JSON headers that nobody signs."""
        return self._encoding == 0 and not self._remoting.signs

    def open_connection(self, address: str) -> OpenConnection | None:
        """The connection to a broker if it is open already and may be written to directly."""
        return self._remoting.open_connection(address)

    def frame(self, code: int, ext: dict[str, str], body: bytes, opaque: int) -> bytes:
        """A request as `send` sends it, for a connection that is written to directly."""
        command = RemotingCommand(code, ext, body, opaque=opaque, encoding=self._encoding)
        return self._remoting.encoded(command)

    @staticmethod
    def send_result(
        answer: RemotingCommand, unique_key: str, queue: MessageQueue, group: str, address: str
    ) -> SendResult | BrokerRefused:
        """What an answer to a send means."""
        result = send_result(answer, unique_key, queue)
        if result is None:
            about = _about_send_to(queue.topic, queue.queue_id, group)
            return refusal(answer.code, answer.remark, address, about)
        return result

    @staticmethod
    def send_failure(
        error: RemotingError, address: str, queue: MessageQueue, group: str
    ) -> RemotingError:
        """The client's error for a send whose connection failed."""
        return from_remoting(error, address, _about_send_to(queue.topic, queue.queue_id, group))

    async def send_oneway(self, address: str, code: int, ext: dict[str, str], body: bytes) -> None:
        try:
            await self._remoting.oneway(
                address, RemotingCommand(code, ext, body, encoding=self._encoding)
            )
        except RemotingError as error:
            raise from_remoting(error, address, _about_send(ext)) from error

    async def end_transaction(self, address: str, header: headers.EndTransactionHeader) -> None:
        await self.tell(
            address,
            RequestCode.END_TRANSACTION,
            header,
            about=f"message {header.msg_id}, group {header.producer_group!r}",
        )

    async def recall(self, address: str, topic: str, group: str, handle: str) -> str:
        """Take a delayed message back (5.x). Returns: its id."""
        found = await self.ask(
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
        """One pull; the messages come as the answer's body, not decoded. Raises: BrokerRefused, ..."""
        command = RemotingCommand(code, ext, encoding=self._encoding)
        try:
            answer = await self._remoting.invoke(address, command, timeout_ms)
        except RemotingError as error:
            raise from_remoting(error, address, _about_pull(ext), only_asks=True) from error
        result = pull_answer(answer)
        if result is None:
            raise refusal(answer.code, answer.remark, address, _about_pull(ext))
        return result, bytes(answer.body)

    async def send_message_back(
        self,
        address: str,
        message: MessageExt,
        group: str,
        delay_level: int,
        max_reconsume_times: int,
        timeout_ms: int,
    ) -> None:
        """Have the broker store the message again for the group, later."""
        await self.ask(
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
        """The committed offset; None when the broker has none."""
        header = headers.QueryConsumerOffsetHeader(group, queue.topic, queue.queue_id)
        about = f"group {group!r}, {queue_text(queue)}"
        found = await self.answer(address, RequestCode.QUERY_CONSUMER_OFFSET, header, about=about)
        if found.code == ResponseCode.SUCCESS:
            return headers.QueryConsumerOffsetResponseHeader.parse(found.ext).offset
        if found.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise refusal(
            found.code,
            found.remark,
            address,
            _what(RequestCode.QUERY_CONSUMER_OFFSET, about),
        )

    async def update_consumer_offset(
        self, address: str, group: str, queue: MessageQueue, offset: int, *, oneway: bool
    ) -> None:
        header = headers.UpdateConsumerOffsetHeader(group, queue.topic, queue.queue_id, offset)
        about = f"group {group!r}, {queue_text(queue)}"
        if oneway:
            await self.tell(address, RequestCode.UPDATE_CONSUMER_OFFSET, header, about=about)
        else:
            await self.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header, about=about)

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        found = await self.ask(
            address,
            RequestCode.GET_MAX_OFFSET,
            headers.GetMaxOffsetHeader(queue.topic, queue.queue_id),
            about=queue_text(queue),
        )
        return headers.GetMaxOffsetResponseHeader.parse(found.ext).offset

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        found = await self.ask(
            address,
            RequestCode.GET_MIN_OFFSET,
            headers.GetMinOffsetHeader(queue.topic, queue.queue_id),
            about=queue_text(queue),
        )
        return headers.GetMinOffsetResponseHeader.parse(found.ext).offset

    async def search_offset(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after the time."""
        found = await self.ask(
            address,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            headers.SearchOffsetHeader(queue.topic, queue.queue_id, timestamp_ms),
            about=queue_text(queue),
        )
        return headers.SearchOffsetResponseHeader.parse(found.ext).offset

    async def earliest_store_time(self, address: str, queue: MessageQueue) -> int:
        """When the queue's first message was stored, ms; -1 when it has none."""
        found = await self.ask(
            address,
            RequestCode.GET_EARLIEST_MSG_STORETIME,
            headers.GetEarliestMsgStoretimeHeader(queue.topic, queue.queue_id),
            about=queue_text(queue),
        )
        return headers.GetEarliestMsgStoretimeResponseHeader.parse(found.ext).timestamp

    # ------------------------------------------------------------ looking messages up

    async def view_message(
        self, address: str, position: int, topic: str | None = None
    ) -> MessageExt:
        """The message at a position of the commit log. Raises: BrokerFailed when there is none."""
        found = await self.ask(
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
        """Messages by key from the index, not re-checked (the index holds hashes); none is []."""
        about = f"topic {topic!r}, key {key!r}"
        found = await self.answer(
            address,
            RequestCode.QUERY_MESSAGE,
            headers.QueryMessageHeader(topic, key, count_max, begin_ms, end_ms, unique),
            timeout_ms=timeout_ms,
            about=about,
        )
        if found.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        if found.code != ResponseCode.SUCCESS:
            raise refusal(
                found.code, found.remark, address, _what(RequestCode.QUERY_MESSAGE, about)
            )
        return [message for record in read_records(found.body) for message in to_messages(record)]


# What a request is to the caller; the others are called by their own names.
_WORDS: dict[int, str] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: "looking up where the topic is",
    RequestCode.GET_BROKER_CLUSTER_INFO: "asking for the brokers of the cluster",
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: "asking who is in the group",
    RequestCode.GET_CONSUMER_CONNECTION_LIST: "asking who is in the group",
    RequestCode.GET_CONSUMER_RUNNING_INFO: "asking the member what it runs",
    RequestCode.GET_CONSUME_STATS: "asking how far the group is",
    RequestCode.GET_TOPIC_STATS_INFO: "asking what the topic holds",
    RequestCode.HEART_BEAT: "telling the broker that this client is here",
    RequestCode.UPDATE_AND_CREATE_TOPIC: "creating or changing the topic",
    RequestCode.DELETE_TOPIC_IN_BROKER: "deleting the topic",
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: "creating or changing the group",
    RequestCode.DELETE_SUBSCRIPTIONGROUP: "deleting the group",
    RequestCode.QUERY_CONSUMER_OFFSET: "asking for the group's offset",
    RequestCode.UPDATE_CONSUMER_OFFSET: "committing the group's offset",
    RequestCode.CONSUMER_SEND_MSG_BACK: "giving a failed message back to the broker",
    RequestCode.LOCK_BATCH_MQ: "locking queues for orderly consumption",
    RequestCode.RECALL_MESSAGE: "recalling the message",
    RequestCode.VIEW_MESSAGE_BY_ID: "looking up the message",
    RequestCode.QUERY_MESSAGE: "looking up messages by a key",
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: "resetting the group's offsets",
    RequestCode.UPDATE_BROKER_CONFIG: "changing settings of the broker",
}


def _what(code: RequestCode | PocketRequestCode, about: str) -> str:
    words = _WORDS.get(code) or request_name(code).partition(" (")[0].lower().replace("_", " ")
    return f"{words} ({about})" if about else words


def _about_send(ext: Mapping[str, str]) -> str:
    return _about_send_to(ext.get("b"), ext.get("e"), ext.get("a"))


def _about_send_to(topic: str | None, queue_id: object, group: str | None) -> str:
    return f"sending to topic {topic!r}, queue {queue_id}, by group {group!r}"


def _about_pull(ext: Mapping[str, str]) -> str:
    return (
        f"pulling topic {ext.get('topic')!r}, queue {ext.get('queueId')}, for group "
        f"{ext.get('consumerGroup')!r}"
    )


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
