"""Sends of one read that are answered together: stored, indexed and answered as one after the other."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.broker.wire.sends.send import SendMessageProcessor
from pocketmq.model.record import encode_batch
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, SerializeType, decode, encode
from pocketmq.remoting.frames import FrameDecoder
from pocketmq.remoting.quick.by_pattern import RUN_MIN, Cuttable, Patterns, learn_request
from tests.broker.members import open_connection
from tests.broker.pairs import end_of, pair
from tests.broker.serving import Peer, serving
from tests.broker.test_acts import Site
from tests.kit.waiting import until_async as until

CODE, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
COMMON = {"a": "pg", "b": "T", "c": "TBW102", "d": "4", "f": "0", "h": "3", "j": "0", "m": "false"}
QUEUES = 4


class Waiting:
    """Waits for the messages of one queue."""

    def __init__(self) -> None:
        self.arrived_there: list[Any] = []

    def awaited(self, topic: str, queue_id: int) -> bool:
        return queue_id == 1

    def arrived(self, topic: str, queue_id: int, *entry: Any) -> None:
        if queue_id == 1:
            self.arrived_there.append(entry)

    def bit_map_of(self, topic: str, properties: bytes) -> bytes:
        return b""


class End:
    """A broker that handles reads of one connection, together where it can or one by one."""

    def __init__(self, folder: Path) -> None:
        self.site = Site(folder)
        self.store = self.site.store
        # As after many messages: numpy is there.
        self.store.index.has_numpy = True
        self.store.index.step()
        assert self.store.appends.has_numpy
        parts = self.site.parts
        short = SendMessageProcessor(parts.node, parts.messages, self.site.sends)
        self.handlers = short.handlers()
        self.connection = open_connection(self.site.clock)
        self.connection.peer_host = self.site.asker.host
        self.waiting = Waiting()
        self.store.appends.arrivals = self.waiting
        for queue_id in range(QUEUES):
            # Every queue is there, and the topic takes the short way.
            ext = {**COMMON, "e": str(queue_id), "g": "1790000000000", "i": "a\x01b"}
            self._handler(CODE).handle(RemotingCommand(CODE, ext, b"first"), self.connection)

    def _handler(self, code: int) -> Cuttable:
        handler = self.handlers[code]
        assert isinstance(handler, Cuttable)
        return handler

    def read(self, frames: Sequence[bytes], patterns: Patterns | None) -> tuple[bytes, int]:
        """Handle what a read brought. Returns: the answers, and how many were given together."""
        answers: list[bytes] = []
        together = place = 0
        while place < len(frames):
            if patterns is not None:
                done, replies = patterns.answer_run(frames[place:], self.connection, self.handlers)
                if done:
                    answers.append(replies)
                    place += done
                    together += done
                    continue
            command = decode(frames[place])
            handler = self._handler(command.code)
            reply: Any = handler.handle(command, self.connection)
            answers.append(reply if isinstance(reply, bytes) else encode(reply))
            if patterns is not None and not patterns._by_mark:
                learn_request(patterns, frames[place], command, handler)
            place += 1
        return b"".join(answers), together

    def state(self, key: str) -> Any:
        """All that is stored and counted; key: of the index."""
        store = self.store
        stats = self.site.parts.messages.stats
        return (
            bytes(store.raw(0, store.commit_log_max_position) or b""),
            [list(store.entries("T", queue_id, 0, 1 << 20)) for queue_id in range(QUEUES)],
            {
                (topic, queue_id): (put.nums, put.batched, put.size, put.sizes)
                for topic, queues in stats.put.items()
                for queue_id, put in queues.items()
            },
            (store.appends.put_count, store.appends.put_size),
            self.waiting.arrived_there,
            [bytes(found) for found in store.query_by_key("T", key, 64, 0, 1 << 60).records],
        )


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[End, End]]:
    both = End(tmp_path_factory.mktemp("together")), End(tmp_path_factory.mktemp("single"))
    yield both
    for end in both:
        end.store.close()


_KEYS = st.text(st.sampled_from("01aF"), min_size=4, max_size=4) | st.sampled_from(
    ['a"bc', "ä12", "a\x01\x02b", "%b%%"]
)
_MESSAGE = st.tuples(st.integers(0, 5), _KEYS, st.sampled_from(["A1", "B2"]), st.binary(min_size=3))


@settings(max_examples=60)
@given(
    st.lists(_MESSAGE, min_size=RUN_MIN - 1, max_size=RUN_MIN + 14),
    st.sampled_from([SerializeType.JSON, SerializeType.ROCKETMQ]),
    st.sampled_from(
        [
            "UNIQ_KEY\x01{}\x02WAIT\x01true\x02TAGS\x01{}\x02",
            "TAGS\x01{1}\x02UNIQ_KEY\x01{0}",
            "KEYS\x01k1 k2\x02x%b\x01{}\x02WAIT\x01true\x02UNIQ_KEY\x01u\x02",
            "WAIT\x01false\x02b\x01{}\x02",
        ]
    ),
    st.sampled_from([1, 93, 2**31 - 60]),
)
def test_a_run_is_stored_as_its_messages_one_by_one(
    ends: tuple[End, End],
    messages: list[tuple[int, str, str, bytes]],
    encoding: SerializeType,
    properties: str,
    opaque: int,
) -> None:
    """Whatever they hold: log, queues, counts, index, answers and what waiting pulls are told are equal."""
    together, single = ends
    patterns = Patterns()
    done = 0
    for again in range(3):
        frames = [
            encode(
                RemotingCommand(
                    CODE,
                    {
                        **COMMON,
                        "e": str(queue_id),
                        "g": str(1_790_000_000_000 + place),
                        "i": properties.format(key, tag),
                    },
                    (body * 9)[:9],
                    opaque + again * len(messages) + place & 0x7FFF_FFFF,
                    encoding=encoding,
                )
            )[4:]
            for place, (queue_id, key, tag, body) in enumerate(messages)
        ]
        answers, count = together.read(frames, patterns)
        assert answers == single.read(frames, None)[0]
        done += count
    assert together.state(messages[0][1]) == single.state(messages[0][1])
    plain = all(key.isalnum() and key.isascii() and queue < QUEUES for queue, key, *_ in messages)
    if plain and opaque > 93 and len(messages) > RUN_MIN:
        assert done >= len(messages)


_BATCH = st.tuples(
    st.integers(0, 4),
    st.lists(st.tuples(_KEYS, st.sampled_from(["A1", "B2"]), st.binary(min_size=3)), min_size=3),
)


@settings(max_examples=40)
@given(
    st.lists(_BATCH, min_size=2, max_size=20),
    st.sampled_from([SerializeType.JSON, SerializeType.ROCKETMQ]),
    st.sampled_from(
        [
            "UNIQ_KEY\x01{}\x02TAGS\x01{}\x02",
            "b\x01c\x02UNIQ_KEY\x01{}",
            "UNIQ_KEY\x01{}\x02KEYS\x01{}",
            "TAGS\x01t\x02UNIQ_KEY\x01{}\x02",
        ]
    ),
    st.sampled_from(
        ["WAIT\x01true\x02", "WAIT\x01false\x02", "WAIT\x01false\x02KEYS\x01k", "TAGS\x01X"]
    ),
    st.integers(3, 5),
)
def test_batches_of_a_read_are_stored_as_one_by_one(
    ends: tuple[End, End],
    batches: list[tuple[int, list[tuple[str, str, bytes]]]],
    encoding: SerializeType,
    properties: str,
    outer: str,
    size: int,
) -> None:
    """As runs of plain messages are; `size` messages in each batch."""
    together, single = ends
    patterns = Patterns()
    done = 0
    for again in range(4):
        frames: list[bytes] = []
        for place, (queue_id, members) in enumerate(batches):
            of_batch = [members[number % len(members)] for number in range(size)]
            body = encode_batch(
                (7, (text * 9)[:9], properties.format(key, tag).encode())
                for key, tag, text in of_batch
            )
            ext = {**COMMON, "m": "true", "e": str(queue_id), "g": str(1_790_000_000_000 + place)}
            command = RemotingCommand(
                BATCH, {**ext, "i": outer}, body, 100 + again * 20 + place, encoding=encoding
            )
            frames.append(encode(command)[4:])
        answers, count = together.read(frames, patterns)
        assert answers == single.read(frames, None)[0]
        done += count
    key = batches[0][1][0][0]
    assert together.state(key) == single.state(key)
    keys = {key for _, members in batches for key, _, _ in members}
    plain = all(key.isalnum() and key.isascii() for key in keys)
    # What may differ from batch to batch, keys and tags, is not looked for in a run.
    fits = "KEYS" not in outer and "TAGS" not in outer
    if plain and fits and max(queue for queue, _ in batches) < QUEUES:
        assert done >= len(batches)


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_reads_of_many_sends_are_answered_each(tmp_path: Path, flush: str) -> None:
    """Over a socket, with properties that let all of a read be taken together; SYNC_FLUSH: once on disk."""
    async with serving(tmp_path, store={"flush_disk_type": flush}) as broker:
        broker.parts.messages.store.index.step()
        async with await Peer.at(broker) as peer:
            found = [each for place in range(5) for each in await _sent(peer, place)]
            count = 1 + 16 * RUN_MIN
            assert found == [(0, offset) for offset in range(count)]
            read = broker.parts.messages.store.read("T", 0, 0, count)
            assert read.count == count


async def _sent(peer: Peer, place: int) -> list[tuple[int, int]]:
    """One message, or many of one read if place is not 0. Returns: code and queue offset of each."""
    ext = {**COMMON, "e": "0", "g": "1790000000000"}
    several = [
        peer.send(CODE, {**ext, "i": f"UNIQ_KEY\x01{place}{number:02}"}, b"body")
        for number in range(4 * RUN_MIN if place else 1)
    ]
    found: list[tuple[int, int]] = []
    for opaque in several:
        answer = await peer.answer(opaque)
        assert answer.ext is not None
        found.append((answer.code, int(answer.ext["queueOffset"])))
    return found


async def test_reads_of_many_sends_wait_for_the_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them have its acknowledgement, or all are answered that it did not come in time."""
    monkeypatch.setattr("pocketmq.broker.ha.follower.RETRY_MS", 50)
    async with pair(tmp_path) as brokers:
        master = await brokers.master(broker_role="SYNC_MASTER", slave_timeout=60_000)
        master.parts.messages.store.index.step()
        slave = await brokers.slave()
        slaves = master.parts.messages.durability.replicas.slaves
        await until(lambda: slaves.in_sync_count == 1)
        async with await Peer.at(master) as peer:
            for place in range(5):
                found = await _sent(peer, place)
                assert {code for code, _ in found} == {ResponseCode.SUCCESS}
                assert end_of(slave) == end_of(master)
            (connection,) = master.parts.services.replication.listener.connections
            connection.pause_writing()
            master.config.slave_timeout = 100
            late = await _sent(peer, 5)
            assert late == [
                (ResponseCode.FLUSH_SLAVE_TIMEOUT, found[-1][1] + number)
                for number in range(1, 4 * RUN_MIN + 1)
            ]


def test_a_read_of_frames_of_one_size_is_cut_wherever_it_ends() -> None:
    """The decoder takes such frames at once; another one between them is one of its own."""
    frames = [bytes((0, 0, 0, 96)) + bytes([number]) * 96 for number in range(40)]
    odd = bytes((0, 0, 0, 50)) + b"o" * 50
    for whole in ([*frames, odd], [odd, *frames], [*frames[:30], odd, *frames[30:]]):
        data = b"".join(whole)
        for cut in (2_048, 2_100, 3_001, len(data) - 1, len(data)):
            decoder = FrameDecoder()
            found = decoder.feed(data[:cut]) + decoder.feed(data[cut:])
            assert found == [frame[4:] for frame in whole]
            assert not decoder.pending
