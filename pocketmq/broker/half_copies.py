"""HalfCopies: finds with the index what became of a half message that memory has forgotten.

1. A half message that is replaced or resumed is stored again with its unique key: its newest copy counts.
2. One that is given up is stored in TRANS_CHECK_MAX_TIME_TOPIC, behind its last copy of the half queue.
3. Ours: an op message below the half offset, or for a half message without a unique key, has the half-queue
   offset as its key, so that it is found without the whole op queue.
"""

from pocketmq.model.message_codec import get_property
from pocketmq.model.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from pocketmq.model.record import Record
from pocketmq.store import MessageStore

_SAME = (b"UNIQ_KEY", b"PGROUP", b"REAL_TOPIC", b"REAL_QID")


class HalfCopies:
    """Looks only at records at or behind a position, newest first."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    @property
    def are_sure(self) -> bool:
        """Return True if the last look was at all messages: else one that was not found may be there."""
        return self._store.config.message_index_enable and not self._store.dispatch_behind_size

    def newest(self, half: Record, topic: str = TRANS_HALF_TOPIC, after: int = 0) -> Record | None:
        """Return the newest copy of a half message in a topic, itself included."""
        key = get_property(half.properties, b"UNIQ_KEY")
        if not key:
            return None
        found = self._store.records_of_key(topic, key, after)
        return next((record for record in found if _is_copy(record, half)), None)

    def was_given_up(self, last: Record) -> bool:
        """Return True if a half message was given up; last: its newest copy (2)."""
        return self.newest(last, TRANS_CHECK_MAX_TIME_TOPIC, last.position) is not None

    def has_op(self, half: Record) -> bool:
        """Return True if an op message has this half message's offset as its key (3)."""
        key = b"%d" % half.queue_offset
        return any(
            True for _ in self._store.records_of_key(TRANS_OP_HALF_TOPIC, key, half.position)
        )


def _is_copy(record: Record, half: Record) -> bool:
    """Return True if a record is a half message, stored again: a key alone may name another producer's."""
    return (
        record.born_ms == half.born_ms
        and record.born_host == half.born_host
        and record.body_crc == half.body_crc
        and len(record.body) == len(half.body)
        and all(
            get_property(record.properties, name) == get_property(half.properties, name)
            for name in _SAME
        )
    )
