"""What is under way: the direct way of a send, its frames, its room, its deadlines, and its ends."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client import (
    BrokerRefused,
    IllegalTopic,
    Message,
    NotRunning,
    OutcomeUnknown,
    Producer,
    SendFailed,
    SendStatus,
    send_all,
)
from pocketmq.client.options import SendOptions
from pocketmq.client.send.encode import Packer
from pocketmq.client.send.limits import Deadlines, OpenConnection, SendLimits
from pocketmq.model.message import MessageQueue
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode as RC
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from tests.client.fake_cluster import Asked, FakeCluster
from tests.client.played_options import options
from tests.client.virtual_time import LoopClock, run_virtual, until

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=20)


def packer(**settings: object) -> Packer:
    return Packer("g", SendOptions(**settings), ManualClock(), "10.0.0.1")  # type: ignore[arg-type]


@given(
    tags=st.none() | TEXT.filter(lambda text: "||" not in text and text == text.strip()),
    keys=st.none() | TEXT,
    properties=st.dictionaries(TEXT.filter(bool), TEXT, max_size=3),
    body=st.binary(min_size=1, max_size=300),
    opaque=st.integers(1, 2**31 - 1),
    broker=st.sampled_from(["broker-a", 'b"1', "b2147483646"]),
)
def test_a_frame_put_together_from_pieces_is_the_codecs_frame(
    tags: str | None,
    keys: str | None,
    properties: dict[str, str],
    body: bytes,
    opaque: int,
    broker: str,
) -> None:
    """S33: byte for byte what RemotingCommand and encode make, for any text and any name."""
    clerk = packer()
    queue = MessageQueue("T2147483646", broker, 3)
    for message in (Message(queue.topic, b"first"), Message(queue.topic, body, tags, keys)):
        message.properties.update(properties)
        outgoing = clerk.pack(message)
        frame = clerk.frame(outgoing, queue, opaque)
        command = RemotingCommand(
            outgoing.code, clerk.ext(outgoing, queue), outgoing.body, opaque=opaque
        )
        assert frame == encode(command)
        assert decode(frame[4:]) == command


def test_what_is_not_plain_is_left_to_the_codec() -> None:
    """S33: packed bodies, flags, replies and retries carry fields that the pieces do not."""
    clerk = packer(compress_over=10)
    queue = MessageQueue("T", "b", 0)
    for message in (
        Message("T", bytes(100)),
        Message("T", b"x", flag=1),
        Message("T", b"x", properties={"MSG_TYPE": "reply"}),
        Message("%RETRY%g", b"x", properties={"RECONSUME_TIME": "2"}),
    ):
        assert clerk.frame(clerk.pack(message), queue, 1) is None
    assert clerk.frame(clerk.pack_batch([Message("T", b"x")]), queue, 1) is None


# ------------------------------------------------------------ room


def test_room_is_bounded_by_count_and_by_size_and_given_in_turn() -> None:
    """Bounded memory; no sender is overtaken, and one that is too large flies alone."""

    async def main() -> None:
        room = SendLimits(3, 100)
        order: list[str] = []

        async def fly(name: str, size: int) -> None:
            await room.wait(size)
            order.append(name)

        async with asyncio.TaskGroup() as group:
            assert room.take(90)
            group.create_task(fly("large", 500))
            await asyncio.sleep(0)
            # A small one would fit now, but stands behind the large one.
            assert not room.take(1)
            small = [group.create_task(fly(f"small {n}", 10)) for n in range(4)]
            await asyncio.sleep(0)
            small[0].cancel()
            await asyncio.sleep(0)
            assert order == []
            room.give(90)
            await asyncio.sleep(0)
            assert (order, room.count, room.size) == (["large"], 1, 500)
            room.give(500)
            await asyncio.sleep(0)
            assert order == ["large", "small 1", "small 2", "small 3"]
            assert (room.count, room.size) == (3, 30)

    run_virtual(main)


def test_who_is_cancelled_while_waiting_holds_up_nobody() -> None:
    """A large message that gives up lets the small ones behind it go."""

    async def main() -> None:
        room = SendLimits(10, 100)
        assert room.take(50)
        async with asyncio.TaskGroup() as group:
            large = group.create_task(room.wait(80))
            small = group.create_task(room.wait(10))
            await asyncio.sleep(0)
            assert not small.done()
            large.cancel()
            await small
            # Room that was granted in the same turn as the cancel is given back.
            third = group.create_task(room.wait(60))
            await asyncio.sleep(0)
            room.give(50)
            third.cancel()
            await asyncio.sleep(0)
        assert (room.count, room.size) == (1, 10)

    run_virtual(main)


def test_a_shutdown_ends_when_the_last_waiter_is_cancelled() -> None:
    """Who waits until nothing is under way is told, whatever else happens in that turn."""

    async def main() -> None:
        room = SendLimits(1, 100)
        assert room.take(10)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            second = group.create_task(room.wait(10))
            group.create_task(room.empty())
            await asyncio.sleep(0)
            second.cancel()
            room.give(10)
        assert (room.count, room.size) == (0, 0)

    run_virtual(main)


@pytest.mark.parametrize("way", ["send", "submit"])
def test_no_more_than_the_limit_is_under_way(way: str) -> None:
    """Back-pressure instead of memory, for tasks and for futures."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        held: list[Asked] = []
        async with Producer("p", in_flight_max=5, **options(cluster)) as producer:
            await producer.send(Message("T", b"first"))
            gate = asyncio.Event()
            answer = cluster.answer_of_broker

            async def slow(broker: object, asked: Asked) -> RemotingCommand | None:
                held.append(asked)
                await gate.wait()
                return await answer(broker, asked)  # type: ignore[arg-type]

            cluster.answer_of_broker = slow  # type: ignore[method-assign]

            async def all_of_them() -> None:
                if way == "send":
                    async with asyncio.TaskGroup() as senders:
                        for n in range(12):
                            senders.create_task(producer.send(Message("T", b"%d" % n)))
                else:
                    futures = [await producer.submit(Message("T", b"%d" % n)) for n in range(12)]
                    for future in futures:
                        await future

            async with asyncio.TaskGroup() as group:
                group.create_task(all_of_them())
                await until(lambda: len(held) >= 5)
                await asyncio.sleep(0.5)
                assert len(held) == 5
                gate.set()
            assert len(held) == 12
            cluster.answer_of_broker = answer  # type: ignore[method-assign]
        bodies = [bytes(record.body) for record, _ in cluster.brokers[0].queue("T", 0)]
        assert bodies == [b"first", *(b"%d" % n for n in range(12))]

    run_virtual(main)


