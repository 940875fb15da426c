"""LongBatches: batches of more messages than one turn of the event loop is to take.

RocketMQ counts bytes only: 100,000 messages of a few bytes may come as one batch.

1. A turn checks or stores one piece, whichever batch it is from, in the order in which the batches came.
2. A batch whose lengths do not add up is refused whole. A piece that fails later leaves the pieces before it
   stored: the sender gets the error and sends all of them again. With sendOnce each piece is a batch of its
   own: those that were stored are recognised.
3. A batch that is not wholly stored when the broker stops is stored then, by `drain`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from pocketmq.broker.acts.send import SendActs, SendAsk, SentBatch
from pocketmq.broker.refused import Refused
from pocketmq.broker.wire.admin.answers import asks_as_five
from pocketmq.model.record import BATCH_COUNT_MAX, BATCH_MEMBER, BATCH_MEMBER_SIZE_MIN
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.connection import Connection
from pocketmq.remoting.transport.dispatch import Reply

log = logging.getLogger(__name__)

_WAITING_MAX = 16
_LONG_SIZE_MIN = BATCH_COUNT_MAX * BATCH_MEMBER_SIZE_MIN


class _Waiting(NamedTuple):
    """pieces: b"" for a turn in which nothing is to be stored."""

    ask: SendAsk
    request: RemotingCommand
    connection: Connection
    pieces: Iterator[bytes]
    stored: list[SentBatch]


class LongBatches:
    """The batches that wait."""

    def __init__(
        self,
        acts: SendActs,
        stored: Callable[[RemotingCommand, Connection, SentBatch], Reply],
        refuse: Callable[[RemotingCommand, Connection, Refused], Reply],
    ) -> None:
        """stored, refuse: make the answer to a batch."""
        self._acts = acts
        self._stored = stored
        self._refuse = refuse
        self._waiting: deque[_Waiting] = deque()

    def add(self, ask: SendAsk, request: RemotingCommand, connection: Connection) -> None:
        """Store a batch turn by turn, then answer. Raises: Refused if too many batches wait."""
        if len(self._waiting) >= _WAITING_MAX:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"{_WAITING_MAX} batches of more than {BATCH_COUNT_MAX} messages wait already",
            )
        pieces = _cut(bytes(request.body))
        self._waiting.append(_Waiting(ask, request, connection, pieces, []))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._turn)

    def drain(self) -> None:
        """Store all that waits (invariant 3)."""
        while self._waiting:
            self._step()

    def _turn(self) -> None:
        if self._waiting:
            self._step()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)

    def _step(self) -> None:
        """Check or store the next piece of the first batch; answer after the last."""
        ask, request, connection, pieces, stored = self._waiting[0]
        try:
            piece = next(pieces, None)
            if piece is not None:
                if piece:
                    stored.append(self._store(ask, request, connection, piece, stored))
                return
            reply = self._stored(request, connection, _joined(stored))
        except Refused as refused:
            reply = self._refuse(request, connection, refused)
        except Exception as bug:
            log.exception("request failed code=%s peer=%s", request.code, connection.peer)
            reply = request.answer(ResponseCode.SYSTEM_ERROR, f"{type(bug).__name__}: {bug}")
        self._waiting.popleft()
        if reply is not None and not request.is_oneway:
            connection.send(reply)

    def _store(
        self,
        ask: SendAsk,
        request: RemotingCommand,
        connection: Connection,
        piece: bytes,
        before: Sequence[SentBatch],
    ) -> SentBatch:
        if before:
            ask = replace(ask, queue_id=before[0].queue_id)
        # Checked for every piece: the topic or the broker's permission may have changed meanwhile.
        topic = self._acts.check(ask, connection)
        as_five = asks_as_five(request)
        return self._acts.send_batch(ask, topic, piece, connection, as_five=as_five)


def is_long(batch: bytes | bytearray | memoryview) -> bool:
    """Return True if a batch has more messages than the store takes at once, as far as its sizes tell."""
    size = len(batch)
    if size < _LONG_SIZE_MIN:
        return False
    at = 0
    for _ in range(BATCH_COUNT_MAX):
        at += max(int.from_bytes(batch[at : at + 4], "big"), BATCH_MEMBER_SIZE_MIN)
        if at >= size:
            return False
    return True


def _cut(batch: bytes) -> Iterator[bytes]:
    """Check a batch, then yield its pieces. Raises: Refused."""
    unpack, size = BATCH_MEMBER.unpack_from, len(batch)
    ends = [0]
    at = count = 0
    while at < size:
        if size - at < BATCH_MEMBER_SIZE_MIN:
            raise _illegal(count)
        member_size, _, _, _, body_size = unpack(batch, at)
        body_end, following = at + BATCH_MEMBER.size + body_size, at + member_size
        if body_size < 0 or following > size or body_end + 2 > size:
            raise _illegal(count)
        if body_end + 2 + (batch[body_end] << 8 | batch[body_end + 1]) != following:
            raise _illegal(count)
        at = following
        count += 1
        if not count % BATCH_COUNT_MAX:
            ends.append(at)
            yield b""
    for start, end in zip(ends, [*ends[1:], size], strict=True):
        if start < end:
            yield batch[start:end]


def _illegal(number: int) -> Refused:
    text = f"the lengths of message {number} of the batch do not add up"
    return Refused(ResponseCode.MESSAGE_ILLEGAL, text)


def _joined(stored: list[SentBatch]) -> SentBatch:
    positions = [position for each in stored for position in each.positions]
    first = stored[0]
    end = max((each.end for each in stored if each.end is not None), default=None)
    return SentBatch(positions, first.queue_id, first.queue_offset, end)
