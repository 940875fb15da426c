"""Routers: subscribers and publishers that are declared apart from a broker, and included into one."""

from collections.abc import Iterable
from typing import Any

from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute

from pocketmq.integrations.faststream.config import PocketBrokerConfig, check_taken, take_config
from pocketmq.integrations.faststream.registrator import PocketRegistrator


class PocketPublisher(ArgsContainer):
    """The arguments of `publisher()`, for PocketRoute."""


class PocketRoute(SubscriberRoute):
    """A function, and the arguments of `subscriber()` that it is called by; publishers: PocketPublisher."""


class PocketRouter(PocketRegistrator, BrokerRouter):
    """To be included into a PocketBroker; prefix: before the names of its topics."""

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[PocketRoute] = (),
        *,
        routers: Iterable[PocketRegistrator] = (),
        **options: Any,
    ) -> None:
        """options: parser, decoder, codec, dependencies, middlewares, ack_policy and include_in_schema, as
        FastStream has them. Raises: TypeError for an unknown one.
        """
        fields = {"include_in_schema": None, **take_config(options)}
        check_taken(options, ())
        config = PocketBrokerConfig(prefix=prefix, **fields)
        super().__init__(handlers=handlers, routers=routers, config=config)