# ------------------------------------------------------------ ends of a flight


def test_a_submitted_message_is_retried_at_another_broker() -> None:
    """Retries with another broker, with no waiter."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), brokers=2, T=1)
        busy = cluster.brokers[0].address
        async with Producer("p", **options(cluster)) as producer:
            for _ in range(2):
                await producer.send(Message("T", b"warm"))
            cluster.on(
                RC.SEND_MESSAGE_V2,
                lambda asked: (
                    asked.reply(ResponseCode.SYSTEM_BUSY, "busy") if asked.address == busy else None
                ),
            )
            futures = [await producer.submit(Message("T", b"x")) for _ in range(6)]
            results = [await future for future in futures]
            assert {each.message_queue.broker_name for each in results} == {"broker-b"}
            # Invariant: a message keeps its key through all attempts.
            keys = [asked.ext["i"] for asked in cluster.asked(RC.SEND_MESSAGE_V2)[2:]]
            assert (len(keys), len(set(keys))) == (9, 6)
            cluster.on(RC.SEND_MESSAGE_V2, lambda asked: asked.reply(ResponseCode.SYSTEM_BUSY))
            with pytest.raises(SendFailed, match="Nothing was stored") as caught:
                await (await producer.submit(Message("T", b"x")))
            assert len(caught.value.attempts) == 3

    run_virtual(main)


def test_a_refusal_that_no_broker_can_help_with_is_final() -> None:
    """It names topic, queue, group, broker and code; a chosen queue is tried once."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), brokers=2, T=1)
        async with Producer("p", **options(cluster)) as producer:
            for _ in range(2):
                await producer.send(Message("T", b"warm"))
            begun = len(cluster.log)
            cluster.on(
                RC.SEND_MESSAGE_V2, lambda a: a.reply(ResponseCode.MESSAGE_ILLEGAL, "too long")
            )
            with pytest.raises(
                BrokerRefused,
                match=r"topic 'T', queue 0, by group 'p' was refused by 10.*MESSAGE_ILLEGAL.*too long",
            ):
                await (await producer.submit(Message("T", b"x")))
            cluster.on(RC.SEND_MESSAGE_V2, lambda a: a.reply(ResponseCode.SYSTEM_BUSY, "busy"))
            queue = (await producer.queues("T"))[0]
            with pytest.raises(BrokerRefused, match="SYSTEM_BUSY"):
                await (await producer.submit(Message("T", b"x"), queue=queue))
            with pytest.raises(BrokerRefused, match="SYSTEM_BUSY"):
                await producer.send(Message("T", b"x"), queue=queue)
            assert len(cluster.log) - begun == 3
            with pytest.raises(IllegalTopic):
                await producer.submit(Message("a/b", b"x"))
        with pytest.raises(NotRunning):
            await producer.submit(Message("T", b"x"))

    run_virtual(main)


