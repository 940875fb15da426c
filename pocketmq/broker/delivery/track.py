"""MessageTrack: what became of one message in each group, as the broker saw it. Ours.

Beside RocketMQ's track type, which is computed from offsets and subscriptions as they are now
(DefaultMQAdminExtImpl.messageTrackDetail, RocketMQ 4.9.7; S89), stands a verdict from the delivery record:

1. If the message was sent back, its copy in the group's retry or dead-letter topic decides.
2. A delivery counts if the pull's filter let the message through; the client's own subscription decides
   whether the client kept it, since clients compare the tags themselves.
3. An offset beyond the message means "consumed" only if a delivery confirms it.
4. What happened before the record begins is UNKNOWN, never guessed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pocketmq.books.rows import Delivery, DeliveryEvent, DeliveryHistory, EventKind
from pocketmq.broker.groups.consumer_group import ConsumerGroup
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.modes.guard import GroupGuard
from pocketmq.model.message_codec import get_property, offset_msg_id, properties_to_dict
from pocketmq.model.names import TOOLS_GROUP, dlq_topic, retry_topic
from pocketmq.model.pop_receipt import pop_retry_topic
from pocketmq.model.record import Record, read_record
from pocketmq.model.sql92 import SelectorError, compile_expression
from pocketmq.model.subscription import ALL, parse_tags
from pocketmq.model.track import TrackType, Verdict, track_type
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.store import MessageStore

_MOVES = (EventKind.RESET, EventKind.COMMIT, EventKind.JUMP)


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """Where a message is; record is None if the log no longer holds it."""

    topic: str
    queue_id: int
    offset: int
    record: Record | None


@dataclass(slots=True)
class GroupTrack:
    """The verdict for one group; `text` is a sentence, `deliveries` the evidence."""

    group: str
    track_type: TrackType
    verdict: Verdict
    text: str
    deliveries: list[Delivery] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "deliveries": [
                {
                    "clientId": each.client_id,
                    "clientSubscription": each.own,
                    "filteredBy": each.by,
                    "firstTimestamp": each.first_ms,
                    "lastTimestamp": each.last_ms,
                }
                for each in self.deliveries
            ],
            "group": self.group,
            "text": self.text,
            "trackType": self.track_type,
            "verdict": self.verdict,
        }


class MessageTracks:
    """Judges a message; `history` is what DeliveryRecord.find returned for its place."""

    def __init__(
        self,
        store: MessageStore,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        guard: GroupGuard,
        now_ms: Callable[[], int],
        popped_until_ms: Callable[[str, str, int, int], int] = lambda *_: 0,
    ) -> None:
        """popped_until_ms(group, topic, queue id, offset): end of a popped message's invisible
        time, 0 if it is not in flight.
        """
        self._popped_until_ms = popped_until_ms
        self._store = store
        self._consumers = consumers
        self._offsets = offsets
        self._guard = guard
        self._now_ms = now_ms

    def groups(self, topic: str, history: Mapping[str, DeliveryHistory]) -> list[str]:
        """Return the groups that consume or have consumed the topic, apart from tools that only view
        messages.
        """
        known = self._offsets.groups_of(topic) | self._consumers.groups_of_topic(topic)
        return sorted((known | history.keys()) - {TOOLS_GROUP})

    def track(
        self, place: MessagePlace, group: str, history: DeliveryHistory | None, since_ms: int
    ) -> GroupTrack:
        """Return the verdict for one group; since_ms: start of the record, 0 without a record."""
        online = self._consumers.get(group)
        verdict, text = self._verdict(
            place, group, online, history or DeliveryHistory([], [], since_ms), since_ms
        )
        return GroupTrack(
            group,
            self._track_type(place, group, online),
            verdict,
            text,
            list(history.deliveries) if history is not None else [],
        )

    # ------------------------------------------------------------ RocketMQ's

    def _track_type(
        self, place: MessagePlace, group: str, online: ConsumerGroup | None
    ) -> TrackType:
        if online is None:
            return TrackType.NOT_ONLINE
        record = place.record
        tags = None if record is None else get_property(record.properties, b"TAGS")
        return track_type(
            online.consume_type,
            online.message_model,
            online.subscriptions.get(place.topic),
            None if tags is None else tags.decode("utf-8", "replace"),
            is_passed=self._offsets.query(group, place.topic, place.queue_id) > place.offset,
        )

    # ------------------------------------------------------------ ours

    def _verdict(
        self,
        place: MessagePlace,
        group: str,
        online: ConsumerGroup | None,
        history: DeliveryHistory,
        since_ms: int,
    ) -> tuple[Verdict, str]:
        sent_back = self._sent_back(place, group, history)
        if sent_back is not None:
            return sent_back
        offset = self._offsets.query(group, place.topic, place.queue_id)
        passed = [each for each in history.deliveries if _lets_through(each.by, place.record)]
        if passed:
            out = self._popped(group, place.topic, place.queue_id, place.offset)
            if out is not None:
                return Verdict.IN_FLIGHT, f"given to {passed[-1].client_id}, {out}"
            return _delivered(place, passed, offset, online)
        if history.deliveries:
            last = history.deliveries[-1]
            by = _words(last.by)
            return Verdict.FILTERED, (
                f"passed over at {_time(last.last_ms)} in a pull of {last.client_id}: the broker filtered "
                f"the pull by {by}, which the message does not match"
            )
        if offset > place.offset:
            return self._passed_over(place, history, since_ms)
        if place.offset < self._store.min_offset(place.topic, place.queue_id):
            return Verdict.EXPIRED, (
                f"expired before the group had reached it: the group's offset is {offset}"
            )
        return self._waiting(place, group, online, offset)

    def _sent_back(
        self, place: MessagePlace, group: str, history: DeliveryHistory
    ) -> tuple[Verdict, str] | None:
        """Apply rule 1. The retry topic's own messages are judged like any others."""
        record = place.record
        back = [each for each in history.events if each.kind in (EventKind.RETRY, EventKind.DEAD)]
        key = None if record is None else get_property(record.properties, b"UNIQ_KEY")
        if record is not None and key is not None:
            dead = self._copies(dlq_topic(group), key, record)
            if dead:
                reason = next(
                    (each.text for each in back if each.kind is EventKind.DEAD),
                    f"consumed {dead[-1].reconsume_times} times without success",
                )
                return Verdict.DEAD_LETTERED, (
                    f"in {dlq_topic(group)} as message {_id(dead[-1])}: {reason}"
                )
            for retry in (
                retry_topic(group),
                pop_retry_topic(place.topic, group),
                pop_retry_topic(place.topic, group, v2=True),
            ):
                copies = self._copies(retry, key, record)
                if copies:
                    return self._retried(group, copies)
        if not back:
            return None
        verdict = Verdict.DEAD_LETTERED if back[-1].kind is EventKind.DEAD else Verdict.RETRYING
        return verdict, f"sent back at {_time(back[-1].ms)}: {back[-1].text}"

    def _retried(self, group: str, copies: list[Record]) -> tuple[Verdict, str]:
        last = copies[-1]
        offset = self._offsets.query(group, last.topic, last.queue_id)
        what = f"retried {last.reconsume_times} times, most recently as message {_id(last)}"
        out = self._popped(group, last.topic, last.queue_id, last.queue_offset)
        if out is not None:
            return Verdict.RETRYING, f"{what}; {out}"
        if offset > last.queue_offset:
            return Verdict.CONSUMED, f"consumed in the end: {what}"
        return Verdict.RETRYING, (
            f"{what}, which waits in {last.topic} at offset {last.queue_offset}; the group is at "
            f"{max(offset, 0)}"
        )

    def _popped(self, group: str, topic: str, queue_id: int, offset: int) -> str | None:
        """Describe a popped message in flight; None if it is not."""
        until_ms = self._popped_until_ms(group, topic, queue_id, offset)
        if not until_ms:
            return None
        return f"popped and not acknowledged yet; delivered again at {_time(until_ms)} unless it is"

    def _copies(self, topic: str, key: bytes, origin: Record) -> list[Record]:
        """Return the copies of a message in a topic of the group, oldest first."""
        text = key.decode("utf-8", "replace")
        found = self._store.query_by_key(topic, text, 64, 0, self._now_ms() + 1).records
        origin_id = _id(origin).encode()
        records = [read_record(bytes(each)) for each in found]
        return [
            each
            for each in records
            if each.topic == topic
            and get_property(each.properties, b"UNIQ_KEY") == key
            and get_property(each.properties, b"ORIGIN_MESSAGE_ID") in (origin_id, None)
        ]

    def _passed_over(
        self, place: MessagePlace, history: DeliveryHistory, since_ms: int
    ) -> tuple[Verdict, str]:
        """Judge a message below the group's offset without a known delivery."""
        for event in reversed(history.events):
            if event.kind in _MOVES:
                return Verdict.SKIPPED_BY_RESET, (
                    f"the group's offset was set from {event.begin} to {event.end} at "
                    f"{_time(event.ms)} {event.text}"
                )
            if event.kind is EventKind.START:
                return Verdict.SKIPPED_AT_START, (
                    f"the group first read the queue at {_time(event.ms)} and began at offset {event.end}, "
                    "because of its consumeFromWhere"
                )
        record = place.record
        if record is None or not since_ms or record.store_ms < since_ms:
            reach = f"only back to {_time(since_ms)}" if since_ms else "nothing"
            return Verdict.UNKNOWN, (
                f"the group's offset is beyond it; the record of deliveries reaches {reach}"
            )
        return Verdict.UNKNOWN, (
            "the group's offset is beyond it, but no delivery is recorded: the offset was set by other "
            "means, or the message was delivered in the last second before a crash of the broker"
        )

    def _waiting(
        self, place: MessagePlace, group: str, online: ConsumerGroup | None, offset: int
    ) -> tuple[Verdict, str]:
        """Judge a message that the group has not reached yet."""
        at = f"the group's offset is {offset}" if offset >= 0 else "the group has no offset yet"
        if online is None:
            return Verdict.NOT_ONLINE, f"no member of the group is online; {at}"
        for finding in self._guard.findings(group):
            if finding.topic != place.topic:
                continue
            for loss in finding.losses:
                if loss.holder is None and place.queue_id in loss.queue_ids:
                    return Verdict.NOBODY_READS, (
                        f"queue {place.queue_id} belongs to a member that does not subscribe to the topic; "
                        f"see: pocketmq group doctor {group}"
                    )
        if not any(place.topic in each.subscriptions for each in online.channels.values()):
            return Verdict.NOBODY_READS, f"no member of the group subscribes to the topic; {at}"
        return Verdict.NOT_REACHED, f"{at}: {place.offset - max(offset, 0)} messages come before it"


