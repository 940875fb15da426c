"""LiteInfo: what administrators are told about lite topics, at mqadmin's words. See lite.md 8.

1. A table of a million rows is looked through in steps: a generator yields between them.
2. A key tells no name: the last message of a lite topic does, and only names that are told are read.
Source: LiteManagerProcessor, LiteConsumerLagCalculator, RocketMQ 5.5.0. Changes nothing.
"""

import heapq
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from pocketmq.broker.lite.chains import ChainEntry
from pocketmq.broker.lite.flight import Lane
from pocketmq.broker.lite.names import LITE_TOPIC, LiteGroup, light_queue, minutes_of
from pocketmq.broker.lite.packed import PARTS, part_of
from pocketmq.broker.lite.service import LiteService
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages, Tables
from pocketmq.broker.refused import Refused
from pocketmq.model.message_codec import get_property
from pocketmq.model.record import properties_of
from pocketmq.remoting.codes import ResponseCode

TOLD_MAX = 10_000
_PAGE_MAX = 1_000
# Names that one page reads at most, and after how many others may be served.
_READ_MAX, _READ_AT_ONCE = 20_000, 100


class Lag(NamedTuple):
    """What a group has not consumed of one lite topic. handed: the first that was not handed out yet."""

    messages: int
    offset: int
    key: int
    handed: int


