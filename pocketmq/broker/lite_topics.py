"""LiteTopics: the lite topics of a broker: index and offsets, opened with the first topic that has any.

1. A message to a lite topic is stored once, in its parent's queue, with the name of its light queue and its
   offset there in properties, as RocketMQ 5.5.0 has it (lite.md 3). `mark` adds them, `stored` notes where
   the record is; nothing else is between the two.
2. A broker without a topic of the type LITE has no folder for them, and imports nothing but this module.
3. A follower notes nothing; what it received is read when it leads (`load`).
Owner: the broker.
"""

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from pocketmq.broker.refused import Refused
from pocketmq.model.message_codec import add_property, get_property, remove_property
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.store import MessageStore, StoreError
from pocketmq.store.timer.properties import DELAY_MS, DELAY_SEC, DELIVER_MS

if TYPE_CHECKING:
    from pocketmq.broker.lite.index import LiteIndex
    from pocketmq.broker.lite.offsets import LiteOffsets
    from pocketmq.broker.table_config import TableConfig

log = logging.getLogger(__name__)

_NOT_OF_LITE = (b"DELAY", DELAY_SEC, DELAY_MS, DELIVER_MS, b"TRAN_MSG")

# (lite topic's key, its parent): it has a new message.
Listener = Callable[[int, str], None]


class Marked(NamedTuple):
    """A message to a lite topic that is about to be stored."""

    key: int
    parent: str
    offset: int
    properties: bytes


class LiteTopics:
    """See the head of the file. listener: told of each message."""

    def __init__(
        self,
        config: "TableConfig",
        store: MessageStore,
        parents: Callable[[], Iterator[TopicConfig]],
    ) -> None:
        """parents: the topics of the type LITE."""
        self._config, self._store = config, store
        self._parents = parents
        self._index: LiteIndex | None = None
        self._offsets: LiteOffsets | None = None
        self.listener: Listener | None = None

    def load(self) -> None:
        """Open what there is, or read what was received meanwhile. Raises: OSError, StoreError."""
        if self._index is not None:
            self.close()
        if any(self._parents()):
            assert self.index is not None

    @property
    def is_open(self) -> bool:
        return self._index is not None

    @property
    def index(self) -> "LiteIndex":
        """Return the index, opened. Raises: OSError, StoreError."""
        if self._index is None:
            from pocketmq.broker.lite.index import LiteIndex
            from pocketmq.broker.lite.offsets import LiteOffsets

            index = LiteIndex(self._store)
            index.open(self._parents())
            self._offsets = LiteOffsets(index.folder / "offsets")
            self._offsets.open()
            self._index = index
        return self._index

    @property
    def offsets(self) -> "LiteOffsets":
        """Return the groups' offsets, opened. Raises: OSError, StoreError."""
        if self._offsets is None:
            assert self.index is not None
        assert self._offsets is not None
        return self._offsets

    @staticmethod
    def cleared(topic: TopicConfig, properties: bytes) -> bytes:
        """Return the properties of a send without what only the broker says: in which light queues it is.

        Raises: Refused for a message of a lite topic that would not be stored there now.
        """
        if not topic.is_lite:
            return properties
        from pocketmq.broker.lite.names import DISPATCH, LITE_TOPIC, OFFSETS

        if get_property(properties, LITE_TOPIC):
            for name in _NOT_OF_LITE:
                if get_property(properties, name) is not None:
                    raise Refused(
                        ResponseCode.MESSAGE_ILLEGAL,
                        f"a message of a lite topic has no property {name.decode()}: it is delivered "
                        "at once, and is no half of a transaction",
                    )
        return remove_property(remove_property(properties, DISPATCH), OFFSETS)

    @staticmethod
    def refuse_batch(topic: TopicConfig) -> None:
        """Raises: Refused for a batch to a topic of lite topics: its messages would be in none."""
        if topic.is_lite:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the topic {topic.topic} has lite topics and takes no batches: send each message alone",
            )

    def mark(self, topic: TopicConfig, properties: bytes) -> Marked | None:
        """Return a message to a lite topic as it is stored; None: it is of none. Raises: Refused.

        properties: cleared.
        """
        if not topic.is_lite:
            return None
        from pocketmq.broker.lite.names import (
            DISPATCH,
            LITE_TOPIC,
            OFFSETS,
            fault_of,
            light_queue,
        )

        name = (get_property(properties, LITE_TOPIC) or b"").decode("utf-8", "replace")
        if not name:
            return None
        fault = fault_of(name)
        if fault is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        try:
            index = self.index
            key = index.key(topic.topic, name)
            offset = index.next_offset(key)
            self._check_quota(offset)
            index.reserve()
        except (OSError, StoreError) as error:
            log.error(
                "cannot store a message of a lite topic topic=%s reason=%s", topic.topic, error
            )
            remark = (
                f"the place for lite topics, {self._store.config.store_path_root_dir}/lite: {error}"
            )
            raise Refused(ResponseCode.SYSTEM_ERROR, remark) from error
        queue = light_queue(topic.topic, name).encode()
        properties = add_property(properties, DISPATCH, queue)
        properties = add_property(properties, OFFSETS, str(offset).encode())
        return Marked(key, topic.topic, offset, properties)

    def _check_quota(self, offset: int) -> None:
        """Raises: Refused for the first message of a lite topic that is one too many."""
        config, count = self._config, len(self.index)
        if not offset and config.enable_lmq_quota and count >= config.max_lmq_consume_queue_num:
            raise Refused(
                ResponseCode.LMQ_QUOTA_EXCEEDED,
                f"there are {count} lite topics, as many as may be (maxLmqConsumeQueueNum)",
            )

    def stored(self, marked: Marked, position: int, store_ms: int) -> None:
        """Note a marked message that is in the log now."""
        self.index.note(marked.key, marked.parent, position, marked.offset, store_ms)
        if self.listener is not None:
            self.listener(marked.key, marked.parent)

    def topics_changed(self) -> None:
        """Forget the lite topics of deleted parents."""
        if self._index is not None:
            self._index.keep_parents({each.topic for each in self._parents()})

    def tick(self) -> None:
        """Look after the files; called once a second. Raises: OSError."""
        if self._index is not None:
            self._index.tick()
            self.offsets.tick()

    def close(self) -> None:
        """Save what a start needs: the store is still open."""
        if self._index is None:
            return
        try:
            self._index.save()
            self.offsets.save()
        except OSError as error:
            log.error("cannot save the lite topics, the next start looks longer reason=%s", error)
        self.offsets.close()
        self._index.close()
        self._index = self._offsets = None
