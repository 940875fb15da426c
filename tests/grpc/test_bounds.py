"""What a peer makes the front keep or compute is bounded, without a broker."""

import time
import tracemalloc
from typing import Any, cast

from pocketmq.grpc.http2.connection import GrpcConnection, Port
from pocketmq.grpc.http2.frames import PREFACE, FrameType, Setting
from pocketmq.grpc.http2.frames import settings as settings_frame
from pocketmq.grpc.http2.hpack import HpackDecoder, encode
from pocketmq.grpc.messages import make
from pocketmq.grpc.services.access import _HEADER
from pocketmq.grpc.services.standard import REFLECTION, Reflection
from pocketmq.grpc.services.transactions import Transactions
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.transport.limits import ConnectionLimits, SharedLimits
from pocketmq.remoting.transport.turns import Turns
from tests.grpc.floods import frame, request

_CPU_S_MAX = 0.02
_KEPT_MAX = 1 << 20
_UNSENT_MAX = 5 << 20


def test_a_signature_without_an_end_is_refused_at_once() -> None:
    """The longest header that is let in: its length squared would be 0.15 s, for anybody, at each call."""
    began_s = time.thread_time()
    assert _HEADER.fullmatch("MQv2-HMAC-SHA1 Credential=" + "a" * 16_000) is None
    assert time.thread_time() - began_s < _CPU_S_MAX


def test_long_huffman_texts_are_not_kept() -> None:
    """A text of "a" (00011, five bits), 8,000 bytes in its code and another one each time."""
    decoder = HpackDecoder(list_size_max=16_384)
    a8, zero8 = 0x18C6318C63.to_bytes(5, "big"), bytes(5)
    tracemalloc.start()
    try:
        for number in range(300):
            text = b"".join(zero8 if number >> bit & 1 else a8 for bit in range(9)) + a8 * 1_600
            # A literal that is not added to the table: name 1 of the static one, length in Huffman.
            rest = len(text) - 0x7F
            size = bytes((0xFF, rest & 0x7F | 0x80, rest >> 7))
            [(_, value)] = decoder.decode(b"\x01" + size + text)
            assert len(value) == len(text) * 8 // 5
        assert tracemalloc.get_traced_memory()[0] < _KEPT_MAX
    finally:
        tracemalloc.stop()


_LASTING = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", f"/{REFLECTION.path}/ServerReflectionInfo".encode()),
    (b"content-type", b"application/grpc"),
]


class _Transport:
    """Takes all that is written."""

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1)

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None: ...

    def writelines(self, data: list[bytes]) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


def _connected() -> tuple[GrpcConnection, Port]:
    clock = ManualClock()
    port = Port(
        methods=Reflection().methods(),
        clock=clock,
        shared_limits=SharedLimits(ConnectionLimits()),
        tls=None,
        message_size_max=1 << 20,
        closed=lambda connection: None,
        lost=Turns(clock, None, lambda call: call.went(call.unsent)),
    )
    connection = GrpcConnection(port)
    connection.connection_made(cast(Any, _Transport()))
    return connection, port


async def test_a_lasting_call_ends_when_its_answers_are_not_read() -> None:
    """The peer's window is shut: it asks in 34 bytes for files of kilobytes, again and again."""
    connection, port = _connected()
    headers = encode(_LASTING)
    asked = make(REFLECTION)["ServerReflectionRequest"](
        file_by_filename="grpc/health/v1/health.proto"
    ).SerializeToString()
    message = b"\0" + len(asked).to_bytes(4, "big") + asked
    data = frame(FrameType.DATA, message * (16_000 // len(message)), stream_id=1)
    opening = PREFACE + settings_frame({Setting.INITIAL_WINDOW_SIZE: 0})
    connection.data_received(opening + request(1, headers) + data)
    for _ in range(40):
        connection.data_received(data)
    assert 0 < connection.sending.unsent < _UNSENT_MAX
    assert not connection.calls
    # What waits for the windows counts among what peers do not read.
    assert port.shared_limits.output_size == connection.sending.unsent


async def test_many_open_calls_keep_no_large_headers() -> None:
    """A header of 8 KB costs a peer some bytes when it is sent again, and is kept while its call is open."""
    connection, _ = _connected()
    connection.data_received(PREFACE + settings_frame({}))
    for stream_id in range(1, 1_001, 2):
        large = [(b"x-large-%d" % number, b"x" * 4_000) for number in range(2)]
        connection.data_received(request(stream_id, encode([*_LASTING, *large])))
    assert len(connection.calls) == 128
    for stream_id in range(1_001, 1_101, 2):
        connection.data_received(request(stream_id, encode(_LASTING)))
    assert len(connection.calls) == 128 + 50


def test_half_messages_are_remembered_up_to_a_size() -> None:
    """Their ids are the clients' choice. One that was forgotten is found by the index."""
    transactions = Transactions(cast(Any, None))
    tracemalloc.start()
    try:
        for number in range(2_000):
            fields = {"tranStateTableOffset": str(number), "commitLogOffset": str(number)}
            transactions.asked(f"{number:030000}", fields, "T")
        assert tracemalloc.get_traced_memory()[0] < 40 << 20
    finally:
        tracemalloc.stop()
