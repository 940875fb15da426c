"""Broker: one store, its managers, their processors and a server, composed. Source: BrokerController.

    async with Broker(config, store_config, clock=SystemClock(), name_server=local) as broker:
        ...                                   # a client can send: broker.address, broker.store

Entering: lock and recover the store, load config/*.json, listen, register. Leaving is the reverse:
unregister, stop listening, answer nothing more, save the tables, close the store cleanly.
"""

import asyncio
import logging
import os
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from pocketmq.broker.acl import PlainAccessValidator
from pocketmq.broker.config import BrokerConfig, check_role
from pocketmq.broker.config_manager import ConfigManager
from pocketmq.broker.consumer_manager import ConsumerGroup, ConsumerManager
from pocketmq.broker.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.delivery_record import DeliveryRecord, EventKind
from pocketmq.broker.group_mode import GroupMode, GroupModes
from pocketmq.broker.guard import GroupGuard
from pocketmq.broker.isolate import IsolatedGroups, first_match_in
from pocketmq.broker.long_polling import LongPolling
from pocketmq.broker.message_put import MessagePut
from pocketmq.broker.message_track import MessageTracks
from pocketmq.broker.pop.assignment import TopicRoutes
from pocketmq.broker.pop.order_info import ConsumerOrderInfo
from pocketmq.broker.pop.pop_state import QueueOf
from pocketmq.broker.pop.request_mode import MessageRequestModeManager
from pocketmq.broker.pop.service import PopService
from pocketmq.broker.processors.admin import admin_handlers
from pocketmq.broker.processors.client_manage import ClientManageProcessor
from pocketmq.broker.processors.consumer_manage import ConsumerManageProcessor
from pocketmq.broker.processors.group_doctor import GroupDoctorProcessor
from pocketmq.broker.processors.message_track import MessageTrackProcessor
from pocketmq.broker.processors.pop import PopMessageProcessor
from pocketmq.broker.processors.pop_ack import PopAckProcessor
from pocketmq.broker.processors.pop_assignment import PopAssignmentProcessor
from pocketmq.broker.processors.pull import PullMessageProcessor
from pocketmq.broker.processors.recall import RecallMessageProcessor
from pocketmq.broker.processors.reply import ReplyMessageProcessor
from pocketmq.broker.processors.send import SendMessageProcessor
from pocketmq.broker.processors.send_back import SendBackProcessor
from pocketmq.broker.processors.timer import TimerProcessor
from pocketmq.broker.processors.transaction import EndTransactionProcessor
from pocketmq.broker.producer_manager import ProducerManager
from pocketmq.broker.rebalance_lock import RebalanceLock
from pocketmq.broker.registration import BrokerIdentity, LocalNameServer, Registration
from pocketmq.broker.role import Role, Service
from pocketmq.broker.sql92.bloom import BloomFilter
from pocketmq.broker.sql92.consumer_filter import ConsumerFilterManager
from pocketmq.broker.stats import BrokerStats, Totals
from pocketmq.broker.strict import StrictGroups
from pocketmq.broker.subscription_group import SubscriptionGroupManager
from pocketmq.broker.topic_config import TopicConfigManager
from pocketmq.broker.transaction_check import HalfMessages, TransactionCheck
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.clock import Clock, SystemClock
from pocketmq.remoting.connection import Connection, Handler, not_supported
from pocketmq.remoting.message_codec import pack_address
from pocketmq.remoting.names import TIMER_TOPIC
from pocketmq.remoting.requests import REQUESTS, Access, Server, complete
from pocketmq.remoting.server import RemotingServer
from pocketmq.remoting.tls import ServerTls
from pocketmq.store import ConfigFile, DelayService, MessageStore, StoreConfig, StoreError
from pocketmq.store.timer import TimerService

log = logging.getLogger(__name__)

_TICK_MS = 1_000
HOUSEKEEPING_INTERVAL_MS = 10_000
_FAST_PORT_DISTANCE = 2
_ANY_ADDRESSES = ("0.0.0.0", "::", "")


