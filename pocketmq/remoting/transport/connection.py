"""One TCP connection: requests and answers both ways, in any order. See sending.py for what it writes.

1. All frames of one read are handled before anything is written; their replies leave in one write.
2. A handler is a plain function. Its result is sent: a RemotingCommand, an encoded frame (bytes), or buffers
   that form one frame (not copied); None means no answer, or a later one by `send`. A coroutine runs in the
   owner's task group. A generator is a long answer in steps: at each `yield` others may be served.
3. An exception in a handler is logged, and answered with SYSTEM_ERROR and its text; it never closes the
   connection. Invalid frames do.
4. While the peer does not read, nothing more is read from it, so the data waiting for it stays bounded. A
   client reads on (`on_silent`): its callers bound what it sends, and two ends must not wait for each other.
5. A ONEWAY request is never answered. While a coroutine answers one, its bytes are counted (limits.py,
   invariant 4).
6. Its requests occupy the event loop for TURN_MS at a time, or little more: the rest waits for the next turn,
   and nothing more is read before. While an answer comes in steps, no other request is handled.
Owner: created and closed by RemotingServer or RemotingClient; only the event loop's thread touches it.
"""

import asyncio
import inspect
import logging
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import REQUEST_HEADER_SIZE_MAX, RemotingCommand, decode
from pocketmq.remoting.errors import (
    PocketMQError,
    ProtocolError,
    UnknownEncoding,
)
from pocketmq.remoting.flags import FrameFlag
from pocketmq.remoting.frames import FRAME_SIZE_MAX, FrameDecoder
from pocketmq.remoting.hosts import socket_name
from pocketmq.remoting.quick.by_pattern import Cuttable, Patterns, answered, learn_request
from pocketmq.remoting.transport import coroutines
from pocketmq.remoting.transport.detect import ProtocolDetector
from pocketmq.remoting.transport.limits import SharedLimits
from pocketmq.remoting.transport.outbox import BUFFER_HIGH, Buffer
from pocketmq.remoting.transport.peer import TURN_MS
from pocketmq.remoting.transport.sending import Sending

log = logging.getLogger(__name__)

Reply = RemotingCommand | bytes | Sequence[Buffer] | None
Later = Coroutine[Any, Any, RemotingCommand | None]
Steps = Generator[None, None, RemotingCommand | Later | None]
Handler = Callable[[RemotingCommand, "Connection"], "Reply | Later | Steps"]

# So many small requests, answered at once, take well under a millisecond: the clock is not read.
_LITTLE_MAX = 16
_LITTLE_SIZE = 4_096
# About the bytes that a request takes besides its body while a coroutine answers it.
_KEPT_COST = 4_096


