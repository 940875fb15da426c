"""Requests with replies, transactions, lite pull and pull by hand against the played cluster."""

import asyncio
from contextvars import ContextVar

import pytest

from pocketmq.client import (
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
    ReplyTimeout,
    TransactionProducer,
    TransactionState,
    reply_to,
)
from pocketmq.client.consume.lite_pull_member import NotAssigned
from pocketmq.client.lite_pull_consumer import SubscribeAndAssign
from pocketmq.client.request_reply import NoReplyWanted
from pocketmq.model.message import Property
from pocketmq.model.message_codec import properties_to_dict
from pocketmq.model.record import write_record
from pocketmq.remoting.codes import RequestCode as RC
from pocketmq.remoting.command import RemotingCommand
from pocketmq.testing import InProcess
from tests.client.fake_cluster import Asked, FakeCluster
from tests.client.played_options import options
from tests.client.virtual_time import LoopClock, run_virtual, until

bound: ContextVar[str] = ContextVar("bound", default="")


def test_a_reply_reaches_who_asked() -> None:
    """Request-reply; the broker pushes the reply over the asking client's connection."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)

        def answer(asked: Asked) -> RemotingCommand | None:
            properties = properties_to_dict(asked.ext["i"])
            push = {
                "producerGroup": "p",
                "topic": "c_REPLY_TOPIC",
                "defaultTopic": "TBW102",
                "defaultTopicQueueNums": "4",
                "queueId": "0",
                "sysFlag": "0",
                "bornTimestamp": "1",
                "flag": "0",
                "bornHost": "/1.2.3.4:5",
                "storeHost": "/1.2.3.4:6",
                "storeTimestamp": "2",
                "properties": f"CORRELATION_ID\x01{properties['CORRELATION_ID']}\x02",
            }
            command = RemotingCommand(int(RC.PUSH_REPLY_MESSAGE_TO_CLIENT), push, b"pong")
            asyncio.get_running_loop().call_later(
                0.2, asked.client.handlers[RC.PUSH_REPLY_MESSAGE_TO_CLIENT], command, None
            )
            return None

        async with Producer("p", **options(cluster)) as producer:
            cluster.on(RC.SEND_MESSAGE_V2, answer)
            reply = await producer.request(Message("T", b"ping"), timeout_ms=1_000)
            assert reply.body == b"pong"
            assert (
                cluster.asked(RC.HEART_BEAT)[0].at_ms <= cluster.asked(RC.SEND_MESSAGE_V2)[0].at_ms
            )
            cluster.answers.clear()
            with pytest.raises(ReplyTimeout, match="no reply to the request"):
                await producer.request(Message("T", b"ping"), timeout_ms=700)

    run_virtual(main)


async def test_the_first_request_to_a_new_topic_is_answered() -> None:
    """The broker that is to create the topic knows the asker before the reply comes."""
    with InProcess() as server:
        async with Producer("replier", name_server=server.namesrv) as replier:

            async def answer(messages: list[MessageExt], _: object) -> None:
                for each in messages:
                    await replier.send(reply_to(each, b"pong"))

            consumer = PushConsumer(
                "answering",
                name_server=server.namesrv,
                listener=answer,
                consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            )
            consumer.subscribe("asked")
            # Another client than the replier, whose heartbeats would be this one's too.
            asker = Producer("asker", name_server=server.namesrv, instance_name="asker")
            async with consumer, asker:
                reply = await asker.request(Message("asked", b"ping"), timeout_ms=20_000)
                assert reply.body == b"pong"


def test_a_reply_is_made_from_its_request() -> None:
    request = Message(
        "T",
        b"ping",
        properties={"CLUSTER": "c", "CORRELATION_ID": "1", "REPLY_TO_CLIENT": "me", "TTL": "9"},
    )
    reply = reply_to(request, b"pong")
    assert (reply.topic, reply.body) == ("c_REPLY_TOPIC", b"pong")
    assert reply.properties[Property.MSG_TYPE.value] == "reply"
    with pytest.raises(NoReplyWanted, match="CORRELATION_ID"):
        reply_to(Message("T", b"x"), b"y")


@pytest.mark.parametrize(
    ("answer", "flag"),
    [
        (TransactionState.COMMIT, "8"),
        (TransactionState.ROLLBACK, "12"),
        (TransactionState.UNKNOWN, "0"),
    ],
)
def test_a_transaction_ends_as_the_local_one_did(answer: TransactionState, flag: str) -> None:
    """Half message first, then the local transaction, then END_TRANSACTION one-way."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        ran: list[str | None] = []

        async def execute(message: Message) -> TransactionState:
            assert cluster.asked(RC.SEND_MESSAGE_V2)
            ran.append(message.transaction_id)
            return answer

        async def check(message: MessageExt) -> TransactionState:
            return TransactionState.COMMIT

        async with TransactionProducer("p", check=check, **options(cluster)) as producer:
            result = await producer.send_in_transaction(Message("T", b"x"), execute)
            assert result.state is answer
            assert ran == [result.send_result.msg_id]
        [half] = cluster.asked(RC.SEND_MESSAGE_V2)
        assert half.ext["f"] == "4"
        properties = properties_to_dict(half.ext["i"])
        assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "p")
        [end] = cluster.asked(RC.END_TRANSACTION)
        assert (end.oneway, end.ext["commitOrRollback"]) == (True, flag)
        assert end.ext["tranStateTableOffset"] == str(result.send_result.queue_offset)

    run_virtual(main)


