"""Presence: what the brokers know of a client instance: heartbeats, and leaving.

1. Heartbeats go to every broker if there is a consumer, otherwise to masters only.
2. A broker whose connection leads nowhere gets one at once by another: it reaches the client by that one
   only, and what waits on the old one ends when the new one works.
3. A master that a route names for the first time gets one at once: it takes over the groups of another, and
   can neither check their transactions nor share out their queues before it has heard of them. PocketMQ only:
   Java's clients wait for their next heartbeat, up to 30 s.
Source: MQClientInstance.sendHeartbeatToAllBroker, RocketMQ 4.9.7.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from pocketmq.client.inner import SharedInstance
from pocketmq.client.network.heartbeat import heartbeat_body
from pocketmq.model.names import MASTER_ID
from pocketmq.remoting.codes import Version
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

ANNOUNCE_MS = 10_000
"""A broker that does not answer gets at most one of invariant 2's heartbeats in that time."""


class Presence:
    """Owner: MQClientInstance. Knows which brokers have heard of it, with their versions."""

    def __init__(self, instance: SharedInstance) -> None:
        self._instance = instance
        self._versions: dict[str, int] = {}
        self._announced_ms: dict[str, int] = {}
        self._probed: set[str] = set()
        # Brokers that have been told, or are being told, of this client.
        self._known: set[str] = set()
        self._one = asyncio.Lock()

    def _body(self) -> bytes:
        instance = self._instance
        return heartbeat_body(
            instance.client_id,
            instance.producers,
            [each.consumer_data() for each in instance.consumers.values()],
        )

    async def heartbeat_all(self, only: str | None = None) -> None:
        """Send heartbeats to all brokers of invariant 1, or to one of them; failures are logged."""
        instance = self._instance
        async with self._one:
            if not instance.producers and not instance.consumers:
                return
            body = self._body()

            async def beat(address: str) -> None:
                answer = await instance.api.heartbeat(address, body)
                if address not in self._versions:
                    log.info("heartbeat accepted broker=%s version=%s", address, answer.version)
                self._versions[address] = answer.version
                self._known.add(address)

            wanted = [
                address
                for _, number, address in instance.addresses.all()
                if (instance.consumers or number == MASTER_ID) and only in (None, address)
            ]
            await _each(wanted, beat, "heartbeat")

    def probe(self, address: str) -> None:
        """Send a heartbeat to a broker from which nothing comes: whether it lives."""
        if address not in self._probed:
            self._probed.add(address)
            self._instance.runner.spawn(self._probe(address), name="probe")

    async def _probe(self, address: str) -> None:
        try:
            await self._instance.api.heartbeat(address, self._body())
        except PocketMQError as error:
            log.warning("no sign of life broker=%s reason=%r", address, str(error))
        finally:
            self._probed.discard(address)

    async def announce_again(self, address: str) -> None:
        """Apply invariant 2."""
        now_ms = self._instance.clock.monotonic_ms()
        if now_ms - self._announced_ms.get(address, now_ms - ANNOUNCE_MS) >= ANNOUNCE_MS:
            self._announced_ms[address] = now_ms
            await self.heartbeat_all(address)

    def announce_to(self, masters: Iterable[str | None]) -> None:
        """Apply invariant 3, once the brokers that were known at the start have heard of this client."""
        for address in set(masters) if self._versions else ():
            if address is not None and address not in self._known:
                self._known.add(address)
                self._instance.runner.spawn(self.heartbeat_all(address), name="heartbeat")

    async def unregister(self, producer_group: str | None, consumer_group: str | None) -> None:
        """Remove a group at the brokers that have heard of this client."""
        instance = self._instance

        async def tell(address: str) -> None:
            await instance.api.unregister(
                address, instance.client_id, producer_group, consumer_group
            )

        await _each(list(self._versions), tell, "unregister")

    def forget(self, address: str) -> None:
        """Drop a broker that no route names any more."""
        self._versions.pop(address, None)
        self._announced_ms.pop(address, None)
        self._known.discard(address)

    def knows_sql(self, address: str) -> bool:
        """Return True if the broker supports other expressions than tags, by its heartbeat (wire.md 1.5)."""
        version = self._versions.get(address)
        return version is None or version >= Version.V4_1_0_SNAPSHOT


async def _each(
    addresses: Iterable[str], action: Callable[[str], Awaitable[None]], what: str
) -> None:
    """Run `action` at all addresses concurrently; a failure is logged and does not affect the others."""

    async def guarded(address: str) -> None:
        try:
            await action(address)
        except PocketMQError as error:
            log.warning("%s failed broker=%s reason=%r", what, address, str(error))

    async with asyncio.TaskGroup() as group:
        for address in addresses:
            group.create_task(guarded(address))
