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
from pocketmq.remoting.errors import PocketMQError

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
