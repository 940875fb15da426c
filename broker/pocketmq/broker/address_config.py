"""AddressConfig: where a broker listens and what it advertises to clients, with RocketMQ's names.

Source: BrokerConfig, NettyServerConfig, RocketMQ 4.9.7.
"""

from dataclasses import dataclass

from pocketmq.remoting.settings import Settings, key


@dataclass
class AddressConfig(Settings):
    """The addresses of a broker."""

    listen_address: str = key(
        "127.0.0.1",
        name="bindAddress",
        help="Address to listen on: loopback unless told otherwise. 0.0.0.0 is every address.",
    )
    listen_port: int = key(
        10911, name="listenPort", min=0, max=65535, help="Port to listen on; 0: any free one."
    )
    fast_listen_enable: bool = key(
        True,
        name="fastListenEnable",
        help="Listen on listenPort - 2 too when it is free: slaves and clients with the VIP channel "
        "use it.",
    )
    broker_ip1: str = key(
        "",
        name="brokerIP1",
        help="Address that clients are told and that stands in message ids; by default the one that "
        "is listened on.",
    )
    advertised_port: int = key(
        0,
        name="advertisedPort",
        min=0,
        max=65535,
        help="Port that clients are told, where that one is mapped to listenPort (a container's, a "
        "proxy's); 0: listenPort. Ours.",
    )
