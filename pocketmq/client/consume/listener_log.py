"""ListenerLog: logs listeners' exceptions once in full, then counts them.

A listener whose database is unreachable fails for each message: hundreds of stack traces per second say no
more than one does, and fill the disk. A failure, identified by its class and line, is logged in full the
first time; while it persists, one line per minute says how often it occurred.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.model.message import MessageExt, MessageQueue

PAUSE_MS = 60_000
_KINDS_MAX = 100

_Kind = tuple[type[BaseException], str, int]


@dataclass(slots=True)
class _Told:
    """When it was logged last, and how often it occurred since."""

    at_ms: int
    count: int = 0


class ListenerLog:
    """One consumer's log. log: the logger of the service whose listener it is."""

    def __init__(self, log: logging.Logger, group: str, monotonic_ms: Callable[[], int]) -> None:
        self._log = log
        self._group = group
        self._monotonic_ms = monotonic_ms
        self._told: dict[_Kind, _Told] = {}

    def raised(
        self,
        error: BaseException,
        queue: MessageQueue,
        messages: list[MessageExt],
        *,
        they_will: str = "be redelivered",
    ) -> None:
        """Log that a call of the listener failed, and what becomes of its messages."""
        now = self._monotonic_ms()
        kind = _kind(error)
        told = self._told.get(kind)
        if told is None:
            if len(self._told) >= _KINDS_MAX:
                self._told.clear()
            self._told[kind] = _Told(now)
            self._log.warning(
                "listener raised %r, the messages will %s; further failures of this kind "
                "are counted group=%s queue=%s messages=%s",
                error,
                they_will,
                self._group,
                queue,
                [message.msg_id for message in messages],
                exc_info=error,
                extra={"group": self._group},
            )
            return
        told.count += 1
        if now - told.at_ms >= PAUSE_MS:
            self._log.warning(
                "listener keeps raising the same exception group=%s failure=%r times=%s seconds=%s last=%s",
                self._group,
                error,
                told.count,
                (now - told.at_ms) // 1_000,
                messages[-1].msg_id,
            )
            told.at_ms, told.count = now, 0


def _kind(error: BaseException) -> _Kind:
    """Return its class, and the line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error), "", 0
    return type(error), trace.tb_frame.f_code.co_filename, trace.tb_lineno
