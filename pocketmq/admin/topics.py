"""TopicAdmin: create, delete, list, route, status."""

from pocketmq.admin.cluster import Cluster, unique
from pocketmq.admin.types import QueueStatus
from pocketmq.client.errors import NoRoute, RequestNotSupported, TopicNotExist
from pocketmq.client.network.namespace import check_topic
from pocketmq.client.network.route import TopicRoute
from pocketmq.model.names import AUTO_CREATE_TOPIC
from pocketmq.model.queue_json import message_queue
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting import admin_headers, fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import RemotingError

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


class TopicAdmin:
    """The operations of `admin.topics`."""

    def __init__(self, site: Cluster) -> None:
        self._site = site
        self._api = site.api

    async def create(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int = 6,
        cluster: str | None = None,
        broker: str | None = None,
        order: bool = False,
        attributes: str | None = None,
    ) -> list[str]:
        """Create or change a topic on the masters of a cluster, on one broker, or on all masters.

        order: also enter it into the name servers' order configuration. attributes: 5.x,
        `+message.type=FIFO`. Returns: names of the brokers. Raises: IllegalTopic for a name that RocketMQ
        does not allow.
        """
        check_topic(topic)
        masters = await self._site.masters(cluster, broker)
        reads = queues if read_queues is None else read_queues
        writes = queues if write_queues is None else write_queues
        header = admin_headers.CreateTopicHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=reads,
            write_queue_nums=writes,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=order,
            attributes=attributes,
        )
        names = await self._site.tell_each(
            masters, RequestCode.UPDATE_AND_CREATE_TOPIC, header, about=f"topic {topic!r}"
        )
        if order:
            await self._set_order(topic, ";".join(f"{each.name}:{writes}" for each in masters))
        return names

    async def _set_order(self, topic: str, value: str) -> None:
        header = admin_headers.PutKVConfigHeader(ORDER_NAMESPACE, topic, value)
        for address in self._api.requests.name_servers:
            await self._api.requests.ask(address, RequestCode.PUT_KV_CONFIG, header)

    async def delete(self, topic: str, *, cluster: str | None = None) -> list[str]:
        """Delete a topic from its brokers, then from every name server. Returns: names of the brokers.

        Its messages stay in the commit log until that expires; its queues and offsets are deleted.
        """
        brokers = await self._site.brokers(cluster)
        await self._site.tell_each(
            brokers,
            RequestCode.DELETE_TOPIC_IN_BROKER,
            admin_headers.DeleteTopicHeader(topic),
            about=f"topic {topic!r}",
        )
        for address in self._api.requests.name_servers:
            await self._api.requests.ask(
                address,
                RequestCode.DELETE_TOPIC_IN_NAMESRV,
                admin_headers.DeleteTopicInNamesrvHeader(topic, cluster),
                about=f"topic {topic!r}",
            )
        return unique(broker.name for broker in brokers)

    async def names(self, cluster: str | None = None) -> list[str]:
        """Return all topics, or those of a cluster, including system, retry and dead-letter topics."""
        if cluster is None:
            found = await self._api.requests.ask_name_server(
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            )
        else:
            await self._site.brokers(cluster)
            found = await self._api.requests.ask_name_server(
                RequestCode.GET_TOPICS_BY_CLUSTER, admin_headers.GetTopicsByClusterHeader(cluster)
            )
        return sorted(str(each) for each in fastjson.loads(found.body).get("topicList") or ())

    async def route(self, topic: str) -> TopicRoute:
        """Return the route: the topic's brokers and their queues. Raises: NoRoute."""
        return await self._site.route(topic)

    async def configs(self, topic: str) -> dict[str, TopicConfig]:
        """Return the topic's configuration by broker name, of the brokers that have it. Raises: NoRoute.

        A topic that was deleted at its brokers only keeps its route.
        """
        found: dict[str, TopicConfig] = {}
        for name, address in await self._site.masters_of(topic):
            try:
                answer = await self._api.requests.ask(
                    address,
                    RequestCode.GET_TOPIC_CONFIG,
                    admin_headers.GetTopicConfigHeader(topic),
                    about=f"topic {topic!r}",
                )
                data = fastjson.loads(answer.body)
            except TopicNotExist:
                continue
            except RequestNotSupported:
                # Apache 4.9 has no request for one topic.
                answer = await self._api.requests.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
                data = fastjson.loads(answer.body)["topicConfigTable"].get(topic)
            if data is not None:
                found[name] = TopicConfig.from_json(data)
        return found

    async def all_configs(
        self, *, cluster: str | None = None, partial: bool = False
    ) -> dict[str, dict[str, TopicConfig]]:
        """Return every topic's configuration by broker name. partial: skip brokers that cannot be reached."""
        masters = await self._site.masters(cluster)
        skipping = (RemotingError,) if partial else ()
        asked = self._site.ask_each(masters, RequestCode.GET_ALL_TOPIC_CONFIG, skipping=skipping)
        return {
            broker_name: {
                str(name): TopicConfig.from_json(data)
                for name, data in (told.get("topicConfigTable") or {}).items()
            }
            async for broker_name, told in asked
        }

    async def status(self, topic: str, *, partial: bool = False) -> list[QueueStatus]:
        """Return what each queue holds, of the brokers that have the topic (see configs).

        partial: leave out brokers that cannot be reached. Raises: NoRoute.
        """
        found: list[QueueStatus] = []
        async for _, told in self._site.ask_each(
            await self._site.masters_of(topic),
            RequestCode.GET_TOPIC_STATS_INFO,
            admin_headers.GetTopicStatsInfoHeader(topic),
            about=f"topic {topic!r}",
            skipping=(TopicNotExist, RemotingError) if partial else (TopicNotExist,),
        ):
            for key, row in told["offsetTable"].items():
                found.append(
                    QueueStatus(
                        message_queue(key),
                        int(row["minOffset"]),
                        int(row["maxOffset"]),
                        int(row["lastUpdateTimestamp"]),
                    )
                )
        return sorted(found, key=lambda each: each.queue)

    async def groups(self, topic: str) -> list[str]:
        """Return the groups that consume the topic now, or have offsets of it. Raises: NoRoute."""
        found: set[str] = set()
        async for _, told in self._site.ask_each(
            await self._site.masters_of(topic),
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            admin_headers.QueryTopicConsumeByWhoHeader(topic),
            about=f"topic {topic!r}",
        ):
            found.update(str(each) for each in told.get("groupList") or ())
        return sorted(found)

    async def exists(self, topic: str) -> bool:
        """Return True if the name servers know the topic."""
        try:
            await self._site.route(topic)
        except NoRoute:
            return False
        return True
