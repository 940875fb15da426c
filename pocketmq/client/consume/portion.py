"""Portion: messages of one fetch on their way to the program, all at once or one after the other.

    filled        by the member, in its event loop
    take, close   by the program, in any one thread: `given` only grows, up to the close
    settled       by the member: messages that were given are consumed; the rest of a closed portion is next

A program that stops in the middle (`break`, an interrupted wait) so loses nothing: what it was not given is
neither committed nor skipped.
"""

from collections.abc import Callable, Iterator
from typing import Any

from pocketmq.client.pull.process_queue import ProcessQueue
from pocketmq.model.message import MessageExt


class Portion:
    """Attributes: given (so many messages the program has), settled (so many the member has counted)."""

    __slots__ = ("assigned", "closed", "given", "messages", "on_close", "process_queue", "settled")

    def __init__(self) -> None:
        self.messages: list[MessageExt] = []
        self.assigned: Any = None
        self.process_queue: ProcessQueue | None = None
        self.on_close: Callable[[], object] | None = None
        self.given = self.settled = 0
        self.closed = False

    def fill(
        self,
        messages: list[MessageExt],
        assigned: object,
        process_queue: ProcessQueue,
        on_close: Callable[[], object],
    ) -> None:
        """Put messages into an empty portion. on_close: called in the program's thread."""
        self.messages, self.assigned, self.process_queue = messages, assigned, process_queue
        self.on_close = on_close

    def take(self) -> list[MessageExt]:
        """Give the program all at once."""
        self.given = len(self.messages)
        return self.messages

    def __iter__(self) -> Iterator[MessageExt]:
        """Give one message after the other, until their queue is taken away or read from another place."""
        for message in self.messages:
            if self.process_queue is None or self.process_queue.dropped:
                return
            self.given += 1
            yield message

    def close(self) -> None:
        """The program takes no more of it."""
        # In this order: a reader that sees it closed sees how many were given.
        self.closed = True
        if self.on_close is not None:
            try:
                self.on_close()
            except RuntimeError:
                # The member's loop has ended, and with it everything that could take the rest.
                return