class LiteInfo:
    """See the head of the file."""

    def __init__(self, node: Node, tables: Tables, messages: Messages, lite: LiteService) -> None:
        self._config, self._store, self._lite = node.config, messages.store, lite
        self._topics, self._groups = tables.topics, tables.groups
        self._offsets = tables.offsets

    # ------------------------------------------------------------ checks

    def parent(self, name: str) -> int:
        """Return after how many minutes lite topics go, -1: never. Raises: Refused."""
        topic = self._topics.get(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic [{name}] not exist.")
        if not topic.is_lite:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"Topic [{name}] type not match: its attribute message.type is not LITE.",
            )
        return minutes_of(topic) or -1

    def bound_topic(self, name: str) -> str:
        """Return the topic of a group's lite topics. Raises: Refused."""
        bound = LiteGroup.of(self._groups.get(name)).topic
        if not bound:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"Group [{name}] is not a LITE group: it lacks the attribute lite.bind.topic.",
            )
        self.parent(bound)
        return bound

    def _groups_of(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, group in list(self._groups.groups.items()):
            if topic := LiteGroup.of(group).topic:
                found.setdefault(topic, []).append(name)
        return found

    # ------------------------------------------------------------ mqadmin's

    def of_broker(self) -> dict[str, Any]:
        lite = self._lite
        count = len(lite.topics.index) if lite.topics.is_open else 0
        offsets = len(lite.topics.offsets) if lite.topics.is_open else 0
        return {
            "storeType": "default",
            "maxLmqNum": self._config.max_lmq_consume_queue_num,
            "currentLmqNum": count,
            "liteSubscriptionCount": lite.subscribers.count + lite.subscribers.wildcard_count,
            "orderInfoCount": len(lite.flights),
            "cqTableSize": count + len(self._topics.topics),
            "offsetTableSize": offsets,
            "eventMapSize": sum(1 for each in lite.subscribers.all() if each.news),
            "topicMeta": {each.topic: minutes_of(each) or -1 for each in self._topics.lite()},
            "groupMeta": self._groups_of(),
        }

    def of_parent(self, topic: str) -> dict[str, Any]:
        """Raises: Refused."""
        minutes, index = self.parent(topic), self._lite.topics.index
        return {
            "topic": topic,
            "ttl": minutes,
            "groups": self._groups_of().get(topic),
            "lmqNum": len(index),
            "liteTopicCount": index.count(topic),
        }

    def of_lite_topic(self, parent: str, name: str) -> dict[str, Any]:
        """Raises: Refused."""
        self.parent(parent)
        index = self._lite.topics.index
        key = index.key(parent, name)
        who = self._lite.subscribers.who(key, parent)
        offsets = {
            "minOffset": index.min_offset(key),
            "maxOffset": index.next_offset(key),
            "lastUpdateTimestamp": index.last_ms(key),
        }
        return {
            "parentTopic": parent,
            "liteTopic": name,
            "subscriber": [{"clientId": client, "group": group} for client, group in who],
            "topicOffset": offsets,
            # RocketMQ's proxy chooses the broker by the lite topic's name; here, any may have it.
            "shardingToBroker": True,
        }

    def of_client(self, parent: str, group: str, client_id: str, most: int) -> dict[str, Any]:
        """Raises: Refused."""
        self.parent(parent)
        if LiteGroup.of(self._groups.get(group)).topic != parent:
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"Subscription [{group}]-[{parent}] not match."
            )
        told = {"parentTopic": parent, "group": group, "clientId": client_id, "lastConsumeTime": 0}
        one = self._lite.subscribers.named(client_id, group)
        if one is None:
            return told | {"lastAccessTime": -1, "liteTopicCount": -1}
        names = list(one.names.values())[: max(0, min(most, TOLD_MAX))]
        return told | {
            "lastAccessTime": one.seen_ms,
            "liteTopicCount": len(one.names),
            "liteTopicSet": [light_queue(parent, name) for name in names],
        }

    def of_group_in(self, group: str, name: str) -> dict[str, Any]:
        """Return how far a group is in one lite topic. Raises: Refused."""
        topic = self.bound_topic(group)
        index = self._lite.topics.index
        key = index.key(topic, name)
        told: dict[str, Any] = {"group": group, "parentTopic": topic, "liteTopic": name}
        end = index.next_offset(key)
        if not end:
            return told | {"totalLagCount": -1, "earliestUnconsumedTimestamp": -1}
        offset = self._lite.committed(group, topic, key, name)
        if offset < 0:
            return told | {"totalLagCount": 0, "earliestUnconsumedTimestamp": 0}
        offset = min(max(offset, index.min_offset(key)), end)
        at = {
            "brokerOffset": end,
            "consumerOffset": offset,
            "lastTimestamp": index.stored_ms(key, offset - 1),
            "pullOffset": 0,
        }
        return told | {
            "totalLagCount": end - offset,
            "earliestUnconsumedTimestamp": index.stored_ms(key, offset) or -1,
            "liteTopicOffsetWrapper": at,
        }

    def of_group(self, group: str, most: int) -> Generator[None, None, dict[str, Any]]:
        """Return a group's lag: in all, and of the lite topics that lag most. Yields: see invariant 1.

        As at RocketMQ, a lite topic counts from the first time that the group got something of it; and what
        is out does not count for the time. Raises: Refused.
        """
        topic = self.bound_topic(group)
        most = max(0, min(most, TOLD_MAX))
        total, by_count, by_time = 0, list[tuple[int, int, Lag]](), list[tuple[int, int, Lag]]()
        for part in range(PARTS):
            for lag in self._lags(group, topic, part):
                total += lag.messages
                _keep(by_count, (lag.messages, lag.key, lag), most)
                if (waits_ms := self._lite.topics.index.stored_ms(lag.key, lag.handed)) > 0:
                    _keep(by_time, (-waits_ms, lag.key, lag), most)
            yield
        by_count.sort(key=lambda each: (-each[0], each[1]))
        by_time.sort(reverse=True)
        return {
            "group": group,
            "parentTopic": topic,
            "totalLagCount": total,
            "earliestUnconsumedTimestamp": -by_time[0][0] if by_time else -1,
            "lagCountTopK": sorted(
                (self._lagging(lag, lag.offset) for _, _, lag in by_count),
                key=lambda each: (-each["lagCount"], each["liteTopic"]),
            ),
            "lagTimestampTopK": [self._lagging(lag, lag.handed) for _, _, lag in by_time],
        }

    def _lags(self, group: str, topic: str, part: int) -> Iterator[Lag]:
        lite = self._lite
        index = lite.topics.index
        for key, last, parent in index.rows(part):
            if parent != topic:
                continue
            offset = lite.topics.offsets.get(group, key)
            if 0 <= offset <= last.offset:
                offset = max(offset, index.min_offset(key))
                flight = lite.flights.get(Lane(group, key))
                out = flight.times if flight is not None else ()
                handed = max([offset, *(each + 1 for each in out)])
                yield Lag(last.offset + 1 - offset, offset, key, handed)

    def _lagging(self, lag: Lag, offset: int) -> dict[str, Any]:
        index = self._lite.topics.index
        return {
            "liteTopic": self._name(index.last(lag.key)),
            "lagCount": lag.messages,
            "earliestUnconsumedTimestamp": index.stored_ms(lag.key, offset),
        }

    def _name(self, last: ChainEntry | None) -> str:
        """Apply invariant 2. Returns: "" if the log has dropped it."""
        data = None if last is None else self._store.record_at(last.position)
        if data is None:
            return ""
        return (get_property(properties_of(data), LITE_TOPIC) or b"").decode("utf-8", "replace")

    # ------------------------------------------------------------ ours

    def listed(
        self, topic: str, group: str | None, begins: str, cursor: int, most: int
    ) -> Generator[None, None, dict[str, Any]]:
        """Return a page of a topic's lite topics, in no order, and the cursor of the next one.

        group: with its offset and lag. begins: only names that do; one of this very name comes first.
        Raises: Refused.
        """
        self.parent(topic)
        if group is not None and self.bound_topic(group) != topic:
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"Subscription [{group}]-[{topic}] not match."
            )
        most = max(1, min(most, _PAGE_MAX))
        index, rows, read = self._lite.topics.index, list[dict[str, Any]](), 0
        exact = index.key(topic, begins) if begins else 0
        if exact and not cursor and index.next_offset(exact):
            rows.append(self._row(topic, group, exact, begins))
        for key, last in self._after(topic, cursor):
            if len(rows) >= most or read >= _READ_MAX:
                return self._page(topic, rows, cursor)
            cursor, read = key, read + 1
            name = self._name(last)
            if name.startswith(begins) and name and key != exact:
                rows.append(self._row(topic, group, key, name))
            if not read % _READ_AT_ONCE:
                yield
        return self._page(topic, rows, 0)

    def _after(self, topic: str, cursor: int) -> Iterator[tuple[int, ChainEntry]]:
        index = self._lite.topics.index
        for part in range(part_of(cursor), PARTS):
            for key, last, parent in sorted(index.rows(part), key=lambda row: row[0]):
                if parent == topic and key > cursor:
                    yield key, last

    def _page(self, topic: str, rows: list[dict[str, Any]], cursor: int) -> dict[str, Any]:
        count = self._lite.topics.index.count(topic)
        return {"count": count, "cursor": str(cursor) if cursor else None, "liteTopics": rows}

    def _row(self, topic: str, group: str | None, key: int, name: str) -> dict[str, Any]:
        index = self._lite.topics.index
        least, end = index.min_offset(key), index.next_offset(key)
        row = {
            "liteTopic": name,
            "minOffset": least,
            "maxOffset": end,
            "lastUpdate": index.last_ms(key),
        }
        if group is not None:
            offset = self._lite.committed(group, topic, key, name)
            row["offset"] = offset
            # As a group that has not begun will begin.
            row["lag"] = end - max(offset, least)
        return row


def _keep(heap: list[tuple[int, int, Lag]], row: tuple[int, int, Lag], most: int) -> None:
    if len(heap) < most:
        heapq.heappush(heap, row)
    elif heap and row[:2] > heap[0][:2]:
        heapq.heapreplace(heap, row)