class Broker:
    """One broker process's worth. Its parts are attributes once it is entered; nobody is given `self`.

    address: `ip:port` that clients are told. store, topics, groups, consumers, producers, offsets,
    locks, filters, stats, long_polling, delay, timer, put, half, registration, modes, guard, strict,
    isolated, deliveries, tracks: see their modules.
    """

    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    consumers: ConsumerManager
    producers: ProducerManager
    offsets: ConsumerOffsetManager
    locks: RebalanceLock
    filters: ConsumerFilterManager
    stats: BrokerStats
    long_polling: LongPolling
    delay: DelayService
    timer: TimerService
    put: MessagePut
    half: HalfMessages
    modes: GroupModes
    guard: GroupGuard
    strict: StrictGroups
    request_modes: MessageRequestModeManager
    order_info: ConsumerOrderInfo
    pop: PopService
    isolated: IsolatedGroups
    deliveries: DeliveryRecord
    tracks: MessageTracks
    registration: Registration
    identity: BrokerIdentity
    server: RemotingServer
    address: str
    listen_address: str

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        *,
        clock: Clock | None = None,
        name_server: LocalNameServer | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        """name_server: the one of this process, told by calls; others come from namesrvAddr.

        Raises: IllegalArgument for a role that needs replication.
        """
        check_role(config)
        self.config = config
        self.role = Role()
        self.store_config = store_config
        self.clock: Clock = clock or SystemClock()
        self._name_server = name_server
        self._tls = tls
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Bind, open the store, load, serve, register.

        Raises: OSError (address in use), StoreError (locked, foreign, unreadable).
        """
        async with AsyncExitStack() as stack:
            await self._enter(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(exc_type, exc, traceback)
        log.info("broker stopped name=%s", self.config.broker_name)

    async def _enter(self, stack: AsyncExitStack) -> None:
        self._acl = self._make_acl()
        # The port stands in every record, so it is bound before the store opens; it is listened on,
        # that is, clients get in, when everything else is there.
        sockets = self._bind(stack)
        ip, port = self._advertised(sockets[0])
        self.address = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
        self.listen_address = _socket_text(sockets[0])
        store_host = pack_address(ip, port)
        self.store = await stack.enter_async_context(
            MessageStore(self.store_config, clock=self.clock, store_host=store_host)
        )
        self._make_managers(store_host)
        for manager in self._managers:
            manager.load()
            stack.callback(self._save_if_dirty, manager)
        stack.callback(self.deliveries.settle)
        stack.callback(self.pop.settle)
        self.delay.load()
        self.timer.load()
        stack.callback(self.timer.close)
        self.half.load()
        self.pop.load()
        client = await stack.enter_async_context(RemotingClient({}, self.clock))
        self._make_registration(client, ip, port)
        handlers = self._make_handlers(store_host)
        default: Handler = not_supported
        if self._acl is not None:
            guarded, message_at = self._acl.guarded, self.store.message_at
            for code, handler in handlers.items():
                handlers[code] = guarded(handler, REQUESTS[code].access, message_at)
            # Whoever signs is told what is not served.
            default = guarded(not_supported, Access(), message_at)
        self.server = await stack.enter_async_context(
            RemotingServer(
                handlers,
                self.clock,
                default_handler=default,
                on_close=self._connection_closed,
                tls=self._tls,
                frame_size_max=self.config.frame_max_length,
                idle_ms=self.config.server_channel_max_idle_time_seconds * 1000,
            )
        )
        stack.callback(self.long_polling.release)
        stack.callback(self.pop.release)
        stack.push_async_callback(self._send.drain)
        loop = asyncio.get_running_loop()
        self.long_polling.call_soon = loop.call_soon
        self.store.on_arrival = self.long_polling.arrived
        self.store.awaited = self.long_polling.polling
        for polling in (self.pop.polling, self.pop.notifications):
            polling.call_soon = loop.call_soon
            polling.on_hold = self._pop_waits
        if self.config.enable_calc_filter_bit_map:
            self.store.bit_map_of = self.filters.bit_map_of
        tasks = await asyncio.TaskGroup().__aenter__()
        # Not given the body's exception: it goes on as itself, not inside an ExceptionGroup.
        stack.push_async_callback(tasks.__aexit__, None, None, None)
        start = tasks.create_task
        services = (
            Service("delay", self.delay.run),
            Service("timer", self.timer.run),
            Service("pop", self.pop.run),
            Service("transaction-check", self._check.run),
        )
        self.role.begin(services, handlers, tasks)
        stack.push_async_callback(self.role.stop)
        running = [
            start(self.long_polling.watch(), name="long-polling"),
            start(self._tick(), name="broker-tick"),
        ]
        for task in running:
            stack.callback(task.cancel)
        for sock in sockets:
            await self.server.listen(sock=sock)
        await self.registration.start()
        stack.push_async_callback(self.registration.stop)
        renewing = start(self.registration.run(), name="registration")
        stack.callback(renewing.cancel)
        log.info(
            "broker serves name=%s cluster=%s address=%s store=%s",
            self.config.broker_name,
            self.config.broker_cluster_name,
            self.address,
            self.store_config.store_path_root_dir,
        )

    def _make_acl(self) -> PlainAccessValidator | None:
        """What checks requests, where that is wanted. Raises: IllegalArgument for a bad file."""
        config = self.config
        if not config.acl_enable:
            return None
        folder = Path(self.store_config.store_path_root_dir) / "config"
        path = Path(config.acl_file) if config.acl_file else folder / "plain_acl.yml"
        return PlainAccessValidator(path, self.clock.monotonic_ms)

    # ------------------------------------------------------------ addresses

    def _bind(self, stack: AsyncExitStack) -> list[socket.socket]:
        """The listening port, and the fast one 2 below it when that is free. Raises: OSError."""
        config = self.config
        sockets = [_bound(config.listen_address, config.listen_port)]
        stack.callback(sockets[0].close)
        if config.fast_listen_enable and config.listen_port > _FAST_PORT_DISTANCE:
            port = config.listen_port - _FAST_PORT_DISTANCE
            try:
                sockets.append(_bound(config.listen_address, port))
            except OSError as error:
                log.info("fast port not listened on port=%d reason=%s", port, error)
            else:
                stack.callback(sockets[1].close)
        return sockets

    def _advertised(self, sock: socket.socket) -> tuple[str, int]:
        """IP and port that clients are told; the settings are completed with it."""
        host, port = sock.getsockname()[:2]
        ip = self.config.broker_ip1
        if not ip:
            ip = _local_address() if host in _ANY_ADDRESSES else host
        elif not _is_ip(ip):
            ip = socket.gethostbyname(ip)
        self.config.broker_ip1 = ip
        self.config.broker_ip2 = self.config.broker_ip2 or ip
        self.config.listen_port = port
        return ip, port

    # ------------------------------------------------------------ composition

    def _make_managers(self, store_host: bytes) -> None:
        config, clock, store = self.config, self.clock, self.store
        folder = os.path.join(self.store_config.store_path_root_dir, "config")

        def file(name: str) -> ConfigFile:
            return ConfigFile(os.path.join(folder, name))

        self.topics = TopicConfigManager(file("topics.json"), config, clock)
        self.groups = SubscriptionGroupManager(file("subscriptionGroup.json"), config, clock)
        self.offsets = ConsumerOffsetManager(file("consumerOffset.json"))
        self.filters = ConsumerFilterManager(
            file("consumerFilter.json"),
            clock,
            BloomFilter(
                config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
            ),
            config.filter_data_clean_time_span,
        )
        self.modes = GroupModes(config, self.groups)
        self.isolated = IsolatedGroups(
            file("isolatedGroup.json"),
            clock,
            self.offsets,
            first_match_in(store),
            is_isolated=lambda group: self.modes.mode(group) is GroupMode.ISOLATE,
            keep_ms=lambda: config.isolate_keep_time,
            remember_ms=lambda: config.isolate_remember_time,
        )
        self.offsets.on_remove = self._offsets_removed
        self.offsets.on_copy = self._offset_copied
        self.strict = StrictGroups()
        self.request_modes = MessageRequestModeManager(file("messageRequestMode.json"), config)
        self.order_info = ConsumerOrderInfo(file("consumerOrderInfo.json"), clock)
        # Groups before isolated groups: those look at the groups' modes.
        self._managers: list[ConfigManager] = [
            self.topics,
            self.groups,
            self.offsets,
            self.filters,
            self.isolated,
            self.request_modes,
            self.order_info,
        ]
        self.consumers = ConsumerManager(
            clock, on_register=self.filters.register, on_unregister=self.filters.unregister
        )
        self.deliveries = DeliveryRecord(
            os.path.join(self.store_config.store_path_root_dir, "deliveries"),
            clock,
            self.consumers,
            self.offsets.query,
            size_max=lambda: config.delivery_record_size,
            filters_by_own=self.isolated.groups.__contains__,
        )
        self.guard = GroupGuard(
            clock,
            self.consumers,
            self._queue_count,
            grace_ms=lambda: config.group_guard_grace_time,
            is_watched=lambda group: self.modes.mode(group) is GroupMode.COMPATIBLE,
            holders=self.deliveries.holders,
        )
        self.tracks = MessageTracks(
            store,
            self.consumers,
            self.offsets,
            self.guard,
            clock.now_ms,
            lambda group, topic, queue_id, offset: self.pop.log.state.out_until_ms(
                QueueOf(group, topic, queue_id), offset
            ),
        )
        self.consumers.on_members = self._members_changed
        self.consumers.merge = self.isolated.merged
        self.producers = ProducerManager(clock)
        self.locks = RebalanceLock(clock)
        self.stats = BrokerStats(
            clock,
            config.broker_cluster_name,
            lambda: Totals(
                store.put_count,
                store.get_found_count,
                store.get_miss_count,
                store.get_transferred_count,
            ),
        )
        self.long_polling = LongPolling(clock, store.max_offset)
        self.isolated.on_changed = self.long_polling.wake_topic
        self.delay = DelayService(store, clock)
        self.timer = TimerService(store, clock, log_file_size=config.mapped_file_size_timer_log)
        self.put = MessagePut(
            store,
            self.delay,
            self.stats,
            clock,
            self.timer if config.timer_wheel_enable else None,
            lambda: config.timer_max_delay_sec * 1000,
            lambda: self.topics.create_internal(TIMER_TOPIC, 1),
        )
        self.pop = PopService(
            config,
            store,
            self.topics,
            self.groups,
            self.offsets,
            self.put,
            self.order_info,
            clock,
            store_host=store_host,
        )
        self.half = HalfMessages(store, self.offsets, self.put, store_host=store_host)
        self._check = TransactionCheck(
            config,
            store,
            self.topics,
            self.producers,
            self.put,
            self.half,
            clock,
            store_host=store_host,
        )

    def _members_changed(self, group: ConsumerGroup) -> None:
        """Ours: what each member asks for itself, beside the group's one subscription."""
        self.isolated.members_changed(group)
        self.guard.members_changed(group)

    def _offset_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """An administrator has set a group's offset."""
        old = max(self.offsets.query(group, topic, queue_id), 0)
        self.deliveries.event(
            EventKind.RESET, (group, topic, queue_id), old, offset, "by a reset of the group"
        )
        self._offset_copied(group, topic, queue_id, offset)
        self.long_polling.wake_topic(topic)

    def _offset_copied(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A group goes on elsewhere than where its members are."""
        self.isolated.reset(group, topic, queue_id, offset)
        self.pop.offset_reset(group, topic, queue_id, offset)

    def _offsets_removed(self, group: str, topic: str) -> None:
        """A group's offsets of a topic are gone."""
        self.isolated.forget(group, topic)
        self.pop.forget(group, topic)

    def _queue_count(self, topic: str) -> int:
        """Queues of a topic that can be read here; 0 for one that does not exist."""
        found = self.topics.get(topic)
        return 0 if found is None else found.read_queue_nums

    def _make_registration(self, client: RemotingClient, ip: str, port: int) -> None:
        config = self.config
        ha_port = config.ha_listen_port or port + 1
        self.identity = BrokerIdentity(
            config.broker_cluster_name,
            config.broker_name,
            config.broker_id,
            self.address,
            f"{config.broker_ip2 or ip}:{ha_port}",
        )
        self.registration = Registration(
            config, self.identity, self.topics, client, self._name_server
        )
        self.topics.on_change.append(self.registration.topics_changed)
        self._routes = TopicRoutes(
            config.broker_name,
            self.topics,
            client,
            self.clock,
            addresses=lambda: self.registration.addresses,
            local=self._name_server,
        )

    def _make_handlers(self, store_host: bytes) -> dict[int, Handler]:
        """The table of handlers: each code stands in the processor that has its subject."""
        config, clock, store = self.config, self.clock, self.store
        self._send = SendMessageProcessor(
            config,
            store,
            self.topics,
            self.groups,
            self.stats,
            self.put,
            store_host=store_host,
            now_ms=clock.now_ms,
        )
        self._clients = ClientManageProcessor(
            config,
            self.topics,
            self.groups,
            self.consumers,
            self.producers,
            self.modes,
            self.strict,
            self.isolated,
            self.role,
        )
        consumer_manage = ConsumerManageProcessor(
            store, self.consumers, self.offsets, self.locks, self.isolated, self.deliveries
        )
        table: dict[int, Handler] = {}
        for part in (
            self._send.handlers(),
            SendBackProcessor(
                config, store, self.topics, self.groups, self.stats, self.put, self.deliveries
            ).handlers(),
            ReplyMessageProcessor(
                config, self._send, self.producers, self.put, clock, store_host=store_host
            ).handlers(),
            PullMessageProcessor(
                config,
                store,
                self.topics,
                self.groups,
                self.consumers,
                self.filters,
                self.offsets,
                self.long_polling,
                self.stats,
                self.put,
                clock,
                self.strict,
                self.isolated,
                self.deliveries,
                self.role,
                store_host=store_host,
            ).handlers(),
            self._clients.handlers(),
            consumer_manage.handlers(),
            PopMessageProcessor(
                config,
                store,
                self.topics,
                self.groups,
                self.offsets,
                self.stats,
                self.pop,
                clock,
                begins_on_disk=consumer_manage.begins_on_disk,
                deliveries=self.deliveries,
                strict=self.strict,
                isolated=self.isolated,
            ).handlers(),
            PopAckProcessor(config, store, self.topics, self.offsets, self.pop, clock).handlers(),
            PopAssignmentProcessor(
                self.topics,
                self.groups,
                self.consumers,
                self.request_modes,
                self._routes,
                self.isolated,
            ).handlers(),
            MessageTrackProcessor(store, self.deliveries, self.tracks).handlers(),
            EndTransactionProcessor(config, store, self.put, self.half).handlers(),
            RecallMessageProcessor(config, self.topics, self.put, clock.now_ms).handlers(),
            TimerProcessor(config, self.timer).handlers(),
            GroupDoctorProcessor(self.consumers, self.guard, self.modes, self.isolated).handlers(),
            admin_handlers(
                config,
                store,
                self.topics,
                self.groups,
                self.offsets,
                self.consumers,
                self.producers,
                self.stats,
                self.delay,
                self.timer,
                self.put,
                clock,
                address=self.address,
                pulled_to=self.deliveries.pulled_to,
                on_config_change=self._settings_changed,
                on_reset=self._offset_reset,
            ),
        ):
            assert not table.keys() & part.keys(), "a code has two handlers"
            table.update(part)
        return complete(Server.BROKER, table)

    def _settings_changed(self, names: set[str]) -> None:
        """An administrator has changed settings while the broker runs."""
        self._send.forget_targets()
        if "brokerPermission" in names:
            self.topics.tell_again()

    # ------------------------------------------------------------ what goes on beside

    def _pop_waits(self) -> None:
        """A pop waits for messages. Before the first one does, pops cost a send nothing."""
        self.pop.wake()
        self.store.on_arrival = self._arrived
        self.store.awaited = self._awaited

    def _arrived(
        self,
        topic: str,
        queue_id: int,
        max_offset: int,
        tags_code: int,
        store_ms: int,
        properties: bytes,
    ) -> None:
        self.long_polling.arrived(topic, queue_id, max_offset, tags_code, store_ms, properties)
        self.pop.arrived(topic, queue_id, max_offset, tags_code, store_ms, properties)

    def _awaited(self, topic: str, queue_id: int) -> bool:
        return bool(self.long_polling.polling(topic, queue_id)) or self.pop.awaited(topic, queue_id)

    def _connection_closed(self, connection: Connection) -> None:
        """A client is gone: its groups know it at once (S72)."""
        self.producers.connection_closed(connection)
        self.consumers.connection_closed(connection)
        self.pop.connection_closed(connection)
        self.long_polling.connection_closed(connection)
        self.strict.connection_closed(connection)

    async def _tick(self) -> None:
        """Once a second: rates, tables that changed; every 10 s: clients that are silent."""
        monotonic_ms = self.clock.monotonic_ms
        next_housekeeping = monotonic_ms() + HOUSEKEEPING_INTERVAL_MS
        next_offsets = monotonic_ms() + self.config.flush_consumer_offset_interval
        while True:
            await asyncio.sleep(_TICK_MS / 1000)
            now = monotonic_ms()
            self.stats.tick()
            if self._acl is not None:
                self._acl.tick()
            self.guard.tick()
            self.deliveries.tick()
            for group in self.isolated.tick(self.consumers.groups):
                # Into this mode or out of it: its members share their queues anew.
                self._clients.notify_members(group.name, list(group.channels))
            if now >= next_housekeeping:
                next_housekeeping = now + HOUSEKEEPING_INTERVAL_MS
                self.producers.scan()
                self.consumers.scan()
                self.locks.scan()
            self.pop.tick()
            for manager in (self.groups, self.filters, self.isolated, self.order_info):
                await self._save_in_thread(manager)
            if now >= next_offsets:
                next_offsets = now + self.config.flush_consumer_offset_interval
                await self._save_in_thread(self.offsets, self.pop.log.end)

    async def _save_in_thread(self, manager: ConfigManager, position: int = 0) -> None:
        """Save a table that changed, as it is now; not before the log is on the disk up to `position`."""
        if not manager.dirty:
            return
        write = manager.begin_save()
        flushed = self.store.flushed(position)
        try:
            if flushed is not None:
                await asyncio.shield(flushed)
            await asyncio.get_running_loop().run_in_executor(None, write)
        except (OSError, StoreError) as error:
            manager.dirty = True
            log.error("a table could not be saved; the next try follows reason=%s", error)

    def _save_if_dirty(self, manager: ConfigManager) -> None:
        if manager.dirty:
            try:
                manager.persist()
            except OSError as error:
                log.error("a table could not be saved when the broker stopped reason=%s", error)


def _bound(host: str, port: int) -> socket.socket:
    """A bound TCP socket that does not listen yet. Raises: OSError naming the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind((host, port))
        # Linux lets two sockets bind one port while neither listens: only listening claims it.
        sock.listen(0)
    except OSError:
        sock.close()
        raise
    return sock


def _socket_text(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_ip(text: str) -> bool:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        socket.inet_pton(family, text)
    except OSError:
        return False
    return True


def _local_address() -> str:
    """An address of this machine that others can reach; loopback when there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: it only asks which address such a packet would leave from.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
