"""Surroundings: what the delivery record asks of the other parts of the broker."""

from collections.abc import Container, Iterator

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delivery.rows import Origin
from pocketmq.broker.delivery.sorting import Pulling, Sorter, Split
from pocketmq.broker.delivery.wishes import Wishes
from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
from pocketmq.model.message_codec import get_property, parse_offset_msg_id
from pocketmq.model.record import properties_of, read_record
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.store import MessageStore

REDELIVERED = b"REDELIVERED"
"""Property of a message that was lost and is given to its group again. Ours."""


class Surroundings:
    """Looks at tables and store, and changes nothing."""

    def __init__(
        self,
        config: BrokerConfig,
        offsets: ConsumerOffsetManager,
        isolated: Container[str],
        wishes: Wishes,
        store: MessageStore,
    ) -> None:
        """isolated: the isolated groups."""
        self._config = config
        self._offsets = offsets
        self._isolated = isolated
        self._wishes = wishes
        self._store = store
        self.sorter = Sorter(store)

    def size_max(self) -> int:
        """Return the size of the record's files, bytes; 0 turns recording off."""
        return self._config.delivery_record_size

    def stored_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the group's offset; -1 if it has none."""
        return self._offsets.query(group, topic, queue_id)

    def is_isolated(self, group: str) -> bool:
        """Return True if a group's pulls are filtered by the member's own subscription."""
        return group in self._isolated

    def wishes(self, group: str, topic: str) -> tuple[str, ...]:
        """Return what the group's members want of the topic."""
        return self._wishes.of(group, topic)

    def split(
        self, topic: str, queue_id: int, begin: int, end: int, pulling: Pulling
    ) -> Split | None:
        """Sort the messages of a span; None if that is not possible."""
        return self.sorter.split(topic, queue_id, begin, end, pulling)

    def origins(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[Origin]:
        """Yield what the messages of a retry topic are copies of, as far as they say so."""
        for place, (position, size, _) in enumerate(
            self._store.entries(topic, queue_id, begin, end - begin)
        ):
            record = self._store.record_at(position, size)
            origin = None if record is None else self._origin(properties_of(record))
            if origin is not None:
                yield begin + place, *origin

    def _origin(self, properties: bytes) -> tuple[str, int, int] | None:
        msg_id = get_property(properties, b"ORIGIN_MESSAGE_ID")
        if msg_id is None or get_property(properties, REDELIVERED) is not None:
            return None
        try:
            _, position = parse_offset_msg_id(msg_id.decode("utf-8", "replace"))
        except (IllegalArgument, ValueError):
            return None
        found = self._store.message_at(position)
        if found is None:
            return None
        record = read_record(found, check_crc=False)
        return record.topic, record.queue_id, record.queue_offset