class Connection(Sending):
    """A connection of either end.

    Attributes: peer (`ip:port` of the other end), peer_host (its packed address, 8 or 20 bytes),
    last_read_ms / last_write_ms (monotonic), closed, tags (what the broker notes about its client).
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        monotonic_ms: Callable[[], int],
        on_open: Callable[["Connection"], None] | None = None,
        on_close: Callable[["Connection"], None] | None = None,
        default_handler: Handler | None = None,
        detector: ProtocolDetector | None = None,
        on_silent: Callable[["Connection"], None] | None = None,
        shared_limits: SharedLimits | None = None,
        frame_size_max: int = FRAME_SIZE_MAX,
        in_flight_max: int = 65_536,
    ) -> None:
        """spawn: runs a coroutine as a child of the owner. on_close: calls `release`, now or later. detector:
        of a server; None takes all bytes for frames. on_silent: of a client (4), see Sending."""
        super().__init__(
            monotonic_ms=monotonic_ms,
            count_unread=self._count_unread,
            in_flight_max=in_flight_max,
            watched=on_silent is not None,
        )
        self._on_silent = on_silent
        self._shared_limits = shared_limits
        self._handlers = handlers
        self._default_handler = default_handler or RemotingCommand.not_supported
        self._spawn = spawn
        self._on_open = on_open
        self._on_close = on_close
        self._detector = detector
        self._read_on = on_silent is not None
        self._decoder = FrameDecoder(frame_size_max)
        self._header_size_max = frame_size_max if self._read_on else REQUEST_HEADER_SIZE_MAX
        # How this peer writes what it sends most.
        self._patterns: Patterns | None = None
        # Why nothing is handled now: an answer comes in steps; the turn is over (or the peer does not read).
        self._steps: tuple[RemotingCommand, Steps] | None = None
        self._turn_over = False
        # Why nothing is read now, besides these: others' half frames come first.
        self._held = False
        self._keeps_too_much = False
        self._kept_size = 0
        self._is_reading = True
        self._waiting: list[bytes] = []
        self._later: deque[Callable[[], None]] = deque()
        self._transport: asyncio.Transport | None = None
        self.partial_since_ms = 0
        self.tags: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<Connection {self.peer}{' closed' if self.closed else ''}>"

    # ------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # cast: uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._outbox.open(self._transport)
        self.peer, self.peer_host = socket_name(transport.get_extra_info("peername"))
        self.local, _ = socket_name(transport.get_extra_info("sockname"))
        self.opened_ms = self.last_read_ms = self.last_write_ms = self._monotonic_ms()
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self.last_read_ms = self._monotonic_ms()
        detector = self._detector
        if detector is not None:
            data = detector.take(self, self._transport, data)
            if detector.open:
                self._detector = None
            if not data:
                return
        try:
            frames = self._decoder.feed(data)
        except ProtocolError as error:
            self._refuse(error)
            return
        if self._waiting:
            self._waiting += frames
        else:
            self._work(frames, self.last_read_ms)
        if self._decoder.buffer or self.partial_since_ms:
            self._note_half_frame(self._decoder.pending)

    def _note_half_frame(self, size: int) -> None:
        self.partial_since_ms = (self.partial_since_ms or self.last_read_ms) if size else 0
        if self._shared_limits is not None and not self._shared_limits.half_frame(self, size):
            self._held = True
            self._update_reading()

    def read_again(self) -> None:
        """Resume reading: there is room for its half frame."""
        self._held = False
        self._update_reading()

    def _work(self, frames: list[bytes], began_ms: int) -> None:
        """Handle frames in order, until one has to wait (invariants 4 and 6)."""
        self._corked = True
        outbox = self._outbox
        place, count, alike_from, little = 0, len(frames), 0, 0  # little: since the clock was read
        run_min = sys.maxsize if self._patterns is None else self._patterns.run_min
        try:
            while place < count:
                if outbox.size > BUFFER_HIGH:
                    self._flush()
                is_over = little >= _LITTLE_MAX and self._monotonic_ms() - began_ms >= TURN_MS
                little %= _LITTLE_MAX
                if is_over or outbox.is_blocked or self._steps is not None:
                    if is_over:
                        self._go_on_soon()
                    self._waiting = frames[place:]
                    self._update_reading()
                    break
                if count - place >= run_min and place >= alike_from:
                    done = self._handle_run(frames[place:] if place else frames)
                    if done:
                        place += done
                        little = _LITTLE_MAX
                        continue
                    alike_from = place + run_min
                little += 1 if self._handle(frames[place]) else _LITTLE_MAX
                place += 1
        except ProtocolError as error:
            self._refuse(error)
        finally:
            if outbox.size and outbox.flush():
                self.last_write_ms = self.last_read_ms
            self._corked = False

    def _go_on_soon(self) -> None:
        assert self._loop is not None
        if not self._turn_over:
            self._turn_over = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Handle what waits, in another turn."""
        self._turn_over = False
        began_ms = self._monotonic_ms()
        if self._steps is not None and not self._step(began_ms):
            self._go_on_soon()
            return
        while self._later and not self._outbox.is_blocked:
            if self._monotonic_ms() - began_ms >= TURN_MS:
                self._go_on_soon()
                return
            self._later.popleft()()
        if self._waiting and not self._outbox.is_blocked:
            waiting, self._waiting = self._waiting, []
            self._work(waiting, began_ms)
        self._update_reading()

    def _update_reading(self) -> None:
        """Pause or resume reading from the peer, depending on everything that may block it."""
        wanted = not (
            self._outbox.is_blocked
            or self._waiting
            or self._held
            or self._steps is not None
            or self._keeps_too_much
        )
        transport = self._transport
        if wanted == self._is_reading or transport is None or transport.is_closing():
            return
        self._is_reading = wanted
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _step(self, began_ms: int) -> bool:
        """Continue an answer in steps; False if the turn is over before it is complete."""
        assert self._steps is not None
        command, steps = self._steps
        try:
            while self._monotonic_ms() - began_ms < TURN_MS:
                next(steps)
            return False
        except StopIteration as stop:
            self._steps = None
            if inspect.iscoroutine(stop.value):
                self._answer_later(command, stop.value)
            elif stop.value is not None and not command.is_oneway:
                self.send(stop.value)
        except Exception as error:  # noqa: BLE001 - as in _handle
            self._steps = None
            self._fail(command, error)
        return True

    def _refuse(self, error: ProtocolError) -> None:
        log.warning("connection closed: bad bytes peer=%s reason=%r", self.peer, str(error))
        if isinstance(error, UnknownEncoding):
            # Whole frames come from a program that can read why; its opaque cannot be read.
            flag = int(FrameFlag.RESPONSE)
            self.send(RemotingCommand(ResponseCode.SYSTEM_ERROR, flag=flag, remark=str(error)))
        # The answers to the requests before it, too.
        self._flush()
        self.close()

    def _handle_run(self, frames: list[bytes]) -> int:
        """Handle the first frames at once if they are alike. Returns: how many were handled."""
        patterns = self._patterns
        assert patterns is not None
        try:
            done, replies = patterns.answer_run(frames, self, self._handlers)
        except Exception as error:  # noqa: BLE001 - as in _handle
            self._fail(decode(frames[0], self._header_size_max), error)
            return 1
        self._outbox.add(replies)
        return done

    def _handle(self, frame: bytes) -> bool:
        """Handle one frame. Returns: whether it was cheap. Raises: FrameError."""
        patterns = self._patterns
        if patterns is not None:
            try:
                quick = patterns.answer(frame, self, self._handlers)
            except Exception as error:  # noqa: BLE001 - as below
                self._fail(decode(frame, self._header_size_max), error)
                return False
            if isinstance(quick, bytes):
                self._outbox.add(quick)
                return len(frame) < _LITTLE_SIZE
            if quick is not None:
                self.send(quick)
                return False
        command = decode(frame, self._header_size_max)
        if (flag := command.flag) & 1:
            self._patterns = answered(self._pending, frame, command, patterns)
            return True
        handler = self._handlers.get(command.code, self._default_handler)
        if isinstance(handler, Cuttable):
            patterns = self._patterns = patterns or Patterns()
            learn_request(patterns, frame, command, handler)
            handler = handler.handle
        try:
            reply = handler(command, self)
        except Exception as error:  # noqa: BLE001 - a bug answers, and is logged with its trace
            self._fail(command, error)
            return False
        if isinstance(reply, bytes):
            self._outbox.add(b"" if flag & 2 else reply)
            return len(frame) < _LITTLE_SIZE
        if reply is not None:
            self._answer(command, reply)
        return False

    def _answer(self, command: RemotingCommand, reply: Reply | Later | Steps) -> None:
        """Send a handler's result, now or later."""
        if inspect.iscoroutine(reply):
            self._answer_later(command, reply)
        elif inspect.isgenerator(reply):
            self._steps = command, cast(Steps, reply)
            if not self._step(self._monotonic_ms()):
                self._go_on_soon()
                self._update_reading()
        elif not command.is_oneway:
            self.send(reply)  # type: ignore[arg-type]

    def _answer_later(self, command: RemotingCommand, answer: Later) -> None:
        size = _kept_size(command)
        self._keep(size)
        done = partial(self._keep, -size)
        self._spawn(coroutines.run(self, command, answer, self._fail, done))

    def _keep(self, size: int) -> None:
        shared_limits = self._shared_limits
        if shared_limits is None:
            return
        shared_limits.kept_size += size
        self._kept_size += size
        keeps_too_much = not shared_limits.may_be_read(self._kept_size)
        if keeps_too_much != self._keeps_too_much:
            self._keeps_too_much = keeps_too_much
            self._update_reading()

    def may_keep(self, command: RemotingCommand) -> bool:
        """Return True if there is room to keep one more request until something else has answered."""
        shared_limits = self._shared_limits
        return shared_limits is None or shared_limits.has_room(self._kept_size, _kept_size(command))

    def _fail(self, command: RemotingCommand, error: Exception) -> None:
        code = command.code
        if isinstance(error, PocketMQError):
            log.warning("request failed code=%s peer=%s reason=%r", code, self.peer, str(error))
        else:
            log.exception("request failed code=%s peer=%s", code, self.peer)
        if not command.is_oneway:
            remark = f"{type(error).__name__}: {error}"
            self.send(command.answer(ResponseCode.SYSTEM_ERROR, remark[:1000]))

    def _finish_waiting(self) -> None:
        """Handle the frames read so far, such as commits and one-way sends, though no peer takes the answers.

        It is one read's worth at most.
        """
        waiting, self._waiting = self._waiting, []
        try:
            for frame in waiting:
                self._handle(frame)
        except ProtocolError as error:
            self._refuse(error)

    def eof_received(self) -> bool:
        """Return True if its server closes it, in one of its next turns: many peers may end at once."""
        if self._shared_limits is None or self._on_close is None:
            return False
        self._ending = True
        self._on_close(self)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        (self._on_close or Connection.release)(self)

    def release(self) -> None:
        """Handle what a closed connection has read, and fail what it asked."""
        self._finish_waiting()
        self._later.clear()
        if self._steps is not None:
            self._steps[1].close()
            self._steps = None
        self._fail_pending()

    def pause_writing(self) -> None:
        if self._read_on:
            return
        self._outbox.block()
        self._update_reading()

    def resume_writing(self) -> None:
        self._outbox.unblock()
        if not (self._outbox.is_blocked or self._turn_over):
            self._go_on()

    def when_read(self, run: Callable[[], None]) -> None:
        """Call `run` now, or once the peer has read the data waiting for it."""
        if self._outbox.is_blocked or self._later:
            self._later.append(run)
        else:
            run()

    def _count_unread(self, size: int) -> None:
        if self._shared_limits is not None:
            self._shared_limits.unread(self, size)

    # ------------------------------------------------------------ ending

    def silence(self) -> None:
        """See Sending."""
        if self._on_silent is not None:
            self._on_silent(self)

    def end(self) -> None:
        """Close it as the transport would have done at its peer's end."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; unwritten data is lost."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def writable(self) -> bool:
        """False once closed or closing."""
        transport = self._transport
        return not (self.closed or self._ending or transport is None or transport.is_closing())

    def leave(self) -> asyncio.Transport:
        """Give the transport away; this connection is over."""
        transport, self._transport = self._transport, None
        assert transport is not None
        self.connection_lost(None)
        return transport


def _kept_size(command: RemotingCommand) -> int:
    """Return the bytes that a request takes, about."""
    fields = command.ext or {}
    return len(command.body) + sum(map(len, fields.values())) + _KEPT_COST
