"""Proxy: forwards the requests of a server's clients to another broker, while they stay connected here.

    client -- ProxiedConnection -- other broker     each frame is forwarded unchanged, both ways
    client -- ProxiedConnection                     `hold`: requests wait here
    client -- Connection                            `serve_here`: this server answers, on the same connection

1. A request is forwarded at most once: if a client is moved while a request other than REPEATABLE is
   unanswered, its connection is closed, by which it learns so. `is_quiet`: there is no such request.
2. A moved client's held pulls and pops are repeated at the new broker, after its last heartbeat, without
   which no broker knows its group.
3. Only whole frames are forwarded, so a client can be moved between any two of them.
4. A send held for longer than HELD_MS is refused, and stored nowhere: its client retries, and a send it has
   given up does not turn up later.
5. A client that has connected to the other broker itself leaves an idle connection behind: `close_left`
   closes it, since two connections of one client count as two members of its group.
6. TLS ends here, since frames must be readable: they are forwarded in plain, over connections of this
   server's own. A TLS client loses its connection when this server is to answer it, and reconnects.
7. A new connection whose first request is one of `own` is this server's, whatever the others do: the program
   that moves the clients has lost its connection. Not with TLS, which has begun then.
Owner: its creator; `close` closes every connection.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Collection
from typing import cast

from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.errors import ProtocolError
from pocketmq.remoting.frames import FrameDecoder
from pocketmq.remoting.transport.server import RemotingServer
from pocketmq.remoting.transport.tls import NotAccepted, TlsLayer, layer_for

log = logging.getLogger(__name__)

_C = RequestCode
# Idempotent for the client.
REPEATABLE = frozenset({_C.PULL_MESSAGE, _C.LITE_PULL_MESSAGE, _C.POP_MESSAGE, _C.NOTIFICATION})
SENDS = frozenset(
    {
        _C.SEND_MESSAGE,
        _C.SEND_MESSAGE_V2,
        _C.SEND_BATCH_MESSAGE,
        _C.SEND_REPLY_MESSAGE,
        _C.SEND_REPLY_MESSAGE_V2,
    }
)
HELD_MS = 2_000
LEFT_MS = 2_000
_ONEWAY = 2
_CONNECT_S = 3
# Stop reading from a held client that has more than this queued.
_HELD_SIZE_MAX = 8 << 20
# Requests of one client without an answer; as a server's own connections have.
_OPEN_MAX = 65_536

Known = Callable[[RemotingCommand], Awaitable[bool]]


def members_of(heartbeat: RemotingCommand) -> tuple[str, list[str]]:
    """Return client id and consumer groups of a heartbeat. Raises: LookupError, TypeError, ValueError."""
    said = fastjson.loads(heartbeat.body)
    return said["clientID"], [each["groupName"] for each in said.get("consumerDataSet") or ()]


class Proxy:
    """Owner of the forwarded connections of one server. target: `ip:port` of the other broker."""

    def __init__(
        self,
        server: RemotingServer,
        target: str,
        monotonic_ms: Callable[[], int],
        is_known: Known | None = None,
        *,
        own: Collection[int] = (),
    ) -> None:
        """own: codes of requests (7). is_known: whether the client of this heartbeat has its own connection
        to the other broker; then the heartbeat is answered here, since it would count as another member.
        """
        self.server = server
        self.target = target
        self.monotonic_ms = monotonic_ms
        self.is_known = is_known
        self.own = own
        self.is_holding = False
        self.passed: set[ProxiedConnection] = set()

    def open(self) -> None:
        """Forward every new connection; existing ones stay this server's."""
        self.server.lead_to(self)

    def accept(self) -> "ProxiedConnection":
        return ProxiedConnection(self)

    def hold(self) -> None:
        """Let requests wait from now on."""
        self.is_holding = True

    @property
    def is_quiet(self) -> bool:
        """Return True if every request has its answer, except for those that wait for messages."""
        return not any(each.is_asking for each in self.passed)

    def go_on(self) -> None:
        """Forward what was held."""
        self.is_holding = False
        for each in list(self.passed):
            each.ask_held()

    def move(self, target: str, is_known: Known | None = None) -> None:
        """Forward to another broker, beginning with what was held (1, 2). is_known: as at construction."""
        self.target, self.is_known = target, is_known
        self.is_holding = False
        for each in list(self.passed):
            each.move()

    def serve_here(self) -> None:
        """Let this server answer from now on (1, 2)."""
        self.server.lead_to(None)
        self.is_holding = False
        for each in list(self.passed):
            each.serve_here()

    def tick(self) -> None:
        """Refuse what was held for too long (4); call it every some hundred milliseconds while holding."""
        now_ms = self.monotonic_ms()
        for each in self.passed:
            each.refuse_held(now_ms - HELD_MS)

    def close_left(self) -> None:
        """Apply invariant 5."""
        now_ms = self.monotonic_ms()
        for each in list(self.passed):
            if each.is_left(now_ms - LEFT_MS):
                each.close()

    def close(self) -> None:
        """Close every connection; new ones are this server's."""
        self.server.lead_to(None)
        for each in list(self.passed):
            each.close()


