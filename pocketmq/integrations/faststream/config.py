"""The configurations of brokers, subscribers and publishers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from faststream import AckPolicy
from faststream._internal.configs import (
    BrokerConfig,
    PublisherSpecificationConfig,
    PublisherUsecaseConfig,
    SubscriberSpecificationConfig,
    SubscriberUsecaseConfig,
)
from faststream._internal.constants import EMPTY
from faststream.exceptions import IncorrectState

from pocketmq.admin import Admin
from pocketmq.client import ConsumeFromWhere, Producer, SimpleConsumer
from pocketmq.integrations.faststream.producer import PocketProducer
from pocketmq.integrations.faststream.response import PublishingOptions
from pocketmq.integrations.queue_names import topic_of
from pocketmq.remoting.settings import nearest

# What programs say, and the fields of the configuration.
_FIELDS = {
    "ack_policy": "ack_policy",
    "codec": "broker_codec",
    "decoder": "broker_decoder",
    "dependencies": "broker_dependencies",
    "graceful_timeout": "graceful_timeout",
    "id_generator": "id_generator",
    "include_in_schema": "include_in_schema",
    "middlewares": "broker_middlewares",
    "parser": "broker_parser",
}


def take_config(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of brokers and routers out, and return the fields that they are."""
    return {_FIELDS[name]: options.pop(name) for name in _FIELDS.keys() & options.keys()}


def check_taken(options: Mapping[str, Any], others: Iterable[str]) -> None:
    """Check that no option is left over. Raises: TypeError, naming the nearest, also of others."""
    for name in options:
        raise TypeError(f"there is no option {name!r}{nearest(name, {*_FIELDS, *others})}")


@dataclass(kw_only=True)
class PocketBrokerConfig(BrokerConfig):
    """Of a broker or router; the clients are the broker's.

    client_options: of pocketmq.client, for all clients. queues: of topics that they create.
    """

    producer: PocketProducer = field(default_factory=PocketProducer)
    group: str = "faststream"
    queues: int = 1
    client_options: dict[str, Any] = field(default_factory=dict)
    sender: Producer | None = field(default=None, init=False)

    async def open(self) -> Producer:
        """Connect the producer. Raises: PocketMQError."""
        self.sender = Producer(
            f"{self.group}_producers",
            default_topic_queue_nums=self.queues,
            **self.client_options,
        )
        await self.sender.start()
        self.producer.connect(self.sender, self.fd_config._serializer, self.broker_codec)
        return self.sender

    async def close(self) -> None:
        """Disconnect the producer."""
        sender, self.sender = self.sender, None
        self.producer.disconnect()
        if sender is not None:
            await sender.shutdown()

    async def subscribe(self, config: "PocketSubscriberConfig", topic: str) -> SimpleConsumer:
        """Return a member of a subscriber's group that has joined; its topic is created unless it exists.

        Raises: IncorrectState, PocketMQError.
        """
        if self.sender is None:
            raise IncorrectState(
                "the broker is not connected: use `async with broker`, or connect()"
            )
        async with Admin(**self.client_options) as admin:
            if not await admin.topics.exists(topic):
                await admin.topics.create(topic, queues=self.queues)
        consumer = SimpleConsumer(
            config.group_of(self, topic),
            invisible_ms=config.invisible_ms,
            consume_from_where=config.consume_from_where,
            renews=True,
            **self.client_options,
        )
        consumer.subscribe(topic, config.tags)
        await consumer.start()
        return consumer


@dataclass(kw_only=True)
class PocketSubscriberConfig(SubscriberUsecaseConfig):
    """Of a subscriber.

    group: None makes one of the broker's group, the topic and the tags. count_max: messages a request.
    invisible_ms: how long after a worker's death its messages come again.
    """

    topic: str
    group: str | None = None
    tags: str = "*"
    count_max: int = 1
    batch: bool = False
    invisible_ms: int = 60_000
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.FIRST_OFFSET

    @property
    def ack_policy(self) -> AckPolicy:
        """The subscriber's, else the broker's, else REJECT_ON_ERROR."""
        for asked in (self._ack_policy, self._outer_config.ack_policy):
            if asked is not EMPTY:
                return asked
        return AckPolicy.REJECT_ON_ERROR

    def group_of(self, broker: PocketBrokerConfig, topic: str) -> str:
        """Return the name of the consumer group. All its members subscribe the same."""
        if self.group is not None:
            return self.group
        tags = "" if self.tags == "*" else topic_of(f"_{self.tags}")
        return f"{broker.group}_{topic}{tags}"


@dataclass(kw_only=True)
class PocketPublisherConfig(PublisherUsecaseConfig):
    """Of a publisher; options: for all its messages."""

    topic: str
    batch: bool = False
    headers: dict[str, Any] = field(default_factory=dict)
    options: PublishingOptions = field(default_factory=PublishingOptions)


@dataclass(kw_only=True)
class PocketSubscriberSpecificationConfig(SubscriberSpecificationConfig):
    """Of a subscriber in AsyncAPI's document."""

    topic: str


@dataclass(kw_only=True)
class PocketPublisherSpecificationConfig(PublisherSpecificationConfig):
    """Of a publisher in AsyncAPI's document."""

    topic: str
