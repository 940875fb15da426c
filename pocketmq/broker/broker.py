"""Broker: the life cycle of one broker. Source: BrokerController.

    async with Broker(config, store_config, clock=SystemClock(), name_server=local) as broker:
        ...                                   # a client can send: broker.address, broker.parts

Entering: lock and recover the store, load config/*.json, listen, register. Leaving is the reverse:
unregister, stop listening, answer nothing more, save the tables, close the store cleanly.
Its parts are listed in parts.py and created in assembly.py; this module decides when each starts and stops.
"""

import asyncio
import logging
import socket
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any, Self

from pocketmq.broker.acts.send import SendActs
from pocketmq.broker.assembly import assemble, configured_accounts, with_accounts
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.events import Events
from pocketmq.broker.ha.config import SLAVE, check_role
from pocketmq.broker.ha.introduction import signer
from pocketmq.broker.ha.outside import Outside
from pocketmq.broker.housekeeping import Housekeeping
from pocketmq.broker.nameservers.addresses import address_text, advertise, bind, bind_ha
from pocketmq.broker.nameservers.announcements import Announcements
from pocketmq.broker.nameservers.outward import NameServers
from pocketmq.broker.nameservers.registration import BrokerIdentity, LocalNameServer, Registration
from pocketmq.broker.node import Node
from pocketmq.broker.pop.assignment import TopicRoutes
from pocketmq.broker.role import Role, Service
from pocketmq.broker.services import Parts
from pocketmq.broker.wire.gate import MasterGate
from pocketmq.broker.wire.sends.send import SendMessageProcessor
from pocketmq.broker.wire.table import handlers as handlers_of
from pocketmq.broker.wire.timed import TimedHandlers
from pocketmq.files.broker_name import keep_name
from pocketmq.remoting.clock import Clock, SystemClock
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.hosts import pack_address
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.remoting.transport.connection import Handler
from pocketmq.remoting.transport.server import RemotingServer
from pocketmq.remoting.transport.tls import ServerTls
from pocketmq.store import MessageStore, StoreConfig

if TYPE_CHECKING:
    from pocketmq.broker.assembly import AccessChecks

log = logging.getLogger(__name__)


