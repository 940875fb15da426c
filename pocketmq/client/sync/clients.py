"""The blocking clients: each public method of an asyncio client, once more without `await`.

    with Producer("my_producers", name_server="127.0.0.1:9876") as producer:
        producer.send(Message("TopicTest", b"hello"))

`twin` makes a blocking method out of an asyncio one, so arguments, types and documentation are those of
pocketmq.client; only what differs is written here. Options and errors are the same.
"""

from collections.abc import Iterator
from concurrent.futures import Future
from types import TracebackType

from pocketmq.client import (
    lite_pull_consumer,
    producer,
    pull_consumer,
    push_consumer,
    simple_consumer,
    transaction,
)
from pocketmq.client.consume.portion import Portion
from pocketmq.client.errors import NotRunning
from pocketmq.client.group_client import ReadingConsumer, SharingConsumer, SubscribingConsumer
from pocketmq.client.options import takes
from pocketmq.client.send.result import SendResult
from pocketmq.client.sync.blocking import Blocking, twin
from pocketmq.client.sync.submissions import Submissions
from pocketmq.client.wait_for_signal import block_until_signal
from pocketmq.model.message import Message, MessageExt, MessageQueue


class Producer(Blocking):
    """pocketmq.client.Producer for programs without an event loop."""

    @takes(producer.Producer)
    def __init__(self, client: producer.Producer) -> None:
        self._set_up(client)

    def _set_up(self, client: producer.Producer) -> None:
        super().__init__(client)
        self._submissions = Submissions(client, client.config.in_flight_max)

    def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        thread = self._thread
        if thread is not None and not thread.is_inherited:
            thread.call(self._submissions.flush())
        super()._leave(kind, error, trace)

    send = twin(producer.Producer.send)
    send_oneway = twin(producer.Producer.send_oneway)
    send_batch = twin(producer.Producer.send_batch)
    request = twin(producer.Producer.request)
    recall = twin(producer.Producer.recall)
    queues = twin(producer.Producer.queues)

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
        called from such a callback. Raises: NotRunning, ForkedClient.
        """
        thread = self._thread
        if thread is None:
            raise NotRunning(f"producer {self.group!r} is not started")
        thread.check_own()
        if timeout_ms is not None:
            return thread.begin(
                self._client.send(
                    message, queue=queue, sharding_key=sharding_key, timeout_ms=timeout_ms
                )
            )
        return self._submissions.put(thread, message, queue, sharding_key)


class TransactionProducer(Producer):
    """pocketmq.client.TransactionProducer for programs without an event loop."""

    @takes(transaction.TransactionProducer)
    def __init__(self, client: transaction.TransactionProducer) -> None:
        self._set_up(client)

    send_in_transaction = twin(transaction.TransactionProducer.send_in_transaction)


class _SubscribingConsumer(Blocking):
    subscribe = twin(SubscribingConsumer.subscribe)
    unsubscribe = twin(SubscribingConsumer.unsubscribe)
    describe = twin(SubscribingConsumer.describe)


class _SharingConsumer(_SubscribingConsumer):
    assignment = twin(SharingConsumer.assignment)


class _ReadingConsumer(Blocking):
    queues = twin(ReadingConsumer.queues)
    min_offset = twin(ReadingConsumer.min_offset)
    max_offset = twin(ReadingConsumer.max_offset)
    offset_for_timestamp = twin(ReadingConsumer.offset_for_timestamp)


class PushConsumer(_SharingConsumer):
    """pocketmq.client.PushConsumer for programs without an event loop: its listener is called in threads."""

    @takes(push_consumer.PushConsumer)
    def __init__(self, client: push_consumer.PushConsumer) -> None:
        super().__init__(client)

    on = twin(push_consumer.PushConsumer.on)
    suspend = twin(push_consumer.PushConsumer.suspend)
    resume = twin(push_consumer.PushConsumer.resume)
    once = push_consumer.PushConsumer.once
    committed = twin(push_consumer.PushConsumer.committed)
    persist_offsets = twin(push_consumer.PushConsumer.persist_offsets)

    def run_until_signal(self) -> None:
        """Wait for SIGTERM or SIGINT; leaving the `with` block then drains and unregisters.

        Raises: IllegalArgument without a subscription.
        """
        self._client._check_subscribed()
        block_until_signal()


class SimpleConsumer(_SubscribingConsumer):
    """pocketmq.client.SimpleConsumer for programs without an event loop."""

    @takes(simple_consumer.SimpleConsumer)
    def __init__(self, client: simple_consumer.SimpleConsumer) -> None:
        super().__init__(client)

    receive = twin(simple_consumer.SimpleConsumer.receive)
    available = twin(simple_consumer.SimpleConsumer.available)
    ack = twin(simple_consumer.SimpleConsumer.ack)
    renew = twin(simple_consumer.SimpleConsumer.renew)
    dead_letter = twin(simple_consumer.SimpleConsumer.dead_letter)
    give_up = twin(simple_consumer.SimpleConsumer.give_up)


class PullConsumer(_ReadingConsumer):
    """pocketmq.client.PullConsumer for programs without an event loop."""

    @takes(pull_consumer.PullConsumer)
    def __init__(self, client: pull_consumer.PullConsumer) -> None:
        super().__init__(client)

    pull = twin(pull_consumer.PullConsumer.pull)
    send_back = twin(pull_consumer.PullConsumer.send_back)
    committed = twin(pull_consumer.PullConsumer.committed)
    commit = twin(pull_consumer.PullConsumer.commit)


class LitePullConsumer(_SharingConsumer, _ReadingConsumer):
    """pocketmq.client.LitePullConsumer for programs without an event loop."""

    @takes(lite_pull_consumer.LitePullConsumer)
    def __init__(self, client: lite_pull_consumer.LitePullConsumer) -> None:
        super().__init__(client)

    subscribe = twin(lite_pull_consumer.LitePullConsumer.subscribe)
    assign = twin(lite_pull_consumer.LitePullConsumer.assign)
    commit = twin(lite_pull_consumer.LitePullConsumer.commit)
    committed = twin(lite_pull_consumer.LitePullConsumer.committed)
    seek = twin(lite_pull_consumer.LitePullConsumer.seek)
    seek_to_begin = twin(lite_pull_consumer.LitePullConsumer.seek_to_begin)
    seek_to_end = twin(lite_pull_consumer.LitePullConsumer.seek_to_end)
    pause = twin(lite_pull_consumer.LitePullConsumer.pause)
    resume = twin(lite_pull_consumer.LitePullConsumer.resume)

    def poll(self, timeout_ms: int = 5_000) -> list[MessageExt]:
        """Return the messages fetched next, of one queue, in order; [] if none came in time."""
        portion = Portion()
        try:
            self._call(self._client._fill(portion, timeout_ms))
        except BaseException:
            # Interrupted (Ctrl-C): what came all the same is for the next call.
            portion.close()
            raise
        return portion.take()

    def messages(self, timeout_ms: int = 5_000) -> Iterator[MessageExt]:
        """One message after the other, until none comes within the time.

        A loop that ends early leaves the rest to the next call, or to the group: only messages that it was
        given count as consumed.
        """
        while True:
            portion = Portion()
            try:
                self._call(self._client._fill(portion, timeout_ms))
                if not portion.messages:
                    return
                yield from portion
            finally:
                portion.close()
