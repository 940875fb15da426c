"""The bytes of gRPC calls, as a client sends them, and of their answers."""

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from pocketmq.grpc.http2.frames import PREFACE, WINDOW_DEFAULT, WINDOW_MAX, Flag, FrameType, Setting
from pocketmq.grpc.http2.hpack import encode
from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import SERVICE

TOPIC, QUEUES, GROUP, BATCH = "BenchTopic", 4, "bench", 32
_PSEUDO = 3
_COMMON = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"bench"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
    (b"x-mq-client-id", b"bench@1"),
    (b"x-mq-language", b"JAVA"),
    (b"x-mq-protocol", b"v2"),
    (b"x-mq-client-version", b"5.2.0"),
    (b"x-mq-date-time", b"20261122T070000Z"),
    (b"grpc-timeout", b"30S"),
)
HEAD = struct.Struct(">HBBBL")


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return HEAD.pack(len(payload) >> 8, len(payload) & 255, kind, flags, stream_id) + payload


def frames(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Kind, flags, stream and payload of each frame that is whole."""
    at = 0
    while len(data) - at >= HEAD.size:
        high, low, kind, flags, stream_id = HEAD.unpack_from(data, at)
        end = at + HEAD.size + (high << 8) + low
        if end > len(data):
            break
        yield kind, flags, stream_id, data[at + HEAD.size : end]
        at = end


class Calls:
    """The bytes of calls on one connection, as a client sends them. stream_id: of the last one."""

    def __init__(self) -> None:
        self.stream_id = -1
        self._knows_common = False

    @staticmethod
    def opening() -> bytes:
        """With windows so wide that no call waits for them."""
        settings = struct.pack(">HI", Setting.INITIAL_WINDOW_SIZE, WINDOW_MAX)
        wider = struct.pack(">I", WINDOW_MAX - WINDOW_DEFAULT)
        return (
            PREFACE
            + frame(FrameType.SETTINGS, 0, 0, settings)
            + frame(FrameType.WINDOW_UPDATE, 0, 0, wider)
        )

    def headers(self, name: str) -> bytes:
        """The block of a call; as SDKs do it, what does not change is in the connection's table."""
        if self._knows_common:
            common = [bytes([0x80 | 61 + len(_COMMON) - place]) for place in range(len(_COMMON))]
        else:
            self._knows_common = True
            common = [
                b"\x40" + bytes([len(each)]) + each + bytes([len(value)]) + value
                for each, value in _COMMON
            ]
        own = encode([(b":path", f"/{SERVICE}/{name}".encode())])
        changing = encode([(b"x-mq-request-id", b"0b0e5c3a-7d0f-4c5e-9a53-2f6f8f3c7d11")])
        return b"".join([*common[:_PSEUDO], own, *common[_PSEUDO:], changing])

    def skip(self) -> None:
        """A stream of another call."""
        self.stream_id += 2

    def call(self, headers: bytes, message: bytes, *, ended: bool = True) -> bytes:
        """The bytes of one more call."""
        self.stream_id += 2
        return call_of(self.stream_id, headers, message, ended=ended)


def call_of(stream_id: int, headers: bytes, message: bytes, *, ended: bool = True) -> bytes:
    data = b"\0" + struct.pack(">I", len(message)) + message
    return frame(FrameType.HEADERS, Flag.END_HEADERS, stream_id, headers) + frame(
        FrameType.DATA, Flag.END_STREAM if ended else 0, stream_id, data
    )


def send_request() -> bytes:
    system = {"message_id": "01" * 17, "message_type": 1, "born_host": "bench"}
    message = {"topic": {"name": TOPIC}, "body": b"x" * 128, "system_properties": system}
    data: bytes = classes["SendMessageRequest"](messages=[message]).SerializeToString()
    return data


def receive_request(broker_name: str) -> Any:
    return classes["ReceiveMessageRequest"](
        group={"name": GROUP},
        message_queue={"topic": {"name": TOPIC}, "broker": {"name": broker_name}},
        filter_expression={"type": 1, "expression": "*"},
        batch_size=BATCH,
        invisible_duration={"seconds": 300},
        long_polling_timeout={"seconds": 5},
    )


def ack_request(answers: Iterable[Any]) -> Any:
    """For the messages among what a receive was answered with."""
    found = [each.message.system_properties for each in answers if each.HasField("message")]
    return classes["AckMessageRequest"](
        group={"name": GROUP},
        topic={"name": TOPIC},
        entries=[
            {"message_id": each.message_id, "receipt_handle": each.receipt_handle} for each in found
        ],
    )


def messages(data: bytes) -> Iterator[bytes]:
    while data:
        end = 5 + int.from_bytes(data[1:5], "big")
        yield data[5:end]
        data = data[end:]
