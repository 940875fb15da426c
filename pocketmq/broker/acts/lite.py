"""Lite topics: subscribe, receive, acknowledge, change the invisible time. See lite.md 5 and 6.

Source: LiteSubscriptionCtlProcessor, PopLiteMessageProcessor, AckMessageProcessor, RocketMQ 5.5.0.

1. A lite topic is an orderly queue of its group (lite/flight.py).
2. A message that was handed out as often as its group allows becomes a dead letter instead of the next time.
3. A client tells with its subscriptions what it gets: a receive names no lite topic.
"""

import logging
from collections.abc import Callable, Iterable
from enum import Enum, IntEnum
from typing import NamedTuple

from pocketmq.broker.acts.send_back import SendBackActs, SentBack
from pocketmq.broker.lite.flight import Lane
from pocketmq.broker.lite.names import LITE_TOPIC, LiteGroup, fault_of
from pocketmq.broker.lite.service import LiteService
from pocketmq.broker.lite.subscribers import Subscriber
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages, Tables
from pocketmq.broker.refused import Refused
from pocketmq.broker.waiting.held_request import HeldRequest
from pocketmq.model.message_codec import get_property
from pocketmq.model.names import FAQ
from pocketmq.model.record import Record, read_record
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import ConnectionLost
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import StoreError

log = logging.getLogger(__name__)

COUNT_MAX = 32
# Of the records of one receive, as for a pop; the first is taken whatever its size.
_SIZE_MAX = 262_144


class LiteAction(IntEnum):
    PARTIAL_ADD = 0
    PARTIAL_REMOVE = 1
    COMPLETE_ADD = 2
    COMPLETE_REMOVE = 3


class From(Enum):
    """Where a group begins with a lite topic; with a number where it needs one."""

    LAST = "last"
    MIN = "min"
    MAX = "max"
    OFFSET = "offset"
    TAIL = "tail"


class LiteAsk(NamedTuple):
    """A client in its group. topic: the parent."""

    client_id: str
    group: str
    topic: str


class HandedOut(NamedTuple):
    """A message that was handed out. attempt: 1 for the first time."""

    record: Record
    name: str
    offset: int
    pop_ms: int
    attempt: int


