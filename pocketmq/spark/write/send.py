"""Sends messages of one task: batches per queue, one in flight per queue, many queues at once.

1. A queue gets its messages in the order of the rows: the next batch is sent once the previous one is
   acknowledged.
2. A send whose answer is lost is repeated: at least once. SPARK_ID = query/batch/partition/row/digest is the
   same in every repetition, even if Spark runs the task or the batch again, provided that its rows come in
   the same partition and order. The digest is of what the row says, so rows that differ never share an id:
   a restart may cut a batch into other partitions, and a consumer that drops ids it knows loses no row.
3. An answer FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE means stored; it counts as sent.
"""

import hashlib
import os
import socket
import time
from collections import deque

from pocketmq.model.names import AUTO_CREATE_TOPIC
from pocketmq.model.record import BATCH_COUNT_MAX, encode_batch
from pocketmq.model.unique_key import UniqueKeys
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import IllegalArgument, PocketMQError, RemotingError, RequestRefused
from pocketmq.remoting.flags import MessageSysFlag
from pocketmq.remoting.headers import SendMessageResponseHeader, SendMessageV2Header
from pocketmq.spark.brokers.client import AUTO_CREATED_QUEUES, BrokerClient, BrokerQueue
from pocketmq.spark.retry import BUSY
from pocketmq.spark.write.ledger import Tally, row_digest
from pocketmq.spark.write.rows import RowMessage

_STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)
SPARK_ID = "SPARK_ID"


class WriteFailed(PocketMQError):
    """A write could not send or commit all of its rows; the text says how many are out."""


class Half:
    """What is needed to end a half message later: primitives only, since it travels in the commit message."""

    def __init__(self, address: str, topic: str, unique_key: str, msg_id: str, offset: int) -> None:
        self.address = address
        self.topic = topic
        self.unique_key = unique_key
        self.msg_id = msg_id
        self.offset = offset


class _Lane:
    """One queue: its waiting messages, and the batch in flight; its answer, if that came before it was asked
    for and the connection is closed. repeated: the batch was counted as sent once more.
    """

    def __init__(self, queue: BrokerQueue) -> None:
        self.queue = queue
        self.waiting: deque[tuple[int, bytes, bytes, bool, str]] = deque()
        self.size = 0
        self.batch: list[tuple[int, bytes, bytes, bool, str]] = []
        self.opaque = 0
        self.answer: RemotingCommand | None = None
        self.repeated = False


