"""Half messages: tracks which are decided, and asks the producers of those that are not.

Source: TransactionalMessageServiceImpl, TransactionalMessageBridge, RocketMQ 4.9.7; wire.md 3.8.

    RMQ_SYS_TRANS_HALF_TOPIC     queue 0: half messages
    RMQ_SYS_TRANS_OP_HALF_TOPIC  queue 0: op messages, tag `d`, body = half-queue offset as text (5.x:
                                 several, separated by commas): that half message is decided
    config/consumerOffset.json   group CID_RMQ_SYS_TRANS: both queues are processed up to these offsets

1. Every half message below the half offset is decided, given up, or replaced by a later one.
2. An undecided one that is due is replaced: appended again with TRANSACTION_CHECK_TIMES + 1, so that the
   half offset can advance, and its producer group is asked (CHECK_TRANSACTION_STATE). One with
   CHECK_IMMUNITY_TIME_IN_SECONDS that is not due is replaced without asking.
3. Ours: an op message for the replaced one follows at once, with REPLACED_BY = the new offset. So after a
   crash before the offsets are saved the broker asks no producer twice, and a decision that names the old
   message applies to the new one. RocketMQ carries out the first and later asks about the second.
4. After transactionCheckMax checks, or fileReservedTime, it goes to TRANS_CHECK_MAX_TIME_TOPIC. A decision
   that comes later is carried out, once, as long as the half message is in the log.
5. A start restores what is still to be decided from the two queues. What became of others is found by the
   index (half_copies.py); without one (messageIndexEnable) a decision that comes twice may count twice.
"""

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.groups.producer_manager import ProducerManager
from pocketmq.broker.internal_append import FIRST_STORED, InternalAppend
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.model.message_codec import (
    add_property,
    get_property,
    offset_msg_id,
    remove_property,
)
from pocketmq.model.names import (
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANSACTION_GROUP,
)
from pocketmq.model.record import Record, read_records, write_record
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import CheckTransactionStateHeader
from pocketmq.remoting.java_number import property_number
from pocketmq.store import Appended, MessageStore, ReadStatus, RecordIllegal
from pocketmq.store.timer.properties import without_timer

if TYPE_CHECKING:
    from pocketmq.broker.half_copies import HalfCopies

log = logging.getLogger(__name__)

_READ_COUNT = 64
# Half messages looked at before other work gets its turn.
_STEP = 256
_GIVEN_UP_MAX = 10_000
_CHECK_TIMES = b"TRANSACTION_CHECK_TIMES"
_IMMUNITY = b"CHECK_IMMUNITY_TIME_IN_SECONDS"
_FIRST_OFFSET = b"TRAN_PREPARED_QUEUE_OFFSET"


