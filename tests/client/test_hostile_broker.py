"""A broker that is broken or hostile: its answers cost a client neither its memory nor its processor."""

import asyncio
import logging
import zlib
from collections import Counter
from collections.abc import Callable

import pytest

from pocketmq.admin.messages import MessageAdmin
from pocketmq.client import (
    LitePullConsumer,
    MessageQueue,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
)
from pocketmq.client.errors import BrokerRefused
from pocketmq.client.pull import decode
from pocketmq.client.pull.decode import Habit, UnpackBudget, decode_messages
from pocketmq.client.pull.pull_result import PullResult, PullStatus
from pocketmq.model.message_codec import to_messages
from pocketmq.model.record import encode_batch, read_record
from pocketmq.remoting.codes import RequestCode as RC
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import MessageCodecError
from tests.client.fake_cluster import Asked, FakeCluster
from tests.client.test_decode import record
from tests.client.timing import Listener, consumer, options
from tests.client.virtual_time import LoopClock, run_virtual, until

QUEUE = MessageQueue("T", "broker-a", 0)
Answer = Callable[[Asked], RemotingCommand]


def pulled(code: int, following: int | str, body: bytes = b"") -> Answer:
    ext = {"nextBeginOffset": str(following), "minOffset": "0", "maxOffset": "99"}
    return lambda asked: asked.reply(code, "", {**ext, "suggestWhichBrokerId": "0"}, body)


def packed(size: int, offset: int) -> bytes:
    return record(zlib.compress(bytes([offset]) * size), sys_flag=0x301, queue_offset=offset)


# ------------------------------------------------------------ memory


@pytest.mark.parametrize("habit", [None, Habit()])
def test_an_answer_is_unpacked_up_to_a_bound(habit: Habit | None) -> None:
    """Whole messages: the one that reaches the bound is the last; what is not packed costs nothing."""
    data = packed(700, 3) + record(queue_offset=4) + packed(400, 5) + record(queue_offset=6)
    room = UnpackBudget(1_000)
    found = decode_messages(data + packed(1, 7), "b", 10, habit=habit, room=room)
    assert [len(each.body) for each in found] == [700, 5, 400, 5]
    assert room.rest_at == len(data)
    assert room.rest_offset == 17
    whole = UnpackBudget(1_000)
    assert len(decode_messages(data, "b", habit=habit, room=whole)) == 4
    assert whole.rest_at is None


def test_oversized_inner_batches_are_refused() -> None:
    batch = record(encode_batch([(0, b"", b"")] * 3), sys_flag=0xC0)
    room = UnpackBudget(2_000)
    assert len(decode_messages(batch * 2, "b", room=room)) == 3
    assert room.rest_at == len(batch)
    many = record(encode_batch([(0, b"", b"")] * 32_768), sys_flag=0xC0)
    with pytest.raises(MessageCodecError, match="more than 32767"):
        to_messages(read_record(many))
    # As with any body that cannot be read: it is handed out as it is.
    assert len(decode_messages(many, "b")) == 1


def reader_of(cluster: FakeCluster) -> PullConsumer:
    given = options(cluster)
    del given["consume_from_where"]
    return PullConsumer("g", **given)


