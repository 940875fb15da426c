"""Views: one account of a topic for all faces: its kind, where it is, what it holds, its traffic.

Kinds by name. Source: TopicValidator, rocketmq-dashboard's filters.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pocketmq.admin.admin import Admin
from pocketmq.admin.settings import Counted
from pocketmq.admin.types import ClusterBroker, QueueStatus
from pocketmq.client.route import QueueData, TopicRoute
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.names import DLQ_PREFIX, REPLY_SUFFIX, RETRY_PREFIX, is_system_topic
from pocketmq.remoting.tables import BrokerData

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
    """Where a topic is and what its queues hold, as far as brokers answer."""

    route: TopicRoute
    status: list[QueueStatus]
    groups: list[str]

    @property
    def count(self) -> int:
        """Messages in all queues."""
        return count_of(self.status)

    @property
    def places(self) -> list[tuple[BrokerData, QueueData]]:
        """Each broker of the route with its queues, by name; one without queues is left out."""
        return places_of(self.route)


@dataclass(slots=True)
class TopicTraffic:
    """What came into a topic, and what went out of it to each group."""

    came: Counted
    went: dict[str, Counted]


def kind_of_topic(
    name: str, message_type: str | None = None, own: frozenset[str] = frozenset()
) -> str:
    """One of TOPIC_TYPES. message_type: the attribute of 5.x; own: see `own_names`.

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
    """Topics that brokers keep for themselves: a broker's and a cluster's name are such."""
    return frozenset(name for each in brokers for name in (each.cluster, each.name))


async def users_topics(admin: Admin, cluster: str | None = None) -> list[str]:
    """Names of the topics that users made: no retries, no dead letters, none of the system."""
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
    """Messages that these queues hold."""
    return sum(each.count for each in status)


async def topic_view(admin: Admin, topic: str, *, partial: bool = False) -> TopicView:
    """Raises: NoRoute. partial: leave out what cannot be learned now."""
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
    """As the counters of the topic's brokers have it. Raises: NoRoute."""
    at = [address for _, address in await admin.site.masters_of(topic)]
    counted = admin.settings.counted
    return TopicTraffic(
        await counted(at, "TOPIC_PUT_NUMS", topic),
        {each: await counted(at, "GROUP_GET_NUMS", f"{topic}@{each}") for each in groups},
    )
