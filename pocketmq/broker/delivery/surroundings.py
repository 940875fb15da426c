"""Surroundings: what the delivery record asks of the other parts of the broker."""

from collections.abc import Container, Iterator

from pocketmq.books.origins import given_back_as, original
from pocketmq.books.rows import Origin
from pocketmq.books.sorting import Pulling, Sorter, Split
from pocketmq.broker.delivery.wishes import Wishes
from pocketmq.broker.groups.consumer_group import ConsumerGroup
from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.node import Node
from pocketmq.model.message_codec import get_property
from pocketmq.model.record import Record, read_record
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import MessageStore


class Surroundings:
    """Looks at tables and store, and changes nothing."""

    def __init__(
        self,
        node: Node,
        offsets: ConsumerOffsetManager,
        isolated: Container[str],
        wishes: Wishes,
        store: MessageStore,
    ) -> None:
        """isolated: the isolated groups."""
        self._node = node
        self._config = node.config
        self._role = node.role
        self._offsets = offsets
        self._isolated = isolated
        self._wishes = wishes
        self._store = store
        self.sorter = Sorter(store)

    def size_max(self) -> int:
        """Return the size of the record's files, bytes; 0 turns recording off."""
        return self._config.delivery_record_size

    @property
    def follows(self) -> bool:
        """Return True while this broker is a slave."""
        return not self._role.leads

    def who(self, group: ConsumerGroup | None, peer: Peer) -> str:
        """Name a client: its id, if it is a member of the group, its address, and its account."""
        member = None if group is None else group.channels.get(peer)
        return (
            self._node.who(peer)
            if member is None
            else f"{member.client_id} at {self._node.who(peer)}"
        )

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
            stored = self._store.record_at(position, size)
            record = None if stored is None else read_record(stored, check_crc=False)
            # What was given back is recorded by GroupRedelivery, and may be sent back as any other.
            if record is None or given_back_as(record):
                continue
            origin = self.original(record.properties)
            if origin is not None:
                yield begin + place, *origin

    def original(self, properties: bytes) -> tuple[str, int, int] | None:
        """Return topic, queue id and offset of the message that one with these properties is a copy of."""
        return original(properties, self._at, self._by_key)

    def _at(self, position: int) -> Record | None:
        found = self._store.message_at(position)
        return None if found is None else read_record(found, check_crc=False)

    def _by_key(self, topic: str, key: bytes) -> Record | None:
        found = self._store.query_by_key(topic, key.decode("utf-8", "replace"), 8, 0, 1 << 62)
        records = [read_record(each, check_crc=False) for each in found.records]
        return next(
            (
                each
                for each in records
                if each.topic == topic and get_property(each.properties, b"UNIQ_KEY") == key
            ),
            None,
        )
