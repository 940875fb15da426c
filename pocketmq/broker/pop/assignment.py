"""Queue assignment computed by the broker (QUERY_ASSIGNMENT).

1. The queues are those of all brokers that serve the topic, by name server; without one, our own.
2. PULL: the strategy that the client names, computed as the client would itself.
3. POP: several members may pop one queue. popShareQueueNum n > 0 gives a member its own share and those of
   the n members behind it; n <= 0, or n covering all others, gives every member every broker, as queue -1.
Source: QueryAssignmentProcessor, TopicRouteInfoManager, RocketMQ 5.3.3.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pocketmq.broker.groups.allocation import STRATEGIES
from pocketmq.broker.nameservers.registration import LocalNameServer
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.model.message import MessageQueue
from pocketmq.model.tables import countable
from pocketmq.remoting import fastjson
from pocketmq.remoting.admin_headers import GetRouteInfoHeader
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.transport.client import RemotingClient

log = logging.getLogger(__name__)

# A route that came over the wire is taken for so long; Java's brokers take one for 30 s.
ROUTE_KEPT_MS = 10_000
ROUTES_KEPT_MAX = 10_000
_ASK_TIMEOUT_MS = 3_000
ALL_QUEUES = -1


class UnknownStrategy(Exception):
    """The client names an allocation strategy that the broker does not know."""


def pull_share(
    queues: Sequence[MessageQueue], members: Sequence[str], member: str, strategy: str
) -> list[MessageQueue]:
    """Apply invariant 2; `queues` and `members` are sorted. Raises: UnknownStrategy."""
    allocate = STRATEGIES.get(strategy)
    if allocate is None:
        raise UnknownStrategy(strategy)
    if member not in members:
        return []
    return allocate(queues, len(members), members.index(member))


def pop_share(
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    member: str,
    strategy: str,
    share_queue_num: int,
) -> list[MessageQueue]:
    """Apply invariant 3; each queue occurs once. Raises: UnknownStrategy."""
    count = len(members)
    if strategy not in STRATEGIES:
        raise UnknownStrategy(strategy)
    if share_queue_num <= 0 or share_queue_num >= count - 1:
        everywhere = [MessageQueue(q.topic, q.broker_name, ALL_QUEUES) for q in queues]
        return list(dict.fromkeys(everywhere))
    if member not in members:
        return []
    index = members.index(member)
    if count > len(queues):
        # More members than queues: each gets one all the same.
        return [queues[index % len(queues)]] if queues else []
    shares: list[MessageQueue] = []
    for step in range(share_queue_num + 1):
        shares += STRATEGIES[strategy](queues, count, (index + step) % count)
    return list(dict.fromkeys(shares))


def queues_of_route(topic: str, route: Any) -> list[MessageQueue]:
    """Return the readable queues of a TopicRouteData object, sorted; empty if it is malformed."""
    found: list[MessageQueue] = []
    data = route.get("queueDatas") if isinstance(route, Mapping) else None
    for queue in countable(data):
        try:
            if int(queue["perm"]) & Perm.READ:
                name = str(queue["brokerName"])
                found += [MessageQueue(topic, name, n) for n in range(int(queue["readQueueNums"]))]
        except (KeyError, TypeError, ValueError) as error:
            log.warning("cannot read the queue data of a route topic=%s reason=%r", topic, error)
    return sorted(found, key=lambda queue: (queue.broker_name.encode("utf-16-be"), queue.queue_id))


class TopicRoutes:
    """The queues of a topic in the whole cluster (invariant 1)."""

    def __init__(
        self,
        broker_name: str,
        topics: TopicConfigManager,
        client: RemotingClient,
        clock: Clock,
        *,
        addresses: Callable[[], list[str]],
        local: LocalNameServer | None,
    ) -> None:
        """addresses: name servers over the wire; local: the one of this process."""
        self._broker_name = broker_name
        self._topics = topics
        self._client = client
        self._clock = clock
        self._addresses = addresses
        self._local = local
        self._kept: dict[str, tuple[int, Mapping[str, Any]]] = {}

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return all readable queues, sorted; empty if no broker serves the topic."""
        route = await self.route(topic)
        return self._own(topic) if route is None else queues_of_route(topic, route)

    async def route(self, topic: str) -> Mapping[str, Any] | None:
        """Return TopicRouteData; empty if no broker serves the topic, None if no name server answers."""
        if self._local is not None:
            return self._local.route(topic) or {}
        addresses = self._addresses()
        if not addresses:
            return None
        now = self._clock.monotonic_ms()
        kept = self._kept.get(topic)
        if kept is not None and now - kept[0] < ROUTE_KEPT_MS:
            return kept[1]
        for address in addresses:
            found = await self._ask(address, topic)
            if found is not None:
                if len(self._kept) >= ROUTES_KEPT_MAX:
                    self._kept.clear()
                if found:
                    self._kept[topic] = now, found
                return found
        log.warning(
            "no name server answers, using an old route or the broker's own topic=%s", topic
        )
        return None if kept is None else kept[1]

    async def _ask(self, address: str, topic: str) -> Mapping[str, Any] | None:
        """Return one name server's answer; None without an answer."""
        ext = GetRouteInfoHeader(topic=topic, accept_standard_json_only=True).ext()
        command = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext)
        try:
            answer = await self._client.invoke(address, command, _ASK_TIMEOUT_MS)
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return {}
            if answer.code == ResponseCode.SUCCESS:
                route = fastjson.loads(answer.body)
                return route if isinstance(route, Mapping) else {}
            log.warning(
                "cannot get a route namesrv=%s code=%d remark=%r",
                address,
                answer.code,
                answer.remark,
            )
        except (PocketMQError, fastjson.FastjsonError) as error:
            log.warning("cannot get a route namesrv=%s topic=%s reason=%s", address, topic, error)
        return None

    def _own(self, topic: str) -> list[MessageQueue]:
        found = self._topics.get(topic)
        if found is None or not found.readable:
            return []
        return [MessageQueue(topic, self._broker_name, n) for n in range(found.read_queues)]
