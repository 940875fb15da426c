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
        help="Address to listen on. 127.0.0.1 unless set; 0.0.0.0 listens on every address.",
    )
    listen_port: int = key(
        10911, name="listenPort", min=0, max=65535, help="Port to listen on; 0: any free one."
    )
    fast_listen_enable: bool = key(
        True,
        name="fastListenEnable",
        help="Listen on listenPort - 2 too if it is free; slaves and clients with the VIP channel use it.",
    )
    broker_ip1: str = key(
        "",
        name="brokerIP1",
        help="Address given to clients and written into message ids; by default the one that the broker "
        "listens on.",
    )
    advertised_port: int = key(
        0,
        name="advertisedPort",
        min=0,
        max=65535,
        help="PocketMQ only: port given to clients when it is mapped to listenPort (by a container or a "
        "proxy); 0: listenPort.",
    )
