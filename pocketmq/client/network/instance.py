"""MQClientInstance: shared by all producers and consumers of a client id (S5, S6, S35 to S37, S56).

It owns the connections, the routes, the broker addresses and every timer:

    every                       from            what
    two minutes                 10 s            addresses of the name servers, if they are looked up by HTTP
    poll_name_server_interval   10 ms           routes of all topics in use
    second, for a minute        1 000 ms        routes of subscribed topics that do not exist yet (ours;
                                                our name servers also notify of a new one)
    heartbeat_interval          1 000 ms        drop brokers without a route, heartbeat to all brokers
    persist_offset_interval     10 000 ms       offsets of all consumers
    rebalance_interval, or woken                rebalance
    at once                                     pull requests

1. Heartbeats go to every broker if there is a consumer, otherwise to masters only.
2. Producers and consumers register here before start() and leave by unregister(); groups are unique.
3. All internal names include the namespace; only the public classes strip it.
Source: MQClientInstance, RocketMQ 4.9.7 (wire.md 4.3). Loaded by start(), so that importing
pocketmq.client stays quick.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import AsyncExitStack

from pocketmq.client.errors import BrokerNotServing, CallerError, NoRoute
from pocketmq.client.inner import InnerConsumer, InnerProducer
from pocketmq.client.network.api import MQClientApi
from pocketmq.client.network.client_processor import ClientProcessor
from pocketmq.client.network.config import parse_name_servers
from pocketmq.client.network.look_ups import LookUps
from pocketmq.client.network.presence import Presence
from pocketmq.client.network.requests import ApiRequests, Remoting
from pocketmq.client.network.route import BrokerAddresses, BrokerUnknown, TopicRoute
from pocketmq.client.network.runner import Runner
from pocketmq.client.network.top_addressing import FIRST_LOOKUP_MS, LOOKUP_INTERVAL_MS, look_up
from pocketmq.client.options import ClientOptions
from pocketmq.client.pull.pull_service import Pull, PullMessageService
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import AUTO_CREATE_TOPIC, MASTER_ID, is_retry_topic
from pocketmq.remoting.command import SerializeType
from pocketmq.remoting.errors import PocketMQError, RemotingError
from pocketmq.remoting.fastjson import FastjsonError
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.remoting.transport.connection import Handler
from pocketmq.remoting.transport.probe import what_listens
from pocketmq.remoting.transport.tls import client_context

log = logging.getLogger(__name__)

# A consumer may start before its topic exists: for so long it is asked for every second.
MISSING_INTERVAL_MS = 1_000
MISSING_TIME_MS = 60_000
# The same failure of a topic's look-ups is logged once in this time.
SAY_AGAIN_MS = 60_000
NEVER_MS = 1 << 62


class GroupInUse(CallerError):
    """The group is already registered with this client id."""


class MQClientInstance:
    """Shared by the clients of one client id; see the head of the module."""

    def __init__(
        self,
        client_id: str,
        config: ClientOptions,
        *,
        random_index: Callable[[], int] | None = None,
    ) -> None:
        """random_index: fixes the random choice, for tests."""
        self.client_id = client_id
        self.config = config
        self.clock = config.clock
        self.random_index = random_index or (lambda: random.getrandbits(31))
        self.runner = Runner(f"MQClientInstance {client_id}")
        self.addresses = BrokerAddresses()
        self.routes: dict[str, TopicRoute] = {}
        self.producers: dict[str, InnerProducer] = {}
        self.consumers: dict[str, InnerConsumer] = {}
        self.processor = ClientProcessor(self)
        self.pulls = PullMessageService(self.runner, self._pull_of)
        self.api: MQClientApi
        self._look_ups = LookUps(self.runner, self._look_up, self.clock.monotonic_ms)
        # Since when a topic is subscribed and unknown, monotonic ms.
        self._missing: dict[str, int] = {}
        # Why a topic got no new route, and when that was logged, monotonic ms.
        self._reported: dict[str, tuple[str, int]] = {}
        self.presence = Presence(self)
        self._rebalance_wanted = asyncio.Event()

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Start the timers. Connections are made when first needed."""
        await self.runner.start(self._set_up)
        config, runner = self.config, self.runner
        runner.every(
            config.poll_name_server_interval_ms, self.update_all_routes, first_ms=10, name="routes"
        )
        runner.every(
            MISSING_INTERVAL_MS,
            self._look_for_missing,
            first_ms=MISSING_INTERVAL_MS,
            name="missing topics",
        )
        if config.name_server_url is not None:
            runner.every(
                LOOKUP_INTERVAL_MS,
                self.update_name_servers,
                first_ms=FIRST_LOOKUP_MS,
                name="name servers",
            )
        runner.every(
            config.heartbeat_interval_ms,
            self._clean_and_heartbeat,
            first_ms=1_000,
            name="heartbeat",
        )
        runner.every(
            config.persist_offset_interval_ms,
            self.persist_all_offsets,
            first_ms=10_000,
            name="offsets",
        )
        runner.spawn(self._rebalance_service(), name="rebalance")
        runner.spawn(self.pulls.run(), name="pull")

    async def _set_up(self, stack: AsyncExitStack) -> None:
        encoding = SerializeType[self.config.header_encoding]
        transport = self.config.transport or self._connect
        requests = ApiRequests(
            await transport(stack, self.processor.handlers()),
            self.config.name_servers,
            timeout_ms=self.config.request_timeout_ms,
            encoding=encoding,
            what_listens=None if self.config.transport else what_listens,
        )
        self.api = MQClientApi(requests)

    async def _connect(self, stack: AsyncExitStack, handlers: Mapping[int, Handler]) -> Remoting:
        tls = self.config.tls
        credentials = self.config.credentials
        client = RemotingClient(
            handlers,
            self.clock,
            connect_timeout_ms=self.config.connect_timeout_ms,
            tls=client_context() if tls is True else tls or None,
            before_send=credentials.sign if credentials else None,
            on_close=self._connection_over,
        )
        return await stack.enter_async_context(client)

    async def shutdown(self) -> None:
        """Stop all timers and close the connections; the groups were unregistered before."""
        await self.runner.stop()

    # ------------------------------------------------------------ members

    def register_producer(self, producer: InnerProducer) -> None:
        """Add a producer. Raises: GroupInUse."""
        self._check_free(self.producers, producer.group, "producer")
        self.producers[producer.group] = producer

    def register_consumer(self, consumer: InnerConsumer) -> None:
        """Add a consumer. Raises: GroupInUse."""
        self._check_free(self.consumers, consumer.group, "consumer")
        self.consumers[consumer.group] = consumer

    def _check_free(self, table: Container[str], group: str, what: str) -> None:
        if group in table:
            raise GroupInUse(
                f"{what} group {group!r} is already in use by client {self.client_id}: give this "
                f"{what} another group or another instance_name"
            )

    async def unregister_producer(self, group: str) -> None:
        """Remove a producer and notify every broker at once."""
        if self.producers.pop(group, None) is not None:
            await self.presence.unregister(group, None)

    async def unregister_consumer(self, group: str) -> None:
        if self.consumers.pop(group, None) is not None:
            await self.presence.unregister(None, group)

    def _pull_of(self, group: str) -> Pull | None:
        consumer = self.consumers.get(group)
        return None if consumer is None else consumer.pull

    # ------------------------------------------------------------ routes

    async def update_name_servers(self) -> None:
        """Look up the name servers. Raises: NameServersNotFound; the known ones are kept then."""
        url = self.config.name_server_url
        assert url is not None
        found = parse_name_servers(await asyncio.to_thread(look_up, url))
        if found != self.api.requests.name_servers:
            log.info("name servers changed from=%s to=%s", self.api.requests.name_servers, found)
            self.api.requests.name_servers = found

    async def update_all_routes(self) -> None:
        """Update the routes of all topics in use."""
        topics = {topic for each in self.consumers.values() for topic in each.subscribed_topics()}
        topics |= {topic for each in self.producers.values() for topic in each.publish_topics()}
        for topic in sorted(topics):
            await self.update_route(topic)

    async def _look_for_missing(self) -> None:
        now = self.clock.monotonic_ms()
        wanted = {topic for each in self.consumers.values() for topic in each.subscribed_topics()}
        unknown = {
            topic for topic in wanted if topic not in self.routes and not is_retry_topic(topic)
        }
        self._missing = {topic: self._missing.get(topic, now) for topic in sorted(unknown)}
        await self.look_for(
            [topic for topic, since_ms in self._missing.items() if now - since_ms < MISSING_TIME_MS]
        )

    async def look_for(self, topics: Iterable[str]) -> None:
        """Query topics that had no route; one that exists now is consumed at once."""
        found = False
        for topic in topics:
            try:
                await self.fetch_route(topic)
            except (PocketMQError, FastjsonError):
                # The usual look at the routes says so in the log.
                continue
            found = True
        if found:
            await self.heartbeat_all()
            self.rebalance_now()

    async def update_route(self, topic: str) -> bool:
        """Query the topic's route and apply it; return whether it is known now.

        A failure is logged and keeps the known route.
        """
        try:
            await self.fetch_route(topic)
        except (PocketMQError, FastjsonError) as error:
            # Both are asked for whether or not they exist.
            if not is_retry_topic(topic) and topic != AUTO_CREATE_TOPIC:
                self._say_no_route(topic, error)
        return topic in self.routes

    def _say_no_route(self, topic: str, error: Exception) -> None:
        now = self.clock.monotonic_ms()
        reason, wait_ms = repr(str(error)), SAY_AGAIN_MS
        if isinstance(error, NoRoute) and topic not in self.routes:
            # Said once: it is looked for again and again.
            reason = f"it does not exist yet. A first send may create it, or: pocketmq topic create {topic}"
            wait_ms = NEVER_MS
        before, since_ms = self._reported.get(topic, ("", 0))
        again = reason == before and now - since_ms < wait_ms
        if not again:
            self._reported[topic] = reason, now
        log.log(
            logging.DEBUG if again else logging.WARNING,
            "no new route topic=%s reason=%s",
            topic,
            reason,
        )

    def broker_failed(self, topic: str, error: PocketMQError) -> None:
        """Look for another route of a topic, if its broker's name may have another master (look_ups.py)."""
        if isinstance(error, (RemotingError, BrokerUnknown, BrokerNotServing)):
            self._look_ups.broker_failed(topic, self.routes.get(topic))

    async def fetch_route(self, topic: str) -> TopicRoute:
        """Like update_route, but raise NoRoute and request errors."""
        return await self._look_ups.route(topic)

    async def _look_up(self, topic: str) -> TopicRoute:
        wanted = bool(self.consumers) or None
        route = await self.api.topic_route(topic, tell_when_known=wanted)
        self.take_route(topic, route)
        return self.routes[topic]

    def take_route(self, topic: str, route: TopicRoute) -> None:
        """Apply a route: its addresses for all, its queues for the consumers."""
        self.addresses.learn(route)
        self.presence.announce_to(each.addresses.get(MASTER_ID) for each in route.brokers)
        if self.routes.get(topic) == route:
            # Callers that compare routes by identity keep the old object.
            route = self.routes[topic]
        else:
            self.routes[topic] = route
            self._reported.pop(topic, None)
            log.info("route changed topic=%s queues=%s", topic, list(route.queues))
            if route.malformed_order:
                log.warning(
                    "entries of ORDER_TOPIC_CONFIG are malformed and mean no queues; write broker:count "
                    "topic=%s entries=%r",
                    topic,
                    route.malformed_order,
                )
        queues = route.subscribe_queues(topic)
        for consumer in list(self.consumers.values()):
            consumer.update_subscribe_info(topic, queues)

    async def route(self, topic: str) -> TopicRoute:
        """Return the route, querying it if unknown. Raises: NoRoute and request errors."""
        return self.routes.get(topic) or await self.fetch_route(topic)

    async def queue_address(self, queue: MessageQueue) -> str:
        """Return the address of a queue's broker, its master if it has one."""
        return await self.any_address(queue.topic, queue.broker_name)

    async def query_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return the group's committed offset of a queue; None if absent."""
        return await self.api.query_consumer_offset(await self.queue_address(queue), group, queue)

    async def update_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Send a member's commit one-way."""
        address = await self.queue_address(queue)
        await self.api.update_consumer_offset(address, group, queue, offset, oneway=True)

    def clean_offline_brokers(self) -> None:
        """Drop addresses that no route names any more."""
        live = {
            address
            for route in self.routes.values()
            for broker in route.brokers
            for address in broker.addresses.values()
        }
        for address in self.addresses.forget_except(live):
            self.presence.forget(address)
            log.info("removed a broker that no route names any more address=%s", address)

    # ------------------------------------------------------------ addresses

    async def master_address(self, topic: str, broker_name: str) -> str:
        """Return the address to send to. Raises: BrokerUnknown, NoRoute."""
        found = self.addresses.master(broker_name)
        if found is None and not self._look_ups.looks_again(topic):
            await self.fetch_route(topic)
            found = self.addresses.master(broker_name)
        if found is None:
            raise BrokerUnknown(
                f"broker {broker_name!r} has no master now, so topic {topic!r} cannot be written there"
            )
        return found

    async def any_address(self, topic: str, broker_name: str, broker_id: int = MASTER_ID) -> str:
        """Return the address to read from: of that broker id, else any. Raises: BrokerUnknown, NoRoute."""
        found = self.addresses.any_of(broker_name, broker_id)
        if found is None:
            await self.fetch_route(topic)
            found = self.addresses.any_of(broker_name, broker_id)
        if found is None:
            raise BrokerUnknown(
                f"no address is known for broker {broker_name!r}, which holds queues of {topic!r}"
            )
        return found

    async def broker_of_topic(self, topic: str) -> str | None:
        """Return the address of some broker of the topic, its master if it has one; None without a route."""
        if topic not in self.routes:
            await self.update_route(topic)
        route = self.routes.get(topic)
        if route is None or not route.brokers:
            return None
        broker = route.brokers[self.random_index() % len(route.brokers)]
        return broker.addresses.get(MASTER_ID) or next(iter(broker.addresses.values()), None)

    async def find_consumer_ids(self, topic: str, group: str) -> list[str] | None:
        """Return the client ids of the group, without duplicates; None if no broker answers."""
        address = await self.broker_of_topic(topic)
        if address is None:
            return None
        try:
            return list(dict.fromkeys(await self.api.consumer_ids(address, group)))
        except PocketMQError as error:
            log.warning(
                "consumer ids unknown group=%s broker=%s reason=%r", group, address, str(error)
            )
            return None

    async def check_client_in_broker(self, consumer: InnerConsumer) -> None:
        """Have a broker check the consumer's expressions. Raises: BrokerRefused."""
        for subscription in consumer.consumer_data().subscriptions:
            if subscription.is_tag:
                continue
            address = await self.broker_of_topic(subscription.topic)
            if address is not None:
                await self.api.check_client_config(
                    address, self.client_id, consumer.group, subscription.to_json()
                )

    # ------------------------------------------------------------ heartbeats

    async def _clean_and_heartbeat(self) -> None:
        self.clean_offline_brokers()
        await self.heartbeat_all()

    async def heartbeat_all(self, only: str | None = None) -> None:
        """Send heartbeats to all brokers of invariant 1, or to one of them; failures are logged."""
        await self.presence.heartbeat_all(only)

    def _connection_over(self, address: str, silent: bool) -> None:
        if silent:
            self.runner.spawn(self.presence.announce_again(address), name="heartbeat")
            return
        # Its name may have another master now, and this client may have nothing to ask of that for long.
        for topic, route in list(self.routes.items()):
            if any(each.addresses.get(MASTER_ID) == address for each in route.brokers):
                self._look_ups.broker_failed(topic, route)

    # ------------------------------------------------------------ rebalance and offsets

    def rebalance_now(self) -> None:
        """Wake the rebalance service."""
        self._rebalance_wanted.set()

    async def _rebalance_service(self) -> None:
        log.info("RebalanceService service started")
        try:
            while True:
                try:
                    async with asyncio.timeout(self.config.rebalance_interval_ms / 1000):
                        await self._rebalance_wanted.wait()
                except TimeoutError:
                    pass
                self._rebalance_wanted.clear()
                await self.do_rebalance()
        finally:
            log.info("RebalanceService service end")

    async def do_rebalance(self) -> None:
        """Rebalance every consumer; a failing one does not stop the others (S6)."""
        for consumer in list(self.consumers.values()):
            try:
                await consumer.do_rebalance()
            except Exception:
                log.exception("cannot rebalance, will try again group=%s", consumer.group)

    async def persist_all_offsets(self) -> None:
        for consumer in list(self.consumers.values()):
            try:
                await consumer.persist_offsets()
            except (OSError, PocketMQError) as error:
                log.warning(
                    "could not persist offsets, will retry group=%s reason=%r",
                    consumer.group,
                    str(error),
                )
