"""A name server and brokers in memory, for tests of timing and of failures that no real broker has on call.

It answers what clients ask, keeps messages as real records, and notes every request with its time. A test
replaces an answer by `cluster.on(code, answer)`. Behaviour that matters is judged by the real brokers
in tests/interop; here it is only played. Everything goes through the real codec both ways.

One noun: the cluster; its answers share its messages and its time.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from pocketmq.model.java_hash import tag_code
from pocketmq.model.message import MessageQueue, Property
from pocketmq.model.message_codec import properties_to_dict
from pocketmq.model.record import (
    MAGIC_V1,
    Record,
    body_crc,
    decode_batch,
    record_size,
    write_record,
)
from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting import fastjson, headers
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.errors import ConnectFailed, ConnectionLost, RequestTimeout
from pocketmq.remoting.hosts import pack_host
from pocketmq.remoting.transport.own_requests import Waiter

NAME_SERVER = "10.0.0.1:9876"
RC = RequestCode
Answer = Callable[["Asked"], "RemotingCommand | None"]


@dataclass
class Asked:
    """One request as a broker or name server saw it; at_ms is virtual time since the start."""

    at_ms: int
    address: str
    client: "Client"
    command: RemotingCommand
    oneway: bool

    @property
    def code(self) -> int:
        return self.command.code

    @property
    def ext(self) -> dict[str, str]:
        return self.command.ext or {}

    @property
    def json(self) -> Any:
        return fastjson.loads(self.command.body)

    def reply(
        self,
        code: int = 0,
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        return self.command.answer(code, remark, ext or {}, body)


@dataclass
class FakeBroker:
    name: str
    address: str
    broker_id: int = 0
    down: bool = False
    queues: dict[tuple[str, int], list[tuple[Record, int]]] = field(default_factory=dict)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    locks: dict[tuple[str, MessageQueue], str] = field(default_factory=dict)
    members: dict[str, dict[str, "Client"]] = field(default_factory=dict)
    subscriptions: dict[str, dict[str, SubscriptionData]] = field(default_factory=dict)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def queue(self, topic: str, queue_id: int) -> list[tuple[Record, int]]:
        return self.queues.setdefault((topic, queue_id), [])


class Client:
    """One client's side of the network: what MQClientApi calls Remoting."""

    def __init__(self, cluster: "FakeCluster", handlers: Mapping[int, Any]) -> None:
        self._cluster = cluster
        self.handlers = handlers
        self.client_id = ""
        self.connections: dict[str, Connection] = {}
        self.tasks: asyncio.TaskGroup

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int = 3_000
    ) -> RemotingCommand:
        if self._cluster.reachable(address):
            self.connections.setdefault(address, Connection(self, address))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await self._cluster.carry(self, address, command, oneway=False)
        except TimeoutError:
            raise RequestTimeout(address, str(command.code), timeout_ms) from None
        connection = self.connections.setdefault(address, Connection(self, address))
        connection.last_read_ms = self._cluster.clock.monotonic_ms()
        return decode(encode(answer)[4:]) if answer is not None else await asyncio.Future()

    async def oneway(self, address: str, command: RemotingCommand) -> None:
        await self._cluster.carry(self, address, command, oneway=True)

    def open_connection(self, address: str) -> "Connection | None":
        """Where something was asked already."""
        return self.connections.get(address)

    async def carry_frame(self, connection: "Connection", frame: bytes, waiter: Waiter) -> None:
        command = decode(frame[4:])
        opaque = command.opaque
        try:
            answer = await self._cluster.carry(self, connection.address, command, oneway=False)
        except ConnectFailed:
            self.connections.pop(connection.address, None)
            connection.waiters.pop(opaque, None)
            waiter.set_exception(ConnectionLost("the connection ended before the answer came"))
            return
        if answer is not None and connection.waiters.pop(opaque, None) is not None:
            connection.last_read_ms = self._cluster.clock.monotonic_ms()
            waiter.set_result(decode(encode(answer)[4:]))

    @property
    def signs(self) -> bool:
        return False

    def encoded(self, command: RemotingCommand) -> bytes:
        return encode(command)

    async def push(self, command: RemotingCommand) -> RemotingCommand | None:
        """A request from the broker's side to this client."""
        reply = self.handlers[command.code](decode(encode(command)[4:]), _Peer)
        answer: RemotingCommand | None = await reply if asyncio.iscoroutine(reply) else reply
        return answer