class ProxiedConnection(asyncio.Protocol):
    """The connection of one client, and its counterpart to the other broker."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._decoder = FrameDecoder()
        self._client: asyncio.Transport | None = None
        self._there: _There | None = None
        # Asked there and not answered, by opaque: the frame, empty for what is not asked twice.
        self._open: dict[int, bytes] = {}
        # (frame, request or None for an answer to the other broker, when it came).
        self.held: list[tuple[bytes, RemotingCommand | None, int]] = []
        self.held_size = 0
        self._heartbeat: RemotingCommand | None = None
        self._last_ms = proxy.monotonic_ms()
        # Known with its first bytes (6).
        self._is_begun = False
        self._tls: TlsLayer | None = None

    # ------------------------------------------------------------ the client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # cast: uvloop's transports are not subclasses of asyncio's.
        self._client = cast(asyncio.Transport, transport)
        self._proxy.passed.add(self)
        self._connect()

    def data_received(self, data: bytes) -> None:
        self._last_ms = self._proxy.monotonic_ms()
        try:
            frames = self._decoder.feed(self._plain(data))
            for place, frame in enumerate(frames):
                command = decode(frame)
                if command.code in self._proxy.own and self._is_new:
                    self._hand_over(frames[place:])
                    return
                self._take(frame, command)
        except (NotAccepted, ProtocolError, ssl.SSLError) as error:
            log.warning("connection closed: bad bytes reason=%r", str(error))
            self.close()

    def _plain(self, data: bytes) -> bytes:
        """Return these bytes of the client in plain (6). Raises: NotAccepted, ssl.SSLError."""
        if not self._is_begun:
            self._is_begun = True
            self._tls = layer_for(data, self._proxy.server.tls)
        if self._tls is None:
            return data
        plain, answer, is_over = self._tls.feed(data)
        if self._client is not None:
            if answer:
                self._client.write(answer)
            if is_over:
                self._client.close()
        return plain

    def connection_lost(self, exc: Exception | None) -> None:
        self._proxy.passed.discard(self)
        self._client = None
        self._leave()

    def pause_writing(self) -> None:
        if self._there is not None:
            self._there.read(False)

    def resume_writing(self) -> None:
        if self._there is not None:
            self._there.read(True)

    def read(self, wanted: bool) -> None:
        """Resume or pause reading from the client."""
        if self._client is not None:
            _read(self._client, wanted)

    def close(self) -> None:
        if self._client is not None:
            self._client.abort()

    def is_left(self, before_ms: int) -> bool:
        return not (self._open or self.held) and self._last_ms < before_ms

    # ------------------------------------------------------------ there

    @property
    def is_asking(self) -> bool:
        return not all(self._open.values())

    def _take(self, frame: bytes, command: RemotingCommand) -> None:
        request = None if command.is_response else command
        # int: for pyright, which takes a member for its row, the number with words.
        if request is not None and request.code == int(_C.HEART_BEAT):
            self._heartbeat = request
            if self._proxy.is_known is not None:
                self._proxy.server.spawn(self._beat(frame, request))
                return
        self._ask(frame, request)

    async def _beat(self, frame: bytes, request: RemotingCommand) -> None:
        is_known = self._proxy.is_known
        if is_known is not None and await is_known(request):
            self._answer(encode(request.answer(ResponseCode.SUCCESS)))
        else:
            self._ask(frame, request)

    def _ask(self, frame: bytes, request: RemotingCommand | None) -> None:
        """Forward a request, or hold it."""
        there = self._there
        if self._proxy.is_holding or there is None or not there.is_open:
            self.held.append((frame, request, self._last_ms))
            self.held_size += len(frame)
            if self.held_size > _HELD_SIZE_MAX:
                self.read(False)
            return
        if request is not None and not request.is_oneway:
            if len(self._open) >= _OPEN_MAX:
                log.warning(
                    "connection closed: too many requests have no answer open=%d", _OPEN_MAX
                )
                self.close()
                return
            self._open[request.opaque] = frame if request.code in REPEATABLE else b""
        there.write(frame)

    def answered(self, frame: bytes) -> None:
        """Handle a frame from the other broker."""
        command = decode(frame)
        if command.is_response:
            self._open.pop(command.opaque, None)
        self._answer(len(frame).to_bytes(4, "big") + frame)

    def _answer(self, data: bytes) -> None:
        if self._client is not None:
            self._client.write(data if self._tls is None else self._tls.encrypt(data))

    def gone(self, there: "_There") -> None:
        """Handle a connection to the other broker that closed, or could not be made."""
        if there is self._there and not self._proxy.is_holding:
            self.close()

    def _connect(self) -> None:
        self._there = there = _There(self)
        self._proxy.server.spawn(there.connect(self._proxy.target))

    def connected(self) -> None:
        """Handle an established connection to the other broker."""
        if not self._proxy.is_holding:
            self.ask_held()

    def _leave(self) -> None:
        there, self._there = self._there, None
        if there is not None:
            there.close()

    # ------------------------------------------------------------ being moved

    def ask_held(self) -> None:
        if self._there is None or not self._there.is_open:
            if self._there is None or self._there.is_over:
                self._leave()
                self._connect()
            return
        held, self.held, self.held_size = self.held, [], 0
        # Before they are asked: what the other broker does not take stops the reading again.
        self.read(True)
        for frame, request, _ in held:
            self._ask(frame, request)

    def refuse_held(self, before_ms: int) -> None:
        kept = []
        for each in self.held:
            _, request, since_ms = each
            if request is not None and request.code in SENDS and since_ms < before_ms:
                if request.is_oneway:
                    continue
                refused = request.answer(
                    ResponseCode.SERVICE_NOT_AVAILABLE,
                    "this broker is being moved: the message was not stored, send it again",
                )
                self._answer(encode(refused))
            else:
                kept.append(each)
        self.held = kept
        self.held_size = sum(len(frame) for frame, _, _ in kept)

    def _asked_anew(self) -> list[bytes] | None:
        """Return the frames that a moved client begins with; None if it must learn of a loss (1)."""
        if self.is_asking:
            return None
        first = []
        if self._heartbeat is not None:
            self._heartbeat.flag |= _ONEWAY
            first.append(encode(self._heartbeat)[4:])
        frames = [*first, *self._open.values()]
        self._open.clear()
        return frames

    def move(self) -> None:
        """Move to the proxy's new target."""
        frames = self._asked_anew()
        self._leave()
        if frames is None:
            self.close()
            return
        now_ms = self._last_ms
        again: list[tuple[bytes, RemotingCommand | None, int]] = [
            (frame, decode(frame), now_ms) for frame in frames
        ]
        self.held[:0] = again
        self.held_size += sum(map(len, frames))
        self._connect()

    def serve_here(self) -> None:
        """Hand this protocol's client over to a Connection."""
        self._proxy.passed.discard(self)
        client, self._client = self._client, None
        frames = self._asked_anew()
        self._leave()
        if client is None or client.is_closing():
            return
        if frames is None or self._tls is not None:
            client.abort()
            return
        self._serve(client, frames + [frame for frame, _, _ in self.held])

    @property
    def _is_new(self) -> bool:
        """Return True if nothing but an own request may have come over it (7)."""
        return not (self._open or self.held or self._heartbeat or self._tls)

    def _hand_over(self, frames: list[bytes]) -> None:
        """Apply invariant 7."""
        self._proxy.passed.discard(self)
        client, self._client = self._client, None
        self._leave()
        if client is not None and not client.is_closing():
            self._serve(client, frames)

    def _serve(self, client: asyncio.Transport, frames: list[bytes]) -> None:
        """Let this server answer a client's requests, beginning with these."""
        connection = self._proxy.server.make_connection()
        client.set_protocol(connection)
        connection.connection_made(client)
        _read(client, True)
        data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
        data += self._decoder.rest
        if data:
            connection.data_received(data)


