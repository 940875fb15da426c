"""What is under way: the direct way of a send, its frames, its room, its deadlines, and its ends."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client import (
    BrokerRefused,
    Credentials,
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
from pocketmq.client.send.first_attempt import Flight
from pocketmq.client.send.limits import Deadlines, OpenConnection, SendLimits
from pocketmq.model.message import MessageQueue
from pocketmq.remoting.clock import ManualClock, SystemClock
from pocketmq.remoting.codes import RequestCode as RC
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.transport.connection import Connection
from pocketmq.remoting.transport.server import RemotingServer
from pocketmq.testing import InProcess
from tests.client.fake_cluster import Asked, FakeCluster
from tests.client.test_producing import options
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


# ------------------------------------------------------------ over real sockets


class OneBroker:
    """A name server and broker in one server that answers sends as a test wants."""

    def __init__(self, send: Callable[[RemotingCommand, Connection], RemotingCommand | None]):
        self._server = RemotingServer(
            {
                RC.GET_ROUTEINFO_BY_TOPIC: self._route,
                RC.SEND_MESSAGE_V2: send,
                RC.HEART_BEAT: lambda asked, _: asked.answer(0),
                RC.UNREGISTER_CLIENT: lambda asked, _: asked.answer(0),
            },
            SystemClock(),
        )
        self.address = ""

    async def __aenter__(self) -> "OneBroker":
        await self._server.__aenter__()
        _, port = await self._server.listen("127.0.0.1", 0)
        self.address = f"127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.__aexit__(None, None, None)

    def _route(self, asked: RemotingCommand, _: Connection) -> RemotingCommand:
        body = (
            '{"brokerDatas":[{"brokerAddrs":{0:"%s"},"brokerName":"b","cluster":"c"}],"queueDatas":'
            '[{"brokerName":"b","perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1}]}'
        )
        return asked.answer(0, body=(body % self.address).encode())


def stored(asked: RemotingCommand, offset: int) -> RemotingCommand:
    return asked.answer(0, ext={"msgId": "M", "queueId": "0", "queueOffset": str(offset)})


async def test_answers_may_come_in_any_order() -> None:
    """S33: an answer belongs to its request by the opaque."""
    waiting: list[tuple[RemotingCommand, Connection]] = []

    def answer(asked: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        if bytes(asked.body) == b"warm":
            return stored(asked, 0)
        waiting.append((asked, connection))
        if len(waiting) == 4:
            for request, peer in reversed(waiting):
                peer.send(stored(request, int(bytes(request.body))))
        return None

    async with OneBroker(answer) as broker:
        async with Producer("p", name_server=broker.address) as producer:
            await producer.send(Message("T", b"warm"))
            futures = [await producer.submit(Message("T", b"%d" % n)) for n in range(4)]
            assert [(await future).queue_offset for future in futures] == [0, 1, 2, 3]


async def test_a_connection_that_ends_settles_all_flights_on_it() -> None:
    """Broker gone mid-send; the outcome is unknown and the text says of what."""

    def answer(asked: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        if bytes(asked.body) == b"warm":
            return stored(asked, 0)
        if bytes(asked.body) == b"end":
            connection.abort()
        return None

    async with OneBroker(answer) as broker:
        async with Producer("p", name_server=broker.address, retry_times=0) as producer:
            await producer.send(Message("T", b"warm"))
            futures = [await producer.submit(Message("T", body)) for body in (b"a", b"b", b"end")]
            for future in futures:
                with pytest.raises(
                    OutcomeUnknown, match="topic 'T', queue 0, by group 'p': the connection to 127"
                ):
                    await future
            assert (await producer.send(Message("T", b"warm"))).queue_offset == 0


@pytest.mark.parametrize("sends_before", [0, 3], ids=["parsed", "cut from a known shape"])
@pytest.mark.parametrize(
    "fields",
    [
        {"queueId": "x"},
        {"queueOffset": ""},
        {"queueOffset": "9" * 5000},
    ],
    ids=["no number", "empty", "more digits than Python reads"],
)
async def test_an_unreadable_answer_leaves_the_outcome_unknown(
    fields: dict[str, str], sends_before: int
) -> None:
    """It says SUCCESS, so the message may be stored; calling it refused would say that it is not."""
    seen: set[Connection] = set()

    def answer(asked: RemotingCommand, connection: Connection) -> RemotingCommand:
        seen.add(connection)
        known = {"msgId": "M", "queueId": "0", "queueOffset": "5"}
        return asked.answer(0, ext=known | (fields if bytes(asked.body) == b"odd" else {}))

    async with OneBroker(answer) as broker:
        async with Producer("p", name_server=broker.address, retry_times=0) as producer:
            for _ in range(sends_before):
                await producer.send(Message("T", b"good"))
            with pytest.raises(OutcomeUnknown, match=r"topic 'T'.* answered SUCCESS, but no queue"):
                await producer.send(Message("T", b"odd"))
            with pytest.raises(OutcomeUnknown, match=r"topic 'T'.* answered SUCCESS, but no queue"):
                await (await producer.submit(Message("T", b"odd")))
            assert (await producer.send(Message("T", b"good"))).queue_offset == 5
    assert len(seen) == 1


async def test_a_signed_producer_signs_what_it_writes_directly() -> None:
    """ACL; the signature covers the fields and the body of that very request."""
    credentials = Credentials("key", "secret")
    wrong: list[str] = []

    def answer(asked: RemotingCommand, _: Connection) -> RemotingCommand:
        ext = dict(asked.ext or {})
        signature = ext.pop("Signature", "none")
        again = RemotingCommand(asked.code, ext, asked.body)
        credentials.sign(again)
        if (again.ext or {}).get("Signature") != signature:
            wrong.append(bytes(asked.body).decode())
        return stored(asked, 0)

    async with OneBroker(answer) as broker:
        async with Producer("p", name_server=broker.address, credentials=credentials) as producer:
            await send_all(producer, (Message("T", b"%d" % n) for n in range(20)))
    assert wrong == []


async def test_a_client_reads_on_while_what_it_sends_waits() -> None:
    """Two ends that both wait for the other to read would wait for ever."""
    read_at: list[int] = []

    def answer(asked: RemotingCommand, _: Connection) -> RemotingCommand:
        read_at.append(len(asked.body))
        return stored(asked, 0)

    async with OneBroker(answer) as broker:
        async with Producer(
            "p", name_server=broker.address, compress_over=1 << 30, send_timeout_ms=60_000
        ) as producer:
            body = bytes(1 << 20)
            results = await send_all(producer, (Message("T", body) for _ in range(60)))
    assert (len(results), len(read_at)) == (60, 60)


@pytest.mark.parametrize("header_encoding", ["JSON", "ROCKETMQ"])
async def test_results_are_the_same_from_answers_that_are_cut(
    header_encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets from 9 to 10 and opaques from 99 to 100 are longer than those before: parsed, then cut."""
    parsed = 0
    whole = Flight.set_result

    def counted(flight: Flight, answer: RemotingCommand) -> None:
        nonlocal parsed
        parsed += 1
        whole(flight, answer)

    monkeypatch.setattr(Flight, "set_result", counted)
    with InProcess() as server:
        async with Producer(
            "cutters", name_server=server.namesrv, header_encoding=header_encoding
        ) as producer:
            sent = [await producer.send(Message("Cut", b"%d" % n)) for n in range(120)]
        stored = {each.msg_id: each for each in server.messages("Cut")}
    assert len(stored) == 120
    for number, result in enumerate(sent):
        found = stored[result.msg_id]
        assert found.body == b"%d" % number
        assert (result.status, result.message_queue) == (SendStatus.SEND_OK, found.message_queue)
        assert (result.queue_offset, result.offset_msg_id) == (
            found.queue_offset,
            found.offset_msg_id,
        )
    assert parsed < 40
