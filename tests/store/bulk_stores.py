"""Stores for the bulk tests: recorded ones unpacked, and small ones written record by record with struct.

`reference_rows` is the slow judge: one record at a time through pocketmq.remoting, rows as
dictionaries with the column names of bulk_schema.
"""

import gzip
import json
import struct
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from pocketmq.model.java_hash import string_hash
from pocketmq.model.message_codec import get_property, offset_msg_id, to_messages
from pocketmq.model.record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    Record,
    body_crc,
    read_record,
    write_record,
)
from pocketmq.remoting.hosts import pack_host

GOLDEN = Path(__file__).parents[1] / "golden" / "data" / "stores"
GOLDEN_NAMES = sorted(p.name.removesuffix(".tar.gz") for p in GOLDEN.glob("*.tar.gz"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENTRY = struct.Struct(">qiq")


@cache
def manifest(name: str) -> dict[str, Any]:
    """What the real broker serves from a recorded store."""
    with gzip.open(GOLDEN / f"{name}.manifest.json.gz", "rt", encoding="utf-8") as file:
        read: dict[str, Any] = json.load(file)
    return read


def unpack(name: str, folder: Path) -> Path:
    """Unpacks a recorded store; returns its root."""
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


def moment(ms: int) -> datetime:
    """The datetime that Arrow gives for a time in ms."""
    return _EPOCH + timedelta(milliseconds=ms)


def rows_of_record(raw: bytes | memoryview, broker: str, code: int | None) -> list[dict[str, Any]]:
    """The rows of one stored record, decoded one field at a time."""
    record = read_record(raw)
    inner = record.sys_flag & 0xC0 == 0xC0
    rows = []
    for message in to_messages(record, broker):
        text = None if inner else record.properties.decode("utf-8", "replace")
        rows.append(
            {
                "topic": message.topic,
                "brokerName": broker,
                "queueId": message.queue_id,
                "queueOffset": message.queue_offset,
                "body": message.body,
                "tags": message.properties.get("TAGS"),
                "keys": message.properties.get("KEYS"),
                "properties": message.properties,
                "flag": message.flag,
                "bornTimestamp": moment(message.born_timestamp),
                "storeTimestamp": moment(message.store_timestamp),
                "commitLogOffset": message.commit_log_offset,
                "storeSize": record.size,
                "sysFlag": message.sys_flag,
                "reconsumeTimes": message.reconsume_times,
                "bodyCrc": record.body_crc,
                "preparedTransactionOffset": message.prepared_transaction_offset,
                "bornHost": _java_host(record.born_host),
                "storeHost": _java_host(record.store_host),
                "msgId": offset_msg_id(record.store_host, record.position),
                "uniqKey": message.properties.get("UNIQ_KEY"),
                "tagsCode": code,
                "propertiesRaw": text,
            }
        )
    return rows


def _java_host(host: bytes) -> str:
    """ip:port; IPv6 as Java prints it, eight groups without shortening."""
    address = ip_address(host[:-4])
    text = str(address)
    if address.version == 6:
        text = ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
    return f"{text}:{int.from_bytes(host[-4:], 'big', signed=True)}"


def index_entries(root: Path) -> Iterator[tuple[int, int, int]]:
    """(position, size, code) of every used ConsumeQueue and BatchConsumeQueue entry of a store."""
    for kind, width in (("consumequeue", 20), ("batchconsumequeue", 46)):
        for path in sorted((root / kind).glob("*/*/*")):
            data = path.read_bytes()
            for at in range(0, len(data) - width + 1, width):
                position, size, code = _ENTRY.unpack_from(data, at)
                if size == 0:
                    break
                if size != 2147483647:
                    yield position, size, code


def reference_rows(root: Path, broker: str) -> list[dict[str, Any]]:
    """All rows that the index files of a store point to, by position."""
    logs = {int(p.name): p.read_bytes() for p in (root / "commitlog").iterdir()}
    rows: list[dict[str, Any]] = []
    for position, size, code in sorted(index_entries(root)):
        first = max((f for f in logs if f <= position), default=None)
        if first is not None:
            at = position - first
            rows += rows_of_record(logs[first][at : at + size], broker, code)
    return rows


def table_rows(table: Any) -> list[dict[str, Any]]:
    """Rows of an Arrow table, maps as dictionaries."""
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        if row.get("properties") is not None:
            row["properties"] = dict(row["properties"])
    return rows


# ---------------------------------------------------------------- written stores


@dataclass
class Message:
    """What a test puts into a store; the rest has plain defaults."""

    topic: str = "T"
    queue_id: int = 0
    body: bytes = b"body"
    properties: bytes = b"TAGS\x01a\x02"
    flag: int = 0
    sys_flag: int = 0
    born_ms: int = 1_700_000_000_000
    born_host: str = "10.0.0.1:4321"
    store_ms: int = 1_700_000_000_000
    store_host: str = "10.0.0.9:10911"
    reconsume_times: int = 0
    prepared_offset: int = 0
    indexed: bool = True
    version_2: bool = False


@dataclass
class WrittenStore:
    """A store as RocketMQ lays it out; files of full size, appended to by `add`."""

    root: Path
    log_file_size: int = 1 << 20
    queue_file_entries: int = 1000
    position: int = 0
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, messages: Iterable[Message]) -> list[int]:
        """Appends records and their index entries; returns their positions."""
        return [self._add(m) for m in messages]

    def _add(self, message: Message) -> int:
        key = (message.topic, message.queue_id)
        offset = self.offsets.get(key, 0) if message.indexed else 0
        raw = self.record_of(message, offset, self.position)
        room = self.log_file_size - self.position % self.log_file_size
        if len(raw) + 8 > room:
            self._write(struct.pack(">ii", room, MAGIC_BLANK))
            self.position += room
            raw = self.record_of(message, offset, self.position)
        position = self.position
        self._write(raw)
        self.position += len(raw)
        if message.indexed:
            self.index(message, offset, position, len(raw))
            self.offsets[key] = offset + 1
        return position

    def index(
        self, message: Message, offset: int, position: int, size: int, code: int | None = None
    ) -> None:
        """Writes one ConsumeQueue entry. code: in place of the tag's."""
        if code is None:
            tag = get_property(message.properties, b"TAGS")
            code = string_hash(tag.decode("utf-8", "replace")) if tag else 0
        file, number = divmod(offset, self.queue_file_entries)
        folder = self.root / "consumequeue" / message.topic / str(message.queue_id)
        path = folder / f"{file * self.queue_file_entries * 20:020d}"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _make(path, self.queue_file_entries * 20)
        with path.open("r+b") as opened:
            opened.seek(number * 20)
            opened.write(_ENTRY.pack(position, size, code))

    def log_path(self, position: int) -> Path:
        """The commit log file that holds a position."""
        first = position - position % self.log_file_size
        return self.root / "commitlog" / f"{first:020d}"

    def patch(self, position: int, data: bytes) -> None:
        """Overwrites bytes of the commit log."""
        with self.log_path(position).open("r+b") as opened:
            opened.seek(position % self.log_file_size)
            opened.write(data)

    def _write(self, raw: bytes) -> None:
        path = self.log_path(self.position)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _make(path, self.log_file_size)
        self.patch(self.position, raw)

    @staticmethod
    def record_of(m: Message, offset: int, position: int) -> bytes:
        born, store = pack_host(m.born_host), pack_host(m.store_host)
        flags = m.sys_flag | (0x10 if len(born) == 20 else 0) | (0x20 if len(store) == 20 else 0)
        record = Record(
            size=0,
            magic=MAGIC_V2 if m.version_2 else MAGIC_V1,
            body_crc=body_crc(m.body),
            queue_id=m.queue_id,
            flag=m.flag,
            queue_offset=offset,
            position=position,
            sys_flag=flags,
            born_ms=m.born_ms,
            born_host=born,
            store_ms=m.store_ms,
            store_host=store,
            reconsume_times=m.reconsume_times,
            prepared_offset=m.prepared_offset,
            body=memoryview(m.body),
            topic=m.topic,
            properties=m.properties,
        )
        return write_record(record)


def _make(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)
