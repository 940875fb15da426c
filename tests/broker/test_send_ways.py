"""Whatever way a send takes, its answer, its records, its queue entries and its figures are the same."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.broker.acts.send import SendActs
from pocketmq.broker.wire.sends.send import SendMessageProcessor
from pocketmq.model.record import encode_batch
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand, SerializeType, decode, encode
from pocketmq.remoting.quick.by_pattern import RUN_MIN
from pocketmq.remoting.transport.connection import Connection
from tests.broker.test_acts import Site
from tests.kit.sinks import Sink

V1, V2, BATCH = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
QUEUES = 4
NAMES = [
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
]


@dataclass(frozen=True)
class Message:
    """What differs between the sends of a read. members: of a batch."""

    queue: str
    born: str
    properties: str
    body: bytes
    members: tuple[tuple[bytes, str], ...] = ()


class End:
    """A broker, and how its reads come."""

    def __init__(self, folder: Path, *, alone: bool, one_a_read: bool, checked: bool) -> None:
        """alone: a connection for each request; checked: by the act."""
        self._alone, self._one_a_read, self._checked = alone, one_a_read, checked
        self.site = site = Site(folder)
        self.store = site.store
        # As after many messages: numpy is there.
        self.store.index.has_numpy = True
        self.store.index.step()
        parts = site.parts
        acts = SendActs(parts.node, parts.tables, parts.messages, random_below=lambda count: 0)
        self._sends = SendMessageProcessor(parts.node, parts.messages, acts)
        self._handlers = self._sends.handlers()
        self._seen, self._offsets = 0, [0] * QUEUES

    def begin(self) -> None:
        """Connect anew, within a loop: nothing is known of the client."""
        clock, self._sink = self.site.clock, Sink()
        self._connection = Connection(
            self._handlers, spawn=lambda coroutine: None, monotonic_ms=clock.monotonic_ms
        )
        self._connection.connection_made(self._sink)

    def read(self, frames: Sequence[bytes]) -> list[RemotingCommand]:
        """Handle what one read brings. Returns: the answers."""
        reads = frames if self._alone or self._one_a_read or self._checked else [b"".join(frames)]
        answers: list[RemotingCommand] = []
        for data in reads:
            if self._alone or self._checked:
                self.begin()
            if self._checked:
                self._sends.parts.forget_topics()
            self._connection.data_received(data)
            self._connection._outbox.flush()
            answers += self._sink.take()
        return answers

    def state(self, key: str) -> dict[str, Any]:
        """All that was stored since, and the figures; key: of the index."""
        store, stats = self.store, self.site.parts.messages.stats
        begin, self._seen = self._seen, store.commit_log_max_position
        offsets = self._offsets
        self._offsets = [store.max_offset("T", at) for at in range(QUEUES)]
        return {
            "log": bytes(store.raw(begin, self._seen - begin) or b""),
            "queues": [
                list(store.entries("T", at, offset, 1 << 10)) for at, offset in enumerate(offsets)
            ],
            "figures": {
                (topic, queue_id): (put.nums, put.batched, put.size, put.sizes)
                for topic, queues in stats.put.items()
                for queue_id, put in queues.items()
                if put.nums
            },
            "totals": (store.appends.put_count, store.appends.put_size),
            "index": [bytes(each) for each in store.query_by_key("T", key, 64, 0, 1 << 60).records],
        }


WAYS: dict[str, dict[str, bool]] = {
    "by the act": {"alone": False, "one_a_read": True, "checked": True},
    "parsed": {"alone": True, "one_a_read": True, "checked": False},
    "one a read": {"alone": False, "one_a_read": True, "checked": False},
    "many a read": {"alone": False, "one_a_read": False, "checked": False},
}


class Ends:
    """The same broker once for each way; made anew after they disagreed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ends: dict[str, End] = {}
        self.open()

    def open(self) -> None:
        self.close()
        for name, how in WAYS.items():
            shutil.rmtree(self._folder / name, ignore_errors=True)
            self.ends[name] = End(self._folder / name, **how)

    def close(self) -> None:
        for end in self.ends.values():
            end.store.close()
        self.ends = {}

    def agree(self, reads: Sequence[Sequence[bytes]], key: str) -> None:
        """Bring these reads by every way. Raises: AssertionError."""
        for end in self.ends.values():
            end.begin()
        try:
            for frames in reads:
                answers = {name: end.read(frames) for name, end in self.ends.items()}
                for name, found in answers.items():
                    assert found == answers["by the act"], name
            states = {name: end.state(key) for name, end in self.ends.items()}
            for name, state in states.items():
                for part, value in state.items():
                    assert value == states["by the act"][part], (name, part)
        except AssertionError:
            self.open()
            raise


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    made = Ends(tmp_path_factory.mktemp("ways"))
    yield made
    made.close()


_QUEUE = st.sampled_from(["0", "1", "2", "3"] * 4 + ["4", "-1", "01", "x", ""])
_BORN = st.integers(1_790_000_000_000, 1_790_000_000_099).map(str) | st.sampled_from(
    ["1", "", "now", "9" * 18]
)
_WORD = st.text(st.sampled_from("01aF"), min_size=4, max_size=4)
_ODD = st.text(st.sampled_from('01aF"\\%ä \x01\x02'), max_size=6)
_VALUE = st.one_of(_WORD, _WORD, _WORD, _WORD, _ODD)
_TEXT = st.sampled_from(
    [
        "UNIQ_KEY\x01{}\x02WAIT\x01true\x02TAGS\x01{}\x02",
        "TAGS\x01{1}\x02UNIQ_KEY\x01{0}",
        "KEYS\x01k1 k2\x02x%b\x01{}\x02WAIT\x01true\x02UNIQ_KEY\x01u\x02",
        "WAIT\x01false\x02b\x01{}\x02KEYS\x01{}\x02",
        "CLUSTER\x01{}\x02a\x01b",
        "DELAY\x01x{}\x02",
        "{}",
    ]
)
_OPAQUE = st.sampled_from([1, 93, 2**31 - 200])
_ENCODING = st.sampled_from([SerializeType.JSON, SerializeType.ROCKETMQ])
_FLAG = st.sampled_from([0, 0, 0, 2])


