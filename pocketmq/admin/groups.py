"""GroupAdmin: create, delete, list, members, progress, offsets."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pocketmq.admin.cluster import Cluster
from pocketmq.admin.types import (
    GroupConnection,
    Member,
    OffsetReset,
    QueueProgress,
    RunningInfo,
)
from pocketmq.client.errors import BrokerFailed, BrokerRefused, ConsumerNotOnline
from pocketmq.client.network.gather import together
from pocketmq.client.network.namespace import check_group
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import is_legal
from pocketmq.model.queue_json import message_queue
from pocketmq.model.subscription import SubscriptionData
from pocketmq.model.tables import GroupConfig
from pocketmq.remoting import admin_headers, fastjson, headers
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import PocketMQError, RemotingError

_CALL_TIMEOUT_MS = 15_000
_MEMBER_WITHIN_S = 5
_ASKED_TOGETHER = 64


class GroupAdmin:
    """The operations of `admin.groups`."""

    def __init__(self, site: Cluster) -> None:
        self._site = site
        self._api = site.api

    # ------------------------------------------------------------ configuration

    async def create(
        self, config: GroupConfig, *, cluster: str | None = None, broker: str | None = None
    ) -> list[str]:
        """Create or change a group on masters chosen as for topics. Returns: their names. Raises:
        IllegalGroup for a name that RocketMQ does not allow.
        """
        if not is_legal(config.group):
            check_group(config.group)
        return await self._site.tell_each(
            await self._site.masters(cluster, broker),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            None,
            fastjson.dumps(config.to_json()),
            about=f"group {config.group!r}",
        )

    async def delete(
        self,
        group: str,
        *,
        with_offsets: bool = False,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Delete a group's configuration, and its offsets if wanted. Returns: names of the brokers."""
        return await self._site.tell_each(
            await self._site.masters(cluster, broker),
            RequestCode.DELETE_SUBSCRIPTIONGROUP,
            admin_headers.DeleteSubscriptionGroupHeader(group, with_offsets, with_offsets),
            about=f"group {group!r}",
        )

    async def configs(
        self, *, cluster: str | None = None, broker: str | None = None, partial: bool = False
    ) -> dict[str, dict[str, GroupConfig]]:
        """Return every configured group by broker name. partial: skip brokers that cannot be reached."""
        masters = await self._site.masters(cluster, broker)
        skipping = (RemotingError,) if partial else ()
        asked = self._site.ask_each(
            masters, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, skipping=skipping
        )
        return {
            broker_name: {
                str(name): GroupConfig.from_json(data)
                for name, data in (told.get("subscriptionGroupTable") or {}).items()
            }
            async for broker_name, told in asked
        }

    async def names(self, *, partial: bool = False) -> list[str]:
        """Return the names of all configured groups. partial: skip brokers that cannot be reached."""
        configs = await self.configs(partial=partial)
        return sorted({name for groups in configs.values() for name in groups})

    # ------------------------------------------------------------ members

    async def connection(self, group: str) -> GroupConnection:
        """Return the group's connected consumers, from the first broker that knows them.

        Raises: ConsumerNotOnline without one.
        """
        last: PocketMQError | None = None
        for _, address in await self._site.masters_of_group(group):
            try:
                answer = await self._api.requests.ask(
                    address,
                    RequestCode.GET_CONSUMER_CONNECTION_LIST,
                    admin_headers.GetConsumerConnectionListHeader(group),
                    about=f"group {group!r}",
                )
            except (ConsumerNotOnline, RemotingError) as error:
                last = error
                continue
            return _connection(fastjson.loads(answer.body))
        assert last is not None
        raise last

    async def producers(self, group: str) -> list[Member]:
        """Return the group's connected producers; [] without one."""
        found: dict[str, Member] = {}
        async for _, told in self._site.ask_each(
            await self._site.masters(),
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            admin_headers.GetProducerConnectionListHeader(group),
            about=f"group {group!r}",
            skipping=(BrokerFailed,),
        ):
            for data in told.get("connectionSet") or ():
                member = Member.from_json(data)
                found[member.client_id] = member
        return [found[client_id] for client_id in sorted(found)]

    async def all_producers(self) -> dict[str, list[dict[str, Any]]] | None:
        """Return every producer by group, from GET_ALL_PRODUCER_INFO; None if no broker supports it (4.9).

        Each: {"clientId", "language", "lastUpdateTimestamp", "remoteIP", "version"}.
        """
        found: dict[str, dict[str, dict[str, Any]]] = {}
        answered = False
        async for _, told in self._site.ask_each(
            await self._site.masters(),
            RequestCode.GET_ALL_PRODUCER_INFO,
            skipping=(BrokerRefused, RemotingError),
        ):
            answered = True
            for group, members in (told.get("data") or {}).items():
                for member in members:
                    found.setdefault(str(group), {})[str(member.get("clientId"))] = dict(member)
        if not answered:
            return None
        return {group: list(members.values()) for group, members in sorted(found.items())}

    async def running_info(self, group: str, client_id: str, *, stack: bool = False) -> RunningInfo:
        """Query a consumer's state: queues, caches, rates; with `stack` its threads.

        Raises: BrokerRefused (not online, no answer within 10 s).
        """
        last: PocketMQError | None = None
        for _, address in await self._site.masters_of_group(group):
            try:
                answer = await self._api.requests.ask(
                    address,
                    RequestCode.GET_CONSUMER_RUNNING_INFO,
                    headers.GetConsumerRunningInfoHeader(group, client_id, stack),
                    timeout_ms=_CALL_TIMEOUT_MS,
                    about=f"group {group!r}, client {client_id!r}",
                )
            except (BrokerRefused, RemotingError) as error:
                last = error
                continue
            return _running_info(client_id, fastjson.loads(answer.body))
        assert last is not None
        raise last

    # ------------------------------------------------------------ progress

    async def progress(
        self,
        group: str,
        topic: str | None = None,
        *,
        owners: bool = False,
        partial: bool = False,
    ) -> list[QueueProgress]:
        """Return the group's progress in each queue that it has offsets of, by queue.

        owners: also ask each member for its queues; members that do not answer have none. partial: leave
        out brokers that cannot be reached.
        """
        rows: dict[MessageQueue, QueueProgress] = {}
        async for _, told in self._site.ask_each(
            await self._site.masters_of_group(group),
            RequestCode.GET_CONSUME_STATS,
            admin_headers.GetConsumeStatsHeader(group, topic),
            about=f"group {group!r}",
            skipping=(RemotingError,) if partial else (),
        ):
            for key, row in told["offsetTable"].items():
                queue = message_queue(key)
                rows[queue] = QueueProgress(
                    queue,
                    int(row["brokerOffset"]),
                    int(row["consumerOffset"]),
                    int(row["lastTimestamp"]),
                )
        found = [rows[queue] for queue in sorted(rows)]
        if not owners:
            return found
        try:
            connection = await self.connection(group)
        except (ConsumerNotOnline, RemotingError):
            return found
        return with_owners(found, connection, await self.running_infos(group, connection.members))

    async def running_infos(self, group: str, members: Iterable[Member]) -> dict[str, RunningInfo]:
        """Query the members' state, by client id; those that do not answer soon are left out."""

        async def ask(client_id: str) -> RunningInfo | None:
            try:
                async with asyncio.timeout(_MEMBER_WITHIN_S):
                    return await self.running_info(group, client_id)
            except (PocketMQError, TimeoutError):
                return None

        asked = sorted({member.client_id for member in members})
        infos = await together(ask, asked, _ASKED_TOGETHER)
        return {client_id: info for client_id, info in zip(asked, infos, strict=True) if info}

    # ------------------------------------------------------------ offsets

    async def reset(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True, dry: bool = False
    ) -> list[OffsetReset]:
        """Reset the group to the first message stored at or after a time; -1: to the end.

        While members are online, their broker notifies them and they store the new offsets; else the offsets
        are stored from here. force: False moves backwards only. dry: only report what would be done.
        Raises: BrokerRefused if a broker has members but does not notify them.
        """
        plan = await self._plan_reset(group, topic, timestamp_ms, force=force)
        if dry:
            return plan
        header = headers.ResetOffsetHeader(topic, group, timestamp_ms, force)
        for name, address in await self._site.masters_of(topic):
            steps = [step for step in plan if step.queue.broker_name == name]
            if await self._has_members(address, group):
                await self._tell_members(name, address, header, steps)
            else:
                await self.place_all(group, {step.queue: step.new_offset for step in steps})
        return plan

    async def _has_members(self, address: str, group: str) -> bool:
        try:
            await self._api.requests.ask(
                address,
                RequestCode.GET_CONSUMER_CONNECTION_LIST,
                admin_headers.GetConsumerConnectionListHeader(group),
                about=f"group {group!r}",
            )
        except ConsumerNotOnline:
            return False
        return True

    async def _tell_members(
        self,
        broker_name: str,
        address: str,
        header: headers.ResetOffsetHeader,
        steps: Iterable[OffsetReset],
    ) -> None:
        """Have a broker send its members the new offsets. Raises: BrokerRefused."""

        async def tell() -> None:
            await self._api.requests.ask(
                address,
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                header,
                timeout_ms=_CALL_TIMEOUT_MS,
                about=f"group {header.group!r}, topic {header.topic!r}",
            )

        try:
            await tell()
        except BrokerRefused as refused:
            if refused.code != ResponseCode.SYSTEM_ERROR:
                raise
            # It says so while a queue has no committed offset: the first messages are under way still.
            begun = {step.queue for step in steps if step.old_offset}
            route = await self._site.route(header.topic)
            queues = {*route.subscribe_queues(header.topic), *route.publish_queues(header.topic)}
            first = [queue for queue in queues - begun if queue.broker_name == broker_name]
            await self.place_all(header.group, dict.fromkeys(sorted(first), 0))
            await tell()

    async def _plan_reset(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool
    ) -> list[OffsetReset]:
        old = {row.queue: row.consumer_offset for row in await self.progress(group, topic)}
        addresses = dict(await self._site.masters_of(topic))

        async def step(queue: MessageQueue) -> OffsetReset:
            address = addresses[queue.broker_name]
            if timestamp_ms < 0:
                wanted = await self._api.max_offset(address, queue)
            else:
                wanted = await self._api.search_offset(address, queue, timestamp_ms)
            known = old.get(queue, 0)
            return OffsetReset(queue, known, wanted if force or wanted < known else known)

        queues = (await self._site.route(topic)).subscribe_queues(topic)
        return await together(step, sorted(queues), _ASKED_TOGETHER)

    async def place(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store one offset, whatever it was. Online members may overwrite it with theirs."""
        await self.place_all(group, {queue: offset})

    async def place_all(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Store an offset for each queue, many requests at a time; see `place`.

        Raises: the first error, when all have ended; the others' offsets are stored.
        """
        addresses = {
            topic: dict(await self._site.masters_of(topic))
            for topic in sorted({queue.topic for queue in offsets})
        }

        async def store(queue: MessageQueue) -> PocketMQError | None:
            address = addresses[queue.topic][queue.broker_name]
            try:
                await self._api.update_consumer_offset(
                    address, group, queue, offsets[queue], oneway=False
                )
            except PocketMQError as error:
                return error
            return None

        for error in await together(store, offsets, _ASKED_TOGETHER):
            if error is not None:
                raise error

    async def copy_offsets(self, source: str, target: str, topic: str) -> list[OffsetReset]:
        """Copy `source`'s offsets of a topic to `target`."""
        rows = await self.progress(source, topic)
        old = {row.queue: row.consumer_offset for row in await self.progress(target, topic)}
        await self.place_all(target, {row.queue: row.consumer_offset for row in rows})
        return [OffsetReset(row.queue, old.get(row.queue, 0), row.consumer_offset) for row in rows]


def with_owners(
    rows: Iterable[QueueProgress], connection: GroupConnection, infos: Mapping[str, RunningInfo]
) -> list[QueueProgress]:
    """Add each queue's owner as members report; several (broadcasting, isolated) are joined by commas."""
    found: dict[MessageQueue, list[str]] = {}
    for client_id, info in infos.items():
        for queue in info.queues:
            found.setdefault(queue, []).append(client_id)
    return [
        replace(row, owner=", ".join(found[row.queue]))
        if row.queue in found
        else replace(row, shared=connection.is_shared)
        for row in rows
    ]


def _connection(data: Mapping[str, Any]) -> GroupConnection:
    members = [Member.from_json(each) for each in data.get("connectionSet") or ()]
    return GroupConnection(
        tuple(sorted(members, key=lambda member: member.client_id)),
        str(data.get("consumeType") or ""),
        str(data.get("messageModel") or ""),
        str(data.get("consumeFromWhere") or ""),
        {
            str(topic): SubscriptionData.from_json(each)
            for topic, each in (data.get("subscriptionTable") or {}).items()
        },
    )


def _running_info(client_id: str, data: Mapping[str, Any]) -> RunningInfo:
    subscriptions: Iterable[Any] = data.get("subscriptionSet") or ()
    found = [SubscriptionData.from_json(each) for each in subscriptions]
    return RunningInfo(
        client_id,
        {str(name): str(value) for name, value in (data.get("properties") or {}).items()},
        {each.topic: each for each in found},
        {message_queue(key): dict(row) for key, row in (data.get("mqTable") or {}).items()},
        {str(topic): dict(row) for topic, row in (data.get("statusTable") or {}).items()},
        data.get("jstack"),
        data,
    )
