"""PocketAPIRouter for FastAPI: subscribers and publishers beside an application's routes."""

from collections.abc import Sequence
from typing import Any

from fastapi.datastructures import Default
from faststream._internal.fastapi.context import Context, ContextRepo, Logger
from faststream._internal.fastapi.router import StreamRouter

from pocketmq.integrations.faststream.annotations import PocketMessage
from pocketmq.integrations.faststream.broker import PocketBroker
from pocketmq.integrations.faststream.publisher import TopicPublisher
from pocketmq.integrations.faststream.subscriber import TopicSubscriber

__all__ = ["Context", "ContextRepo", "Logger", "PocketAPIRouter", "PocketMessage"]

_MODEL_OPTIONS = ("exclude_unset", "exclude_defaults", "exclude_none")


class PocketAPIRouter(StreamRouter):
    """An APIRouter that has a PocketBroker; its options are those of both."""

    broker_class = PocketBroker
    broker: PocketBroker

    def __init__(
        self,
        name_server: str | None = None,
        *,
        context: ContextRepo | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name_server=name_server, context=context, **options)

    def subscriber(
        self,
        topic: str,
        *,
        dependencies: Sequence[Any] = (),
        response_model: Any = Default(None),  # noqa: B008 - FastAPI's own mark of an absent value
        response_model_include: Any = None,
        response_model_exclude: Any = None,
        response_model_by_alias: bool = True,
        **options: Any,
    ) -> TopicSubscriber:
        """Declare a subscriber; options: of PocketBroker.subscriber, and of FastAPI's response models."""
        for name in _MODEL_OPTIONS:
            options.setdefault(f"response_model_{name}", False)
        return super().subscriber(  # type: ignore[no-any-return]
            topic,
            dependencies=dependencies,
            response_model=response_model,
            response_model_include=response_model_include,
            response_model_exclude=response_model_exclude,
            response_model_by_alias=response_model_by_alias,
            **options,
        )

    def publisher(self, topic: str, **options: Any) -> TopicPublisher:
        """Declare a publisher; options: of PocketBroker.publisher."""
        return self.broker.publisher(topic, **options)
