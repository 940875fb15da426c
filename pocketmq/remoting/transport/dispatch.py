"""Dispatch: hands the frames that a connection has read to their handlers, in turns.

1. All frames of one read are handled before anything is written; their replies leave in one write.
2. A handler is a plain function. Its result is sent: a RemotingCommand, an encoded frame (bytes), or buffers
   that form one frame (not copied); None means no answer, or a later one by `send`. A coroutine runs in the
   owner's task group. A generator is a long answer in steps: at each `yield` others may be served.
3. An exception in a handler is logged, and answered with SYSTEM_ERROR and its text; it never closes the
   connection. Invalid frames do.
4. A ONEWAY request is never answered. While a coroutine answers one, its bytes are counted (limits.py,
   invariant 4).
5. Requests occupy the event loop for TURN_MS at a time, or little more: the rest waits for the next turn,
   and nothing more is read before. While an answer comes in steps, no other request is handled.
Owner: its Connection, which is an argument and no attribute: a cycle would wait for the garbage collector.
"""

import asyncio
import inspect
import logging
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand, decode
from pocketmq.remoting.errors import PocketMQError, ProtocolError
from pocketmq.remoting.quick.by_pattern import Cuttable, Patterns, answered, learn_request
from pocketmq.remoting.transport import coroutines
from pocketmq.remoting.transport.outbox import BUFFER_HIGH, Buffer, Outbox
from pocketmq.remoting.transport.own_requests import Waiter
from pocketmq.remoting.transport.peer import TURN_MS
from pocketmq.remoting.transport.read_gate import ReadGate, kept_size

log = logging.getLogger(__name__)

Reply = RemotingCommand | bytes | Sequence[Buffer] | None
Later = Coroutine[Any, Any, RemotingCommand | None]
Steps = Generator[None, None, RemotingCommand | Later | None]
Spawn = Callable[[Coroutine[Any, Any, None]], object]

# So many small requests, answered at once, take well under a millisecond: the clock is not read.
_LITTLE_MAX = 16
_LITTLE_SIZE = 4_096


class ServedConnection(coroutines.Asker, Protocol):
    """The connection whose frames are handled: connection.Connection."""

    last_read_ms: int

    def send(self, reply: RemotingCommand | bytes | Sequence[Buffer]) -> None: ...

    def refuse(self, error: ProtocolError) -> None:
        """Close it because of bad bytes."""
        ...


class Serving(NamedTuple):
    """How requests are served. spawn: runs a coroutine as a child of the owner."""

    handlers: Mapping[int, Callable[[RemotingCommand, Any], Any]]
    default_handler: Callable[[RemotingCommand, Any], Any]
    spawn: Spawn
    monotonic_ms: Callable[[], int]
    header_size_max: int


