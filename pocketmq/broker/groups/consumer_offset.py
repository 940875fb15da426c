"""ConsumerOffsetManager: the next offset of each group and queue, config/consumerOffset.json.

    offsets["TOPIC@GROUP"][queue id] = the NEXT offset to consume (S55)

Saved every flushConsumerOffsetInterval (5 s) and on stop. Any value of 64 bits is accepted; a smaller one
is only logged. A group without members keeps its offsets, however far it lags: without them it would start
at the end. Source: ConsumerOffsetManager, RocketMQ 4.9.7 (which never calls its scanUnsubscribedTopic, nor
does 5.x).

A reset of a queue (5.x, server side) is stored like any offset and marked until a member knows of it:

1. The next pull of the queue is redirected to the new offset. A pull from that offset ends the mark, and so
   does a pull from elsewhere by a client that was already redirected: it does so on purpose.
2. Until then members' commits of the queue are ignored, those carried by pulls too. Java clients commit
   their old offset for 10 s after they were told, and RocketMQ accepts it. Ours.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pocketmq.broker.events import Events
from pocketmq.broker.figures.consumed import COMMIT_MS, Consumed
from pocketmq.broker.groups.starts import SEPARATOR, Starts
from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.store import ConfigFile

log = logging.getLogger(__name__)

_INT, _LONG = 1 << 31, 1 << 63
# Bytes that entries of the table take, with the copies for a save: a topic and group, a queue.
_KEY_SIZE, _QUEUE_SIZE = 1_500, 150


# Share of the table that members of a group may fill, and the share of other clients.
MEMBERS_SHARE, OTHERS_SHARE = 1.0, 0.5


class OffsetTableFull(IllegalArgument):
    """There is no room for a new entry."""


@dataclass(slots=True)
class _Reset:
    """A queue's new offset, and the connection of the client that was notified of it."""

    offset: int
    told: object = None


