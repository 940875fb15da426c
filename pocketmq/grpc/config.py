"""GrpcConfig: the settings of the port for 5.x SDKs. Source of the names: ProxyConfig, 5.5.0."""

from dataclasses import dataclass
from typing import Self

from pocketmq.remoting.settings import Settings, key

OFF = -1
# A front announces itself to the others of its cluster so often, s, as a setting of this namespace.
ANNOUNCE_S = 30
NAMESPACE = "POCKETMQ_GRPC"


@dataclass
class GrpcConfig(Settings):
    """The port for the SDKs of RocketMQ 5, and its limits."""

    port: int = key(
        8081,
        name="grpcServerPort",
        min=OFF,
        max=65_535,
        help="Port for the gRPC SDKs of RocketMQ 5 (8081 with `up`); 0: any free one; -1: none.",
    )
    message_size_max: int = key(
        16 << 20,
        name="grpcMaxInboundMessageSize",
        min=1 << 16,
        help="At most this many bytes in one request, including a message's body and properties.",
    )
    type_check: bool = key(
        True,
        name="enableTopicMessageTypeCheck",
        help="Refuse messages whose type is not that of their topic (attribute message.type).",
    )

    polling_ms_max: int = key(
        20_000,
        name="grpcClientConsumerMaxLongPollingTimeoutMillis",
        min=0,
        max=60_000,
        help="How long a receive waits for a message at most. A consumer that closes waits for it, too.",
    )

    @classmethod
    def taken_from(cls, settings: dict[str, str]) -> Self:
        """Take these settings out of `settings`. Raises: IllegalArgument."""
        config = cls.from_properties(settings)
        for name in [*cls.keys()]:
            settings.pop(name, None)
        return config

    @property
    def is_off(self) -> bool:
        return self.port == OFF
