"""SimpleMember: a running simple consumer: pops at the brokers of its topics, and uses their receipts.

1. A topic at a broker is a place. All places are popped in turn without waiting; if none has anything, all
   are popped concurrently with waiting, and the caller gets the first answer. A place that fails is passed
   over: the caller hears of it if nothing came from the others.
2. A pop is never cancelled, since its messages would be invisible until their time is over: what it still
   brings is kept for the next call while it is invisible to others.
3. With the option `renews` what was received stays invisible until it is acknowledged (renewals.py).
4. Bodies are unpacked up to decode.UNPACKED_MAX for an answer; what is over is kept packed, until what was
   unpacked before it has been received.
"""

import asyncio
import logging
from collections import deque
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pocketmq.client.consume.consumer_member import SharingMember
from pocketmq.client.consume.renewals import Renewals
from pocketmq.client.network.heartbeat import ConsumeFromWhere
from pocketmq.client.offset_store import RemoteBrokerOffsetStore
from pocketmq.client.options import SimpleConsumerOptions
from pocketmq.client.pull.decode import UNPACKED_MAX, UnpackBudget, decode_messages
from pocketmq.model.message import MessageExt, Property
from pocketmq.model.pop_receipt import NORMAL, Receipt, real_topic
from pocketmq.remoting.errors import IllegalArgument, MessageCodecError, PocketMQError
from pocketmq.remoting.headers import (
    AckMessageHeader,
    ChangeInvisibleTimeHeader,
    NotificationHeader,
    PopMessageHeader,
    PopMessageResponseHeader,
)
from pocketmq.remoting.java_number import long

if TYPE_CHECKING:
    from pocketmq.client.network.instance import MQClientInstance

log = logging.getLogger(__name__)

_ALL_QUEUES = -1
_FROM_FIRST, _FROM_LAST = 0, 1
_AGAIN_MS = 1_000
# A delay level: no delay, and no redelivery.
_DEAD_LETTER = -1


class PopSource(NamedTuple):
    topic: str
    broker_name: str


class _Popped(NamedTuple):
    """A pop's answer, or what is left of it. ours_until: monotonic ms."""

    place: PopSource
    tags: frozenset[str]
    ours_until: int
    header: PopMessageResponseHeader
    body: bytes