class HalfMessages:
    """Owner of both queues' offsets and of the set of decided half messages."""

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsetManager,
        put: InternalAppend,
        *,
        store_host: bytes,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._put = put
        self._store_host = store_host
        # Half-queue offset -> offset of its op message, for those at or above half_offset.
        self._decided: dict[int, int] = {}
        # Invariant 3: replaced half-queue offset -> the one that stands for it now, and back.
        self._replaced_by: dict[int, int] = {}
        self._stands_for: dict[int, list[int]] = {}
        # Of those that were given up lately, below half_offset: whether they are still undecided.
        self._given_up: dict[int, bool] = {}
        self._op_read = 0
        # The outcomes of all messages before both offsets lie before this position of the log.
        self.end = 0
        # (topic, whether it was committed) -> how many since the start.
        self.ended: Counter[tuple[str, bool]] = Counter()

    @property
    def waiting_count(self) -> int:
        """Return the number of undecided half messages."""
        end = self._store.max_offset(TRANS_HALF_TOPIC, 0)
        return max(0, end - self.half_offset - len(self._decided))

    @property
    def half_offset(self) -> int:
        """Return the offset of the first half message still to be processed."""
        return self._offset(TRANS_HALF_TOPIC)

    @property
    def op_offset(self) -> int:
        """Return the offset of the first op message still needed."""
        return self._offset(TRANS_OP_HALF_TOPIC)

    def _offset(self, topic: str) -> int:
        stored = self._offsets.query(TRANSACTION_GROUP, topic, 0)
        return max(stored, self._store.min_offset(topic, 0))

    def load(self) -> None:
        """Read the op queue from the saved offset to its end (invariant 5)."""
        self._decided.clear()
        self._replaced_by.clear()
        self._stands_for.clear()
        self._op_read = self.op_offset
        self.read_ops()

    def current(self, half: Record) -> int | None:
        """Return the current offset of a half message: its own, or that of its last replacement.

        None: it was decided before the half offset, so that nothing is left to decide.
        """
        offset = self._replaced_by.get(half.queue_offset, half.queue_offset)
        if offset >= self.half_offset:
            return offset
        # Only those still to be decided are remembered over a start.
        copies = self._copies()
        last = copies.newest(half, after=half.position) or half
        offset = max(offset, last.queue_offset)
        if offset >= self.half_offset:
            return offset
        is_open = self._given_up.get(offset)
        if is_open is None:
            is_open = not copies.has_op(last) and (copies.was_given_up(last) or not copies.are_sure)
        return offset if is_open else None

    def _copies(self) -> "HalfCopies":
        # Rarely needed: a start does not import it.
        from pocketmq.broker.half_copies import HalfCopies

        return HalfCopies(self._store)

    def _note_given_up(self, half_offset: int, *, is_open: bool) -> None:
        self._given_up[half_offset] = is_open
        if len(self._given_up) > _GIVEN_UP_MAX:
            oldest = next(iter(self._given_up))
            del self._given_up[oldest]
            self._forget(oldest)

    def is_decided(self, half_offset: int) -> bool:
        """Return True if the half message was committed, rolled back or replaced; from half_offset on."""
        return half_offset in self._decided

    def is_undecided(self, half: Record) -> bool:
        """Return True if a half message, or the one that stands for it now, is still to be ended."""
        current = self.current(half)
        return current is not None and not self.is_decided(current)

    def count_end(self, half: Record, *, committed: bool) -> None:
        """Count a transaction that its producer ended."""
        topic = get_property(half.properties, b"REAL_TOPIC") or b""
        self.ended[topic.decode("utf-8", "replace"), committed] += 1

    def decide(self, half_offset: int, *, keyed: bool = False) -> None:
        """Append the op message of a committed or rolled-back half message. Raises: StoreNotWriteable.

        keyed: it has no unique key, by which its decision is found later.
        """
        if half_offset not in self._decided:
            key = b""
            if keyed or half_offset < self.half_offset:
                key = b"KEYS\x01%d\x02" % half_offset
            self._append_op(half_offset, b"TAGS\x01d\x02" + key)
        if half_offset < self.half_offset:
            self._note_given_up(half_offset, is_open=False)
        else:
            self._forget(half_offset)

    def replace(self, record: Record, properties: bytes) -> Appended:
        """Append the half message again with these properties (invariant 3). Raises: StoreError."""
        if get_property(properties, FIRST_STORED) is None:
            properties = add_property(properties, FIRST_STORED, str(record.store_ms).encode())
        appended = self._put.put_again(record, TRANS_HALF_TOPIC, 0, properties).appended
        new = str(appended.queue_offset).encode()
        self._append_op(record.queue_offset, b"TAGS\x01d\x02REPLACED_BY\x01%s\x02" % new)
        return appended

    def resume(self, record: Record) -> None:
        """Check a half message again that was given up, or is undecided, from the first check on.

        Raises: RecordIllegal: it is being checked, or is decided; StoreError.
        """
        last = self._copies().newest(record)
        if last is not None:
            offset = self.current(last)
            if offset is None or self.is_decided(offset):
                raise RecordIllegal("The transaction has been decided.")
            if offset >= self.half_offset:
                raise RecordIllegal("The transaction is being checked already.")
        properties = remove_property(record.properties, _CHECK_TIMES)
        properties = add_property(properties, _CHECK_TIMES, b"0")
        self._put.put_again(record, TRANS_HALF_TOPIC, 0, properties)

    def give_up(self, half_offset: int) -> None:
        """Note that a half message is not asked about any more; its producer may still decide it."""
        self._note_given_up(half_offset, is_open=True)

    def _forget(self, half_offset: int) -> None:
        """Drop the replacements of a half message that is finally decided."""
        for old in self._stands_for.pop(half_offset, ()):
            self._replaced_by.pop(old, None)

    def _append_op(self, half_offset: int, properties: bytes) -> None:
        body = str(half_offset).encode()
        self._put.put(TRANS_OP_HALF_TOPIC, 0, body, properties, born_host=self._store_host)
        self.read_ops()

    def read_ops(self) -> None:
        """Read op messages appended since the last call."""
        half_offset = self.half_offset
        while True:
            result = self._store.read(TRANS_OP_HALF_TOPIC, 0, self._op_read, _READ_COUNT)
            if result.status is not ReadStatus.FOUND:
                if result.next_offset > self._op_read:
                    self._op_read = result.next_offset
                    continue
                return
            for buffer in result.buffers:
                for record in read_records(buffer, check_crc=False):
                    self._take_op(record, half_offset)
            self._op_read = result.next_offset

    def _take_op(self, record: Record, half_offset: int) -> None:
        if get_property(record.properties, b"TAGS") != b"d":
            log.error("an op message has an unknown tag offset=%d", record.queue_offset)
            return
        offsets = [int(word) for word in bytes(record.body).split(b",") if word.strip().isdigit()]
        for offset in offsets:
            if offset >= half_offset:
                self._decided[offset] = record.queue_offset
        new = property_number(get_property(record.properties, b"REPLACED_BY"))
        if new is not None and len(offsets) == 1:
            old = [*self._stands_for.pop(offsets[0], []), offsets[0]]
            self._stands_for[new] = old
            for offset in old:
                self._replaced_by[offset] = new

    def advance(self, half_offset: int) -> None:
        """Move both offsets past processed messages and drop their state."""
        self._move(TRANS_HALF_TOPIC, half_offset)
        for offset in [offset for offset in self._decided if offset < half_offset]:
            del self._decided[offset]
        # An op message of 5.x names several half messages: it is of use while one of them is.
        self._move(TRANS_OP_HALF_TOPIC, min(self._decided.values(), default=self._op_read))

    def _move(self, topic: str, offset: int) -> None:
        if offset > self._offsets.query(TRANSACTION_GROUP, topic, 0):
            self.end = self._store.commit_log_max_position
            self._offsets.commit(TRANSACTION_GROUP, topic, 0, offset, "broker")


