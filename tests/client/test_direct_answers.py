"""Answers to sends that were written directly: out of order, cut, unreadable, lost with their connection."""

from collections.abc import Callable

import pytest

from pocketmq.client import (
    Credentials,
    Message,
    OutcomeUnknown,
    Producer,
    SendStatus,
    send_all,
)
from pocketmq.client.send.first_attempt import Flight
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode as RC
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.connection import Connection
from pocketmq.remoting.transport.server import RemotingServer
from pocketmq.testing import InProcess


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