class Dispatch:
    """See the head of the file."""

    def __init__(
        self, serving: Serving, pending: dict[int, Waiter], outbox: Outbox, read_gate: ReadGate
    ) -> None:
        """pending: waiters for answers, by opaque."""
        self._handlers = serving.handlers
        self._monotonic_ms = serving.monotonic_ms
        self._header_size_max = serving.header_size_max
        self._serving = serving
        self._pending = pending
        self._outbox = outbox
        self._read_gate = read_gate
        # How this peer writes what it sends most.
        self._patterns: Patterns | None = None
        # Why nothing is handled now: an answer comes in steps; the turn is over (or the peer does not read).
        self._steps: tuple[RemotingCommand, Steps] | None = None
        self._turn_over = False
        self._waiting: list[bytes] = []
        self._later: deque[Callable[[], None]] = deque()

    def work(self, connection: ServedConnection, frames: list[bytes], began_ms: int) -> None:
        """Handle frames in order, until one has to wait (invariant 5)."""
        if self._waiting:
            self._waiting += frames
            return
        outbox = self._outbox
        outbox.corked = True
        place, count, alike_from, little = 0, len(frames), 0, 0  # little: since the clock was read
        run_min = sys.maxsize if self._patterns is None else self._patterns.run_min
        try:
            while place < count:
                if outbox.size > BUFFER_HIGH:
                    outbox.flush(began_ms)
                is_over = little >= _LITTLE_MAX and self._monotonic_ms() - began_ms >= TURN_MS
                little %= _LITTLE_MAX
                if is_over or outbox.is_blocked or self._steps is not None:
                    if is_over:
                        self._go_on_soon(connection)
                    self._waiting = frames[place:]
                    self._update_reading()
                    break
                if count - place >= run_min and place >= alike_from:
                    done = self._handle_run(connection, frames[place:] if place else frames)
                    if done:
                        place += done
                        little = _LITTLE_MAX
                        continue
                    alike_from = place + run_min
                little += 1 if self._handle(connection, frames[place]) else _LITTLE_MAX
                place += 1
        except ProtocolError as error:
            connection.refuse(error)
        finally:
            if outbox.size:
                outbox.flush(began_ms)
            outbox.corked = False

    def _update_reading(self) -> None:
        self._read_gate.is_busy = bool(self._waiting) or self._steps is not None
        self._read_gate.update()

    def _go_on_soon(self, connection: ServedConnection) -> None:
        if not self._turn_over:
            self._turn_over = True
            asyncio.get_running_loop().call_soon(self._go_on, connection)

    def read_again(self, connection: ServedConnection) -> None:
        """Continue: the peer has read the data waiting for it."""
        if not self._turn_over:
            self._go_on(connection)

    def _go_on(self, connection: ServedConnection) -> None:
        """Handle what waits, in another turn."""
        self._turn_over = False
        began_ms = self._monotonic_ms()
        if self._steps is not None and not self._step(connection, began_ms):
            self._go_on_soon(connection)
            return
        while self._later and not self._outbox.is_blocked:
            if self._monotonic_ms() - began_ms >= TURN_MS:
                self._go_on_soon(connection)
                return
            self._later.popleft()()
        if self._waiting and not self._outbox.is_blocked:
            waiting, self._waiting = self._waiting, []
            self.work(connection, waiting, began_ms)
        self._update_reading()

    def when_read(self, run: Callable[[], None]) -> None:
        """Call `run` now, or once the peer has read the data waiting for it."""
        if self._outbox.is_blocked or self._later:
            self._later.append(run)
        else:
            run()

    def finish(self, connection: ServedConnection) -> None:
        """Handle the frames read so far, such as commits and one-way sends, though no peer takes the answers.

        It is one read's worth at most.
        """
        waiting, self._waiting = self._waiting, []
        try:
            for frame in waiting:
                self._handle(connection, frame)
        except ProtocolError as error:
            connection.refuse(error)
        self._later.clear()
        if self._steps is not None:
            self._steps[1].close()
            self._steps = None

    # ------------------------------------------------------------ one frame

    def _handle_run(self, connection: ServedConnection, frames: list[bytes]) -> int:
        """Handle the first frames at once if they are alike. Returns: how many were handled."""
        patterns = self._patterns
        assert patterns is not None
        try:
            done, replies = patterns.answer_run(frames, connection, self._handlers)
        except Exception as error:  # noqa: BLE001 - as in _handle
            self._fail(connection, decode(frames[0], self._header_size_max), error)
            return 1
        self._outbox.add(replies)
        return done

    def _handle(self, connection: ServedConnection, frame: bytes) -> bool:
        """Handle one frame. Returns: whether it was cheap. Raises: FrameError."""
        patterns = self._patterns
        if patterns is not None:
            try:
                quick = patterns.answer(frame, connection, self._handlers)
            except Exception as error:  # noqa: BLE001 - as below
                self._fail(connection, decode(frame, self._header_size_max), error)
                return False
            if isinstance(quick, bytes):
                self._outbox.add(quick)
                return len(frame) < _LITTLE_SIZE
            if quick is not None:
                connection.send(quick)
                return False
        command = decode(frame, self._header_size_max)
        if (flag := command.flag) & 1:
            self._patterns = answered(self._pending, frame, command, patterns)
            return True
        handler = self._handlers.get(command.code, self._serving.default_handler)
        if isinstance(handler, Cuttable):
            patterns = self._patterns = patterns or Patterns()
            learn_request(patterns, frame, command, handler)
            handler = handler.handle
        try:
            reply = handler(command, connection)
        except Exception as error:  # noqa: BLE001 - a bug answers, and is logged with its trace
            self._fail(connection, command, error)
            return False
        if isinstance(reply, bytes):
            self._outbox.add(b"" if flag & 2 else reply)
            return len(frame) < _LITTLE_SIZE
        if reply is not None:
            self._answer(connection, command, reply)
        return False

    def _answer(
        self, connection: ServedConnection, command: RemotingCommand, reply: Reply | Later | Steps
    ) -> None:
        """Send a handler's result, now or later."""
        if inspect.iscoroutine(reply):
            self._answer_later(connection, command, reply)
        elif inspect.isgenerator(reply):
            self._steps = command, cast(Steps, reply)
            if not self._step(connection, self._monotonic_ms()):
                self._go_on_soon(connection)
                self._update_reading()
        elif not command.is_oneway:
            connection.send(reply)  # type: ignore[arg-type]

    def _answer_later(
        self, connection: ServedConnection, command: RemotingCommand, answer: Later
    ) -> None:
        size = kept_size(command)
        self._read_gate.keep(size)
        done, failed = partial(self._read_gate.keep, -size), partial(self._fail, connection)
        self._serving.spawn(coroutines.run(connection, command, answer, failed, done))

    def _step(self, connection: ServedConnection, began_ms: int) -> bool:
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
                self._answer_later(connection, command, stop.value)
            elif stop.value is not None and not command.is_oneway:
                connection.send(stop.value)
        except Exception as error:  # noqa: BLE001 - as in _handle
            self._steps = None
            self._fail(connection, command, error)
        return True

    def _fail(
        self, connection: ServedConnection, command: RemotingCommand, error: Exception
    ) -> None:
        code = command.code
        if isinstance(error, PocketMQError):
            log.warning(
                "request failed code=%s peer=%s reason=%r", code, connection.peer, str(error)
            )
        else:
            log.exception("request failed code=%s peer=%s", code, connection.peer)
        if not command.is_oneway:
            remark = f"{type(error).__name__}: {error}"
            connection.send(command.answer(ResponseCode.SYSTEM_ERROR, remark[:1000]))
