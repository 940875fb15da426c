"""What a push consumer pulls and when: flags, answers, refusals, limits."""

import asyncio

import pytest

from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    MessageExt,
    MessageQueue,
    PushConsumer,
)
from pocketmq.client.consume.push_member import Wait, why_wait
from pocketmq.client.pull.process_queue import ProcessQueue
from pocketmq.remoting.codes import RequestCode as RC
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.flags import PullSysFlag
from tests.client.fake_cluster import Asked, FakeBroker, FakeCluster
from tests.client.timing import Listener, consumer, member, options, times
from tests.client.virtual_time import START_MS, LoopClock, run_virtual, until


@pytest.mark.parametrize(
    ("where", "stored", "expected"),
    [
        (ConsumeFromWhere.FIRST_OFFSET, None, 0),
        (ConsumeFromWhere.LAST_OFFSET, None, 5),
        (ConsumeFromWhere.TIMESTAMP, None, 3),
        (ConsumeFromWhere.FIRST_OFFSET, 2, 2),
        (ConsumeFromWhere.LAST_OFFSET, 2, 2),
        (ConsumeFromWhere.TIMESTAMP, 2, 2),
    ],
)
def test_a_group_begins_where_it_stopped_or_where_it_is_told(
    where: ConsumeFromWhere, stored: int | None, expected: int
) -> None:
    """S23: computePullFromWhere: the stored offset wins over first, last and timestamp."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        for number in range(5):
            if number == 3:
                await asyncio.sleep(10)
            cluster.put("T", 0, b"%d" % number)
        if stored is not None:
            cluster.brokers[0].offsets["g", "T", 0] = stored
        made = consumer(
            cluster,
            Listener(),
            consume_from_where=where,
            consume_timestamp_ms=START_MS + 5_000,
        )
        async with made:
            await until(lambda: cluster.asked(RC.PULL_MESSAGE, topic="T"))
            assert cluster.asked(RC.PULL_MESSAGE, topic="T")[0].ext["queueOffset"] == str(expected)

    run_virtual(main)


def test_the_flags_of_a_pull_say_what_it_is() -> None:
    """S43, S44, S45: 3 once there is an offset, 2 before; 4 and the expression only when asked for."""
    assert [int(flag) for flag in PullSysFlag] == [1, 2, 4, 8, 16]
    assert PullSysFlag.COMMIT_OFFSET in PullSysFlag(3)
    assert PullSysFlag.SUBSCRIPTION not in PullSysFlag(3)

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        async with consumer(cluster, Listener(), expression="A") as one:
            await until(lambda: cluster.asked(RC.PULL_MESSAGE, topic="T"))
            first = cluster.asked(RC.PULL_MESSAGE, topic="T")[0]
            assert first.ext["sysFlag"] == "2"
            assert "subscription" not in first.ext
            assert first.ext["suspendTimeoutMillis"] == "15000"
            cluster.put("T", 0, b"x", properties="TAGS\x01A\x02")
            await until(lambda: cluster.asked(RC.PULL_MESSAGE, topic="T", queueOffset="1"))
            await asyncio.sleep(16)
            again = cluster.asked(RC.PULL_MESSAGE, topic="T", queueOffset="1")[-1]
            assert (again.ext["sysFlag"], again.ext["commitOffset"]) == ("3", "1")
            version = member(one).rebalance.subscriptions["T"].sub_version
            assert again.ext["subVersion"] == str(version)
        async with consumer(cluster, Listener(), expression="A", post_subscription_when_pull=True):
            cluster.log.clear()
            await until(lambda: cluster.asked(RC.PULL_MESSAGE, topic="T"))
            posted = cluster.asked(RC.PULL_MESSAGE, topic="T")[0]
            assert int(posted.ext["sysFlag"]) & 4
            assert posted.ext["subscription"] == "A"

    run_virtual(main)


def test_every_answer_of_a_pull_moves_on_to_what_the_broker_says() -> None:
    """S46, S52, S53: FOUND, NO_MATCHED_MSG, NO_NEW_MSG; what was filtered needs no listener."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        listener = Listener()
        for tag in ("A", "B", "B"):
            cluster.put("T", 0, tag.encode(), properties=f"TAGS\x01{tag}\x02")
        queue = MessageQueue("T", "broker-a", 0)
        async with consumer(cluster, listener, expression="A", pull_batch_size=2) as one:
            await until(lambda: cluster.asked(RC.PULL_MESSAGE, topic="T", queueOffset="3"))
            asked = [e.ext["queueOffset"] for e in cluster.asked(RC.PULL_MESSAGE, topic="T")]
            assert asked == ["0", "2", "3"]
            assert listener.bodies == [b"A"]
            await until(lambda: one.committed(queue) == 3)

    run_virtual(main)


def test_filtered_messages_are_committed_with_the_next_pull() -> None:
    """S52: the broker's hash let BB pass; the client's filter empties the answer; no offset yet."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        listener = Listener()
        cluster.put("T", 0, b"x", properties="TAGS\x01BB\x02")
        queue = MessageQueue("T", "broker-a", 0)
        async with consumer(cluster, listener, expression="Aa") as one:
            await until(lambda: cluster.asked(RC.PULL_MESSAGE, topic="T", queueOffset="1"))
            assert one.committed(queue) is None
            # The held pull returns empty after 15 s: only then does the offset move (S53).
            await asyncio.sleep(14)
            assert one.committed(queue) is None
            await until(lambda: one.committed(queue) == 1)
            assert listener.messages == []

    run_virtual(main)


def test_an_offset_outside_the_queue_is_corrected() -> None:
    """S46: OFFSET_ILLEGAL stores the broker's offset and continues from it."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.brokers[0].offsets["g", "T", 0] = 77
        cluster.put("T", 0, b"old")
        listener = Listener()
        async with consumer(cluster, listener):
            await until(lambda: cluster.asked(RC.PULL_MESSAGE, topic="T", queueOffset="1"))
            assert cluster.brokers[0].offsets["g", "T", 0] == 1
            cluster.put("T", 0, b"new")
            await until(lambda: listener.bodies == [b"new"])

    run_virtual(main)


