"""Load: senders through deaths, and what may not be of what they were promised."""

import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pocketmq.client import ConsumeFromWhere, Message, SendStatus
from pocketmq.client.sync import LitePullConsumer, Producer
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.headers import SendMessageResponseHeader, SendMessageV2Header
from pocketmq.remoting.transport.blocking import BlockingConnection
from tests.kit.waiting import until

TOPIC = "Kept"
SENDERS = 4
_GROUPS, _LOADS = itertools.count(1), itertools.count(1)
Place = tuple[int, int]
"""Queue id and offset."""


class Direct:
    """One connection to one broker, whatever its role is. acknowledged: the places, by body."""

    def __init__(self, address: str, name: str) -> None:
        self._connection = BlockingConnection(address, timeout_ms=60_000)
        self._name = name
        self._number = 0
        self._under_way: dict[int, bytes] = {}
        self.acknowledged: dict[bytes, Place] = {}
        self.codes: list[int] = []

    def begin(self) -> None:
        """Send one message, and do not wait."""
        self._number += 1
        body = b"%s-%d" % (self._name.encode(), self._number)
        header = SendMessageV2Header("direct", TOPIC, "TBW102", 4, 0, 0, 1_700_000_000_000, 0, "")
        self._under_way[self._connection.request(RequestCode.SEND_MESSAGE_V2, header, body)] = body

    def finish(self) -> list[int]:
        """The codes of the answers to all that was begun."""
        found = []
        for opaque, body in self._under_way.items():
            answer = self._connection.answer(opaque, "a send")
            found.append(answer.code)
            if answer.code == ResponseCode.SUCCESS:
                sent = SendMessageResponseHeader.parse(answer.ext)
                self.acknowledged[body] = sent.queue_id, sent.queue_offset
        self._under_way.clear()
        self.codes += found
        return found

    def send(self) -> int:
        self.begin()
        return self.finish()[0]

    def close(self) -> None:
        self._connection.close()


class Load:
    """Four senders, each one message after the other. acknowledged: the places, by body."""

    def __init__(self, namesrv: str, size: int = 100, poll_ms: int = 1_000) -> None:
        """poll_ms: how often the producer asks for routes without need."""
        self._namesrv = namesrv
        self._poll_ms = poll_ms
        self._name = next(_LOADS)
        self._filling = b"x" * size
        self._over = False
        self.acknowledged: dict[bytes, Place] = {}
        # Monotonic; of acknowledgements, in order.
        self.times_s: list[float] = []
        self.failures: dict[str, int] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        with Producer(
            "load", name_server=self._namesrv, poll_name_server_interval_ms=self._poll_ms
        ) as producer:
            threads = [
                threading.Thread(target=self._send, args=(producer, n)) for n in range(SENDERS)
            ]
            for each in threads:
                each.start()
            try:
                yield
            finally:
                self._over = True
                for each in threads:
                    each.join()

    def _send(self, producer: Producer, sender: int) -> None:
        for number in itertools.count():
            if self._over:
                return
            body = b"%d-%d-%d " % (self._name, sender, number) + self._filling
            try:
                result = producer.send(Message(TOPIC, body), timeout_ms=5_000)
            except PocketMQError as error:
                # Perhaps stored: nothing was promised.
                self._count(type(error).__name__)
                time.sleep(0.01)
                continue
            if result.status is SendStatus.SEND_OK:
                self.acknowledged[body] = result.message_queue.queue_id, result.queue_offset
                self.times_s.append(time.monotonic())
            else:
                self._count(result.status.name)

    def _count(self, what: str) -> None:
        self.failures[what] = self.failures.get(what, 0) + 1

    def more(self, count: int) -> None:
        enough = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= enough, f"{count} more are acknowledged")

    def longest_wait_s(self, since_s: float = 0.0) -> float:
        """Between two acknowledged sends."""
        times = [each for each in sorted(self.times_s) if each >= since_s]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)

    def wrong(self) -> list[str]:
        """See `wrong_of`."""
        return wrong_of(self._namesrv, [self.acknowledged])


def wrong_of(namesrv: str, promised: Sequence[Mapping[bytes, Place]]) -> list[str]:
    """What was acknowledged and is not there, or was acknowledged at a place of another message."""
    places = {body: place for each in promised for body, place in each.items()}
    there = read(namesrv, set(places))
    found = [
        f"{body[:20]!r} was acknowledged at {place}, where {there.get(place, b'')[:20]!r} is"
        for body, place in places.items()
        if there.get(place) != body
    ]
    if len(set(places.values())) != sum(map(len, promised)):
        found.append("one place was acknowledged for two messages")
    return found


def read(namesrv: str, wanted: set[bytes]) -> dict[Place, bytes]:
    """Read until nothing wanted is missing, or nothing more comes."""
    consumer = LitePullConsumer(
        f"readers-{next(_GROUPS)}",
        name_server=namesrv,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
    )
    consumer.subscribe(TOPIC)
    found: dict[Place, bytes] = {}
    missing = set(wanted)
    with consumer:
        idle = 0
        while missing and idle < 4:
            messages = consumer.poll(timeout_ms=5_000)
            idle = 0 if messages else idle + 1
            for each in messages:
                found[each.queue_id, each.queue_offset] = each.body
                missing.discard(each.body)
    return found
