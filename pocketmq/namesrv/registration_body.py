"""The body of REGISTER_BROKER: a broker's topic table and its DataVersion, in both forms.

    plain       {"filterServerList":[],"topicConfigSerializeWrapper":
                    {"dataVersion":{..},"topicConfigTable":{topic:TopicConfig}}}
                brokers older than V3_0_11 send the inner object alone
    compressed  zlib of: int32 n + DataVersion JSON, int32 topics, per topic
                int32 n + "name readQueues writeQueues perm filterType[ attributes]",
                int32 n + filter servers JSON; 5.x: more, which is of no use here

Source: RegisterBrokerBody, TopicConfig, DataVersion, RocketMQ 4.9.7 and 5.3.3.
"""

import zlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pocketmq.model.data_version import DataVersion
from pocketmq.model.tables import TopicConfig
from pocketmq.namesrv.quota import NAME_SIZE_MAX
from pocketmq.remoting import fastjson
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.java_number import integer

T = TypeVar("T")

# A table of 100,000 topics takes about 13 MiB; a bomb stops here.
_UNPACKED_SIZE_MAX = 64 << 20
_TOPICS_MAX = 200_000
# Between two steps: some milliseconds.
_UNPACKED_AT_ONCE = 1 << 20
_TOPICS_AT_ONCE = 500
# Numbers of queues, permissions and flags that Java's readers of a route accept. With one outside they could
# not read the queues of the other brokers either.
_INT = range(-(1 << 31), 1 << 31)
# Brokers write plain JSON, of which a registration may have as much as a frame holds.
_DIALECT_SIZE_MAX = 32 << 10


@dataclass(frozen=True, slots=True)
class TopicTable:
    """The content of a registration. topics is None when the body held no table."""

    data_version: DataVersion
    topics: dict[str, TopicConfig] | None


Decoding = Generator[None, None, TopicTable]


def drained(steps: Generator[None, None, T]) -> T:
    """Return what steps give at their end, all at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def decode_registration(body: bytes, *, compressed: bool, bare: bool = False) -> TopicTable:
    """Decode the topic table of a REGISTER_BROKER body at once. Args, raises: as `decoding`."""
    return drained(decoding(body, compressed=compressed, bare=bare))


def decoding(body: bytes, *, compressed: bool, bare: bool = False) -> Decoding:
    """Decode the topic table of a REGISTER_BROKER body in steps: it may be of 200,000 topics.

    bare: the sender is older than V3_0_11, whose body is the table alone.
    Raises: HeaderError, FastjsonError.
    """
    if not body:
        return TopicTable(DataVersion(), None)
    if compressed:
        return (yield from _decode_compressed(body))
    data = fastjson.loads(body, dialect_size_max=_DIALECT_SIZE_MAX)
    if not bare:
        data = data.get("topicConfigSerializeWrapper") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping):
        raise HeaderError("the body of a broker's registration lacks topicConfigSerializeWrapper")
    table = data.get("topicConfigTable")
    return TopicTable(
        DataVersion.from_json(data.get("dataVersion") or {}),
        None if table is None else (yield from _queue_data(table)),
    )


def decode_route_queues(body: bytes) -> dict[str, TopicConfig]:
    """Decode the queue data by broker name of a TopicRouteData body (217). Raises: as above."""
    data = fastjson.loads_request(body)
    rows = data.get("queueDatas") if isinstance(data, Mapping) else None
    found: dict[str, TopicConfig] = {}
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, Mapping) or not isinstance(row.get("brokerName"), str):
            raise HeaderError("a queueDatas entry is not an object with a brokerName")
        found[row["brokerName"]] = _one_queue_data("", row)
    return found


def _check_count(count: int) -> None:
    if count > _TOPICS_MAX:
        raise HeaderError(f"a broker registers {count} topics; at most {_TOPICS_MAX} are taken")


def _queue_data(table: Any) -> Generator[None, None, dict[str, TopicConfig]]:
    if not isinstance(table, Mapping):
        raise HeaderError("the topicConfigTable of a broker's registration is not an object")
    _check_count(len(table))
    found: dict[str, TopicConfig] = {}
    for topic, config in table.items():
        if not isinstance(topic, str) or not isinstance(config, Mapping):
            raise HeaderError("an entry of topicConfigTable is not a topic with its configuration")
        found[topic] = _one_queue_data(topic, config)
        if len(found) % _TOPICS_AT_ONCE == 0:
            yield
    return found


def _one_queue_data(topic: str, config: Mapping[Any, Any]) -> TopicConfig:
    try:
        return _of_java(TopicConfig.from_json({**config, "topicName": topic}))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise HeaderError(
            f"cannot read the topic {topic[:100]!r} of a registration: {str(error)[:100]}"
        ) from None


def _of_java(config: TopicConfig) -> TopicConfig:
    """Return a topic that a Java broker could have written. Raises: ValueError."""
    if len(config.topic) > NAME_SIZE_MAX:
        raise ValueError(f"its name has more than {NAME_SIZE_MAX} characters")
    for number in (config.read_queues, config.write_queues, config.perm, config.sys_flag):
        if number not in _INT:
            raise ValueError("a number has more than 32 bits")
    return config


def _unpacked(body: bytes) -> Generator[None, None, bytes]:
    packed = zlib.decompressobj()
    data = bytearray()
    try:
        while body and not packed.eof and len(data) < _UNPACKED_SIZE_MAX:
            data += packed.decompress(body, _UNPACKED_AT_ONCE)
            body = packed.unconsumed_tail
            yield
    except zlib.error as error:
        raise HeaderError(f"cannot read a broker's compressed registration: {error}") from error
    if not packed.eof:
        raise HeaderError(
            f"a broker's compressed registration is cut off, or larger than {_UNPACKED_SIZE_MAX} bytes"
        )
    return bytes(data)


def _decode_compressed(body: bytes) -> Decoding:
    reader = _Reader((yield from _unpacked(body)))
    version = DataVersion.from_json(fastjson.loads_request(reader.text().encode()))
    topics: dict[str, TopicConfig] = {}
    count = reader.number()
    _check_count(count)
    for place in range(count):
        if place % _TOPICS_AT_ONCE == 0:
            yield
        line = reader.text()
        words = line.split(" ", 5)
        try:
            topics[words[0]] = _of_java(
                TopicConfig(words[0], integer(words[1]), integer(words[2]), integer(words[3]))
            )
        except (IndexError, ValueError):
            raise HeaderError(
                f"cannot read a topic of a compressed registration: {line[:100]!r}"
            ) from None
    return TopicTable(version, topics)


class _Reader:
    """Reads length-prefixed texts, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        if self._at + 4 > len(self._data):
            raise HeaderError("a broker's compressed registration ends too early")
        value = int.from_bytes(self._data[self._at : self._at + 4], "big", signed=True)
        self._at += 4
        return value

    def text(self) -> str:
        size = self.number()
        raw = self._data[self._at : self._at + size] if size >= 0 else b""
        if size < 0 or len(raw) < size:
            raise HeaderError("a broker's compressed registration ends too early")
        self._at += size
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise HeaderError(f"a registration is not UTF-8: {error}") from error