@pytest.mark.parametrize(
    ("code", "delay_ms"), [(ResponseCode.FLOW_CONTROL, 20), (ResponseCode.SYSTEM_BUSY, 3_000)]
)
def test_a_refused_pull_is_tried_again_after_a_while(
    code: int, delay_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """S47: 20 ms for FLOW_CONTROL, else 3 000 ms; a warning, but not for the retry topic."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.on(RC.PULL_MESSAGE, lambda asked: asked.reply(code, "slow down"))
        async with consumer(cluster, Listener()):
            await until(lambda: len(cluster.asked(RC.PULL_MESSAGE, topic="T")) == 3)
            first, second, third = times(cluster.asked(RC.PULL_MESSAGE, topic="T"))
            assert (second - first, third - second) == (delay_ms, delay_ms)
            await until(lambda: cluster.asked(RC.PULL_MESSAGE, topic="%RETRY%g"))

    run_virtual(main)
    # However often: the log of a consumer whose topic is closed for a night is not filled by it.
    assert caplog.text.count("execute the pull request exception") == 1
    assert "topic='%RETRY%g'" not in "".join(
        record.getMessage()
        for record in caplog.records
        if "execute the pull" in record.getMessage()
    )


def test_the_broker_that_an_answer_suggests_is_asked_next() -> None:
    """S48: a master that lags sends its readers to the slave; the commit flag is not for slaves."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.brokers.append(FakeBroker("broker-a", "10.0.0.9:10911", broker_id=1))
        cluster.put("T", 0, b"x")

        def suggest(asked: Asked) -> RemotingCommand | None:
            if asked.ext["topic"] != "T" or asked.ext["queueOffset"] != "0":
                return None
            ext = {
                "nextBeginOffset": "1",
                "minOffset": "0",
                "maxOffset": "1",
                "suggestWhichBrokerId": "1",
            }
            return asked.reply(ResponseCode.PULL_RETRY_IMMEDIATELY, "", ext)

        cluster.on(RC.PULL_MESSAGE, suggest)
        async with consumer(cluster, Listener()):
            await until(lambda: cluster.asked(RC.PULL_MESSAGE, topic="T", queueOffset="1"))
            second = cluster.asked(RC.PULL_MESSAGE, topic="T", queueOffset="1")[0]
            assert second.address == "10.0.0.9:10911"
            assert int(second.ext["sysFlag"]) & 1 == 0

    run_virtual(main)


def test_a_filter_hook_may_remove_messages() -> None:
    """S50: called with the messages that passed the tags."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        listener = Listener()
        seen: list[tuple[list[bytes], MessageQueue, bool]] = []

        def hook(
            messages: list[MessageExt], queue: MessageQueue, unit_mode: bool
        ) -> list[MessageExt]:
            seen.append(([message.body for message in messages], queue, unit_mode))
            return [message for message in messages if message.body != b"no"]

        for body in (b"yes", b"no"):
            cluster.put("T", 0, body)
        async with consumer(cluster, listener, filter_hook=hook):
            await until(lambda: listener.bodies == [b"yes"])
        assert seen[0] == ([b"yes", b"no"], MessageQueue("T", "broker-a", 0), False)

    run_virtual(main)


@pytest.mark.parametrize(
    ("change", "wait"),
    [
        ({}, None),
        ({"paused": True}, Wait.PAUSED),
        ({"count_max": 1}, Wait.CACHED),
        ({"size_max": 5}, Wait.CACHED),
        ({"span_max": 8}, Wait.CACHED),
        ({"orderly": True}, Wait.NOT_LOCKED),
        ({"span_max": 9}, None),
    ],
)
def test_a_pull_waits_while_too_much_is_cached(
    change: dict[str, object], wait: Wait | None
) -> None:
    """S30: flow control by count, size and span; an unlocked orderly queue is not pulled."""
    queue = ProcessQueue(0)
    queue.put([MessageExt("T", b"xxx", queue_offset=offset) for offset in (1, 10)])
    limits: dict[str, object] = {
        "paused": False,
        "orderly": False,
        "count_max": 2,
        "size_max": 6,
        "span_max": 9,
    }
    assert why_wait(queue, **(limits | change)) is wait  # type: ignore[arg-type]


def test_pulling_goes_on_as_soon_as_there_is_room() -> None:
    """S30: a slow listener holds the pulls; nothing is lost and the cache stays bounded."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        most = [0]
        got: list[bytes] = []

        async def slow(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            await asyncio.sleep(0.01)
            got.extend(message.body for message in messages)
            [queue] = [p for q, p in member(one).rebalance.table.items() if q.topic == "T"]
            most[0] = max(most[0], queue.message_count)
            return ConsumeResult.SUCCESS

        for number in range(500):
            cluster.put("T", 0, b"%d" % number)
        one = PushConsumer(
            "g", listener=slow, **options(cluster, pull_threshold_count=50, concurrency=2)
        )
        one.subscribe("T")
        async with one:
            await until(lambda: len(got) == 500)
        assert most[0] <= 50 + 32

    run_virtual(main)
