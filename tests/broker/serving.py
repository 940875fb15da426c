"""A broker in this process, on a free port, and requests to it over real sockets."""

import asyncio
import json
import ssl
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.model.message_codec import properties_to_text
from pocketmq.model.record import Record, read_records
from pocketmq.model.subscription import build_subscription
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import Clock, SystemClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.store import StoreConfig

WAIT_MS = 15_000


@asynccontextmanager
async def serving(
    folder: Path,
    *,
    clock: Clock | None = None,
    store: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Broker]:
    """A broker, named `b` unless told otherwise, with small files in `folder`."""
    config = BrokerConfig(**{"broker_name": "b", "listen_port": 0, **settings})
    files = {
        "mapped_file_size_commit_log": 1 << 23,
        "max_hash_slot_num": 1000,
        "max_index_num": 4000,
    }
    store_config = StoreConfig(store_path_root_dir=str(folder), **{**files, **(store or {})})
    async with Broker(config, store_config, clock=clock or SystemClock()) as broker:
        yield broker


class Listens(Protocol):
    """A broker that clients can reach, in this process or another."""

    listen_address: str


@dataclass
class At:
    """Whatever listens at an address."""

    listen_address: str


class Peer:
    """One TCP connection to a broker: frames out, frames in, nothing hidden."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._opaque = 0
        self.early: list[RemotingCommand] = []

    @classmethod
    async def at(cls, broker: Listens, tls: ssl.SSLContext | None = None) -> Self:
        host, _, port = broker.listen_address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port), ssl=tls))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass

    def send(
        self,
        code: int,
        ext: Mapping[str, Any] | None = None,
        body: bytes = b"",
        *,
        version: int = 407,
        encoding: int = 0,
        oneway: bool = False,
    ) -> int:
        """Write a request; returns its opaque."""
        self._opaque += 1
        text = None if ext is None else {name: _text(value) for name, value in ext.items()}
        command = RemotingCommand(
            code,
            text,
            body,
            opaque=self._opaque,
            flag=2 if oneway else 0,
            language="JAVA",
            version=version,
            encoding=encoding,
        )
        self.writer.write(encode(command))
        return self._opaque

    async def next(self, within_ms: int = WAIT_MS) -> RemotingCommand:
        """The next frame of the broker, whatever it is. Raises: TimeoutError, IncompleteReadError."""
        if self.early:
            return self.early.pop(0)
        async with asyncio.timeout(within_ms / 1000):
            head = await self._reader.readexactly(4)
            return decode(await self._reader.readexactly(int.from_bytes(head, "big")))

    async def answer(self, opaque: int, within_ms: int = WAIT_MS) -> RemotingCommand:
        """The answer to a request; what comes before it is kept for `next` and `request`."""
        kept: list[RemotingCommand] = []
        try:
            while True:
                found = await self.next(within_ms)
                if found.is_response and found.opaque == opaque:
                    return found
                kept.append(found)
        finally:
            self.early = kept + self.early

    async def ask(
        self, code: int, ext: Mapping[str, Any] | None = None, body: bytes = b"", **how: Any
    ) -> RemotingCommand:
        """Send a request and wait for its answer."""
        return await self.answer(self.send(code, ext, body, **how))

    async def request(self, code: int, within_ms: int = WAIT_MS) -> RemotingCommand:
        """The next request that the broker makes with this code."""
        kept: list[RemotingCommand] = []
        try:
            while True:
                found = await self.next(within_ms)
                if not found.is_response and found.code == code:
                    return found
                kept.append(found)
        finally:
            self.early = kept + self.early

    def reply(self, request: RemotingCommand, code: int = 0, remark: str | None = None) -> None:
        """Answer a request of the broker."""
        self.writer.write(encode(request.answer(code, remark)))

    async def ended(self, within_ms: int = WAIT_MS) -> bool:
        """Wait until the broker closes the connection; what it still sends is thrown away."""
        async with asyncio.timeout(within_ms / 1000):
            try:
                while await self._reader.read(65_536):
                    pass
            except ConnectionError:
                pass
            return True

    # ------------------------------------------------------------ what clients do

    async def produce(
        self,
        topic: str,
        body: bytes = b"hello",
        *,
        queue_id: int = 0,
        code: int = RequestCode.SEND_MESSAGE_V2,
        how: dict[str, Any] | None = None,
        sys_flag: int = 0,
        more: dict[str, Any] | None = None,
        **properties: str,
    ) -> RemotingCommand:
        """One message, and its answer; `more`: further header fields by letter."""
        ext = _send_fields(topic, queue_id, sys_flag, properties) | (more or {})
        return await self.ask(code, ext, body, **(how or {}))

    async def burst(
        self, topic: str, bodies: Sequence[bytes], *, queues: int = 2
    ) -> list[RemotingCommand]:
        """Messages in one write, in turns to the queues, and their answers: sends of one read, alike."""
        begin, frames = self._opaque + 1, bytearray()
        for place, body in enumerate(bodies):
            self._opaque += 1
            fields = _send_fields(topic, place % queues, 0, {"UNIQ_KEY": f"{self._opaque:032X}"})
            text = {name: _text(value) for name, value in fields.items()}
            command = RemotingCommand(
                RequestCode.SEND_MESSAGE_V2,
                text,
                body,
                opaque=self._opaque + (1 << 24),
                language="JAVA",
                version=407,
            )
            frames += encode(command)
        self.writer.write(frames)
        opaques = range(begin + (1 << 24), self._opaque + 1 + (1 << 24))
        return [await self.answer(opaque) for opaque in opaques]

    def send_message(self, topic: str, body: bytes = b"hello", *, queue_id: int = 0) -> int:
        """One message; returns the opaque."""
        return self.send(RequestCode.SEND_MESSAGE_V2, _send_fields(topic, queue_id, 0, {}), body)

    async def heartbeat(
        self, group: str, subscriptions: Mapping[str, str], **how: Any
    ) -> RemotingCommand:
        """One heartbeat of a consumer (and producer), and its answer."""
        return await self.answer(self.send_heartbeat(group, subscriptions, **how))

    def send_heartbeat(
        self,
        group: str,
        subscriptions: Mapping[str, str],
        *,
        client_id: str = "c1",
        sub_version: int = 1,
        expression_type: str = "TAG",
        message_model: str = "CLUSTERING",
        consume_type: str = "CONSUME_PASSIVELY",
        producer: str | None = None,
    ) -> int:
        """One heartbeat; returns its opaque."""
        data = [
            build_subscription(topic, text, expression_type, sub_version).to_json()
            for topic, text in subscriptions.items()
        ]
        body = {
            "clientID": client_id,
            "consumerDataSet": [
                {
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "consumeType": consume_type,
                    "groupName": group,
                    "messageModel": message_model,
                    "subscriptionDataSet": data,
                    "unitMode": False,
                }
            ]
            if group
            else [],
            "producerDataSet": [{"groupName": producer}] if producer else [],
        }
        return self.send(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())

    def send_pull(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        queue_id: int = 0,
        sys_flag: int = 0,
        code: int = RequestCode.PULL_MESSAGE,
        **more: Any,
    ) -> int:
        """A pull of 32 messages; returns its opaque."""
        ext: dict[str, Any] = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": queue_id,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": sys_flag,
            "commitOffset": 0,
            "suspendTimeoutMillis": 10_000,
            "subVersion": 1,
            **more,
        }
        return self.send(code, ext)

    async def pull(self, group: str, topic: str, offset: int, **how: Any) -> RemotingCommand:
        """A pull and its answer."""
        return await self.answer(self.send_pull(group, topic, offset, **how))

    async def bodies(self, group: str, topic: str, offset: int = 0, **how: Any) -> list[bytes]:
        """What a pull with its own `*` finds."""
        answer = await self.pull(
            group, topic, offset, **{"sys_flag": 4, "subscription": "*", **how}
        )
        return [bytes(record.body) for record in records(answer)]


def records(answer: RemotingCommand) -> list[Record]:
    """The messages of a pull's answer."""
    assert answer.code == ResponseCode.SUCCESS, answer
    return list(read_records(answer.body))


def body_of(answer: RemotingCommand) -> Any:
    """The JSON of an answer."""
    assert answer.code == ResponseCode.SUCCESS, answer
    return fastjson.loads(answer.body)


def number(answer: RemotingCommand, name: str) -> int:
    """A field of an answer as a number."""
    assert answer.ext is not None
    return int(answer.ext[name])


def batch(*members: tuple[bytes, bytes]) -> bytes:
    """The body of a batch of (body, properties)."""
    return b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 0, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
        for body, properties in members
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _send_fields(
    topic: str, queue_id: int, sys_flag: int, properties: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "a": "pg",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": sys_flag,
        "g": 1_700_000_000_000,
        "h": 0,
        "i": properties_to_text(properties),
        "j": 0,
        "k": False,
        "m": False,
    }