class TaskSender:
    """Sends the rows of one task. Call send() for each, then finish()."""

    def __init__(
        self,
        client: BrokerClient,
        group: str,
        id_prefix: str,
        selector: str,
        batch_bytes: int,
        *,
        half: bool = False,
    ) -> None:
        """id_prefix: SPARK_ID without the row's number and digest. half: send transactional half messages."""
        self._client = client
        self._group = group
        self._id_prefix = id_prefix
        self._selector = selector
        self._batch_bytes = batch_bytes
        self._half = half
        # An address of chance: executors of many hosts can have one IP address and one process id.
        self._keys = UniqueKeys(socket.inet_ntoa(os.urandom(4)), SystemClock())
        self._lanes: dict[BrokerQueue, _Lane] = {}
        self._routes: dict[str, list[BrokerQueue]] = {}
        self._index = 0
        # Tasks begin at different queues, so that few rows in many tasks spread too.
        self._turn = int.from_bytes(hashlib.blake2b(id_prefix.encode(), digest_size=4).digest())
        self._patience = client.patience()
        self.sent = 0
        # Sent once more, since no answer came: such rows may be there twice.
        self.repeated = 0
        self.halves: list[Half] = []
        # Of all rows that send() was given.
        self.tally = Tally()

    def send(self, message: RowMessage) -> None:
        """Queue a message; send if its batch is full. Raises: WriteFailed, IllegalArgument."""
        queue = self._select(message)
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = _Lane(queue)
        key = self._keys.make()
        digest = row_digest(message)
        self.tally.add(digest)
        spark_id = f"{self._id_prefix}/{self._index}/{digest[:8].hex()}"
        ids = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02{SPARK_ID}\x01{spark_id}\x02"
        self._index += 1
        properties = (message.properties + ids).encode()
        if self._half:
            properties += f"TRAN_MSG\x01true\x02PGROUP\x01{self._group}\x02".encode()
        single = message.single or self._half
        lane.waiting.append((message.flag, message.body, properties, single, key))
        lane.size += len(message.body) + len(properties) + 22
        if lane.size >= self._batch_bytes:
            if lane.opaque:
                self._settle(lane)
            self._start(lane)

    def finish(self) -> None:
        """Send what is left and wait for every answer. Raises: WriteFailed."""
        while True:
            busy = [lane for lane in self._lanes.values() if lane.waiting or lane.batch]
            if not busy:
                return
            for lane in busy:
                if not lane.opaque:
                    self._start(lane)
            for lane in busy:
                if lane.opaque:
                    self._settle(lane)

    def _select(self, message: RowMessage) -> BrokerQueue:
        queues = self._route(message.topic)
        if self._selector == "column":
            if message.queue_id is None:
                raise IllegalArgument("queueSelector=column, but a row's queueId is null")
            matching = [q for q in queues if q.queue_id == message.queue_id]
            if not matching:
                raise IllegalArgument(
                    f"topic {message.topic} has no writable queue {message.queue_id}: choose one "
                    f"of {sorted({q.queue_id for q in queues})}"
                )
            return matching[0]
        if self._selector == "hash" and message.sharding_key:
            digest = hashlib.blake2b(message.sharding_key.encode(), digest_size=8).digest()
            return queues[int.from_bytes(digest) % len(queues)]
        self._turn += 1
        return queues[self._turn % len(queues)]

    def _route(self, topic: str) -> list[BrokerQueue]:
        found = self._routes.get(topic)
        if found is None:
            found = self._routes[topic] = self._client.writable(topic)
        return found

    def _start(self, lane: _Lane) -> None:
        """Send the next batch of a lane, unless one is in flight."""
        if lane.opaque:
            return
        if not lane.batch:
            size = 0
            while lane.waiting:
                flag, body, properties, single, _ = lane.waiting[0]
                need = len(body) + len(properties) + 22
                if lane.batch and (
                    single
                    or lane.batch[0][3]
                    or size + need > self._batch_bytes
                    or len(lane.batch) == BATCH_COUNT_MAX
                ):
                    break
                del flag
                size += need
                lane.batch.append(lane.waiting.popleft())
            lane.size -= size
        if not lane.batch:
            return
        address = lane.queue.address
        try:
            connection = self._client.connection(address)
        except RemotingError as error:
            self._again(lane, error)
            return
        try:
            lane.opaque = connection.request(*self._request(lane))
        except RemotingError as error:
            # It may have gone out.
            self._count_repeat(lane)
            self._lose(address)
            self._again(lane, error)

    def _request(self, lane: _Lane) -> tuple[RequestCode, SendMessageV2Header, bytes]:
        first = lane.batch[0]
        is_batch = len(lane.batch) > 1
        header = SendMessageV2Header(
            producer_group=self._group,
            topic=lane.queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=AUTO_CREATED_QUEUES,
            queue_id=lane.queue.queue_id,
            sys_flag=int(MessageSysFlag.TRANSACTION_PREPARED) if self._half else 0,
            born_timestamp=int(time.time() * 1000),
            flag=0 if is_batch else first[0],
            properties="" if is_batch else first[2].decode(),
            reconsume_times=0,
            unit_mode=False,
            batch=is_batch,
        )
        if is_batch:
            header.properties = "WAIT\x01true\x02"
            body = encode_batch((flag, body, props) for flag, body, props, _, _ in lane.batch)
            return RequestCode.SEND_BATCH_MESSAGE, header, body
        return RequestCode.SEND_MESSAGE_V2, header, first[1]

    def _settle(self, lane: _Lane) -> None:
        """Wait for the answer to a lane's batch; repeat it if that may help."""
        answer, lane.answer = lane.answer, None
        if answer is None:
            try:
                connection = self._client.connection(lane.queue.address)
                answer = connection.answer(lane.opaque, f"sending to {lane.queue.topic}")
            except RemotingError as error:
                self._lose(lane.queue.address)
                self._again(lane, error)
                return
        lane.opaque = 0
        if answer.code in _STORED:
            self.sent += len(lane.batch)
            if self._half:
                self._remember(lane, answer)
            lane.batch = []
            lane.repeated = False
            self._patience.succeeded()
            if lane.size >= self._batch_bytes:
                self._start(lane)
            return
        refused = RequestRefused(
            answer.code, answer.remark, lane.queue.address, f"sending to {lane.queue.topic}"
        )
        if answer.code not in BUSY:
            raise self._failure(refused) from refused
        self._again(lane, refused)

    def _remember(self, lane: _Lane, answer: RemotingCommand) -> None:
        header = SendMessageResponseHeader.parse(answer.ext)
        key = lane.batch[0][4]
        self.halves.append(
            Half(lane.queue.address, lane.queue.topic, key, header.msg_id, header.queue_offset)
        )

    def _lose(self, address: str) -> None:
        """Note a failed connection: the answers of its lanes will not come, but for those that are there."""
        connection = self._client.connected(address)
        arrived = {} if connection is None else connection.arrived()
        self._client.forget(address)
        for lane in self._lanes.values():
            if lane.queue.address == address and lane.opaque and lane.answer is None:
                lane.answer = arrived.get(lane.opaque)
                if lane.answer is None:
                    lane.opaque = 0
                    self._count_repeat(lane)

    def _count_repeat(self, lane: _Lane) -> None:
        """Count a batch that goes out again though it may have arrived."""
        if not lane.repeated:
            lane.repeated = True
            self.repeated += len(lane.batch)

    def _again(self, lane: _Lane, error: PocketMQError) -> None:
        lane.opaque = 0
        try:
            self._patience.pause(error)
        except PocketMQError:
            raise self._failure(error) from error
        self._start(lane)

    def _failure(self, error: PocketMQError) -> WriteFailed:
        waiting = sum(len(lane.waiting) for lane in self._lanes.values())
        unknown = sum(len(lane.batch) for lane in self._lanes.values())
        return WriteFailed(
            f"{self.sent} messages of this task were sent and acknowledged, {unknown} were sent "
            f"without an answer or refused, {waiting} were not sent yet: {error}. Messages carry "
            f"{SPARK_ID} {self._id_prefix}/row/digest, by which a consumer can recognize repeats"
        )