def clear_bound(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(UnpackBudget.__init__, "__defaults__", (size,))
    monkeypatch.setattr(decode, "UNPACKED_MAX", size)


@pytest.mark.parametrize("kind", ["push", "lite", "pull"])
def test_what_was_not_unpacked_is_pulled_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clear_bound(monkeypatch, 1_000)
    bodies = [packed(800, offset) for offset in range(5)]

    def answer(asked: Asked) -> RemotingCommand | None:
        at = int(asked.ext["queueOffset"])
        if asked.ext["topic"] != "T" or at == 5:
            return None
        return pulled(0, 5, b"".join(bodies[at:]))(asked)

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        for offset in range(5):
            cluster.put("T", 0, bytes([offset]))
        cluster.on(RC.PULL_MESSAGE, answer)
        got: list[bytes] = []
        if kind == "push":
            listener = Listener()
            async with consumer(cluster, listener, concurrency=1):
                await until(lambda: len(listener.messages) == 5)
            got = listener.bodies
        elif kind == "lite":
            lite = LitePullConsumer("g", **options(cluster))
            lite.subscribe("T", "*")
            async with lite:
                while len(got) < 5:
                    got += [each.body for each in await lite.poll(10_000)]
        else:
            async with reader_of(cluster) as reader:
                at = 0
                while at < 5:
                    result = await reader.pull(QUEUE, at)
                    got += [each.body for each in result.messages]
                    at = result.next_begin_offset
        assert got == [bytes([offset]) * 800 for offset in range(5)]
        offsets = [
            int(each.ext["queueOffset"]) for each in cluster.asked(RC.PULL_MESSAGE, topic="T")
        ]
        assert offsets[:3] == [0, 2, 4]

    run_virtual(main)


def popped(info: str, body: bytes, taken: str = "") -> Answer:
    return lambda asked: asked.reply(
        0,
        "",
        {
            "popTime": "1", "invisibleTime": "60000", "reviveQid": "0", "restNum": "0",
            "startOffsetInfo": info, "msgOffsetInfo": taken,
        },
        body,
    )  # fmt: skip


def simple(cluster: FakeCluster, **more: object) -> SimpleConsumer:
    made = SimpleConsumer("g", **options(cluster, **more))
    made.subscribe("T")
    return made


def test_the_unread_rest_of_a_pop_waits_packed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clear_bound(monkeypatch, 1_000)

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        body = b"".join(packed(800, offset) for offset in range(5))
        cluster.on(RC.POP_MESSAGE, popped("0 1 0", body))
        async with simple(cluster) as member:
            parts = [await member.receive(32) for _ in range(3)]
            assert [[each.queue_offset for each in part] for part in parts] == [[0, 1], [2, 3], [4]]
            assert len(cluster.asked(RC.POP_MESSAGE)) == 1
            assert all(each.properties["POP_CK"] for part in parts for each in part)
            [*_] = await member.receive(32)
            assert len(cluster.asked(RC.POP_MESSAGE)) == 2
            # What is visible to others by now is not handed out.
            await asyncio.sleep(61)
            cluster.on(RC.POP_MESSAGE, popped("0 1 0", record(queue_offset=9)))
            [last] = await member.receive(32)
            assert last.queue_offset == 9

    run_virtual(main)
    assert "unpack to more than" in caplog.text


@pytest.mark.parametrize("info", ["", "junk", "0 0 x", "0 7 0", "0 1", ";"])
def test_a_pop_answer_without_start_offsets_raises(info: str) -> None:
    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.on(RC.POP_MESSAGE, popped(info, record()))
        async with simple(cluster) as member:
            for wait_ms in (0, 1_000):
                with pytest.raises(MessageCodecError, match="where it began"):
                    await member.receive(wait_ms=wait_ms)

    run_virtual(main)


FORGED = "7 1 60000 0 0 broker-a 3 99"


@pytest.mark.parametrize(
    ("taken", "brought", "receipt"),
    [
        ("0 1 5", FORGED, "0 1 60000 0 0 broker-a 1 5"),
        ("0 1 5", "nonsense", "0 1 60000 0 0 broker-a 1 5"),
        ("0 1 5", "3 1 60000 0 1 broker-a 1 5", "0 1 60000 0 0 broker-a 1 5"),
        ("1 1 5", FORGED, "3 1 60000 0 1 broker-a 1 5"),
        ("1 1 5;0 1 5", FORGED, "0 1 60000 0 0 broker-a 1 5"),
        ("1 1 5;0 1 5", "3 1 60000 0 1 broker-a 1 5", "3 1 60000 0 1 broker-a 1 5"),
        ("", FORGED, "0 1 60000 0 0 broker-a 1 5"),
    ],
)
def test_a_receipt_is_that_of_the_pop_whatever_the_message_says(
    taken: str, brought: str, receipt: str
) -> None:
    """A sender may write POP_CK: it would have another message acknowledged."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        body = record(queue_offset=5, properties=f"POP_CK\x01{brought}\x02".encode())
        cluster.on(RC.POP_MESSAGE, popped("1 1 3;0 1 0", body, taken))
        async with simple(cluster) as member:
            [message] = await member.receive()
            assert message.properties["POP_CK"] == receipt

    run_virtual(main)


# ------------------------------------------------------------ endless rounds


async def ten_seconds(kind: str, answer: Answer) -> Counter[int]:
    """What a consumer asks in ten seconds of a broker whose answers take a millisecond, by request code."""
    cluster = FakeCluster(LoopClock(), T=1)
    cluster.latency_s = 0.001
    cluster.on(RC.PULL_MESSAGE, answer)
    made: PushConsumer | LitePullConsumer
    if kind == "push":
        made = consumer(cluster, Listener())
    else:
        made = LitePullConsumer("g", **options(cluster))
        made.subscribe("T", "*")
    async with made:
        before = len(cluster.log)
        await asyncio.sleep(10)
        return Counter(each.code for each in cluster.log[before:])


@pytest.mark.parametrize("kind", ["push", "lite"])
@pytest.mark.parametrize(
    ("code", "following", "body"),
    [
        (ResponseCode.PULL_OFFSET_MOVED, 0, b""),
        (ResponseCode.PULL_OFFSET_MOVED, 5, b""),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, 0, b""),
        (ResponseCode.PULL_NOT_FOUND, 0, b""),
        (ResponseCode.SUCCESS, 0, b""),
        (ResponseCode.SUCCESS, 0, record(queue_offset=0)),
        (ResponseCode.SUCCESS, -7, b""),
        (ResponseCode.SUCCESS, 10**30, b""),
        (ResponseCode.SUCCESS, "nowhere", b""),
    ],
    ids=["moved", "moved on", "retry", "nothing", "empty", "again", "back", "beyond", "no number"],
)
def test_useless_answers_are_asked_for_once_a_second(
    kind: str,
    code: int,
    following: int | str,
    body: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """20,000 pulls before, or 2,500 rounds of rebalance, each with a heartbeat to all brokers."""
    caplog.set_level(logging.WARNING)
    asked = run_virtual(lambda: ten_seconds(kind, pulled(code, following, body)))
    # The topic and the group's retry topic.
    assert 0 < asked[RC.PULL_MESSAGE] <= 2 * 20
    assert asked[RC.HEART_BEAT] <= 6
    assert 0 < len(caplog.records) < 60


def test_an_answer_that_leads_on_starts_the_count_again() -> None:
    """Filters pass over much, an answer at a time; a broker that holds pulls is asked at once."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.latency_s = 0.001
        places = iter(range(10_000))

        def answer(asked: Asked) -> RemotingCommand:
            return pulled(ResponseCode.PULL_RETRY_IMMEDIATELY, next(places) // 7)(asked)

        cluster.on(RC.PULL_MESSAGE, answer)
        async with consumer(cluster, Listener()):
            await asyncio.sleep(2)
        assert len(cluster.asked(RC.PULL_MESSAGE)) > 1_000

    run_virtual(main)


def test_a_pull_that_says_no_offset_is_refused() -> None:
    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.on(RC.PULL_MESSAGE, pulled(0, "1" * 5_000))
        async with reader_of(cluster) as reader:
            with pytest.raises(BrokerRefused):
                await reader.pull(QUEUE, 0)

    run_virtual(main)


# ------------------------------------------------------------ what administrators look for


def test_an_administrators_read_goes_on_where_it_had_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pocketmq.admin.messages.INFLATED_SIZE_MAX", 1_000)
    asked: list[int] = []

    class Api:
        async def pull(
            self, address: str, ext: dict[str, str], timeout_ms: int
        ) -> tuple[PullResult, bytes]:
            asked.append(at := int(ext["queueOffset"]))
            body = b"".join(packed(800, offset) for offset in range(at, 5))
            return PullResult(PullStatus.FOUND, 5, 0, 5), body

    messages = MessageAdmin.__new__(MessageAdmin)
    messages._api = Api()  # type: ignore[assignment]

    async def main() -> list[int]:
        return [each.queue_offset async for each in messages.within(QUEUE, 0, 5, address="b")]

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]
    assert asked == [0, 2, 4]


def test_a_query_that_would_unpack_too_much_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.client.network.api._QUERIED_SIZE_MAX", 1_000)

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.on(RC.QUERY_MESSAGE, lambda asked: asked.reply(body=packed(800, 0) * 2))
        async with reader_of(cluster) as reader:
            member = reader._member
            assert member is not None
            with pytest.raises(MessageCodecError, match=r"key 'k'.*ask for fewer"):
                await member.instance.api.query_message(
                    cluster.brokers[0].address, "T", "k", 32, 0, 1, unique=False
                )

    run_virtual(main)