class LiteActs:
    """See the head of the file."""

    def __init__(self, node: Node, tables: Tables, messages: Messages, lite: LiteService) -> None:
        self._config, self._clock = node.config, node.clock
        self._groups, self._topics = tables.groups, tables.topics
        self._store, self._lite = messages.store, lite
        self._send_back = SendBackActs(node, tables, messages)

    def concerns(self, group: str) -> bool:
        """Return True if a group gets lite topics."""
        return bool(self._lite.group(group).topic)

    def check(self, ask: LiteAsk) -> LiteGroup:
        """Return the group's settings. Raises: Refused."""
        topic, group = self._topics.get(ask.topic), self._groups.get(ask.group)
        if topic is None:
            remark = f"topic [{ask.topic}] not exist, apply first please! {FAQ}"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.readable:
            remark = f"the topic [{ask.topic}] peeking message is forbidden"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        if not topic.is_lite:
            remark = f"the topic [{ask.topic}] message type not match: its attribute message.type is not LITE"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        if group is None and not self._config.auto_create_subscription_group:
            remark = f"subscription group [{ask.group}] not exist, {FAQ}"
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if group is not None and not group.consume_enable:
            remark = f"subscription group no permission, {ask.group}"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        lite = LiteGroup.of(group)
        if lite.topic != ask.topic:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"subscription bind topic not match, {ask.group}: its attribute lite.bind.topic is "
                f"{lite.topic or 'not set'}, and not {ask.topic}",
            )
        return lite

    # ------------------------------------------------------------ subscriptions

    def sync(
        self,
        ask: LiteAsk,
        action: LiteAction,
        names: Iterable[str],
        peer: Peer,
        begin: tuple[From, int] = (From.LAST, 0),
    ) -> None:
        """Change what a client subscribes. begin: for PARTIAL_ADD. Raises: Refused."""
        subscribers = self._lite.subscribers
        if action is LiteAction.COMPLETE_REMOVE:
            found = subscribers.get(peer, ask.group)
            if found is not None:
                subscribers.leave(found)
            return
        group = self.check(ask)
        wanted = dict.fromkeys(names)
        for name in wanted:
            fault = fault_of(name)
            if fault is not None:
                raise Refused(ResponseCode.MESSAGE_ILLEGAL, fault)
        if action is LiteAction.PARTIAL_ADD and group.wildcard:
            remark = "subscribe lite operation is not supported for this group"
            raise Refused(ResponseCode.ILLEGAL_OPERATION, remark)
        one = subscribers.enter(peer, ask.client_id, ask.group, ask.topic, self._clock.now_ms())
        if group.wildcard:
            if action is LiteAction.COMPLETE_ADD:
                subscribers.add_all(one)
            return
        keys = self._keys(ask.topic, wanted)
        if action is LiteAction.PARTIAL_REMOVE:
            self._remove(one, keys, group)
            return
        if action is LiteAction.COMPLETE_ADD:
            self._remove(one, [key for key in one.names if key not in keys], LiteGroup())
            begin = From.LAST, 0
        self._add(one, keys, group, begin, takes=action is LiteAction.PARTIAL_ADD)

    def _keys(self, topic: str, names: Iterable[str]) -> dict[int, str]:
        try:
            index = self._lite.topics.index
            return {index.key(topic, name): name for name in names}
        except (OSError, StoreError) as error:
            raise _unwritten(error) from error

    def _add(
        self,
        one: Subscriber,
        keys: dict[int, str],
        group: LiteGroup,
        begin: tuple[From, int],
        *,
        takes: bool,
    ) -> None:
        """takes: from the others of an exclusive group. Raises: Refused."""
        lite, most = self._lite, self._config.max_lite_subscription_count
        if lite.subscribers.count + len(keys.keys() - one.names.keys()) > most:
            raise Refused(
                ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
                f"lite subscription quota exceeded {most} (maxLiteSubscriptionCount)",
            )
        for key, name in keys.items():
            lane = Lane(one.group, key)
            if group.exclusive:
                others = lite.subscribers.taken(one, key) if takes else ()
                if not takes and any(
                    each.group == one.group and each is not one
                    for each in lite.subscribers.of(key, one.topic)
                ):
                    # Ours: a sync of all takes nothing back from the client that has it now.
                    continue
                for other in others:
                    self._tell_taken(other, name)
                if others and group.resets_taken_over:
                    self._reset(lane, 0)
            self._begin(one, lane, name, begin)
            lite.subscribers.add(one, key, name)
            if lite.offset(one, key, name) < lite.topics.index.next_offset(key):
                lite.tell(lane)

    def _begin(self, one: Subscriber, lane: Lane, name: str, begin: tuple[From, int]) -> None:
        index, (where, number) = self._lite.topics.index, begin
        if where is From.LAST:
            return
        now = self._lite.offset(one, lane.key, name)
        wanted = {
            From.MIN: index.min_offset(lane.key),
            From.MAX: index.next_offset(lane.key),
            From.OFFSET: number,
            From.TAIL: now - number,
        }[where]
        wanted = min(max(wanted, index.min_offset(lane.key)), index.next_offset(lane.key))
        if wanted != now:
            self._reset(lane, wanted)

    def _reset(self, lane: Lane, offset: int) -> None:
        try:
            self._lite.reset(lane, offset)
        except OSError as error:
            raise _unwritten(error) from error

    def _remove(self, one: Subscriber, keys: Iterable[int], group: LiteGroup) -> None:
        for key in keys:
            if self._lite.subscribers.remove(one, key) and group.resets_left:
                self._reset(Lane(one.group, key), 0)

    def _tell_taken(self, other: Subscriber, name: str) -> None:
        fields = {
            "clientId": other.client_id,
            "consumerGroup": other.group,
            "liteTopic": name,
        }
        try:
            other.peer.tell(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, fields)
        except ConnectionLost:
            log.info("cannot tell a client that it lost a lite topic client=%s", other.client_id)

    # ------------------------------------------------------------ receive

    def receive(
        self,
        ask: LiteAsk,
        count: int,
        invisible_ms: int,
        peer: Peer,
        until_ms: int,
        again: Callable[[], None],
        *,
        holds: bool,
        line: Peer | None = None,
    ) -> list[HandedOut] | None:
        """Hand out messages; None if the receive is held, and `again` is called when it is to be retried.

        until_ms: until when it may be held, monotonic. holds: the client keeps what it gets while it is
        connected. line: what the receive came over, if not from the client itself. Raises: Refused.
        """
        self.check(ask)
        lite = self._lite
        now_ms = self._clock.monotonic_ms()
        one = lite.subscribers.enter(
            peer, ask.client_id, ask.group, ask.topic, self._clock.now_ms()
        )
        lite.wake()
        lite.look_through(one)
        found: list[HandedOut] = []
        count = min(max(1, count), COUNT_MAX)
        size = 0
        holder = peer if holds else None
        pop_ms = lite.flights.pop_ms(self._clock.now_ms())
        for key in lite.subscribers.take_news(one):
            taken = self._take(one, key, count - len(found), size, (pop_ms, invisible_ms), holder)
            size += sum(len(each.record.body) for each in taken)
            found += taken
            if len(found) >= count or size >= _SIZE_MAX:
                break
        if found:
            return found
        if until_ms <= now_ms:
            return []
        if not lite.waiting.hold(one, HeldRequest(again, line or peer, None, until_ms)):
            raise Refused(ResponseCode.POLLING_FULL, "too many receives wait")
        return None

    def _take(
        self,
        one: Subscriber,
        key: int,
        count: int,
        size: int,
        times: tuple[int, int],
        holder: Peer | None,
    ) -> list[HandedOut]:
        """Hand out messages of one lite topic. times: of the pop, and for how long they are invisible."""
        lite, lane, now_ms = self._lite, Lane(one.group, key), self._clock.now_ms()
        if lite.flights.is_blocked(lane, now_ms):
            return []
        begin = lite.offset(one, key, one.names.get(key, ""))
        flight = lite.flights.get(lane)
        passed = 0 if flight is None else len(flight.acked)
        chosen: list[tuple[int, Record]] = []
        for offset, position in lite.topics.index.positions(key, begin, count + passed):
            if flight is not None and (
                self._is_done(lane, offset) or self._is_dead(lane, one, offset, position)
            ):
                continue
            record = self._record(one, key, position)
            if record is None:
                break
            chosen.append((offset, record))
            size += len(record.body)
            if len(chosen) >= count or size >= _SIZE_MAX:
                break
        if not chosen:
            return []
        pop_ms, invisible_ms = times
        offsets = [offset for offset, _ in chosen]
        if lite.topics.offsets.get(one.group, key) < 0:
            self._place(lane, begin)
        before = lite.flights.out(lane, offsets, pop_ms, now_ms + invisible_ms, holder)
        return [
            HandedOut(record, _name(record), offset, pop_ms, 1 + times)
            for (offset, record), times in zip(chosen, before, strict=True)
        ]

    def _record(self, one: Subscriber, key: int, position: int) -> Record | None:
        """Return a message; None if it may not be read, or is no message of this lite topic."""
        data = self._store.record_at(position)
        if data is None or self._store.reads.limit.hides(one.topic, position, len(data)):
            return None
        record = read_record(data, check_crc=False)
        if (
            record.topic != one.topic
            or self._lite.topics.index.key(one.topic, _name(record)) != key
        ):
            log.error("lite/entries names a record of another topic position=%d", position)
            return None
        return record

    def _is_done(self, lane: Lane, offset: int) -> bool:
        """Return True if a message was acknowledged."""
        lite = self._lite
        return lite.flights.passed(lane, offset) or offset < lite.topics.offsets.get(*lane)

    def _is_dead(self, lane: Lane, one: Subscriber, offset: int, position: int) -> bool:
        """Apply invariant 2."""
        flight, group = self._lite.flights.get(lane), self._groups.get(lane.group)
        if flight is None or group is None or offset not in flight.times:
            return False
        if flight.times[offset] <= group.retry_max_times:
            return False
        self._send_back.send_back(SentBack(lane.group, position, delay_level=-1), one.peer)
        self._done(lane, offset)
        return True

    # ------------------------------------------------------------ what follows

    def lane(self, ask: LiteAsk, name: str) -> Lane:
        """Return the lite topic as the group sees it. Raises: Refused."""
        self.check(ask)
        return Lane(ask.group, next(iter(self._keys(ask.topic, [name]))))

    def is_out(self, lane: Lane, offset: int, pop_ms: int) -> bool:
        """Return True while a receipt is valid."""
        return self._lite.flights.is_out(lane, offset, pop_ms, self._clock.now_ms())

    def ack(self, lane: Lane, offset: int, pop_ms: int) -> bool:
        """Acknowledge a message; False if its receipt is not valid any more. Raises: Refused."""
        if not self.is_out(lane, offset, pop_ms):
            # The answer to the first acknowledgement may have been lost.
            return self._is_done(lane, offset)
        self._done(lane, offset)
        if not self._lite.flights.is_blocked(lane, self._clock.now_ms()):
            self._lite.tell(lane)
        return True

    def _done(self, lane: Lane, offset: int) -> None:
        committed = max(0, self._lite.topics.offsets.get(*lane))
        following = self._lite.flights.done(lane, offset, committed)
        if following > committed:
            self._place(lane, following)

    def _place(self, lane: Lane, offset: int) -> None:
        try:
            self._lite.place(lane, offset)
        except OSError as error:
            raise _unwritten(error) from error

    def postpone(
        self, lane: Lane, offset: int, pop_ms: int, invisible_ms: int, *, untried: bool = False
    ) -> bool:
        """Make a message visible in so many ms; False if its receipt is not valid any more.

        untried: the client did not try to consume it.
        """
        if not self.is_out(lane, offset, pop_ms):
            return False
        now_ms = self._clock.now_ms()
        self._lite.flights.postpone(lane, offset, now_ms + invisible_ms, untried=untried)
        if not self._lite.flights.is_blocked(lane, now_ms):
            self._lite.tell(lane)
        self._lite.wake()
        return True

    def bury(self, lane: Lane, offset: int, pop_ms: int, position: int, peer: Peer) -> bool:
        """Make a message a dead letter; False if its receipt is not valid any more. Raises: Refused."""
        at = self._lite.topics.index.positions(lane.key, offset, 1)
        if not self.is_out(lane, offset, pop_ms) or at != [(offset, position)]:
            return False
        self._send_back.send_back(SentBack(lane.group, position, delay_level=-1), peer)
        return self.ack(lane, offset, pop_ms)

    def cancel(self, peer: Peer, again: Callable[[], None]) -> None:
        """Drop a held receive; news that had woken it is for another."""
        if not self._lite.waiting.cancel(peer, again):
            self._lite.waiting.wake(
                each for each in self._lite.subscribers.all() if each.peer is peer
            )


def _name(record: Record) -> str:
    return (get_property(record.properties, LITE_TOPIC) or b"").decode("utf-8", "replace")


def _unwritten(error: Exception) -> Refused:
    log.error("cannot keep what is known of lite topics reason=%s", error)
    return Refused(ResponseCode.SYSTEM_ERROR, f"cannot keep what is known of lite topics: {error}")