class Connection:
    """An open connection, for requests that are written to it directly."""

    def __init__(self, client: Client, address: str) -> None:
        self.address = address
        self.waiters: dict[int, Waiter] = {}
        self.last_read_ms = 0
        self._client = client
        self._opaque = 1_000_000

    def take_opaque(self) -> int:
        self._opaque += 1
        return self._opaque

    def post(self, opaque: int, frame: bytes, waiter: Waiter) -> None:
        assert decode(frame[4:]).opaque == opaque
        self.waiters[opaque] = waiter
        self._client.tasks.create_task(self._client.carry_frame(self, frame, waiter))

    def unanswered(self, opaque: int, waited_ms: float) -> None:
        self.waiters.pop(opaque, None)

    def in_vain(self, waited_ms: float) -> None:
        """What a real one does about it is of no interest here."""


class FakeCluster:
    """See the head of the module. `topics`: topic -> number of queues on each broker."""

    def __init__(self, clock: Clock, brokers: int = 1, **topics: int) -> None:
        self.clock = clock
        self.topics: dict[str, int] = dict(topics)
        self.perms: dict[str, int] = {}
        self.brokers = [
            FakeBroker(f"broker-{chr(97 + i)}", f"10.0.0.{2 + i}:10911") for i in range(brokers)
        ]
        self.log: list[Asked] = []
        self.answers: dict[int, Answer] = {}
        self.clients: list[Client] = []
        self.auto_create = True
        #: Virtual seconds that each request takes.
        self.latency_s = 0.0

    # ------------------------------------------------------------ the network

    async def transport(self, stack: AsyncExitStack, handlers: Mapping[int, Any]) -> Client:
        client = Client(self, handlers)
        client.tasks = await stack.enter_async_context(asyncio.TaskGroup())
        self.clients.append(client)
        return client

    async def carry(
        self, client: Client, address: str, command: RemotingCommand, *, oneway: bool
    ) -> RemotingCommand | None:
        broker = next((each for each in self.brokers if each.address == address), None)
        if broker is not None and broker.down:
            raise ConnectFailed(address, "down")
        command.opaque += 1
        seen = decode(encode(command)[4:])
        asked = Asked(self.clock.monotonic_ms(), address, client, seen, oneway)
        self.log.append(asked)
        await asyncio.sleep(self.latency_s)
        own = self.answers.get(command.code)
        if own is not None:
            answer = own(asked)
            if answer is not None:
                return answer
        if broker is None:
            return self._name_server(asked)
        return await self.answer_of_broker(broker, asked)

    def reachable(self, address: str) -> bool:
        """Whether a connection to it opens."""
        return not any(each.down for each in self.brokers if each.address == address)

    def on(self, code: int, answer: Answer) -> None:
        """Let this function answer that code; None lets the cluster answer as usual."""
        self.answers[code] = answer

    def asked(self, code: int, **ext: str) -> list[Asked]:
        """The requests of a code so far, with those fields."""
        return [
            each
            for each in self.log
            if each.code == code and all(each.ext.get(name) == value for name, value in ext.items())
        ]

    # ------------------------------------------------------------ name server

    def _name_server(self, asked: Asked) -> RemotingCommand:
        assert asked.code == RC.GET_ROUTEINFO_BY_TOPIC, asked.command
        topic = asked.ext["topic"]
        if topic == "TBW102" and self.auto_create:
            count = 8
        elif topic in self.topics:
            count = self.topics[topic]
        else:
            return asked.reply(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info: {topic}")
        by_name: dict[str, dict[int, str]] = {}
        for broker in self.brokers:
            by_name.setdefault(broker.name, {})[broker.broker_id] = broker.address
        body = {
            "brokerDatas": [
                {"brokerAddrs": addresses, "brokerName": name, "cluster": "c"}
                for name, addresses in by_name.items()
            ],
            "filterServerTable": {},
            "queueDatas": [
                {
                    "brokerName": name,
                    "perm": self.perms.get(topic, 6),
                    "readQueueNums": count,
                    "topicSysFlag": 0,
                    "writeQueueNums": count,
                }
                for name in by_name
            ],
        }
        return asked.reply(body=fastjson.dumps(body, quote_integer_keys=True))

    # ------------------------------------------------------------ brokers

    async def answer_of_broker(self, broker: FakeBroker, asked: Asked) -> RemotingCommand | None:
        match asked.code:
            case RC.HEART_BEAT:
                return self._heartbeat(broker, asked)
            case RC.UNREGISTER_CLIENT:
                for members in broker.members.values():
                    members.pop(asked.ext["clientID"], None)
                return asked.reply()
            case RC.GET_CONSUMER_LIST_BY_GROUP:
                ids = list(broker.members.get(asked.ext["consumerGroup"], ()))
                if not ids:
                    return asked.reply(ResponseCode.SYSTEM_ERROR, "no consumer for this group")
                return asked.reply(body=fastjson.dumps({"consumerIdList": ids}))
            case RC.PULL_MESSAGE:
                return await self._pull(broker, asked)
            case RC.SEND_MESSAGE_V2 | RC.SEND_BATCH_MESSAGE | RC.SEND_REPLY_MESSAGE_V2:
                return self._send(broker, asked)
            case RC.QUERY_CONSUMER_OFFSET:
                key = (asked.ext["consumerGroup"], asked.ext["topic"], int(asked.ext["queueId"]))
                if key not in broker.offsets:
                    return asked.reply(ResponseCode.QUERY_NOT_FOUND, "Not found")
                return asked.reply(ext={"offset": str(broker.offsets[key])})
            case RC.UPDATE_CONSUMER_OFFSET:
                key = (asked.ext["consumerGroup"], asked.ext["topic"], int(asked.ext["queueId"]))
                broker.offsets[key] = int(asked.ext["commitOffset"])
                return asked.reply()
            case RC.GET_MAX_OFFSET:
                queue = broker.queue(asked.ext["topic"], int(asked.ext["queueId"]))
                return asked.reply(ext={"offset": str(len(queue))})
            case RC.GET_MIN_OFFSET:
                return asked.reply(ext={"offset": "0"})
            case RC.SEARCH_OFFSET_BY_TIMESTAMP:
                queue = broker.queue(asked.ext["topic"], int(asked.ext["queueId"]))
                since = int(asked.ext["timestamp"])
                found = sum(1 for record, _ in queue if record.store_ms < since)
                return asked.reply(ext={"offset": str(found)})
            case RC.CONSUMER_SEND_MSG_BACK:
                return self._send_back(broker, asked)
            case RC.LOCK_BATCH_MQ:
                return self._lock(broker, asked)
            case RC.UNLOCK_BATCH_MQ:
                for queue_data in asked.json["mqSet"]:
                    lock = (asked.json["consumerGroup"], _queue(queue_data))
                    if broker.locks.get(lock) == asked.json["clientId"]:
                        del broker.locks[lock]
                return asked.reply()
            case RC.CHECK_CLIENT_CONFIG:
                return asked.reply()
            case _:
                return asked.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not played")

    def _heartbeat(self, broker: FakeBroker, asked: Asked) -> RemotingCommand:
        data = asked.json
        asked.client.client_id = data["clientID"]
        for consumer in data["consumerDataSet"]:
            group = consumer["groupName"]
            if consumer["consumeType"] == "CONSUME_PASSIVELY":
                self.topics.setdefault(f"%RETRY%{group}", 1)
            members = broker.members.setdefault(group, {})
            changed = data["clientID"] not in members
            members[data["clientID"]] = asked.client
            table = broker.subscriptions.setdefault(group, {})
            for each in consumer["subscriptionDataSet"]:
                new = SubscriptionData.from_json(each)
                old = table.get(new.topic)
                if old is None or new.sub_version > old.sub_version:
                    table[new.topic] = new
            if changed:
                self.notify(broker, group)
        return asked.reply()

    def notify(self, broker: FakeBroker, group: str) -> None:
        """Tell the members of a group that it has changed."""
        for client in set(broker.members.get(group, {}).values()):
            command = RemotingCommand(
                int(RC.NOTIFY_CONSUMER_IDS_CHANGED), {"consumerGroup": group}, flag=2
            )
            asyncio.get_running_loop().call_soon(
                client.handlers[RC.NOTIFY_CONSUMER_IDS_CHANGED], command, _Peer
            )

    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        *,
        broker: int = 0,
        properties: str = "",
        sys_flag: int = 0,
        reconsume_times: int = 0,
    ) -> int:
        """Store a message; its queue offset."""
        home = self.brokers[broker]
        queue = home.queue(topic, queue_id)
        host = pack_host(home.address)
        raw = properties.encode()
        record = Record(
            record_size(len(topic.encode()), len(body), len(raw), sys_flag),
            MAGIC_V1,
            body_crc(body),
            queue_id,
            0,
            len(queue),
            sum(len(each) for each in home.queues.values()) * 1000,
            sys_flag,
            self.clock.now_ms(),
            host,
            self.clock.now_ms(),
            host,
            reconsume_times,
            0,
            memoryview(body),
            topic,
            raw,
        )
        tag = properties_to_dict(raw).get(Property.TAGS.value)
        queue.append((record, tag_code(tag) if tag else 0))
        home.arrived.set()
        home.arrived = asyncio.Event()
        return len(queue) - 1

    def _send(self, broker: FakeBroker, asked: Asked) -> RemotingCommand:
        header = headers.SendMessageV2Header.parse(asked.ext)
        if header.topic not in self.topics:
            if not self.auto_create and not header.topic.startswith("%"):
                return asked.reply(ResponseCode.TOPIC_NOT_EXIST, "topic not exist")
            self.topics[header.topic] = 4
        place = self.brokers.index(broker)
        if asked.code == RC.SEND_BATCH_MESSAGE:
            offset = -1
            for member in decode_batch(asked.command.body):
                text = member.properties.decode()
                at = self.put(
                    header.topic, header.queue_id, bytes(member.body), broker=place, properties=text
                )
                offset = at if offset < 0 else offset
        else:
            offset = self.put(
                header.topic,
                header.queue_id,
                bytes(asked.command.body),
                broker=place,
                properties=header.properties or "",
                sys_flag=header.sys_flag,
                reconsume_times=header.reconsume_times or 0,
            )
        ext = {
            "msgId": "0A00000200002A9F0000000000000000",
            "queueId": str(header.queue_id),
            "queueOffset": str(offset),
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        return asked.reply(ext=ext)

    def _send_back(self, broker: FakeBroker, asked: Asked) -> RemotingCommand:
        header = headers.ConsumerSendMsgBackHeader.parse(asked.ext)
        for queue in list(broker.queues.values()):
            for record, _ in queue:
                if record.position == header.offset and record.topic == header.origin_topic:
                    text = record.properties.decode()
                    if "RETRY_TOPIC\x01" not in text:
                        text += f"RETRY_TOPIC\x01{record.topic}\x02"
                    self.put(
                        f"%RETRY%{header.group}",
                        0,
                        bytes(record.body),
                        broker=self.brokers.index(broker),
                        properties=text,
                        reconsume_times=record.reconsume_times + 1,
                    )
                    return asked.reply()
        return asked.reply(ResponseCode.SYSTEM_ERROR, "look message by offset failed")

    def _lock(self, broker: FakeBroker, asked: Asked) -> RemotingCommand:
        data = asked.json
        won = []
        for each in data["mqSet"]:
            owner = broker.locks.setdefault((data["consumerGroup"], _queue(each)), data["clientId"])
            if owner == data["clientId"]:
                won.append(each)
        return asked.reply(body=fastjson.dumps({"lockOKMQSet": won}))

    async def _pull(self, broker: FakeBroker, asked: Asked) -> RemotingCommand:
        header = headers.PullMessageHeader.parse(asked.ext)
        subscription = broker.subscriptions.get(header.consumer_group, {}).get(header.topic)
        if header.sys_flag & 4 == 0:
            if subscription is None:
                return asked.reply(
                    ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist"
                )
            if subscription.sub_version < header.sub_version:
                return asked.reply(
                    ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
                )
            codes = subscription.code_set
        else:
            wanted = header.subscription or "*"
            codes = (
                set() if wanted == "*" else {tag_code(tag.strip()) for tag in wanted.split("||")}
            )
        if header.sys_flag & 1:
            key = (header.consumer_group, header.topic, header.queue_id)
            broker.offsets[key] = header.commit_offset
        queue = broker.queue(header.topic, header.queue_id)
        if header.queue_offset >= len(queue) and header.sys_flag & 2:
            deadline = asyncio.get_running_loop().time() + header.suspend_timeout_millis / 1000
            try:
                async with asyncio.timeout_at(deadline):
                    while header.queue_offset >= len(queue):
                        await broker.arrived.wait()
            except TimeoutError:
                pass
        ext = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": str(len(queue))}
        if header.queue_offset > len(queue):
            return asked.reply(
                ResponseCode.PULL_OFFSET_MOVED, ext={**ext, "nextBeginOffset": str(len(queue))}
            )
        scanned = queue[header.queue_offset : header.queue_offset + header.max_msg_nums]
        found = [record for record, code in scanned if not codes or code in codes]
        ext["nextBeginOffset"] = str(header.queue_offset + len(scanned))
        if not scanned:
            return asked.reply(ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", ext)
        if not found:
            return asked.reply(ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", ext)
        return asked.reply(0, "FOUND", ext, b"".join(write_record(record) for record in found))


class _Peer:
    peer = "10.0.0.2:10911"


def _queue(data: Mapping[str, Any]) -> MessageQueue:
    return MessageQueue(data["topic"], data["brokerName"], int(data["queueId"]))
