"""Mixed load for a broker that is killed, and what must be there afterwards.

Each worker does one kind of thing, one request after the other, until its connection dies; what the
broker has acknowledged goes into the Ledger. `missing` then asks a living broker for all of it.

    plain, batch, burst   the message stands where the answer said, and nothing stands there twice
    delay, timer   the message comes to its topic
    transaction    a message whose commit was answered comes to its topic, one rolled back never
    pop            every message is handed out; one whose acknowledgement was answered never again
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pocketmq.model.message_codec import parse_offset_msg_id
from pocketmq.model.names import AUTO_CREATE_TOPIC
from pocketmq.model.record import encode_batch, read_records
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import ConnectionLost, RemotingError
from pocketmq.remoting.flags import MessageSysFlag, PullSysFlag
from pocketmq.remoting.header import Header
from pocketmq.remoting.headers import (
    AckMessageHeader,
    EndTransactionHeader,
    GetMaxOffsetHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetHeader,
    GetMinOffsetResponseHeader,
    PopMessageHeader,
    PullMessageHeader,
    SendMessageResponseHeader,
    SendMessageV2Header,
)
from pocketmq.remoting.transport.client import RemotingClient
from tests.broker.popping import Popped, popped
from tests.broker.serving import At
from tests.broker.serving import Peer as RawPeer

QUEUES = 4
_LOOKS = 100
POP_GROUP = "kill_pop"
_TIMEOUT_MS = 10_000
_INVISIBLE_MS = 10_000
_BATCH, _BURST = 5, 64
Place = tuple[str, int, int]


@dataclass
class Ledger:
    """What was sent and acknowledged, over all rounds. places: (topic, queue, offset) -> body."""

    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    places: dict[Place, bytes] = field(default_factory=dict)
    plain_sent: set[bytes] = field(default_factory=set)
    # Topic -> bodies that have to come there.
    to_come: dict[str, set[bytes]] = field(default_factory=dict)
    rolled_back: set[bytes] = field(default_factory=set)
    to_pop: set[bytes] = field(default_factory=set)
    popped: set[bytes] = field(default_factory=set)
    acked: set[bytes] = field(default_factory=set)
    popped_after_ack: set[bytes] = field(default_factory=set)

    def body(self, kind: str) -> bytes:
        return b"%s-%d" % (kind.encode(), next(self.numbers))

    def acknowledge(self, topic: str, queue_id: int, offset: int, body: bytes) -> None:
        place = topic, queue_id, offset
        assert place not in self.places, f"{place} was given out twice"
        self.places[place] = body

    @property
    def count(self) -> int:
        return len(self.places) + sum(map(len, self.to_come.values())) + len(self.to_pop)


class Peer:
    """One connection to the broker. Raises: RemotingError when it dies."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self.address = address

    async def ask(self, code: RequestCode, header: Header, body: bytes = b"") -> RemotingCommand:
        command = RemotingCommand(code, header.ext(), body)
        return await self._client.invoke(self.address, command, _TIMEOUT_MS)

    async def send(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        *,
        properties: str = "",
        sys_flag: int = 0,
        batch: bool = False,
    ) -> SendMessageResponseHeader:
        """Raises: AssertionError for an answer that is no success."""
        header = SendMessageV2Header(
            producer_group="killers",
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=QUEUES,
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp=SystemClock().now_ms(),
            flag=0,
            properties=properties,
            batch=batch,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
        answer = await self.ask(code, header, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return SendMessageResponseHeader.parse(answer.ext)

    async def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        low = await self.ask(RequestCode.GET_MIN_OFFSET, GetMinOffsetHeader(topic, queue_id))
        high = await self.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(topic, queue_id))
        return (
            GetMinOffsetResponseHeader.parse(low.ext).offset,
            GetMaxOffsetResponseHeader.parse(high.ext).offset,
        )

    async def pull(self, topic: str, queue_id: int, offset: int) -> list[tuple[int, bytes]]:
        """(queue offset, body) of the next messages; none at the end."""
        header = PullMessageHeader(
            consumer_group="readers",
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=PullSysFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription="*",
        )
        answer = await self.ask(RequestCode.PULL_MESSAGE, header)
        if answer.code == ResponseCode.SUCCESS:
            return [(each.queue_offset, bytes(each.body)) for each in read_records(answer.body)]
        assert answer.code in (
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_OFFSET_MOVED,
            # Its file of the log was deleted just now.
            ResponseCode.PULL_RETRY_IMMEDIATELY,
        ), answer.remark
        return []

    async def pop(self, topic: str) -> list[Popped]:
        header = PopMessageHeader(
            consumer_group=POP_GROUP,
            topic=topic,
            queue_id=-1,
            max_msg_nums=16,
            invisible_time=_INVISIBLE_MS,
            poll_time=0,
            born_time=SystemClock().now_ms(),
            init_mode=0,
        )
        answer = await self.ask(RequestCode.POP_MESSAGE, header)
        return popped(answer, topic, POP_GROUP) if answer.code == ResponseCode.SUCCESS else []

    async def ack(self, message: Popped) -> None:
        header = AckMessageHeader(
            consumer_group=POP_GROUP,
            topic=message.topic,
            queue_id=message.queue_id,
            extra_info=message.receipt,
            offset=message.offset,
        )
        answer = await self.ask(RequestCode.ACK_MESSAGE, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


@asynccontextmanager
async def peer(address: str) -> AsyncIterator[Peer]:
    async with RemotingClient({}, SystemClock()) as client:
        yield Peer(client, address)


# ------------------------------------------------------------ workers


async def plain(to: Peer, ledger: Ledger) -> None:
    body = ledger.body("plain")
    ledger.plain_sent.add(body)
    place = await to.send("KillPlain", 0, body, properties=f"KEYS\x01{body.decode()}\x02")
    ledger.acknowledge("KillPlain", place.queue_id, place.queue_offset, body)


async def batch(to: Peer, ledger: Ledger) -> None:
    bodies = [ledger.body("batch") for _ in range(_BATCH)]
    ledger.plain_sent.update(bodies)
    packed = encode_batch([(0, body, b"") for body in bodies])
    place = await to.send("KillPlain", 1, packed, batch=True)
    for step, body in enumerate(bodies):
        ledger.acknowledge("KillPlain", 1, place.queue_offset + step, body)


async def burst(to: Peer, ledger: Ledger) -> None:
    """64 messages in one write, over and over: sends of one read, which are stored together."""
    async with await RawPeer.at(At(to.address)) as raw:
        while True:
            bodies = [b"burst-%08d" % next(ledger.numbers) for _ in range(_BURST)]
            ledger.plain_sent.update(bodies)
            try:
                answers = await raw.burst("KillPlain", bodies, queues=QUEUES)
            except (OSError, EOFError) as error:
                raise ConnectionLost(str(error)) from error
            for body, answer in zip(bodies, answers, strict=True):
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                place = SendMessageResponseHeader.parse(answer.ext)
                ledger.acknowledge("KillPlain", place.queue_id, place.queue_offset, body)
            await asyncio.sleep(0.01)


async def delay(to: Peer, ledger: Ledger) -> None:
    body = ledger.body("delay")
    await to.send("KillDelay", 0, body, properties="DELAY\x011\x02")
    ledger.to_come.setdefault("KillDelay", set()).add(body)


async def timer(to: Peer, ledger: Ledger) -> None:
    body = ledger.body("timer")
    await to.send("KillTimer", 0, body, properties="TIMER_DELAY_MS\x011500\x02")
    ledger.to_come.setdefault("KillTimer", set()).add(body)


async def transaction(to: Peer, ledger: Ledger) -> None:
    body = ledger.body("transaction")
    number = next(ledger.numbers)
    rolls_back = number % 3 == 0
    if rolls_back:
        ledger.rolled_back.add(body)
    half = await to.send(
        "KillTransaction",
        0,
        body,
        properties=f"TRAN_MSG\x01true\x02PGROUP\x01killers\x02UNIQ_KEY\x01{number:032X}\x02",
        sys_flag=int(MessageSysFlag.TRANSACTION_PREPARED),
    )
    header = EndTransactionHeader(
        producer_group="killers",
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=parse_offset_msg_id(half.msg_id)[1],
        commit_or_rollback=int(
            MessageSysFlag.TRANSACTION_ROLLBACK if rolls_back else MessageSysFlag.TRANSACTION_COMMIT
        ),
        msg_id=f"{number:032X}",
        topic="KillTransaction",
    )
    answer = await to.ask(RequestCode.END_TRANSACTION, header)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    if not rolls_back:
        ledger.to_come.setdefault("KillTransaction", set()).add(body)


async def send_for_pop(to: Peer, ledger: Ledger) -> None:
    body = ledger.body("pop")
    await to.send("KillPop", 0, body)
    ledger.to_pop.add(body)


async def pop(to: Peer, ledger: Ledger) -> None:
    for message in await to.pop("KillPop"):
        ledger.popped.add(message.body)
        if message.body in ledger.acked:
            ledger.popped_after_ack.add(message.body)
        # Every fourth is left to come again.
        if hash(message.body) % 4:
            await to.ack(message)
            ledger.acked.add(message.body)
    await asyncio.sleep(0.005)


Worker = Callable[[Peer, Ledger], Awaitable[None]]
WORKERS: tuple[Worker, ...] = (plain, batch, burst, delay, timer, transaction, send_for_pop, pop)


async def work(address: str, ledger: Ledger, workers: tuple[Worker, ...] = WORKERS) -> None:
    """All workers until the broker dies; each ends with its connection."""

    async def until_it_dies(worker: Worker) -> None:
        async with peer(address) as to:
            while True:
                try:
                    await worker(to, ledger)
                except RemotingError:
                    return

    async with asyncio.TaskGroup() as tasks:
        for worker in workers:
            tasks.create_task(until_it_dies(worker))


# ------------------------------------------------------------ the judgement


async def stored(to: Peer, topic: str) -> dict[Place, bytes]:
    """All messages of a topic that are still there, from each queue's minimum on, without a hole."""
    found: dict[Place, bytes] = {}
    for queue_id in range(QUEUES):
        low, high = await to.bounds(topic, queue_id)
        offset = low
        while offset < high:
            messages = await to.pull(topic, queue_id, offset)
            if not messages:
                for _ in range(_LOOKS):
                    low, high = await to.bounds(topic, queue_id)
                    if low > offset:
                        break
                    await asyncio.sleep(0.05)
                assert low > offset, f"{topic} queue {queue_id} ends at {offset}, its end is {high}"
                offset = low  # Retention was faster than this reader.
                continue
            assert [at for at, _ in messages] == list(range(offset, offset + len(messages)))
            for at, body in messages:
                found[topic, queue_id, at] = body
            offset += len(messages)
    return found


async def verify(address: str, ledger: Ledger, *, retained: bool, within_s: float = 90) -> None:
    """Raises: AssertionError naming what is missing. retained: nothing was deleted meanwhile."""
    async with peer(address) as to:
        found = await stored(to, "KillPlain")
        low = {queue_id: (await to.bounds("KillPlain", queue_id))[0] for queue_id in range(QUEUES)}
        expected = {
            place: body for place, body in ledger.places.items() if place[2] >= low[place[1]]
        }
        lost = {place: body for place, body in expected.items() if found.get(place) != body}
        assert not lost, f"{len(lost)} of {len(expected)} are not where the answer said: {lost}"
        assert set(found.values()) <= ledger.plain_sent
        assert len(set(found.values())) == len(found), "a message is stored twice"
        if not retained:
            return
        assert len(expected) == len(ledger.places)
        await _come(to, ledger, within_s)
        await _pop_all(to, ledger, within_s)


async def _come(to: Peer, ledger: Ledger, within_s: float) -> None:
    end = asyncio.get_running_loop().time() + within_s
    for topic, wanted in ledger.to_come.items():
        while True:
            there = set((await stored(to, topic)).values())
            missing = wanted - there
            if not missing:
                break
            assert asyncio.get_running_loop().time() < end, (
                f"{len(missing)} of {len(wanted)} never came to {topic}: {sorted(missing)[:5]}"
            )
            await asyncio.sleep(0.2)
        assert not there & ledger.rolled_back, "what was rolled back came"


async def _pop_all(to: Peer, ledger: Ledger, within_s: float) -> None:
    end = asyncio.get_running_loop().time() + within_s
    while missing := ledger.to_pop - ledger.popped:
        await pop(to, ledger)
        assert asyncio.get_running_loop().time() < end, (
            f"{len(missing)} of {len(ledger.to_pop)} were never handed out: {sorted(missing)[:5]}"
        )
    assert not ledger.popped_after_ack, "what was acknowledged was handed out again"