class SimpleMember(SharingMember[SimpleConsumerOptions]):
    """Owner: SimpleConsumer, between start() and shutdown()."""

    def __init__(self, options: SimpleConsumerOptions, instance: "MQClientInstance") -> None:
        offsets = RemoteBrokerOffsetStore(instance, options.inner_group)
        super().__init__(options, instance, offsets)
        self._turn = 0
        # Until when (monotonic ms) a pop waits at a place.
        self._waiting: dict[PopSource, int] = {}
        # With the monotonic ms until which a message is ours.
        self._kept: deque[tuple[int, MessageExt]] = deque()
        self._packed: deque[_Popped] = deque()
        self._failure: PocketMQError | None = None
        self._news = asyncio.Event()
        self.renewals = Renewals(self._renew, self.clock)

    def begin(self) -> None:
        """See SharingMember."""
        if self.options.renews:
            # A third, so that two renewals may fail.
            interval_ms = max(1, self.options.invisible_ms // 3)
            self.runner.every(
                interval_ms, self.renewals.round, first_ms=interval_ms, name="renewals"
            )

    async def do_rebalance(self) -> None:
        """Do nothing: queues have no owner."""

    async def persist_offsets(self) -> None:
        """Do nothing: the broker advances the group's offset."""

    async def shutdown(self) -> None:
        """Unregister; messages not acknowledged are redelivered."""
        await self.leave()

    # ------------------------------------------------------------ receiving

    async def receive(self, count: int, invisible_ms: int, wait_ms: int) -> list[MessageExt]:
        """See SimpleConsumer."""
        found = await self._receive(count, invisible_ms, wait_ms)
        if self.options.renews:
            for message in found:
                self.renewals.add(message.topic, message, invisible_ms)
        return found

    async def _receive(self, count: int, invisible_ms: int, wait_ms: int) -> list[MessageExt]:
        await self._unpack()
        found = self._take(count)
        if found:
            return found
        places = await self._places()
        self._turn += 1
        self._failure = None
        start = self._turn % len(places)
        for place in [*places[start:], *places[:start]] if len(places) > 1 or not wait_ms else ():
            if place not in self._waiting:
                pop = self.runner.spawn(self._pop_now(place, count, invisible_ms), name="pop")
                if pop is not None:
                    await asyncio.wait((pop,))
                found = self._take(count)
                if found:
                    return found
        if wait_ms:
            self._failure = None
            self._news.clear()
            ends = self.clock.monotonic_ms() + wait_ms
            for place in places:
                waits_until = self._waiting.get(place)
                # The pop of a call that was cut short waits for this one, too.
                self._waiting[place] = max(ends, waits_until or 0)
                if waits_until is None:
                    self.runner.spawn(self._wait_at(place, count, invisible_ms), name="pop")
            while not self._kept and self._waiting:
                self._news.clear()
                await self._news.wait()
        if not self._kept and self._failure is not None:
            raise self._failure
        return self._take(count)

    def _take(self, count: int) -> list[MessageExt]:
        now = self.clock.monotonic_ms()
        while self._kept and self._kept[0][0] <= now:
            self._kept.popleft()
        found = [message for _, message in islice(self._kept, count)]
        for _ in found:
            self._kept.popleft()
        return found

    async def available(self, wait_ms: int) -> bool:
        """See SimpleConsumer."""
        if self._kept or self._packed:
            return True
        places = await self._places()
        failures: list[PocketMQError] = []
        async with asyncio.TaskGroup() as group:
            waiting = {
                group.create_task(self._available_at(place, wait_ms, failures)) for place in places
            }
            found = False
            while waiting and not found:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                found = any(each.result() for each in done)
            for each in waiting:
                each.cancel()
        if not found and len(failures) == len(places):
            raise failures[0]
        return found

    async def _available_at(
        self, place: PopSource, wait_ms: int, failures: list[PocketMQError]
    ) -> bool:
        try:
            return await self._notified_by(place, wait_ms)
        except PocketMQError as error:
            failures.append(error)
            return False

    async def _notified_by(self, place: PopSource, wait_ms: int) -> bool:
        ends = self.clock.monotonic_ms() + wait_ms
        address = await self.instance.master_address(place.topic, place.broker_name)
        while True:
            header = NotificationHeader(
                consumer_group=self.group,
                topic=place.topic,
                queue_id=_ALL_QUEUES,
                poll_time=wait_ms,
                born_time=0,
                bname=place.broker_name,
            )
            timeout_ms = self.options.request_timeout_ms + wait_ms
            found = await self.instance.api.notification(address, header, timeout_ms)
            wait_ms = ends - self.clock.monotonic_ms()
            if found.has_msg or wait_ms <= 0:
                return found.has_msg
            if found.polling_full:
                await asyncio.sleep(min(wait_ms, _AGAIN_MS) / 1000)

    async def _unpack(self) -> None:
        """Open what was left packed, once nothing else is kept (invariant 4)."""
        while self._packed and not self._kept:
            popped = self._packed.popleft()
            if popped.ours_until > self.clock.monotonic_ms():
                self._kept += await self._opened(popped)

    async def _places(self) -> list[PopSource]:
        """Return the places to pop from. Raises: IllegalArgument, NoRoute."""
        found = []
        for topic in self.subscribed_topics():
            route = await self.instance.route(topic)
            names = {queue.broker_name for queue in route.subscribe_queues(topic)}
            found += [PopSource(topic, name) for name in sorted(names)]
        if not found:
            raise IllegalArgument(
                f"group {self.group!r} has not subscribed to any topic that can be read"
            )
        return found

    async def _pop_now(self, place: PopSource, count: int, invisible_ms: int) -> None:
        try:
            self._kept += await self._pop(place, count, invisible_ms, 0)
        except PocketMQError as error:
            self._failed(place, error)

    def _failed(self, place: PopSource, error: PocketMQError) -> None:
        log.warning("pop failed group=%s place=%s reason=%r", self.group, place, str(error))
        self._failure = error
        self.instance.broker_failed(place.topic, error)

    async def _wait_at(self, place: PopSource, count: int, invisible_ms: int) -> None:
        found: list[tuple[int, MessageExt]] = []
        try:
            while not found and (wait_ms := self._waiting[place] - self.clock.monotonic_ms()) > 0:
                ends = self._waiting[place]
                found = await self._pop(place, count, invisible_ms, wait_ms)
                self._kept += found
                if not found and ends - self.clock.monotonic_ms() > _AGAIN_MS:
                    # The broker lets no more pops wait, because too many do.
                    await asyncio.sleep(_AGAIN_MS / 1000)
        except PocketMQError as error:
            self._failed(place, error)
        finally:
            self._waiting.pop(place, None)
            self._news.set()

    async def _pop(
        self, place: PopSource, count: int, invisible_ms: int, wait_ms: int
    ) -> list[tuple[int, MessageExt]]:
        subscription = self.rebalance.subscriptions.get(place.topic)
        if subscription is None:
            return []
        first = self.options.consume_from_where is ConsumeFromWhere.FIRST_OFFSET
        header = PopMessageHeader(
            consumer_group=self.group,
            topic=place.topic,
            queue_id=_ALL_QUEUES,
            max_msg_nums=count,
            invisible_time=invisible_ms,
            poll_time=wait_ms,
            # The broker counts from when it comes: its clock and ours may differ.
            born_time=0,
            init_mode=_FROM_FIRST if first else _FROM_LAST,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            bname=place.broker_name,
        )
        address = await self.instance.master_address(place.topic, place.broker_name)
        timeout_ms = self.options.request_timeout_ms + wait_ms
        answer = await self.instance.api.pop(address, header, timeout_ms)
        if answer is None:
            return []
        ours_until = self.clock.monotonic_ms() + invisible_ms
        tags = frozenset(subscription.tags_set)
        return await self._opened(_Popped(place, tags, ours_until, *answer))

    async def _opened(self, popped: _Popped) -> list[tuple[int, MessageExt]]:
        """Return the messages that are wanted, with the time of each; the rest of the answer stays packed."""
        room = UnpackBudget()
        place, tags = popped.place, popped.tags
        messages = _with_receipts(popped.header, popped.body, place.broker_name, room)
        if room.rest_at is not None:
            log.warning(
                "the bodies of a pop unpack to more than %s MiB; the rest is received next place=%s "
                "messages=%s",
                UNPACKED_MAX >> 20,
                place,
                len(messages),
            )
            self._packed.append(popped._replace(body=popped.body[room.rest_at :]))
        passed = [each for each in messages if not tags or each.tags in tags]
        for other in (each for each in messages if tags and each.tags not in tags):
            # Two tags may have one hash code: this tag is not subscribed.
            await self.ack(place.topic, other)
        return [(popped.ours_until, each) for each in passed]

    # ------------------------------------------------------------ receipts

    async def ack(self, topic: str, message: MessageExt) -> None:
        """See SimpleConsumer."""
        await self.renewals.give_up(message)
        receipt, address = await self._receipt(topic, message)
        header = AckMessageHeader(
            consumer_group=self.group,
            topic=real_topic(topic, self.group, receipt.retry),
            queue_id=receipt.queue_id,
            extra_info=message.properties[Property.POP_CK],
            offset=receipt.queue_offset,
            bname=receipt.broker_name,
        )
        await self.instance.api.ack(address, header)

    async def dead_letter(self, topic: str, message: MessageExt) -> None:
        """See SimpleConsumer. Between the two steps it may come again: then it is there twice."""
        stored = message if topic == message.topic else replace(message, topic=topic)
        address = await self.instance.master_address(topic, message.broker_name)
        await self.instance.api.send_message_back(
            address, stored, self.group, _DEAD_LETTER, 0, self.options.request_timeout_ms
        )
        await self.ack(topic, message)

    async def renew(self, topic: str, message: MessageExt, invisible_ms: int) -> None:
        """See SimpleConsumer."""
        await self.renewals.give_up(message)
        await self._renew(topic, message, invisible_ms)

    async def _renew(self, topic: str, message: MessageExt, invisible_ms: int) -> None:
        receipt, address = await self._receipt(topic, message)
        header = ChangeInvisibleTimeHeader(
            consumer_group=self.group,
            topic=real_topic(topic, self.group, receipt.retry),
            queue_id=receipt.queue_id,
            extra_info=message.properties[Property.POP_CK],
            offset=receipt.queue_offset,
            invisible_time=invisible_ms,
            bname=receipt.broker_name,
        )
        found = await self.instance.api.change_invisible_time(address, header)
        message.properties[Property.POP_CK] = str(
            receipt._replace(
                start_offset=receipt.queue_offset,
                pop_ms=found.pop_time,
                invisible_ms=found.invisible_time,
                revive_queue=found.revive_qid,
            )
        )

    async def _receipt(self, topic: str, message: MessageExt) -> tuple[Receipt, str]:
        """Return the parsed receipt, and the address of its broker. Raises: IllegalArgument."""
        text = message.properties.get(Property.POP_CK)
        if text is None:
            raise IllegalArgument(
                f"message {message.msg_id} has no receipt: only messages from receive() can be acknowledged"
            )
        receipt = Receipt.parse(text)
        return receipt, await self.instance.master_address(topic, receipt.broker_name)


def _with_receipts(
    header: PopMessageResponseHeader, body: bytes, broker_name: str, room: UnpackBudget
) -> list[MessageExt]:
    """Return the messages of a pop's answer, each with its receipt.

    The header says where the messages were taken, and so what their receipts are. A POP_CK that a message
    brings decides only whether it was taken from a retry topic, where both topics have its queue and offset:
    a sender may have written it. Raises: MessageCodecError.
    """
    starts = _starts(header.start_offset_info or "")
    taken = _taken(header.msg_offset_info or "")
    messages = decode_messages(body, broker_name, room=room)
    for message in messages:
        place = message.queue_id, message.queue_offset
        receipts = {
            flag: Receipt(
                starts[flag, message.queue_id],
                header.pop_time,
                header.invisible_time,
                header.revive_qid,
                flag,
                broker_name,
                *place,
            )
            for flag in taken.get(place, (NORMAL,))
            if (flag, message.queue_id) in starts
        }
        if not receipts:
            raise MessageCodecError(
                f"broker {broker_name} answered a pop with a message of queue {message.queue_id}, but does "
                f"not say where it began there: {header.start_offset_info!r}; the messages come again when "
                "their invisible time is over"
            )
        brought = message.properties.get(Property.POP_CK.value)
        texts = {str(receipt) for flag, receipt in receipts.items() if flag != NORMAL}
        if brought not in texts:
            receipt = receipts.get(NORMAL) or next(iter(receipts.values()))
            message.properties[Property.POP_CK.value] = str(receipt)
    return messages


def _taken(text: str) -> dict[tuple[int, int], list[str]]:
    """Parse what a pop took: `flag queue offset,offset`, separated by semicolons.

    Returns: by queue and offset, the retry flags of the topics that it was taken from.
    Raises: MessageCodecError.
    """
    taken: dict[tuple[int, int], list[str]] = {}
    try:
        for part in text.split(";") if text else ():
            flag, queue, offsets = part.split(" ")
            for offset in offsets.split(","):
                taken.setdefault((long(queue), long(offset)), []).append(flag)
    except ValueError as error:
        raise _unreadable(text) from error
    return taken


def _starts(text: str) -> dict[tuple[str, int], int]:
    """Parse where a pop began: `flag queue offset`, separated by semicolons. Raises: MessageCodecError."""
    starts: dict[tuple[str, int], int] = {}
    try:
        for part in text.split(";") if text else ():
            flag, queue, first = part.split(" ")
            starts[flag, long(queue)] = long(first)
    except ValueError as error:
        raise _unreadable(text) from error
    return starts


def _unreadable(text: str) -> MessageCodecError:
    return MessageCodecError(
        f"the broker's answer to a pop does not say where it began: {text!r}; the messages come again "
        "when their invisible time is over"
    )