def test_a_broker_that_asks_about_a_transaction_is_answered() -> None:
    """Check-back; an exception of the local transaction leaves it open until then."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)

        async def execute(message: Message) -> TransactionState:
            raise RuntimeError("the database is closed")

        async def check(message: MessageExt) -> TransactionState:
            assert message.body == b"x"
            assert bound.get() == "", "nothing of the code that started the producer"
            return TransactionState.COMMIT

        bound.set("a request")
        async with TransactionProducer("p", check=check, **options(cluster)) as producer:
            result = await producer.send_in_transaction(Message("T", b"x"), execute)
            assert result.state is TransactionState.UNKNOWN
            record = write_record(cluster.brokers[0].queue("T", 0)[0][0])
            ext = {"tranStateTableOffset": "5", "commitLogOffset": "6", "transactionId": "tx"}
            await cluster.clients[0].push(
                RemotingCommand(int(RC.CHECK_TRANSACTION_STATE), ext, record, flag=2)
            )
            await until(lambda: len(cluster.asked(RC.END_TRANSACTION)) == 2)
        checked = cluster.asked(RC.END_TRANSACTION)[1]
        assert checked.ext["fromTransactionCheck"] == "true"
        assert checked.ext["commitOrRollback"] == "8"
        assert (checked.ext["tranStateTableOffset"], checked.ext["commitLogOffset"]) == ("5", "6")

    run_virtual(main)


def test_lite_pull_fetches_ahead_and_commits_what_was_polled() -> None:
    """Subscribe, poll, commit; leaving with an exception does not commit the last poll."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        for number in range(10):
            cluster.put("T", 0, b"%d" % number)
        offsets = cluster.brokers[0].offsets
        cluster.brokers[0].offsets["g", "T", 0] = 0

        async def fail_after_a_poll() -> None:
            async with LitePullConsumer("g", pull_batch_size=4, **options(cluster)) as consumer:
                consumer.subscribe("T")
                first = await consumer.poll()
                assert [each.body for each in first] == [b"0", b"1", b"2", b"3"]
                await consumer.commit()
                assert offsets["g", "T", 0] == 4
                await consumer.poll()
                raise RuntimeError("the caller failed")

        with pytest.raises(RuntimeError, match="the caller failed"):
            await fail_after_a_poll()
        assert offsets["g", "T", 0] == 4
        async with LitePullConsumer("g", pull_batch_size=4, **options(cluster)) as consumer:
            consumer.subscribe("T")
            bodies: list[bytes] = []
            while len(bodies) < 6:
                bodies += [each.body for each in await consumer.poll()]
            assert bodies == [b"4", b"5", b"6", b"7", b"8", b"9"]
            assert await consumer.poll(100) == []
        assert offsets["g", "T", 0] == 10
        fetch = cluster.asked(RC.PULL_MESSAGE)[0]
        assert int(fetch.ext["sysFlag"]) == 22
        assert fetch.ext["subscription"] == "*"

    run_virtual(main)


def test_assigned_queues_seek_pause_and_exclude_subscriptions() -> None:
    """Assign and seek."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=2)
        for number in range(6):
            cluster.put("T", 0, b"%d" % number, properties=f"TAGS\x01{'AB'[number % 2]}\x02")
        async with LitePullConsumer("g", **options(cluster)) as consumer:
            queue, other = await consumer.queues("T")
            consumer.assign([queue], "A")
            consumer.seek(queue, 0)
            assert [each.body for each in await consumer.poll()] == [b"0", b"2", b"4"]
            consumer.seek(queue, 4)
            assert [each.body for each in await consumer.poll()] == [b"4"]
            await consumer.seek_to_begin(queue)
            assert len(await consumer.poll()) == 3
            consumer.pause([queue])
            await asyncio.sleep(25)
            cluster.put("T", 0, b"x", properties="TAGS\x01A\x02")
            await asyncio.sleep(25)
            await consumer.poll(10)
            consumer.resume([queue])
            assert consumer.assignment() == [queue]
            with pytest.raises(NotAssigned):
                consumer.seek(other, 0)
            with pytest.raises(SubscribeAndAssign):
                consumer.subscribe("T")

    run_virtual(main)


def test_pulls_by_hand_go_where_the_caller_says() -> None:
    """Pull by hand: status, next offset and bounds; nothing is committed by itself."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        for number in range(3):
            cluster.put("T", 0, b"%d" % number)
        async with PullConsumer("g", **options(cluster)) as consumer:
            [queue] = await consumer.queues("T")
            assert await consumer.committed(queue) is None
            found = await consumer.pull(queue, 1, count_max=1)
            assert (found.status, found.next_begin_offset, found.max_offset) == (
                PullStatus.FOUND,
                2,
                3,
            )
            assert [each.body for each in found.messages] == [b"1"]
            empty = await consumer.pull(queue, 3)
            assert (empty.status, empty.messages) == (PullStatus.NO_NEW_MSG, [])
            beyond = await consumer.pull(queue, 9)
            assert (beyond.status, beyond.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 3)
            await consumer.commit(queue, 2)
            assert await consumer.committed(queue) == 2
            assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 3)

    run_virtual(main)
