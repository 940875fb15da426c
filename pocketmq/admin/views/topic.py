"""Views: a topic for all user interfaces: its kind, its brokers, its content, its traffic.

Kinds by name. Source: TopicValidator, rocketmq-dashboard's filters.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pocketmq.admin.admin import Admin
from pocketmq.admin.settings import Counted
from pocketmq.admin.types import ClusterBroker, QueueStatus
from pocketmq.client.network.route import QueueData, TopicRoute
from pocketmq.model.names import DLQ_PREFIX, REPLY_SUFFIX, RETRY_PREFIX, is_system_topic
from pocketmq.model.tables import BrokerData
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.headers import QueryConsumeQueueHeader

_SIZES = 32

TOPIC_TYPES = (
    "NORMAL",
    "FIFO",
    "DELAY",
    "TRANSACTION",
    "UNSPECIFIED",
    "RETRY",
    "DLQ",
    "SYSTEM",
)
_BY_ATTRIBUTE = frozenset({"FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED"})


@dataclass(slots=True)
class TopicView:
    """Where a topic is and what its queues hold, from the brokers that answer."""

    route: TopicRoute
    status: list[QueueStatus]
    groups: list[str]

    @property
    def count(self) -> int:
        """Return the number of messages in all queues."""
        return count_of(self.status)

    @property
    def places(self) -> list[tuple[BrokerData, QueueData]]:
        """Return each broker of the route with its queues, by name; one without queues is left out."""
        return places_of(self.route)


@dataclass(slots=True)
class TopicTraffic:
    """Messages into a topic, and out of it to each group."""

    came: Counted
    went: dict[str, Counted]


def kind_of_topic(
    name: str, message_type: str | None = None, own: frozenset[str] = frozenset()
) -> str:
    """Return one of TOPIC_TYPES. message_type: the attribute of 5.x; own: see `own_names`.

    >>> kind_of_topic("%DLQ%g"), kind_of_topic("T"), kind_of_topic("T", "FIFO")
    ('DLQ', 'NORMAL', 'FIFO')
    """
    if name.startswith(RETRY_PREFIX):
        return "RETRY"
    if name.startswith(DLQ_PREFIX):
        return "DLQ"
    if name in own or is_system_topic(name) or name.endswith(REPLY_SUFFIX):
        return "SYSTEM"
    return message_type if message_type in _BY_ATTRIBUTE else "NORMAL"


def own_names(brokers: Iterable[ClusterBroker]) -> frozenset[str]:
    """Return the topics that brokers keep for themselves: those named after a broker or a cluster."""
    return frozenset(name for each in brokers for name in (each.cluster, each.name))


async def users_topics(admin: Admin, cluster: str | None = None) -> list[str]:
    """Return the names of user topics: no retry, dead-letter or system topics."""
    own = own_names(await admin.brokers())
    names = await admin.topics.names(cluster)
    return [each for each in names if kind_of_topic(each, None, own) == "NORMAL"]


def places_of(route: TopicRoute) -> list[tuple[BrokerData, QueueData]]:
    """See TopicView.places."""
    queues = {each.broker_name: each for each in route.queues}
    return [
        (each, queues[each.broker_name]) for each in route.brokers if each.broker_name in queues
    ]


def count_of(status: Iterable[QueueStatus]) -> int:
    """Return the number of messages in these queues."""
    return sum(each.count for each in status)


async def mean_size(admin: Admin, status: Iterable[QueueStatus]) -> float | None:
    """Return about how many bytes a message takes in the log, by the newest of the fullest queue.

    0 for an empty topic; None if its broker does not answer. One request: QUERY_CONSUME_QUEUE.
    """
    fullest = max(status, key=lambda row: row.count, default=None)
    if fullest is None or not fullest.count:
        return 0.0
    queue = fullest.queue
    first = max(fullest.min_offset, fullest.max_offset - _SIZES)
    try:
        address = next(each.address for each in await admin.site.masters(None, queue.broker_name))
        header = QueryConsumeQueueHeader(queue.topic, queue.queue_id, first, _SIZES)
        answer = await admin.site.api.requests.ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
        rows = fastjson.loads(answer.body).get("queueData") if answer.body else None
        sizes = [int(row["physicSize"]) for row in rows or ()]
    except (PocketMQError, StopIteration, KeyError, TypeError, ValueError):
        return None
    return sum(sizes) / len(sizes) if sizes else None


async def topic_view(admin: Admin, topic: str, *, partial: bool = False) -> TopicView:
    """View a topic. Raises: NoRoute. partial: leave out what cannot be obtained now."""
    route = await admin.topics.route(topic)
    status = await admin.topics.status(topic, partial=partial)
    groups: list[str] = []
    try:
        groups = await admin.topics.groups(topic)
    except PocketMQError:
        if not partial:
            raise
    return TopicView(route, status, groups)


async def topic_traffic(admin: Admin, topic: str, groups: Iterable[str]) -> TopicTraffic:
    """Return the traffic counted by the topic's brokers. Raises: NoRoute."""
    at = [address for _, address in await admin.site.masters_of(topic)]
    counted = admin.settings.counted
    return TopicTraffic(
        await counted(at, "TOPIC_PUT_NUMS", topic),
        {each: await counted(at, "GROUP_GET_NUMS", f"{topic}@{each}") for each in groups},
    )
