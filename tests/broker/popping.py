"""What a 5.x client of pop asks, over a connection of tests.broker.serving."""

import json
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pocketmq.model.message_codec import get_property
from pocketmq.model.record import read_records
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from tests.broker.serving import Peer


@dataclass(frozen=True)
class Popped:
    """One message as a client has it: `receipt` is its POP_CK, `topic` where that is to be acknowledged."""

    body: bytes
    topic: str
    queue_id: int
    offset: int
    receipt: str
    reconsume_times: int
    properties: bytes

    def ext(self, group: str) -> dict[str, Any]:
        return {
            "consumerGroup": group,
            "topic": self.topic,
            "queueId": self.queue_id,
            "offset": self.offset,
            "extraInfo": self.receipt,
        }


def popped(answer: RemotingCommand, topic: str, group: str, broker: str = "b") -> list[Popped]:
    """The messages of a pop's answer, as the official client makes them from header and records."""
    assert answer.code == 0, answer
    ext = answer.ext
    assert ext is not None
    starts = {}
    for part in ext["startOffsetInfo"].split(";"):
        flag, queue, first = part.split(" ")
        starts[flag, int(queue)] = int(first)
    offsets = {}
    for part in ext["msgOffsetInfo"].split(";"):
        flag, queue, text = part.split(" ")
        offsets[flag, int(queue)] = [int(number) for number in text.split(",")]
    found = []
    for record in read_records(answer.body):
        assert record.topic == topic
        receipt = get_property(record.properties, b"POP_CK")
        if receipt is None:
            assert record.queue_offset in offsets["0", record.queue_id]
            start = starts["0", record.queue_id]
            text = (
                f"{start} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} 0 {broker} "
                f"{record.queue_id} {record.queue_offset}"
            )
        else:
            text = receipt.decode()
        flag = text.split(" ")[4]
        assert record.queue_offset in offsets[flag, record.queue_id]
        real = {"0": topic, "1": f"%RETRY%{group}_{topic}", "2": f"%RETRY%{group}+{topic}"}[flag]
        found.append(
            Popped(
                bytes(record.body),
                real,
                record.queue_id,
                record.queue_offset,
                text,
                record.reconsume_times,
                record.properties,
            )
        )
    assert len(found) == sum(len(numbers) for numbers in offsets.values())
    return found


class Popper:
    """A member of one group that pops one topic; `now_ms` is its clock."""

    def __init__(self, peer: Peer, now_ms: Any, topic: str = "T", group: str = "g") -> None:
        self.peer, self.now_ms, self.topic, self.group = peer, now_ms, topic, group

    def send(self, **more: Any) -> int:
        """A pop; returns its opaque."""
        return self.peer.send(RequestCode.POP_MESSAGE, self.ext(**more), version=513)

    def ext(self, **more: Any) -> dict[str, Any]:
        """The header of a pop."""
        return {
            "consumerGroup": self.group,
            "topic": self.topic,
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": 60_000,
            "pollTime": 0,
            "bornTime": self.now_ms(),
            "initMode": 0,
            "order": False,
            **more,
        }

    async def answer(self, **more: Any) -> RemotingCommand:
        return await self.peer.ask(RequestCode.POP_MESSAGE, self.ext(**more), version=513)

    async def pop(self, **more: Any) -> list[Popped]:
        """The messages of a pop that finds some, or none."""
        answer = await self.answer(**more)
        if answer.code == 210:
            return []
        return popped(answer, self.topic, self.group)

    async def bodies(self, **more: Any) -> list[bytes]:
        return sorted(message.body for message in await self.pop(**more))

    async def ack(self, message: Popped) -> RemotingCommand:
        ext = message.ext(self.group)
        return await self.peer.ask(RequestCode.ACK_MESSAGE, ext, version=513)

    async def change(self, message: Popped, invisible_ms: int) -> RemotingCommand:
        ext = {**message.ext(self.group), "invisibleTime": invisible_ms}
        return await self.peer.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext, version=513)

    async def batch_ack(self, messages: Iterable[Popped]) -> RemotingCommand:
        groups: dict[tuple[str, ...], int] = {}
        for message in messages:
            words = message.receipt.split(" ")
            key = (*words[:7],)
            groups[key] = groups.get(key, 0) | 1 << message.offset - int(words[0])
        acks = [
            {
                "b": b64encode(bits.to_bytes(bits.bit_length() // 8 + 1, "little")).decode(),
                "c": self.group,
                "it": int(it),
                "pt": int(pt),
                "q": int(queue),
                "r": retry,
                "rq": int(revive),
                "so": int(so),
                "t": self.topic,
            }
            for (so, pt, it, revive, retry, _, queue), bits in groups.items()
        ]
        body = json.dumps({"acks": acks, "brokerName": "b"}).encode()
        return await self.peer.ask(RequestCode.BATCH_ACK_MESSAGE, None, body, version=513)
