"""PocketBroker: FastStream's broker on a cluster of PocketMQ or RocketMQ 5."""

import asyncio
import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Unpack

from fast_depends import dependency_provider
from faststream import ContextRepo
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream.response import PublishType
from faststream.security import BaseSecurity, SASLPlaintext
from faststream.specification.schema import BrokerSpec

from pocketmq.admin import Admin
from pocketmq.client import Credentials, Producer, SendResult
from pocketmq.client.options import ClientOptions, declared
from pocketmq.integrations.faststream.config import PocketBrokerConfig, check_taken, take_config
from pocketmq.integrations.faststream.message import PocketMessage
from pocketmq.integrations.faststream.producer import PocketProducer
from pocketmq.integrations.faststream.registrator import PocketRegistrator
from pocketmq.integrations.faststream.response import PocketPublishCommand, PublishingOptions
from pocketmq.remoting.errors import PocketMQError

_SHOWN = ("description", "protocol", "protocol_version", "tags")
# FastStream's options beside those of the configuration.
_DEFAULTS: dict[str, Any] = {
    "apply_types": True,
    "context": None,
    "description": None,
    "log_level": logging.INFO,
    "logger": EMPTY,
    "protocol": "rocketmq",
    "protocol_version": None,
    "provider": None,
    "serializer": EMPTY,
    "tags": (),
}


class PocketBroker(PocketRegistrator, BrokerUsecase):
    """Subscribers and publishers of one cluster; start it by FastStream, or by start() and stop()."""

    def __init__(
        self,
        name_server: str | None = None,
        *,
        group: str = "faststream",
        queues: int = 1,
        security: BaseSecurity | None = None,
        routers: Iterable[PocketRegistrator] = (),
        **options: Any,
    ) -> None:
        """Declare it without connecting.

        name_server: as a client has it, by default NAMESRV_ADDR. group: the first part of its subscribers'
        groups: name the service. queues: of topics that it creates. security: a user and password are
        credentials. options: those of FastStream's brokers, and of all clients (ClientOptions).
        Raises: TypeError for an unknown option.
        """
        known = declared(ClientOptions)
        client = {name: options.pop(name) for name in known.keys() & options.keys()}
        url = options.pop("specification_url", None) or name_server or "127.0.0.1:9876"
        found = {name: options.pop(name, value) for name, value in _DEFAULTS.items()}
        fields = take_config(options)
        check_taken(options, {*known, *found, "specification_url"})
        producer = PocketProducer(
            fields.get("broker_parser"), fields.get("broker_decoder"), client.get("clock")
        )
        config = PocketBrokerConfig(
            producer=producer,
            group=group,
            queues=queues,
            client_options={"name_server": name_server, **_secured(security), **client},
            logger=make_logger_state(
                logger=found["logger"],
                log_level=found["log_level"],
                default_storage_cls=_LogStorage,
            ),
            fd_config=FastDependsConfig(
                use_fastdepends=found["apply_types"],
                serializer=found["serializer"],
                provider=found["provider"] or dependency_provider,
                context=found["context"] or ContextRepo(),
            ),
            extra_context={"broker": self},
            **fields,
        )
        shown = {name: found[name] for name in _SHOWN}
        specification = BrokerSpec(url=[url], security=security, **shown)
        super().__init__(config=config, specification=specification, routers=routers)

    # ------------------------------------------------------------ life

    async def _connect(self) -> Producer:
        return await self.config.broker_config.open()  # type: ignore[no-any-return]

    async def start(self) -> None:
        """Connect, and start the subscribers. Raises: PocketMQError."""
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop the subscribers, and disconnect."""
        try:
            await super().stop(exc_type, exc_val, exc_tb)
        finally:
            self._connection = None
            await self.config.broker_config.close()

    async def ping(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - FastStream's word
        """Return whether a name server answers within seconds (3)."""
        try:
            async with asyncio.timeout(timeout or 3.0):
                async with Admin(**self.config.client_options) as admin:
                    await admin.brokers()
        except (PocketMQError, TimeoutError):
            return False
        return True

    # ------------------------------------------------------------ sending

    async def publish(
        self, message: Any = None, topic: str = "", **options: Unpack[PublishingOptions]
    ) -> SendResult:
        """Send a message. Raises: PocketMQError."""
        command = self._command(PublishType.PUBLISH, topic, options, message)
        return await self._basic_publish(command, producer=self.config.producer)  # type: ignore[no-any-return]

    async def publish_batch(
        self, *messages: Any, topic: str, **options: Unpack[PublishingOptions]
    ) -> list[SendResult]:
        """Send messages in as few requests as possible, none of them later. Raises: PocketMQError."""
        command = self._command(PublishType.PUBLISH, topic, options, *(messages or (None,)))
        return await self._basic_publish_batch(command, producer=self.config.producer)  # type: ignore[no-any-return]

    async def request(
        self, message: Any = None, topic: str = "", **options: Unpack[PublishingOptions]
    ) -> PocketMessage:
        """Send a message and wait for its answer (timeout: 3 s). Raises: TimeoutError, PocketMQError."""
        options.setdefault("timeout", 3.0)
        command = self._command(PublishType.REQUEST, topic, options, message)
        return await self._basic_request(command, producer=self.config.producer)  # type: ignore[no-any-return]

    def _command(
        self, kind: PublishType, topic: str, options: PublishingOptions, *messages: Any
    ) -> PocketPublishCommand:
        options["correlation_id"] = options.get("correlation_id") or self.config.id_generator()
        return PocketPublishCommand(*messages, _publish_type=kind, topic=topic, **options)


def _secured(security: BaseSecurity | None) -> dict[str, Any]:
    """Return the options of clients. Raises: NotImplementedError."""
    if security is None:
        return {}
    found: dict[str, Any] = {"tls": security.ssl_context or security.use_ssl}
    if isinstance(security, SASLPlaintext):
        found["credentials"] = Credentials(security.username, security.password)
    elif type(security) is not BaseSecurity:
        raise NotImplementedError(
            f"PocketBroker knows BaseSecurity and SASLPlaintext, not {type(security).__name__}"
        )
    return found


class _LogStorage(DefaultLoggerStorage):
    """Makes the logger whose lines name the topic."""

    def __init__(self) -> None:
        super().__init__()
        self._topic_length = 4
        self.logger_log_level = logging.INFO

    def set_level(self, level: int) -> None:
        self.logger_log_level = level

    def register_subscriber(self, params: dict[str, Any]) -> None:
        self._topic_length = max(self._topic_length, len(params.get("topic", "")))

    def get_logger(self, *, context: ContextRepo) -> Any:
        logger = self._get_logger_ref()
        if not logger:
            logger = get_broker_logger(
                name="pocketmq",
                default_context={"topic": ""},
                message_id_ln=10,
                fmt="%(asctime)s %(levelname)-8s - "
                f"%(topic)-{self._topic_length}s | %(message_id)-10s - %(message)s",
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger
