"""A broker of isolated groups and its members, without sockets."""

import itertools
from pathlib import Path

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.groups.subscription_group import SubscriptionGroupManager
from pocketmq.broker.modes.isolate import IsolatedGroups, first_match_in
from pocketmq.broker.modes.mode import GroupModes
from pocketmq.broker.refused import OffsetMoved
from pocketmq.model.message_codec import get_property
from pocketmq.model.record import Record, read_records
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import ManualClock
from pocketmq.store import ConfigFile, MessageStore
from tests.broker.bare import bare_node
from tests.broker.members import Member

KEEP_MS = 60_000


REMEMBER_MS = 3_600_000


HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))


TOPICS = itertools.count(1)


def wants(subscription: str, tag: str) -> bool:
    """What a subscription means, told by its text alone."""
    if subscription == "*":
        return True
    if subscription.startswith("sql:"):
        return tag == "A"
    return tag in subscription.split(" || ")


def tag_of(record: Record) -> str:
    return (get_property(record.properties, b"TAGS") or b"").decode()


class Broker:
    """The broker's tables as far as isolated groups need them, on a store; group g is isolated."""

    def __init__(self, store: MessageStore, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.clock = ManualClock()
        self.config = BrokerConfig(
            broker_name="b",
            group_mode="isolate",
            isolate_keep_time=KEEP_MS,
            isolate_remember_time=REMEMBER_MS,
        )
        self.start()

    def start(self) -> None:
        node = bare_node(self.clock, self.config)
        configs = SubscriptionGroupManager(
            ConfigFile(str(self.folder / "subscriptionGroup.json")), self.config, self.clock
        )
        self.offsets = ConsumerOffsetManager(ConfigFile(str(self.folder / "consumerOffset.json")))
        self.groups = IsolatedGroups(
            ConfigFile(str(self.folder / "isolatedGroup.json")),
            node,
            GroupModes(self.config, configs),
            self.offsets,
            first_match_in(self.store),
        )
        node.events.members_changed.to(self.groups.members_changed)
        self.consumers = ConsumerManager(self.clock, node.events)

    def restart(self) -> None:
        """All of memory is lost; what the files hold comes back."""
        saved = fastjson.dumps(self.groups.to_json()), fastjson.dumps(self.offsets.to_json())
        self.start()
        self.groups.from_json(fastjson.loads(saved[0]))
        self.offsets.from_json(fastjson.loads(saved[1]))

    def send(self, topic: str, tag: str, queue_id: int = 0, more: bytes = b"") -> int:
        properties = (b"TAGS\x01%s\x02" % tag.encode() if tag else b"") + more
        return self.store.append(topic, queue_id, b"x", properties, 0, 0, 0, HOST).queue_offset

    def join(self, client_id: str, subscriptions: dict[str, str]) -> "Client":
        return Client(self, client_id, subscriptions)

    def tick(self, ms: int = 0) -> None:
        self.clock.advance_ms(ms)
        self.groups.tick(self.consumers.groups)


class Client:
    """One member and its pulls; `got` holds (topic, queue, offset) of what it consumed, in order."""

    def __init__(self, broker: Broker, client_id: str, subscriptions: dict[str, str]) -> None:
        self.broker, self.client_id = broker, client_id
        self.asks = subscriptions
        self.member = Member(broker.consumers, broker.clock, client_id, subscriptions)
        self.next: dict[tuple[str, int], int] = {}
        self.held: dict[tuple[str, int], list[int]] = {}
        self.got: list[tuple[str, int, int]] = []

    def reconnect(self) -> None:
        """After a restart of the broker: same client, new connection; it continues where it was."""
        self.member = Member(self.broker.consumers, self.broker.clock, self.client_id, self.asks)

    def subscribe(self, subscriptions: dict[str, str]) -> None:
        """A running client changes what it asks; what it holds is dropped with its queues."""
        self.asks = subscriptions
        self.held.clear()
        self.member.subscribe(subscriptions)

    def pull(self, topic: str, queue_id: int = 0, count: int = 32) -> bool:
        """One pull, what it brings is held; False when it brought nothing and moved nothing."""
        key = (topic, queue_id)
        connection, groups = self.member.connection, self.broker.groups
        isolated = groups.groups["g"]
        me = isolated.of(connection)
        assert me is not None
        if key not in self.next:
            start = groups.start("g", connection, topic, queue_id)
            assert start is not None
            self.next[key] = max(start, 0)
        offset = self.next[key]
        try:
            isolated.check_pull(me, key, offset)
        except OffsetMoved as moved:
            self.held.pop(key, None)
            self.next[key] = moved.offset
            return True
        matches = isolated.order.filter(me, topic, queue_id, offset)
        result = self.broker.store.read(topic, queue_id, offset, count, matches)
        isolated.pulled(me, key, result.next_offset)
        # The client's own second look: two tags can share a code.
        found = [
            record.queue_offset
            for buffer in result.buffers
            for record in read_records(buffer)
            if topic not in self.asks or wants(self.asks[topic], tag_of(record))
        ]
        self.held.setdefault(key, []).extend(found)
        self.next[key] = result.next_offset
        return bool(found) or result.next_offset != offset

    def consume(self, topic: str, queue_id: int = 0) -> None:
        """Consume what is held and commit; the client's own second filter comes first."""
        key = (topic, queue_id)
        if key not in self.next:
            return
        self.got += [(topic, queue_id, offset) for offset in self.held.pop(key, [])]
        self.broker.groups.commit("g", self.member.connection, topic, queue_id, self.next[key])

    def drain(self, topic: str, queue_id: int = 0) -> list[int]:
        """Pull and consume to the end; the offsets that came."""
        before = len(self.got)
        while self.pull(topic, queue_id):
            self.consume(topic, queue_id)
        self.consume(topic, queue_id)
        return [offset for _, _, offset in self.got[before:]]