class Broker:
    """One broker: its settings, its role and, once entered, its parts and its server.

    address: `ip:port` advertised to clients; listen_address: where it listens. parts, server,
    outward: see their modules. No other object gets `self`.
    """

    parts: Parts
    server: RemotingServer
    outward: NameServers
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
        """name_server: the one in this process, called directly; others come from namesrvAddr.

        Raises: IllegalArgument if the role and the broker id do not go together.
        """
        if config.enable_controller_mode:
            from pocketmq.broker.election import replication  # not at every start: it takes time

            replication.begin_undecided(config)
        check_role(config)
        self.config = config
        self.store_config = store_config
        self.clock: Clock = clock or SystemClock()
        self.role = Role()
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

    async def __aexit__(self, *raised: Any) -> None:
        await self._stack.__aexit__(*raised)
        log.info("broker stopped name=%s", self.config.broker_name)

    async def _enter(self, stack: AsyncExitStack) -> None:
        acl = configured_accounts(self.config, self.store_config.store_path_root_dir)
        # The port stands in every record, so it is bound before the store opens; it is listened on,
        # that is, clients get in, when everything else is there.
        bound = stack.enter_context(ExitStack())
        sockets = bind(self.config, bound)
        node = self._node(sockets[0], acl)
        ha_sock = bind_ha(self.config, self.config.listen_port, bound)
        store = MessageStore(
            self.store_config,
            clock=self.clock,
            store_host=node.store_host,
            arrivals=node.events.arrivals,
        )
        store.opens_following = self.config.broker_role == SLAVE
        await stack.enter_async_context(store)
        self.parts = parts = assemble(node, store)
        stack.push_async_callback(parts.services.replication.stop)
        housekeeping = Housekeeping(parts, None if acl is None else acl.tick)
        self._load(stack, housekeeping)
        client = await stack.enter_async_context(self._make_client())
        handlers = await self._serve(stack, acl, client)
        tasks = await asyncio.TaskGroup().__aenter__()
        # The body's exception is not passed in: it propagates as itself, not in an ExceptionGroup.
        stack.push_async_callback(tasks.__aexit__, None, None, None)
        start = tasks.create_task
        services = parts.services
        masters = (
            Service("delay", services.delay.run),
            Service("timer", services.timer.run),
            Service("schedules", services.schedules.run),
            *(Service("pop", services.pop.run), Service("lite", services.lite.run)),
            Service("transaction-check", services.check.run),
        )
        leads = not services.replication.follows
        self.role.begin(masters, MasterGate(handlers), tasks, leads=leads)
        stack.push_async_callback(self.role.stop)
        running = [
            start(services.long_polling.watch(), name="long-polling"),
            start(housekeeping.run(), name="housekeeping"),
            start(parts.reports.run(), name="member-reports"),
            start(parts.balances.run(), name="balances"),
            start(services.replication.run(), name="replicas"),
            start(parts.tables.topics.saving(store.side_tasks), name="save-topics"),
            start(parts.tables.groups.saving(store.side_tasks), name="save-groups"),
            start(parts.tables.changed.saving(store.side_tasks), name="save-settings"),
        ]
        for task in running:
            stack.callback(task.cancel)
        for sock in sockets:
            await self.server.listen(sock=sock)
        if self.config.enable_controller_mode:
            self.registration.begin_later()
        await self.registration.start()
        outside = Outside(self.registration, self.server, client, tasks)
        await services.replication.start(ha_sock, outside)
        stack.push_async_callback(services.replication.leave)
        stack.push_async_callback(self.registration.stop)
        stack.callback(start(self.registration.run(store.side_tasks), name="registration").cancel)
        stack.push_async_callback(services.replication.hand_over)
        log.info(
            "broker serves name=%s cluster=%s address=%s store=%s",
            *(self.config.broker_name, self.config.broker_cluster_name, self.address),
            self.store_config.store_path_root_dir,
        )

    def _make_client(self) -> RemotingClient:
        return RemotingClient(
            {},
            self.clock,
            before_send=signer(self.config),
            on_close=lambda address, silent: self.registration.connection_closed(address),
        )

    def _node(self, sock: socket.socket, acl: "AccessChecks | None") -> Node:
        """Return this broker's identity, now that its port is known."""
        ip, port = advertise(self.config, sock)
        self.address = address_text(ip, port)
        self.listen_address = address_text(*sock.getsockname()[:2])
        node = Node(
            config=self.config,
            clock=self.clock,
            events=Events(),
            role=self.role,
            address=self.address,
            store_host=pack_address(ip, port),
            call_soon=asyncio.get_running_loop().call_soon,
        )
        return with_accounts(node, acl)

    def _load(self, stack: AsyncExitStack, housekeeping: Housekeeping) -> None:
        """Load the saved tables; `stack` saves them. Raises: StoreError, OSError."""
        keep_name(self.store_config.store_path_root_dir, self.config.broker_name)
        services = self.parts.services
        for manager in self.parts.tables.managers:
            manager.load()
        store = self.parts.messages.store
        deleted = {topic for topic, _ in store.deleted.names()}
        for topic in deleted - self.parts.tables.topics.topics.keys():
            # A kill came before the table without them was saved.
            self.parts.tables.offsets.remove_topic(topic)
        may_have_lost = store.recovery.may_have_lost and store.following is None
        if may_have_lost:
            # Messages that groups had consumed may be lost; those that replace them are still unread.
            self.parts.tables.cut_offsets(store.next_offset)
        stack.callback(housekeeping.save_all)
        self.parts.tables.topics.restore_internal(store)
        stack.callback(self.parts.messages.deliveries.settle)
        stack.callback(services.pop.settle)
        services.delay.load()
        services.timer.load()
        stack.callback(services.timer.close)
        kept = self.parts.messages
        for part in (services.half, services.pop, kept.once, kept.lite, services.schedules):
            part.load()
        if may_have_lost:
            services.lite.cut_offsets()

    async def _serve(
        self, stack: AsyncExitStack, acl: "AccessChecks | None", client: RemotingClient
    ) -> dict[int, Handler]:
        """Create registration and server, without accepting clients yet. Returns the table of handlers."""
        parts, config, events = self.parts, self.config, self.parts.node.events
        registration = self._make_registration(client)
        events.topics_changed.to(registration.topics_changed)
        announcements = Announcements(client, lambda: registration.addresses, self._name_server)
        routes = TopicRoutes(
            config.broker_name,
            parts.tables.topics,
            client,
            self.clock,
            addresses=lambda: registration.addresses,
            local=self._name_server,
        )
        self.outward = NameServers(registration, announcements, routes)
        sends = SendActs(parts.node, parts.tables, parts.messages)
        send = SendMessageProcessor(parts.node, parts.messages, sends)
        handlers = handlers_of(parts, sends, send, routes)
        TimedHandlers(parts.messages.stats.latencies, self.clock).wrap(handlers)
        default: Handler = RemotingCommand.not_supported
        if acl is not None:
            # Imported here: a broker without accounts needs none of it.
            from pocketmq.broker.access.guard import guard

            default = guard(acl, parts, handlers)
        self.server = await stack.enter_async_context(
            RemotingServer(
                handlers,
                self.clock,
                default_handler=default,
                on_close=events.connection_closed,
                tls=self._tls,
                limits=config.connection_limits,
                frame_size_max=config.frame_max_length,
                idle_ms=config.server_channel_max_idle_time_seconds * 1000,
            )
        )
        events.settings_changed.to(self._settings_changed)
        for part in (parts.services.long_polling, parts.services.pop, parts.services.lite):
            stack.callback(part.release)
        stack.push_async_callback(send.drain)
        return handlers

    def _settings_changed(self, names: set[str]) -> None:
        if "serverChannelMaxIdleTimeSeconds" in names:
            self.server.idle_ms = self.config.server_channel_max_idle_time_seconds * 1000
        if "namesrvAddr" in names:
            self.registration.ask_again()

    @property
    def registration(self) -> Registration:
        """This broker's entry at the name servers."""
        return self.outward.registration

    def _make_registration(self, client: RemotingClient) -> Registration:
        config = self.config
        ip, _, _ = self.address.rpartition(":")
        identity = BrokerIdentity(
            config.broker_cluster_name,
            config.broker_name,
            config.broker_id,
            self.address,
            f"{config.broker_ip2 or ip}:{config.ha_listen_port}",
        )
        once = self.parts.messages.once.applies
        return Registration(
            config, identity, self.parts.tables.topics, client, self._name_server, once
        )
