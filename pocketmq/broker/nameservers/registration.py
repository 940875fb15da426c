"""Registration: this broker's entry at every name server. Source: BrokerOuterAPI, BrokerController, 4.9.7.

1. Registered once before the broker reports that it is ready, then every registerNameServerPeriod, and at
   once when a topic changes. Unregistered at a clean stop.
2. A name server of the same process is called directly, the others over one lasting connection each: when it
   closes, they drop the broker. The request that created or changed a topic is answered after that, unless
   another process takes more than a second, or is told of more than _MANY topics (TopicConfigManager).
3. An unreachable name server does not delay the others; it is told again in the next round. Ours: one that
   was lost is looked for every other second, and knows the broker soon after its restart.
"""

import asyncio
import logging
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.stored_table import resolve
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.model.data_version import DataVersion
from pocketmq.model.names import MASTER_ID
from pocketmq.model.tables import READ_WRITE, SENDS_ONCE, TopicConfig
from pocketmq.remoting import fastjson
from pocketmq.remoting.address_list import split_addresses
from pocketmq.remoting.admin_headers import (
    QueryDataVersionHeader,
    RegisterBrokerHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerHeader,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import PocketMQError, RemotingError
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.store.side_tasks import SideTasks

log = logging.getLogger(__name__)

_MANY = 1_000
_DIGITS_MAX = 10
_GATHER_S = 0.5
_LOOK_S, _LOOK_S_MAX = 0.5, 2.0


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """How name servers identify a broker; addresses are `ip:port`."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str


class LocalNameServer(Protocol):
    """The name server of the same process."""

    def register(
        self,
        identity: BrokerIdentity,
        data_version: DataVersion,
        topics: Iterable[TopicConfig],
        *,
        are_changes: bool = False,
    ) -> Mapping[str, str]:
        """Register the broker and these topics, keeping its others; return ORDER_TOPIC_CONFIG.

        are_changes: the topics have just changed; otherwise they are the whole table.
        """
        ...

    def unregister(self, identity: BrokerIdentity) -> None:
        """Remove the broker."""
        ...

    def let_go(self, identity: BrokerIdentity) -> None:
        """Keep the broker registered, but let another take its place."""
        ...

    def members(self, identity: BrokerIdentity) -> Mapping[str, str]:
        """Return the addresses of all brokers of this one's name, by id."""
        ...

    def route(self, topic: str) -> Mapping[str, Any] | None:
        """Return TopicRouteData of a topic as JSON; None if no broker serves it."""
        ...

    def announce(self, namespace: str, key: str, value: str | None) -> None:
        """Store a value for anyone to query; None deletes it. Raises: OSError."""
        ...

    def announced(self, namespace: str) -> Mapping[str, str]:
        """Return the values of a namespace by key."""
        ...


class Registration:
    """Owner of the broker's entries at name servers."""

    def __init__(
        self,
        config: BrokerConfig,
        identity: BrokerIdentity,
        topics: TopicConfigManager,
        client: RemotingClient,
        local: LocalNameServer | None,
        sends_once: Callable[[TopicConfig], bool] = lambda topic: False,
    ) -> None:
        """sends_once: whether repeated sends to a topic are recognised."""
        self._config = config
        self._sends_once = sends_once
        self.identity = identity
        self._topics = topics
        self._client = client
        self._local = local
        self._changed = asyncio.Event()
        self._is_let_go = False
        # Under a controller the epoch of the master that this broker knows last.
        self.state_version = 0
        # The first repetition comes after 10 s, as RocketMQ's.
        self.wait_ms = min(10_000, config.register_name_server_period)
        # The master's addresses by a name server's answer to a slave; empty for a master.
        self.master_address = ""
        self.master_ha_address = ""
        # Name servers that took the last registration; "" is the one of this process.
        self._taken: set[str] = set()
        # Those whose connection closed since they took one, and whether there are any.
        self._lost: set[str] = set()
        self._look = asyncio.Event()

    @property
    def is_registered(self) -> bool:
        """Return True if a name server knows the broker, as of the last answer."""
        return bool(self._taken)

    @property
    def addresses(self) -> list[str]:
        """Return the remote name servers, from namesrvAddr."""
        return split_addresses(self._config.namesrv_addr)

    async def members(self) -> dict[int, str]:
        """Return the addresses of all brokers of this one's name, by id. Raises nothing."""
        found: dict[int, str] = {}
        tables: list[Any] = []
        if self._local is not None:
            tables.append(self._local.members(self.identity))
        request = RequestCode.GET_BROKER_CLUSTER_INFO
        for address in self.addresses:
            try:
                answer = await self._client.invoke(address, RemotingCommand(request), signed=False)
                brokers = fastjson.loads(answer.body)["brokerAddrTable"]
                tables.append(brokers[self.identity.broker_name]["brokerAddrs"])
            except (OSError, PocketMQError, LookupError, TypeError, ValueError) as error:
                log.info("no brokers of this name from namesrv=%s reason=%r", address, error)
        for table in tables:
            for number, each in table.items() if isinstance(table, Mapping) else ():
                if (
                    str(number).isascii()
                    and str(number).isdecimal()
                    and len(str(number)) < _DIGITS_MAX
                ):
                    found[int(number)] = str(each)
        return found

    def topics_changed(self, changed: list[TopicConfig]) -> None:
        """Handle changed topics, as listener of TopicConfigManager (invariant 2)."""
        if self._local is not None:
            self._register_local(changed, are_changes=True)
        if self._config.namesrv_addr:
            self._changed.set()
            if changed and not self._is_let_go and len(self._topics.topics) <= _MANY:
                self._topics.hold()

    def ask_again(self) -> None:
        """Register again now: a slave knows no master, or there are other name servers."""
        self._taken &= {"", *self.addresses}
        self._changed.set()

    def connection_closed(self, address: str) -> None:
        """Look for a name server that knew the broker: it forgets it with the connection."""
        if address in self._taken:
            self._lost.add(address)
            self._look.set()

    async def become(self, identity: BrokerIdentity) -> None:
        """Register a changed role with its new id, so that routes show it at once."""
        old = self.identity
        if old.broker_id != identity.broker_id:
            await self.stop()
        self.identity = identity
        self._is_let_go = False
        self.master_address = self.master_ha_address = ""
        await self.start()

    async def renumber(self, broker_id: int, ha_address: str | None = None) -> None:
        """Register under this id without unregistering the old one, which another broker may have now."""
        self.identity = replace(
            self.identity,
            broker_id=broker_id,
            ha_address=self.identity.ha_address if ha_address is None else ha_address,
        )
        self._is_let_go = False
        await self.start()

    def let_go(self) -> None:
        """Let another broker take this one's place: it stops registering until it is renumbered."""
        self.begin_later()
        if self._local is not None:
            self._local.let_go(self.identity)

    def begin_later(self) -> None:
        """Register nowhere until this broker has a role, and so is renumbered."""
        self._is_let_go = True

    async def start(self) -> None:
        """Register everywhere once, unless another broker takes the place; failures are logged."""
        if self._is_let_go:
            return
        if self._local is not None:
            order = self._register_local(self._topics.topics.values())
            self._topics.update_order_topics(order)
        await self.register_all(check_order=True)

    async def run(self, side_tasks: SideTasks) -> None:
        """Register every period, when topics changed, and where a name server is back, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            rounds = side_tasks.repeat("registration", lambda: self._round(side_tasks))
            tasks.create_task(rounds, name="registration-rounds")
            looking = side_tasks.repeat("registration-lost", self._look_for_lost)
            tasks.create_task(looking, name="registration-lost")

    async def _look_for_lost(self) -> None:
        """Wait until a name server is lost, and register there again as soon as it is back."""
        await self._look.wait()
        self._look.clear()
        pause_s = _LOOK_S
        while lost := self._lost & set(self.addresses):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LOOK_S_MAX)
            if not self._is_let_go:
                await self._register_at_each(lost, check_order=True, force=True, quietly=True)
            self._lost -= self._taken
        self._lost.clear()

    async def _round(self, side_tasks: SideTasks) -> None:
        """Wait a period, or until topics changed, and register again."""
        try:
            async with asyncio.timeout(self.wait_ms / 1000):
                await self._changed.wait()
            changed = True
            if len(self._topics.topics) > _MANY:
                # Each registration sends all topics: let some changes gather.
                await asyncio.sleep(_GATHER_S)
        except TimeoutError:
            changed = False
        self._changed.clear()
        untold = self._topics.take_untold()
        try:
            await self._tell(side_tasks, changed=changed)
        finally:
            for waiters in untold:
                resolve(waiters)

    async def _tell(self, side_tasks: SideTasks, *, changed: bool) -> None:
        if self._is_let_go:
            return
        if not changed:
            self.wait_ms = self._config.register_name_server_period
            if self._local is not None:
                order = self._register_local(self._topics.topics.values())
                with side_tasks.attempt("registration-order-topics"):
                    self._topics.update_order_topics(order)
        await self.register_all(check_order=not changed, force=changed)

    async def stop(self) -> None:
        """Unregister everywhere; failures are logged."""
        self._taken.clear()
        if self._local is not None:
            self._local.unregister(self.identity)
        identity = self.identity
        header = UnregisterBrokerHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.address,
            cluster_name=identity.cluster,
            broker_id=identity.broker_id,
        )
        for address in self.addresses:
            command = RemotingCommand(RequestCode.UNREGISTER_BROKER, header.ext())
            try:
                await self._client.invoke(address, command, timeout_ms=3_000)
            except RemotingError as error:
                log.warning("cannot unregister namesrv=%s reason=%s", address, error)

    # ------------------------------------------------------------ in process

    def _register_local(
        self, topics: Iterable[TopicConfig], *, are_changes: bool = False
    ) -> Mapping[str, str]:
        assert self._local is not None
        self._taken.add("")
        return self._local.register(
            self.identity,
            self._version,
            [self._permitted(topic) for topic in topics],
            are_changes=are_changes,
        )

    @property
    def _version(self) -> DataVersion:
        """Return the version of the topic table, as name servers get it."""
        return replace(self._topics.data_version, state_version=self.state_version)

    def _permitted(self, topic: TopicConfig) -> TopicConfig:
        """Return the topic as reported to name servers: restricted by the broker's own permission, and with
        SENDS_ONCE.
        """
        perm = self._config.broker_permission
        more = SENDS_ONCE if self._sends_once(topic) else 0
        if perm & READ_WRITE != READ_WRITE:
            topic = TopicConfig(
                topic.topic, topic.read_queues, topic.write_queues, topic.perm & perm
            )
        return replace(topic, sys_flag=topic.sys_flag | more) if more else topic

    # ------------------------------------------------------------ over the wire

    async def register_all(self, *, check_order: bool, force: bool = True) -> None:
        if self.addresses:
            await self._register_at_each(self.addresses, check_order=check_order, force=force)

    async def _register_at_each(
        self, addresses: Iterable[str], *, check_order: bool, force: bool, quietly: bool = False
    ) -> None:
        compressed = self._config.compressed_register
        make = _compressed_body if compressed else _body
        topics = [self._permitted(topic) for topic in self._topics.topics.values()]
        version = self._version.to_json()
        if len(topics) > _MANY:
            # Half a second for 50,000 topics: beside the loop.
            loop = asyncio.get_running_loop()
            body = await loop.run_in_executor(None, make, topics, version)
        else:
            body = make(topics, version)
        force = force or self._config.force_register
        async with asyncio.TaskGroup() as tasks:
            for address in addresses:
                tasks.create_task(
                    self._register_at(address, body, compressed, check_order, force, quietly),
                    name=f"register {address}",
                )

    async def _register_at(
        self,
        address: str,
        body: bytes,
        compressed: bool,
        check_order: bool,
        force: bool,
        quietly: bool,
    ) -> None:
        identity = self.identity
        header = RegisterBrokerHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.address,
            cluster_name=identity.cluster,
            ha_server_addr=identity.ha_address,
            broker_id=identity.broker_id,
            compressed=compressed,
            body_crc32=zlib.crc32(body) & 0x7FFF_FFFF,
        )
        timeout_ms = self._config.register_broker_timeout_mills
        try:
            if not force and not await self.is_news(address, timeout_ms):
                return
            answer = await self._client.invoke(
                address,
                RemotingCommand(RequestCode.REGISTER_BROKER, header.ext(), body),
                timeout_ms,
            )
            if answer.code != ResponseCode.SUCCESS:
                log.warning(
                    "a name server refused the registration, next try follows namesrv=%s code=%d remark=%r",
                    address,
                    answer.code,
                    answer.remark,
                )
                self._taken.discard(address)
                return
            self._taken.add(address)
            self._take_answer(answer, check_order=check_order)
        except (OSError, PocketMQError) as error:
            self._taken.discard(address)
            # The rounds say it often enough.
            level = logging.DEBUG if quietly else logging.WARNING
            log.log(level, "cannot register, next try follows namesrv=%s reason=%s", address, error)

    def _take_answer(self, answer: RemotingCommand, *, check_order: bool) -> None:
        header = RegisterBrokerResponseHeader.parse(answer.ext)
        if self.identity.broker_id != MASTER_ID:
            self.master_address = header.master_addr or ""
            self.master_ha_address = header.ha_server_addr or ""
        if check_order and answer.body:
            table = fastjson.loads(answer.body)
            order = table.get("table") if isinstance(table, Mapping) else None
            if isinstance(order, Mapping):
                self._topics.update_order_topics([str(topic) for topic in order])

    async def is_news(self, address: str, timeout_ms: int) -> bool:
        """Return True if the name server has a DataVersion other than ours (forceRegister=false)."""
        identity = self.identity
        header = QueryDataVersionHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.address,
            cluster_name=identity.cluster,
            broker_id=identity.broker_id,
        )
        body = fastjson.dumps(self._version.to_json())
        answer = await self._client.invoke(
            address,
            RemotingCommand(RequestCode.QUERY_DATA_VERSION, header.ext(), body),
            timeout_ms,
        )
        known = (answer.ext or {}).get("changed") == "false"
        return answer.code != ResponseCode.SUCCESS or not known


def _body(topics: list[TopicConfig], version: dict[str, int]) -> bytes:
    return fastjson.dumps(
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": version,
                "topicConfigTable": {topic.topic: topic.to_json() for topic in topics},
            },
        }
    )


def _compressed_body(topics: list[TopicConfig], version: dict[str, int]) -> bytes:
    """Encode a registration as RegisterBrokerBody.encode with compress: length-prefixed texts, deflated."""
    parts = [_text(fastjson.dumps(version)), struct.pack(">i", len(topics))]
    for topic in topics:
        line = (
            f"{topic.topic} {topic.read_queues} {topic.write_queues} {topic.perm} "
            f"{topic.filter_type}"
        )
        parts.append(_text(line.encode()))
    parts.append(_text(b"[]"))
    return zlib.compress(b"".join(parts))


def _text(raw: bytes) -> bytes:
    return struct.pack(">i", len(raw)) + raw