def frame(code: int, message: Message, opaque: int, flag: int, encoding: int) -> bytes:
    fields = {
        "a": "pg",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": message.queue,
        "f": "0",
        "g": message.born,
        "h": "3",
        "i": message.properties,
        "j": "0",
        "k": "false",
        "m": "true" if code == BATCH else "false",
    }
    body = message.body
    if code == BATCH:
        body = encode_batch((7, each, text.encode()) for each, text in message.members)
    if code == V1:
        letters = dict(zip("abcdefghijklm", NAMES, strict=True))
        fields = {letters[letter]: value for letter, value in fields.items()}
    command = RemotingCommand(code, fields, body, opaque, flag, encoding=encoding)
    return encode(command)


def frames_of(
    code: int, messages: Sequence[Message], opaque: int, flag: int, encoding: int
) -> list[bytes]:
    return [
        frame(code, message, (opaque + place) & 0x7FFF_FFFF or 1, flag, encoding)
        for place, message in enumerate(messages)
    ]


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(_QUEUE, _BORN, _VALUE, _VALUE, st.binary(min_size=1, max_size=4)),
        min_size=1,
        max_size=8,
    ),
    _TEXT,
    st.sampled_from([V1, V2]),
    _OPAQUE,
    _FLAG,
    _ENCODING,
)
async def test_a_message_is_the_same_by_every_way(
    ends: Ends,
    parts: list[tuple[str, str, str, str, bytes]],
    text: str,
    code: int,
    opaque: int,
    flag: int,
    encoding: int,
) -> None:
    """One a read or many, alike or not, of either version, one-way or not, in either encoding."""
    messages = [
        Message(queue, born, text.format(key, tag), body) for queue, born, key, tag, body in parts
    ]
    reads = [frames_of(code, messages, opaque + again, flag, encoding) for again in range(3)]
    ends.agree(reads, parts[0][2])


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from("0123"), _WORD), min_size=RUN_MIN, max_size=RUN_MIN + 9),
    st.dictionaries(st.integers(0, 40), _VALUE, max_size=1),
    _TEXT,
    _OPAQUE,
    _ENCODING,
)
async def test_a_read_of_many_alike_is_the_same_by_every_way(
    ends: Ends,
    parts: list[tuple[str, str]],
    odd: dict[int, str],
    text: str,
    opaque: int,
    encoding: int,
) -> None:
    """So many that they are taken by columns; or all but one, which is odd."""
    messages = [
        Message(queue, str(1_790_000_000_000 + place), text.format(odd.get(place, key), "A1"), b"x")
        for place, (queue, key) in enumerate(parts)
    ]
    reads = [
        frames_of(V2, messages, opaque + again * len(messages), 0, encoding) for again in range(3)
    ]
    ends.agree(reads, parts[0][1])


_MEMBER = st.tuples(st.binary(min_size=1, max_size=3), _VALUE, _WORD)


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(_QUEUE, _BORN, st.lists(_MEMBER, min_size=1, max_size=3)), min_size=1, max_size=6
    ),
    st.sampled_from(["UNIQ_KEY\x01{}\x02TAGS\x01{}\x02", "KEYS\x01{}", "TAGS\x01t\x02a\x01{}\x02"]),
    st.sampled_from(["WAIT\x01true\x02", "WAIT\x01false\x02KEYS\x01k", "TAGS\x01X", "%"]),
    _OPAQUE,
    _FLAG,
    _ENCODING,
)
async def test_a_batch_is_the_same_by_every_way(
    ends: Ends,
    parts: list[tuple[str, str, list[tuple[bytes, str, str]]]],
    text: str,
    outer: str,
    opaque: int,
    flag: int,
    encoding: int,
) -> None:
    """As messages are."""
    batches = [
        Message(
            queue,
            born,
            outer,
            b"",
            tuple((body, text.format(key, tag)) for body, key, tag in members),
        )
        for queue, born, members in parts
    ]
    reads = [frames_of(BATCH, batches, opaque + again, flag, encoding) for again in range(3)]
    ends.agree(reads, parts[0][2][0][1])


async def test_sends_that_come_mixed_are_the_same_by_every_way(ends: Ends) -> None:
    """Of all codes and encodings in turn, in one read."""
    message = Message("1", "1790000000000", "UNIQ_KEY\x01k1\x02TAGS\x01A\x02", b"body")
    batch = Message("2", "1790000000000", "WAIT\x01true\x02", b"", ((b"x", "TAGS\x01A"),) * 3)
    frames = [
        frame(code, batch if code == BATCH else message, 100 + number, 0, encoding)
        for number, (code, encoding) in enumerate(
            (code, encoding)
            for _ in range(5)
            for code in (V1, V2, BATCH)
            for encoding in (SerializeType.JSON, SerializeType.ROCKETMQ)
        )
    ]
    ends.agree([frames, frames], "k1")
    assert decode(frames[0][4:]).code == V1