class TransactionCheck:
    """Checks the half queue every transactionCheckInterval."""

    def __init__(
        self,
        node: Node,
        topics: TopicConfigManager,
        producers: ProducerManager,
        messages: Messages,
        half: HalfMessages,
    ) -> None:
        self._config = node.config
        self._clock = node.clock
        self._store_host = node.store_host
        self._topics = topics
        self._producers = producers
        self._may_publish = node.may_publish
        self._store = messages.store
        self._put = messages.put
        self._half = half

    async def run(self) -> None:
        """Check until cancelled."""
        await self._store.side_tasks.repeat("transaction-check", self._round)

    async def _round(self) -> None:
        """Wait transactionCheckInterval, then check."""
        await asyncio.sleep(self._config.transaction_check_interval / 1000)
        await self.check()

    async def check(self) -> None:
        """Check every half message that was there when the round began."""
        # RocketMQ 4.9 makes the topic with its first look, whether there is a half message or not.
        self._topics.create_internal(TRANS_HALF_TOPIC, 1)
        end = self._store.max_offset(TRANS_HALF_TOPIC, 0)
        if end == 0:
            return
        half = self._half
        half.read_ops()
        offset = half.half_offset
        while offset < end:
            following = self._step(offset, end)
            half.advance(following)
            if following == offset:
                break
            offset = following
            await asyncio.sleep(0)

    def _step(self, offset: int, end: int) -> int:
        """Check half messages from `offset` on; return the first that is still open."""
        half = self._half
        stop = min(end, offset + _STEP)
        while offset < stop:
            if half.is_decided(offset):
                offset += 1
                continue
            result = self._store.read(TRANS_HALF_TOPIC, 0, offset, 1)
            if not result.count:
                if result.next_offset <= offset:
                    return offset
                log.warning("half messages are missing from=%d to=%d", offset, result.next_offset)
                offset = result.next_offset
                continue
            record = next(read_records(result.buffers[0], check_crc=False))
            try:
                is_old_enough = self._look_at(record)
            except RecordIllegal as error:
                # Full of properties: without room for the count of checks it would hold up all behind it.
                log.error("cannot store a half message again error=%s", error)
                self._give_up(record)
                is_old_enough = True
            if not is_old_enough:
                return offset
            offset += 1
        return offset

    def _look_at(self, record: Record) -> bool:
        """Process one undecided half message; False if it, and so all behind it, are too young."""
        now_ms = self._clock.now_ms()
        # Ours: by the broker's clock. RocketMQ takes the producer's, and drops the half message of one whose
        # clock is days behind without a question.
        age_ms = now_ms - (
            property_number(get_property(record.properties, FIRST_STORED)) or record.store_ms
        )
        first = property_number(get_property(record.properties, _FIRST_OFFSET))
        if first is not None and self._half.is_decided(first):
            # Appended again by a RocketMQ broker, and decided under its first offset since.
            return True
        topic = (get_property(record.properties, b"REAL_TOPIC") or b"").decode("utf-8", "replace")
        if self._store.deleted.has_waiting(topic, record.position):
            # Before it is replaced: a later record would belong to the recreated topic.
            log.info("dropped a half message of a deleted topic topic=%s", topic)
            self._half.decide(record.queue_offset)
            return True
        # The producer may have set this count: with one below zero the broker would never stop asking.
        times = max(0, property_number(get_property(record.properties, _CHECK_TIMES)) or 0)
        reserved_ms = self._store.config.file_reserved_time * 3_600_000
        if times >= self._config.transaction_check_max or age_ms > reserved_ms:
            self._give_up(record)
            return True
        timeout_ms = self._config.transaction_time_out
        immunity = get_property(record.properties, _IMMUNITY)
        if immunity is None:
            # A clock that was set back makes it look unborn: then it is asked about at once.
            if 0 <= age_ms < timeout_ms:
                return False
        else:
            seconds = property_number(immunity)
            if 0 <= age_ms < (timeout_ms if seconds is None or seconds < 0 else seconds * 1000):
                self._half.replace(record, record.properties)
                return True
        self._ask(record, times + 1)
        return True

    def _ask(self, record: Record, times: int) -> None:
        """Apply invariant 2."""
        properties = add_property(
            remove_property(record.properties, _CHECK_TIMES), _CHECK_TIMES, str(times).encode()
        )
        appended = self._half.replace(record, properties)
        topic = (get_property(properties, b"REAL_TOPIC") or b"").decode("utf-8", "replace")
        group = (get_property(properties, b"PGROUP") or b"").decode("utf-8", "replace")
        # Ours: RocketMQ shows the half message to any client that names the group.
        connection = self._producers.available(group, lambda peer: self._may_publish(peer, topic))
        if connection is None:
            log.warning("Check transaction failed, channel is null. groupId=%s", group)
            return
        unique = (get_property(properties, b"UNIQ_KEY") or b"").decode("utf-8", "replace")
        header = CheckTransactionStateHeader(
            tran_state_table_offset=appended.queue_offset,
            commit_log_offset=appended.position,
            msg_id=unique or None,
            transaction_id=unique or None,
            offset_msg_id=offset_msg_id(self._store_host, appended.position),
        )
        body = write_record(
            record._replace(
                topic=topic,
                queue_id=property_number(get_property(properties, b"REAL_QID")) or 0,
                queue_offset=appended.queue_offset,
                position=appended.position,
                properties=properties,
            )
        )
        try:
            connection.tell(RequestCode.CHECK_TRANSACTION_STATE, header.ext(), body)
        except RemotingError as error:
            # One that does not read what it is sent must not hold up those behind it.
            log.warning("cannot ask about a transaction groupId=%s reason=%s", group, error)

    def _give_up(self, record: Record) -> None:
        """Apply invariant 4."""
        log.error(
            "a half message has been checked too many times or is too old, moved to "
            "TRANS_CHECK_MAX_TIME_TOPIC offset=%d position=%d",
            record.queue_offset,
            record.position,
        )
        topic = self._topics.create_check_max_time()
        try:
            self._put.put_again(record, topic.topic, 0, record.properties)
        except RecordIllegal:
            # A time that is too far ahead, or none, must not hold up those behind it.
            self._put.put_again(record, topic.topic, 0, without_timer(record.properties))
        self._half.give_up(record.queue_offset)
