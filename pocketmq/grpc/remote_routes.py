"""RemoteRoutes: a topic's queues at other brokers of the cluster, each with that broker's own front.

A client that gets them in a route connects to each front itself. A broker without such a port, e.g. one of
Apache's, is left out. The name servers know the fronts' addresses (broker.announcements): each front
announces itself repeatedly, with a new number each time. If the number stays the same, the front was killed;
the first front that notices removes its entry.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pocketmq.broker.nameservers.announcements import Announcements
from pocketmq.broker.pop.assignment import TopicRoutes
from pocketmq.grpc.config import ANNOUNCE_S, NAMESPACE
from pocketmq.model.tables import countable
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.java_number import integer, number

log = logging.getLogger(__name__)

_KEPT_MS = 1_000
_SILENT_MS = 4 * ANNOUNCE_S * 1_000


class RemoteTopic(NamedTuple):
    """A topic at another broker."""

    broker: str
    host: str
    port: int
    read_queues: int
    write_queues: int
    perm: int

    @property
    def readable(self) -> bool:
        return bool(self.perm & Perm.READ)

    @property
    def writable(self) -> bool:
        return bool(self.perm & Perm.WRITE)


class RemoteRoutes:
    """The routes of the other brokers, for the broker of this name."""

    def __init__(
        self,
        broker_name: str,
        routes: TopicRoutes,
        announcements: Announcements,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._broker_name = broker_name
        self._routes = routes
        self._announcements = announcements
        self._monotonic_ms = monotonic_ms
        self._fronts: Mapping[str, str] = {}
        # Each front's last announcement, and since when it is unchanged.
        self._told: dict[str, tuple[str, int]] = {}
        self._asked_ms: int | None = None

    async def of(self, topic: str) -> list[RemoteTopic]:
        """Return them in the order of the brokers' names."""
        fronts = await self._known_fronts()
        if not fronts.keys() - {self._broker_name}:
            return []
        route = await self._routes.route(topic) or {}
        found = [
            each for data in countable(route.get("queueDatas")) for each in self._at(data, fronts)
        ]
        return sorted(found)

    def _at(self, data: Any, fronts: Mapping[str, str]) -> list[RemoteTopic]:
        try:
            name = str(data["brokerName"])
            host, _, port = fronts.get(name, "").rpartition(":")
            if name == self._broker_name or not host:
                return []
            counts = [number(data[each]) for each in ("readQueueNums", "writeQueueNums", "perm")]
            return [RemoteTopic(name, host.strip("[]"), integer(port), *counts)]
        except (KeyError, TypeError, ValueError) as error:
            log.warning("cannot read the queues of a route reason=%r", error)
            return []

    async def _known_fronts(self) -> Mapping[str, str]:
        now_ms = self._monotonic_ms()
        if self._asked_ms is None or now_ms - self._asked_ms >= _KEPT_MS:
            self._asked_ms = now_ms
            found = await self._announcements.announced(NAMESPACE)
            if found is not None:
                await self._note(found, now_ms)
        return self._fronts

    async def _note(self, found: Mapping[str, str], now_ms: int) -> None:
        for name, value in found.items():
            if self._told.get(name, ("", 0))[0] != value:
                self._told[name] = value, now_ms
        gone = {name for name in found if now_ms - self._told[name][1] >= _SILENT_MS}
        gone.discard(self._broker_name)
        self._fronts = {
            name: value.partition(" ")[0] for name, value in found.items() if name not in gone
        }
        for name in gone:
            log.info(
                "the gRPC port of broker %s no longer reports: left out of routes until it does",
                name,
            )
            del self._told[name]
            await self._announcements.announce(NAMESPACE, name, None)
