"""HTTP/2, judged by another implementation: `h2` is the client, and any of its complaints fails a test."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.grpc.http2.frames import (
    FRAME_SIZE_MAX,
    PREFACE,
    ErrorCode,
    Flag,
    FrameType,
    Http2Error,
    head,
)
from pocketmq.grpc.http2.frames import settings as settings_frame
from pocketmq.grpc.http2.hpack import encode
from pocketmq.grpc.http2.protocol import (
    CONNECTION_WINDOW,
    STREAM_WINDOW,
    STREAMS_MAX,
    Event,
    Http2Server,
    StreamData,
    StreamGone,
    StreamHeaders,
)
from tests.grpc.floods import ALL, BLOCK, FLOODS, OPEN, frame, request

ASKED = [(":method", "POST"), (":scheme", "http"), (":path", "/s/M"), (":authority", "a")]
ANSWER = encode([(b":status", b"200"), (b"content-type", b"application/grpc")])
TRAILERS = encode([(b"grpc-status", b"0")])


@dataclass
class Pair:
    """A client and our server, wired together. seen: by the client, by stream."""

    client: h2.connection.H2Connection
    server: Http2Server = field(default_factory=Http2Server)
    events: list[Event] = field(default_factory=list)
    body: dict[int, bytes] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    resets: dict[int, int] = field(default_factory=dict)
    on_event: Callable[[Event], None] = lambda event: None
    reads: bool = True

    def run(self) -> None:
        """Carry bytes until neither side has any."""
        while True:
            sent = self.client.data_to_send()
            if sent:
                self.server.receive(sent)
                while (came := self.server.next_event()) is not None:
                    self.events.append(came)
                    self.on_event(came)
            answered = b"".join(bytes(each) for each in self.server.take())
            if not sent and not answered:
                return
            for event in self.client.receive_data(answered) if answered else ():
                self._note(event)

    def _note(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.DataReceived):
            self.body[event.stream_id] = self.body.get(event.stream_id, b"") + event.data
            if self.reads:
                self.client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self.ended.add(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self.resets[event.stream_id] = event.error_code

    def ask(self, *, ended: bool = True, headers: list[tuple[str, str]] | None = None) -> int:
        stream_id = self.client.get_next_available_stream_id()
        self.client.send_headers(stream_id, headers or ASKED, end_stream=ended)
        return stream_id


@pytest.fixture
def pair() -> Pair:
    return begun()


def begun(**values: int) -> Pair:
    config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
    client = h2.connection.H2Connection(config)
    client.initiate_connection()
    if values:
        client.update_settings(
            {getattr(h2.settings.SettingCodes, name): value for name, value in values.items()}
        )
    pair = Pair(client)
    pair.run()
    return pair


def answer(pair: Pair, stream_id: int, *parts: bytes) -> None:
    sending = pair.server.sending
    sending.respond(stream_id, ANSWER)
    for part in parts:
        sending.send(stream_id, part)
    sending.finish(stream_id, TRAILERS)


def test_a_request_is_answered(pair: Pair) -> None:
    stream_id = pair.ask(ended=False)
    pair.client.send_data(stream_id, b"hello", end_stream=True)
    pair.run()
    [request] = pair.events
    assert isinstance(request, StreamHeaders)
    assert request.headers[b":path"] == b"/s/M"
    assert (request.ended, request.data) == (True, b"hello")
    answer(pair, stream_id, b"wor", b"ld")
    pair.run()
    assert (pair.body[stream_id], stream_id in pair.ended) == (b"world", True)
    assert pair.resets == {}


@pytest.mark.parametrize("padding", [None, 7])
def test_what_comes_byte_by_byte_means_the_same(pair: Pair, padding: int | None) -> None:
    stream_id = pair.ask(ended=False)
    pair.client.send_data(stream_id, b"hello", end_stream=True, pad_length=padding)
    events = []
    for byte in pair.client.data_to_send():
        pair.server.receive(bytes((byte,)))
        while (event := pair.server.next_event()) is not None:
            events.append(event)
    assert [type(each) for each in events] == [StreamHeaders, StreamData]


def test_more_than_the_windows_is_taken_as_it_comes(pair: Pair) -> None:
    stream_id = pair.ask(ended=False)
    left, received = 3 * STREAM_WINDOW + 5, 0

    def count(event: Event) -> None:
        nonlocal received
        if isinstance(event, StreamData):
            received += len(event.data)

    pair.on_event = count
    pair.run()
    sent = left
    while left:
        window = pair.client.local_flow_control_window(stream_id)
        assert window > 0
        size = min(left, window, FRAME_SIZE_MAX)
        left -= size
        pair.client.send_data(stream_id, b"x" * size, end_stream=not left)
        pair.run()
    assert received == sent


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.lists(st.integers(0, 90), max_size=4), min_size=1, max_size=5),
    st.sampled_from([1, 7, 100, 5_000, 65_535, 100_000]),
)
def test_answers_obey_the_windows_of_the_client(sizes: list[list[int]], window: int) -> None:
    """h2 raises when a window is overrun; every byte arrives, in its order."""
    pair = begun(INITIAL_WINDOW_SIZE=window)
    bodies: dict[int, list[bytes]] = {}
    for each in sizes:
        stream_id = pair.ask()
        bodies[stream_id] = [
            bytes([stream_id]) * size for size in (part * window // 8 for part in each)
        ]
    pair.run()
    for stream_id, parts in bodies.items():
        answer(pair, stream_id, *parts)
    pair.run()
    assert {each: pair.body.get(each, b"") for each in bodies} == {
        each: b"".join(parts) for each, parts in bodies.items()
    }
    assert pair.ended == set(bodies)
    assert (pair.server.sending.unsent, pair.server.sending.streams) == (0, {})


def test_streams_take_turns_at_the_connections_window(pair: Pair) -> None:
    """A long answer does not keep a short one waiting until it is whole."""
    first, second = pair.ask(), pair.ask()
    pair.run()
    pair.reads = False
    answer(pair, first, b"a" * 500_000)
    answer(pair, second, b"b" * 100)
    pair.run()
    assert second not in pair.ended
    pair.client.increment_flow_control_window(2 * FRAME_SIZE_MAX)
    pair.run()
    assert second in pair.ended
    assert first not in pair.ended


def test_a_reset_tells_what_was_not_sent(pair: Pair) -> None:
    stream_id = pair.ask()
    pair.run()
    pair.reads = False
    answer(pair, stream_id, b"x" * 100_000)
    pair.run()
    pair.client.reset_stream(stream_id)
    pair.run()
    assert pair.events[-1] == StreamGone(stream_id, 100_000 - len(pair.body[stream_id]))
    assert pair.server.sending.unsent == 0


def test_an_answer_before_the_request_is_whole_ends_the_stream(pair: Pair) -> None:
    stream_id = pair.ask(ended=False)
    pair.run()
    answer(pair, stream_id, b"no")
    pair.run()
    assert pair.body[stream_id] == b"no"
    assert pair.resets == {stream_id: ErrorCode.NO_ERROR}


def test_pings_are_answered_and_settings_acknowledged(pair: Pair) -> None:
    pair.client.ping(b"12345678")
    pair.client.update_settings({h2.settings.SettingCodes.MAX_FRAME_SIZE: 20_000})
    pair.run()
    assert pair.client.local_settings.max_frame_size == 20_000


def test_a_goodbye_lets_streams_end_and_refuses_new_ones(pair: Pair) -> None:
    old = pair.ask()
    pair.run()
    late = pair.ask()
    pair.server.leave()
    goodbye = b"".join(bytes(each) for each in pair.server.take())
    pair.server.receive(pair.client.data_to_send())
    assert pair.server.next_event() is None
    pair.client.receive_data(goodbye)
    answer(pair, old, b"done")
    rest = b"".join(bytes(each) for each in pair.server.take())
    assert (
        head(4, FrameType.RST_STREAM, 0, late) + ErrorCode.REFUSED_STREAM.to_bytes(4, "big") in rest
    )
    assert b"done" in rest


def test_more_streams_than_allowed_are_refused() -> None:
    server = served(b"")
    begun_count = 0
    for number in range(STREAMS_MAX + 1):
        server.receive(request(1 + 2 * number))
        begun_count += server.next_event() is not None
    assert begun_count == STREAMS_MAX
    assert ErrorCode.REFUSED_STREAM.to_bytes(4, "big") == written(server)[-4:]


# ------------------------------------------------------------ what peers do wrong


def served(data: bytes) -> Http2Server:
    """A server that was sent that, behind an opening as it should be."""
    server = Http2Server()
    server.receive(PREFACE + settings_frame({}) + data)
    while server.next_event() is not None:
        pass
    return server


def written(server: Http2Server) -> bytes:
    return b"".join(bytes(each) for each in server.take())


BROKEN = {
    "another first frame": (ErrorCode.PROTOCOL_ERROR, None),
    "a frame too large": (ErrorCode.FRAME_SIZE_ERROR, head(FRAME_SIZE_MAX + 1, 0, 0, 1)),
    "data of no stream": (ErrorCode.PROTOCOL_ERROR, frame(FrameType.DATA, b"x")),
    "data of an idle stream": (ErrorCode.PROTOCOL_ERROR, frame(FrameType.DATA, b"x", stream_id=5)),
    "an even stream": (ErrorCode.PROTOCOL_ERROR, request(2)),
    "an older stream": (ErrorCode.STREAM_CLOSED, request(5) + request(3)),
    "padding beyond the frame": (
        ErrorCode.PROTOCOL_ERROR,
        OPEN + frame(FrameType.DATA, b"\x09abc", flags=Flag.PADDED, stream_id=1),
    ),
    "a broken block": (ErrorCode.COMPRESSION_ERROR, request(block=b"\xff\xff\xff\xff\xff\x7f")),
    "a frame within a block": (
        ErrorCode.PROTOCOL_ERROR,
        request(flags=0) + frame(FrameType.PING, b"8" * 8),
    ),
    "a block that continues elsewhere": (
        ErrorCode.PROTOCOL_ERROR,
        request(flags=0) + frame(FrameType.CONTINUATION, b"", flags=4, stream_id=3),
    ),
    "a block that continues by nothing": (
        ErrorCode.PROTOCOL_ERROR,
        OPEN + frame(FrameType.CONTINUATION, b"", flags=4, stream_id=1),
    ),
    "PING on a stream": (
        ErrorCode.PROTOCOL_ERROR,
        OPEN + frame(FrameType.PING, b"8" * 8, stream_id=1),
    ),
    "a short ping": (ErrorCode.FRAME_SIZE_ERROR, frame(FrameType.PING, b"7" * 7)),
    "odd settings": (ErrorCode.FRAME_SIZE_ERROR, frame(FrameType.SETTINGS, b"12345")),
    "a promise": (
        ErrorCode.PROTOCOL_ERROR,
        OPEN + frame(FrameType.PUSH_PROMISE, b"0" * 4, stream_id=1),
    ),
    "a reset of an idle stream": (
        ErrorCode.PROTOCOL_ERROR,
        frame(FrameType.RST_STREAM, b"0" * 4, stream_id=7),
    ),
    "a short reset": (
        ErrorCode.FRAME_SIZE_ERROR,
        OPEN + frame(FrameType.RST_STREAM, b"0", stream_id=1),
    ),
    "a window of nothing": (ErrorCode.PROTOCOL_ERROR, frame(FrameType.WINDOW_UPDATE, bytes(4))),
    "a window too large": (
        ErrorCode.FLOW_CONTROL_ERROR,
        frame(FrameType.WINDOW_UPDATE, b"\x7f\xff\xff\xff"),
    ),
    "streams' windows too large": (
        ErrorCode.FLOW_CONTROL_ERROR,
        frame(FrameType.SETTINGS, struct.pack(">HI", 4, 1 << 31)),
    ),
    "a short goodbye": (ErrorCode.FRAME_SIZE_ERROR, frame(FrameType.GOAWAY, b"1234")),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_protocol_ends_the_connection_with_its_code(case: str) -> None:
    code, data = BROKEN[case]
    server = Http2Server()
    server.receive(
        PREFACE + (frame(FrameType.PING, b"8" * 8) if data is None else settings_frame({}) + data)
    )
    with pytest.raises(Http2Error) as raised:
        events_of(server)
    assert raised.value.code == code
    assert h2_reads(written(server)) == code


def events_of(server: Http2Server) -> list[Event]:
    return list(iter(server.next_event, None))


def h2_reads(data: bytes) -> int:
    """The code of the goodbye, as another implementation reads it."""
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    events = client.receive_data(data)
    end = next(each for each in events if isinstance(each, h2.events.ConnectionTerminated))
    assert end.error_code is not None
    return int(end.error_code)


def test_what_is_no_http2_is_told_what_this_port_speaks() -> None:
    server = Http2Server()
    server.receive(b"GET / HTTP/1.1\r\n")
    with pytest.raises(Http2Error, match="gRPC"):
        server.next_event()


RESET = {
    "no path": encode([(b":method", b"POST"), (b":scheme", b"http")]),
    "a pseudo header behind others": encode([(b"a", b"b"), (b":method", b"POST")]),
    "capitals": BLOCK + encode([(b"Upper", b"x")]),
    "a header of HTTP/1": BLOCK + encode([(b"connection", b"close")]),
    "the same pseudo header twice": BLOCK + encode([(b":path", b"/x")]),
    "an unknown pseudo header": encode([(b":status", b"200")]),
    "an invalid length": BLOCK + encode([(b"content-length", b"-1")]),
}


@pytest.mark.parametrize("case", RESET)
def test_a_malformed_request_resets_its_stream_alone(case: str) -> None:
    server = served(request(1, RESET[case]) + request(3))
    assert list(server.sending.streams) == [3]
    assert frame(FrameType.RST_STREAM, bytes((0, 0, 0, 1)), stream_id=1) in written(server)


def test_headers_beyond_the_limit_reset_their_stream_alone() -> None:
    large = encode([(b"x", b"v" * 15_000), (b"y", b"v" * 15_000)])
    server = Http2Server()
    server.receive(PREFACE + settings_frame({}))
    server.receive(request(1, BLOCK + large[:15_000], flags=0))
    server.receive(frame(FrameType.CONTINUATION, large[15_000:], flags=4, stream_id=1) + request(3))
    event = server.next_event()
    assert isinstance(event, StreamHeaders)
    assert event.stream_id == 3


@pytest.mark.parametrize("data", [b"", b"12345", b"1234567"])
def test_a_content_length_must_be_true(data: bytes) -> None:
    block = BLOCK + encode([(b"content-length", b"6")])
    server = served(
        request(1, block) + frame(FrameType.DATA, data, flags=Flag.END_STREAM, stream_id=1)
    )
    assert server.sending.streams == {}


def test_data_behind_the_end_resets_the_stream() -> None:
    server = served(request(1, flags=ALL) + frame(FrameType.DATA, b"x", stream_id=1))
    assert written(server).endswith(
        frame(FrameType.RST_STREAM, bytes((0, 0, 0, ErrorCode.STREAM_CLOSED)), stream_id=1)
    )


def test_data_beyond_a_streams_window_resets_the_stream() -> None:
    server = served(request())
    stream = server.sending.streams[1]
    stream.room = 10
    server.receive(frame(FrameType.DATA, b"x" * 11, stream_id=1))
    assert server.next_event() == StreamGone(1, 0)
    assert CONNECTION_WINDOW > STREAM_WINDOW


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_of_useless_frames_ends_the_connection(kind: str) -> None:
    server = served(b"")
    sent = 0

    def flood() -> None:
        nonlocal sent
        for number in range(20_000):
            server.receive(FLOODS[kind](number))
            sent += 1
            while server.next_event() is not None:
                pass

    with pytest.raises(Http2Error) as raised:
        flood()
    assert raised.value.code == ErrorCode.ENHANCE_YOUR_CALM
    assert sent <= 10_002


def test_an_endless_header_block_ends_the_connection() -> None:
    server = served(b"")
    server.receive(request(flags=0))

    def flood() -> None:
        for _ in range(20):
            server.receive(frame(FrameType.CONTINUATION, stream_id=1))
            server.next_event()

    with pytest.raises(Http2Error, match="header block"):
        flood()


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10), st.integers(0, 255), st.integers(0, 7), st.binary(max_size=40)
        )
    )
)
def test_any_frames_end_in_events_or_one_error(frames: list[tuple[int, int, int, bytes]]) -> None:
    server = Http2Server()
    server.receive(PREFACE + settings_frame({}) + request() + request(3))
    try:
        for kind, flags, stream_id, payload in frames:
            server.receive(frame(kind, payload, flags=flags, stream_id=stream_id))
            while (event := server.next_event()) is not None:
                if isinstance(event, StreamHeaders):
                    server.sending.respond(event.stream_id, ANSWER)
                    server.sending.send(event.stream_id, b"answer")
                    server.sending.finish(event.stream_id, TRAILERS)
    except Http2Error:
        pass
    sending = server.sending
    assert sending.unsent == sum(stream.unsent for stream in sending.streams.values())


def test_h2_itself_finds_no_fault_in_a_long_talk() -> None:
    """A thousand requests over one connection: headers by its growing table, more data than its window."""
    pair = begun()

    def reply(event: Event) -> None:
        if isinstance(event, StreamHeaders):
            answer(pair, event.stream_id, b"x" * 100)

    pair.on_event = reply
    for number in range(1_000):
        asked = pair.ask(headers=[*ASKED, ("x-mq-request-id", f"{number:032x}")], ended=False)
        pair.client.send_data(asked, bytes(CONNECTION_WINDOW // 900), end_stream=True)
        pair.run()
    assert len(pair.ended) == 1_000
    with pytest.raises(h2.exceptions.ProtocolError):
        pair.client.send_data(1, b"over")