class _There(asyncio.Protocol):
    """One connection to the other broker."""

    def __init__(self, passed: ProxiedConnection) -> None:
        self._passed = passed
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self.is_over = False

    async def connect(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                await loop.create_connection(lambda: self, host.strip("[]"), int(port))
        except (OSError, OverflowError, ValueError) as error:
            log.warning("could not pass the connection on address=%s reason=%s", address, error)
            self.is_over = True
            self._passed.gone(self)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.is_over:
            self._transport.abort()
        else:
            self._passed.connected()

    def data_received(self, data: bytes) -> None:
        if self.is_over:
            return
        try:
            for frame in self._decoder.feed(data):
                self._passed.answered(frame)
        except ProtocolError as error:
            log.warning("connection closed: bad bytes of a broker reason=%r", str(error))
            self.close()
            self._passed.gone(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_over:
            self.is_over = True
            self._passed.gone(self)

    def pause_writing(self) -> None:
        self._passed.read(False)

    def resume_writing(self) -> None:
        self._passed.read(True)

    def write(self, frame: bytes) -> None:
        assert self._transport is not None
        self._transport.write(len(frame).to_bytes(4, "big") + frame)

    def read(self, wanted: bool) -> None:
        if self._transport is not None:
            _read(self._transport, wanted)

    def close(self) -> None:
        self.is_over = True
        if self._transport is not None:
            self._transport.abort()


def _read(transport: asyncio.Transport, wanted: bool) -> None:
    if transport.is_closing() or transport.is_reading() == wanted:
        return
    if wanted:
        transport.resume_reading()
    else:
        transport.pause_reading()
