"""How subscribers and publishers are declared, at a broker or a router."""

from collections.abc import Sequence
from typing import Any, Unpack

from faststream import AckPolicy
from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.exceptions import SetupError

from pocketmq.client import ConsumeFromWhere
from pocketmq.integrations.faststream.config import (
    PocketPublisherConfig,
    PocketPublisherSpecificationConfig,
    PocketSubscriberConfig,
    PocketSubscriberSpecificationConfig,
)
from pocketmq.integrations.faststream.publisher import TopicPublisher
from pocketmq.integrations.faststream.response import PublishingOptions
from pocketmq.integrations.faststream.specification import (
    PocketPublisherSpecification,
    PocketSubscriberSpecification,
)
from pocketmq.integrations.faststream.subscriber import (
    ConcurrentTopicSubscriber,
    TopicSubscriber,
)

_RECEIVED_MAX = 32


class PocketRegistrator(Registrator):
    """Base of PocketBroker and PocketRouter."""

    def subscriber(
        self,
        topic: str,
        *,
        group: str | None = None,
        tags: str = "*",
        batch: bool = False,
        max_records: int = _RECEIVED_MAX,
        max_workers: int = 1,
        invisible_ms: int = 60_000,
        consume_from_where: ConsumeFromWhere = ConsumeFromWhere.FIRST_OFFSET,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Any] = (),
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> TopicSubscriber:
        """Declare a subscriber, a decorator of functions.

        group: of consumers that share the messages; by default one of the broker's group and the topic. tags:
        `A || B`. batch: functions get lists of up to max_records (32). max_workers: messages at once.
        invisible_ms: how long after a worker's death its messages come again. consume_from_where: where a new
        group begins. The others: see FastStream. Raises: SetupError.
        """
        if not 1 <= max_records <= _RECEIVED_MAX:
            raise SetupError(f"max_records must be from 1 to {_RECEIVED_MAX}, not {max_records}")
        config = PocketSubscriberConfig(
            topic=topic,
            group=group,
            tags=tags,
            batch=batch,
            count_max=max_records if batch else min(max(1, max_workers), _RECEIVED_MAX),
            invisible_ms=invisible_ms,
            consume_from_where=consume_from_where,
            no_reply=no_reply,
            _outer_config=self.config,
            _ack_policy=ack_policy,
        )
        calls = CallsCollection()
        shown = PocketSubscriberSpecificationConfig(
            topic=topic,
            title_=title,
            description_=description,
            include_in_schema=include_in_schema,
        )
        specification = PocketSubscriberSpecification(self.config, shown, calls)
        made: TopicSubscriber
        if max_workers > 1:
            made = ConcurrentTopicSubscriber(config, specification, calls, max_workers)
        else:
            made = TopicSubscriber(config, specification, calls)
        super().subscriber(made, persistent=persistent)
        made.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )
        return made

    def publisher(
        self,
        topic: str,
        *,
        batch: bool = False,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        include_in_schema: bool = True,
        **options: Unpack[PublishingOptions],
    ) -> TopicPublisher:
        """Declare a publisher, a decorator of functions whose results it sends.

        batch: a list is sent as so many messages. options: for all messages.
        """
        headers = options.pop("headers", None)
        config = PocketPublisherConfig(
            topic=topic,
            batch=batch,
            headers=headers or {},
            options=options,
            _outer_config=self.config,
        )
        shown = PocketPublisherSpecificationConfig(
            topic=topic,
            schema_=schema,
            title_=title,
            description_=description,
            include_in_schema=include_in_schema,
        )
        specification = PocketPublisherSpecification(self.config, shown)
        made = TopicPublisher(config, specification)
        super().publisher(made, persistent=persistent)
        return made

    def include_router(self, router: "PocketRegistrator", **options: Any) -> None:
        """Take over a router's subscribers and publishers. Raises: TypeError."""
        if not isinstance(router, PocketRegistrator):
            raise TypeError(f"a PocketRouter can be included here, not a {type(router).__name__}")
        super().include_router(router, **options)