class ConsumerOffsetManager(ConfigManager):
    """Owner of the offset table.

    resets: the marks by (group, topic, queue id); not saved, since connecting members query the offset.
    consumed: what the groups' own commits amount to; starts: where groups began to read.
    """

    def __init__(
        self,
        file: ConfigFile,
        events: Events | None = None,
        size_max: Callable[[], int] = lambda: 128 << 20,
        consumed: Consumed | None = None,
        starts: Starts | None = None,
    ) -> None:
        """size_max: consumerOffsetTableSize."""
        super().__init__(file)
        self.consumed = consumed or Consumed()
        self.starts = starts or Starts(SystemClock())
        self._size_max = size_max
        # Size of the table in bytes; None when it has to be counted again.
        self._size: int | None = None
        self.offsets: dict[str, dict[int, int]] = {}
        self.resets: dict[tuple[str, str, int], _Reset] = {}
        self._events = events or Events()

    def to_json(self) -> dict[str, Any]:
        # Counted again at times: a slave's copy changes the table, too.
        self._size = None
        return {"offsetTable": {key: dict(queues) for key, queues in self.offsets.items()}}

    def from_json(self, data: Any) -> None:
        table = data.get("offsetTable") if isinstance(data, dict) else None
        for key, queues in (table or {}).items():
            try:
                self.offsets[str(key)] = {
                    int(queue_id): int(offset) for queue_id, offset in queues.items()
                }
            except (AttributeError, TypeError, ValueError) as error:
                log.error(
                    "consumerOffset.json: skipped an entry that cannot be read key=%s reason=%r",
                    key,
                    error,
                )
                # The group keeps its readable offsets in its other queues.
                if kept := _readable(queues):
                    self.offsets[str(key)] = kept
        log.info("consumer offsets loaded count=%d", len(self.offsets))

    def cut(self, max_offset: Callable[[str, int], int]) -> None:
        """Move offsets beyond the end of their queue to it: what is stored there next is still to be read."""
        for key, queues in self.offsets.items():
            topic = key.partition("@")[0]
            for queue_id, offset in queues.items():
                queues[queue_id] = min(offset, max_offset(topic, queue_id))
        self.dirty = True

    def commit(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        client: str,
        *,
        share: float = MEMBERS_SHARE,
    ) -> None:
        """Set the group's next offset, as its members do; `client` (ip:port) is for the log.

        share: what part of the table may be full if the entry is a new one.
        Raises: IllegalArgument for numbers that RocketMQ's table cannot hold: it could not be read there;
        OffsetTableFull for a new entry that the table has no room for.
        """
        key = f"{topic}{SEPARATOR}{group}"
        old = self._commit(key, queue_id, offset, client, share)
        if old is None:
            old = self.starts.of(group, topic, queue_id)
        if old is not None and offset > old:
            self.consumed.add(key, offset - old, over_ms=COMMIT_MS)

    def _commit(
        self, key: str, queue_id: int, offset: int, client: str, share: float
    ) -> int | None:
        """Set an offset. Returns: the old one, if any. Raises: see `commit`."""
        if not (-_INT <= queue_id < _INT and -_LONG <= offset < _LONG):
            raise IllegalArgument(
                f"queue {queue_id}, offset {offset}: they must fit into 32 and 64 bits"
            )
        queues = self.offsets.get(key)
        if queues is None or queue_id not in queues:
            self._make_room(key, 0 if queues else _KEY_SIZE, share)
        if queues is None:
            queues = self.offsets[key] = {}
        old = queues.get(queue_id)
        queues[queue_id] = offset
        self.dirty = True
        if old is not None and offset < old:
            log.warning(
                "update consumer offset less than store. clientHost=%s, key=%s, queueId=%s, "
                "requestOffset=%s, storeOffset=%s",
                client,
                key,
                queue_id,
                offset,
                old,
            )
        return old

    def _make_room(self, key: str, more: int, share: float) -> None:
        """Count a new queue, and `more` bytes. Raises: OffsetTableFull."""
        size = self._size
        if size is None:
            queues = sum(map(len, self.offsets.values()))
            size = len(self.offsets) * _KEY_SIZE + queues * _QUEUE_SIZE
        self._size = size
        if size + more + _QUEUE_SIZE > self._size_max() * share:
            raise OffsetTableFull(
                f"no room for another offset ({key[:300]}): the table of offsets takes {size} bytes. Delete "
                "groups that are not needed, or raise consumerOffsetTableSize"
            )
        self._size = size + more + _QUEUE_SIZE

    def groups(self) -> set[str]:
        """Return the groups that have offsets."""
        return {group for _, group in self._pairs()}

    def place(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the group's next offset, as computed by the broker itself."""
        if self.resets:
            self.resets.pop((group, topic, queue_id), None)
        self.offsets.setdefault(f"{topic}{SEPARATOR}{group}", {})[queue_id] = offset
        self.dirty = True

    def move_on(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the group's next offset behind messages that its members are done with."""
        old = self.query(group, topic, queue_id)
        self.place(group, topic, queue_id, offset)
        if 0 <= old < offset:
            self.consumed.add(f"{topic}{SEPARATOR}{group}", offset - old)

    def set_by_hand(self, group: str, topic: str, queue_id: int, offset: int, client: str) -> None:
        """Set the group's offset for an administrator; members that pop continue from there, too."""
        self._events.offset_copied(group, topic, queue_id, offset)
        self._commit(f"{topic}{SEPARATOR}{group}", queue_id, offset, client, OTHERS_SHARE)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Reset the group to `offset`, of which its members are notified."""
        self.place(group, topic, queue_id, offset)
        self.resets[group, topic, queue_id] = _Reset(offset)

    def reset_to(
        self, group: str, topic: str, queue_id: int, offset: int, client: object
    ) -> int | None:
        """Return the offset that `client`, pulling from `offset`, is redirected to, or None (invariant 1)."""
        reset = self.resets.get((group, topic, queue_id))
        if reset is None:
            return None
        if reset.offset == offset or reset.told is client:
            del self.resets[group, topic, queue_id]
            return None
        reset.told = client
        return reset.offset

    def is_reset(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Return True if a commit of `offset` is to be ignored: its member may not know of a reset yet."""
        reset = self.resets.get((group, topic, queue_id))
        return reset is not None and reset.offset != offset

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the next offset; -1 if none is stored."""
        queues = self.offsets.get(f"{topic}{SEPARATOR}{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def of_topic(self, group: str, topic: str) -> dict[int, int]:
        """Return the next offset by queue id; empty if none is stored."""
        return dict(self.offsets.get(f"{topic}{SEPARATOR}{group}", {}))

    def rows(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield topic, group, queue id and next offset of all."""
        for topic, group in self._pairs():
            for queue_id, offset in self.offsets[f"{topic}{SEPARATOR}{group}"].items():
                yield topic, group, queue_id, offset

    def topics_of(self, group: str) -> set[str]:
        """Return the topics that the group has offsets of."""
        return {topic for topic, of in self._pairs() if of == group}

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have offsets of the topic."""
        return {group for of, group in self._pairs() if of == topic}

    def _pairs(self) -> list[tuple[str, str]]:
        pairs = (key.split(SEPARATOR) for key in self.offsets)
        return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copy `source`'s offsets of one topic to `target` (CLONE_GROUP_OFFSET)."""
        queues = self.offsets.get(f"{topic}{SEPARATOR}{source}")
        if queues is not None:
            self.offsets[f"{topic}{SEPARATOR}{target}"] = dict(queues)
            self.dirty = True
            for queue_id, offset in queues.items():
                self._events.offset_copied(target, topic, queue_id, offset)

    def remove_group(self, group: str) -> None:
        """Remove all offsets of a group."""
        self._remove(lambda topic, of: of == group)

    def remove_topic(self, topic: str) -> None:
        """Remove all offsets of a topic."""
        self._remove(lambda of, group: of == topic)

    def _remove(self, which: Callable[[str, str], bool]) -> None:
        """Remove some, on the disk, too: a kill must not bring them back."""
        found = [(topic, group) for topic, group in self._pairs() if which(topic, group)]
        self._drop(found)
        if found:
            try:
                self.persist()
            except OSError as error:
                log.warning("cannot save the offsets, the next round tries again reason=%s", error)
            # A save under way in a thread may put its older copy over this one.
            self.persist_soon()

    def _drop(self, pairs: list[tuple[str, str]]) -> None:
        for topic, group in pairs:
            del self.offsets[f"{topic}{SEPARATOR}{group}"]
            self.consumed.forget(f"{topic}{SEPARATOR}{group}")
            self.dirty = True
            self._size = None
            for queue in [key for key in self.resets if key[:2] == (group, topic)]:
                del self.resets[queue]
            self._events.offsets_removed(group, topic)
            log.warning("remove topic offset, %s%s%s", topic, SEPARATOR, group)

    def min_in_all_groups(
        self, topic: str, min_offset: Callable[[str, int], int], filter_groups: str | None
    ) -> dict[int, int]:
        """Return the lowest offset of any group per queue, ignoring offsets below the oldest message.

        filter_groups: comma-separated groups to skip. Java removes their offsets for good by mistake; here
        they are only skipped. Source: queryMinOffsetInAllGroup.
        """
        skipped = set((filter_groups or "").split(","))
        found: dict[int, int] = {}
        for of, group in self._pairs():
            if of != topic or group in skipped:
                continue
            for queue_id, offset in self.offsets[f"{topic}{SEPARATOR}{group}"].items():
                if offset >= min_offset(topic, queue_id):
                    found[queue_id] = min(offset, found.get(queue_id, offset))
        return found


def _readable(queues: Any) -> dict[int, int]:
    """Return those of an entry's queues that can be read."""
    kept: dict[int, int] = {}
    for queue_id, offset in queues.items() if isinstance(queues, dict) else ():
        with contextlib.suppress(TypeError, ValueError):
            kept[int(queue_id)] = int(offset)
    return kept
