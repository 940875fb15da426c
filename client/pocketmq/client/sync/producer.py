"""The blocking Producer and TransactionProducer."""

from collections.abc import Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Unpack

from pocketmq.client import producer as asynchronous
from pocketmq.client import transaction
from pocketmq.client.errors import NotRunning
from pocketmq.client.producer import ProducerOptions, SelectQueue
from pocketmq.client.send_result import SendResult
from pocketmq.client.sync.blocking import Blocking
from pocketmq.client.sync.submissions import Submissions
from pocketmq.client.transaction import Check, Execute, TransactionResult
from pocketmq.remoting.message import Message, MessageExt, MessageQueue


class Producer(Blocking):
    """pocketmq.client.Producer for programs without an event loop; the same options and errors.

    with Producer("my_producers", name_server="127.0.0.1:9876") as producer:
        producer.send(Message("TopicTest", b"hello"))
    """

    def __init__(self, group: str, **options: Unpack[ProducerOptions]) -> None:
        self._producer = self._make(group, options)
        self._submissions = Submissions(self._producer, options.get("in_flight_max", 1_000))
        super().__init__(self._producer)

    def _make(self, group: str, options: ProducerOptions) -> asynchronous.Producer:
        return asynchronous.Producer(group, **options)

    def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        thread = self._thread
        if thread is not None:
            thread.call(self._submissions.flush())
        super()._leave(kind, error, trace)

    @property
    def group(self) -> str:
        return self._producer.group

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: SelectQueue | None = None,
        sharding_key: str | None = None,
        delay_level: int | None = None,
        deliver_at_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send and wait until the broker has stored the message; see the asyncio Producer."""
        return self._call(
            self._producer.send(
                message,
                queue=queue,
                select=select,
                sharding_key=sharding_key,
                delay_level=delay_level,
                deliver_at_ms=deliver_at_ms,
                timeout_ms=timeout_ms,
            )
        )

    def begin_send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> "Future[SendResult]":
        """Send without waiting: the future gets the result or the error, and takes callbacks.

        It waits while twice the producer's in_flight_max messages have no outcome yet, unless it is
        called from such a callback. Raises: NotRunning.
        """
        thread = self._thread
        if thread is None:
            raise NotRunning(f"producer {self.group!r} is not started")
        if timeout_ms is not None:
            return thread.begin(
                self._producer.send(
                    message, queue=queue, sharding_key=sharding_key, timeout_ms=timeout_ms
                )
            )
        return self._submissions.put(thread, message, queue, sharding_key)

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> None:
        """Send without an answer: it may be lost without a word."""
        self._call(self._producer.send_oneway(message, queue=queue, sharding_key=sharding_key))

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic in as few requests as their sizes allow."""
        return self._call(self._producer.send_batch(messages, queue=queue, timeout_ms=timeout_ms))

    def request(self, message: Message, *, timeout_ms: int = 3_000) -> MessageExt:
        """Send a request and wait for its reply."""
        return self._call(self._producer.request(message, timeout_ms=timeout_ms))

    def recall(self, topic: str, recall_handle: str) -> str:
        """Take a delayed message back before it is delivered (5.x brokers)."""
        return self._call(self._producer.recall(topic, recall_handle))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be sent to."""
        return self._call(self._producer.queues(topic))


class TransactionProducer(Producer):
    """pocketmq.client.TransactionProducer for programs without an event loop."""

    def __init__(self, group: str, *, check: Check, **options: Unpack[ProducerOptions]) -> None:
        self._check = check
        super().__init__(group, **options)

    def _make(self, group: str, options: ProducerOptions) -> transaction.TransactionProducer:
        self._transactions = transaction.TransactionProducer(group, check=self._check, **options)
        return self._transactions

    def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Store the half message, run the local transaction, tell the broker how it ended."""
        return self._call(
            self._transactions.send_in_transaction(message, execute, timeout_ms=timeout_ms)
        )