def test_unanswered_flights_end_at_their_deadline() -> None:
    """A time-out leaves the outcome open; the wait is send_timeout_ms, not twice that."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        async with Producer("p", send_timeout_ms=1_000, **options(cluster)) as producer:
            await producer.send(Message("T", b"warm"))
            answer = cluster.answer_of_broker
            never = asyncio.Event()

            async def deaf(broker: object, asked: Asked) -> RemotingCommand | None:
                if bytes(asked.command.body).startswith(b"lost"):
                    await never.wait()
                return await answer(broker, asked)  # type: ignore[arg-type]

            cluster.answer_of_broker = deaf  # type: ignore[method-assign]
            began = LoopClock().monotonic_ms()
            lost = [await producer.submit(Message("T", b"lost")) for _ in range(3)]
            fine = [await producer.submit(Message("T", b"x")) for _ in range(3)]
            for future in fine:
                assert (await future).status is SendStatus.SEND_OK
            await asyncio.sleep(0.4)
            late = await producer.submit(Message("T", b"lost later"))
            for future in lost:
                with pytest.raises(OutcomeUnknown, match="did not answer within 1000 ms"):
                    await future
            assert LoopClock().monotonic_ms() - began in range(1_000, 1_005)
            assert not late.done()
            with pytest.raises(OutcomeUnknown):
                await late
            assert LoopClock().monotonic_ms() - began in range(1_400, 1_410)
            with pytest.raises(OutcomeUnknown, match="did not answer within 1000 ms"):
                await producer.send(Message("T", b"lost"))
            never.set()

    run_virtual(main)


def test_one_deaf_broker_does_not_make_flights_pile_up() -> None:
    """Bounded memory, though the first flight has no answer for the whole time-out."""

    class Settled:
        def __init__(self, settled: bool, deadline_ms: int) -> None:
            self.connection: OpenConnection
            self.opaque = 0
            self.settled, self.began_ms = settled, 0
            self.deadline_ms = deadline_ms
            self.expired = False

        def expire(self) -> None:
            self.expired = True
            self.settled = True

        def look(self, waited_ms: int) -> None:
            pass

    clock = ManualClock()
    timers: list[Callable[[], object]] = []
    deadlines = Deadlines(clock.monotonic_ms, lambda _, function: timers.append(function))
    deaf = Settled(False, 3_000)

    class Gone:
        def unanswered(self, opaque: int, waited_ms: float) -> None:
            pass

    deaf.connection = Gone()  # type: ignore[assignment]
    deadlines.add(deaf)
    for _ in range(100_000):
        deadlines.add(Settled(True, 3_000))
        assert len(deadlines) <= 2_049
    clock.advance_ms(3_000)
    assert len(timers) == 1
    timers[0]()
    assert deaf.expired
    assert len(deadlines) == 0


def test_shutdown_waits_for_what_was_submitted() -> None:
    """SIGTERM drains; a future is never left without an outcome."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        producer = Producer("p", **options(cluster))
        await producer.start()
        await producer.send(Message("T", b"warm"))
        answer = cluster.answer_of_broker

        async def slow(broker: object, asked: Asked) -> RemotingCommand | None:
            await asyncio.sleep(0.2)
            return await answer(broker, asked)  # type: ignore[arg-type]

        cluster.answer_of_broker = slow  # type: ignore[method-assign]
        futures = [await producer.submit(Message("T", b"x")) for _ in range(5)]
        await producer.shutdown()
        assert all(future.done() for future in futures)
        assert sorted(future.result().queue_offset for future in futures) == [1, 2, 3, 4, 5]

    run_virtual(main)


def test_send_all_stops_at_the_first_failure_and_names_it() -> None:
    """Send_all, results in the order given."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        async with Producer("p", **options(cluster)) as producer:
            await producer.send(Message("T", b"warm"))
            cluster.on(
                RC.SEND_MESSAGE_V2,
                lambda asked: (
                    asked.reply(ResponseCode.MESSAGE_ILLEGAL)
                    if bytes(asked.command.body) == b"bad"
                    else None
                ),
            )
            made: list[int] = []

            def messages() -> Iterator[Message]:
                for n in range(1_000):
                    made.append(n)
                    yield Message("T", b"bad" if n == 10 else b"x")

            with pytest.raises(ExceptionGroup) as caught:
                await send_all(producer, messages(), window=4)
            assert [type(each).__name__ for each in caught.value.exceptions] == ["MessageIllegal"]
            assert len(made) < 20

    run_virtual(main)


def test_the_result_of_a_submit_has_no_namespace() -> None:
    """Ns%T to the broker, T to the caller."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), **{"ns%T": 1})
        async with Producer("p", **options(cluster, namespace="ns")) as producer:
            for _ in range(2):
                sent = await (await producer.submit(Message("T", b"x")))
                assert sent.message_queue.topic == "T"

    run_virtual(main)