def _delivered(
    place: MessagePlace, passed: list[Delivery], offset: int, online: ConsumerGroup | None
) -> tuple[Verdict, str]:
    """Apply rules 2 and 3; of several deliveries, the last that its client kept counts."""
    kept = [each for each in passed if not each.own or _lets_through(each.own, place.record)]
    if not kept:
        last = passed[-1]
        return Verdict.DROPPED_BY_CLIENT, (
            f"given to {last.client_id} at {_time(last.last_ms)}, which discarded it: the broker filtered "
            f"by {_words(last.by)}, but that client subscribes to {_words(last.own)}"
        )
    last = kept[-1]
    times = "" if len(kept) == 1 else f", {len(kept)} times in all"
    given = f"given to {last.client_id} at {_time(last.last_ms)}{times}"
    if offset > place.offset:
        return Verdict.CONSUMED, f"{given}; the group has committed a later offset"
    here = online is not None and online.find(last.client_id) is not None
    return Verdict.IN_FLIGHT, (
        f"{given}, not committed yet"
        if here
        else f"{given}, which has left without committing: another member gets it again"
    )


def _lets_through(expression: str, record: Record | None) -> bool:
    """Return True if an expression (delivery.record, invariant 2) matches a message.

    For tags the broker compares hash codes only, so a different tag with the same code passes too.
    """
    kind, _, text = expression.partition(" ")
    if record is None or not text or (kind == "TAG" and text == ALL):
        return True
    if kind == "TAG":
        try:
            tags = parse_tags(text)
        except IllegalArgument:
            return True
        found = get_property(record.properties, b"TAGS")
        return not tags or (found is not None and found.decode("utf-8", "replace") in tags)
    try:
        return compile_expression(text).matches(properties_to_dict(record.properties))
    except SelectorError:
        return True


def _words(expression: str) -> str:
    kind, _, text = expression.partition(" ")
    if not text:
        return "nothing"
    return f"{'tags' if kind == 'TAG' else kind} {text}"


def _id(record: Record) -> str:
    return offset_msg_id(record.store_host, record.position)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


__all__ = ["DeliveryEvent", "GroupTrack", "MessagePlace", "MessageTracks", "Verdict"]
