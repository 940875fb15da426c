"""GrpcConfig: the settings of the port for 5.x SDKs. Source of the names: ProxyConfig, 5.5.0."""

from dataclasses import dataclass

from pocketmq.remoting.settings import Settings, key

OFF = -1


@dataclass
class GrpcConfig(Settings):
    """Where the SDKs of RocketMQ 5 are served, and what they may."""

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
        help="Bytes of one request, a message's body and properties included.",
    )
    type_check: bool = key(
        True,
        name="enableTopicMessageTypeCheck",
        help="Refuse messages whose type is not that of their topic (attribute message.type).",
    )

    @property
    def is_off(self) -> bool:
        return self.port == OFF
