"""The name server's settings, with the names that namesrv.conf gives them. Source: NamesrvConfig, 4.9.7."""

from dataclasses import dataclass

from pocketmq.remoting.settings import Settings, key


@dataclass
class NamesrvConfig(Settings):
    """One name server."""

    listen_port: int = key(
        9876,
        name="listenPort",
        min=0,
        max=65_535,
        help="Port of the name server; 0 takes any free one.",
    )
    bind_address: str = key(
        "127.0.0.1",
        name="bindAddress",
        help="Address to listen on; 0.0.0.0 for all. Loopback unless told otherwise.",
    )
    kv_config_path: str = key(
        "",
        name="kvConfigPath",
        help="File of the key-value configuration; empty: kept in memory only.",
    )
    order_message_enable: bool = key(
        False,
        name="orderMessageEnable",
        runtime=True,
        help="Add the order configuration of a topic to its route.",
    )
    route_by_client: bool = key(
        False,
        name="routeByClient",
        runtime=True,
        help="Tell a client the brokers of this machine under the address by which it has come in, not "
        "brokerIP1. Ours.",
    )
    broker_timeout: int = key(
        120_000,
        name="brokerTimeout",
        min=1_000,
        unit="ms",
        runtime=True,
        help="A broker without a registration for that long is removed.",
    )
    scan_not_active_broker_interval: int = key(
        5_000,
        name="scanNotActiveBrokerInterval",
        min=10,
        unit="ms",
        help="Pause between two looks for brokers without a registration.",
    )
    server_channel_max_idle_time_seconds: int = key(
        120,
        name="serverChannelMaxIdleTimeSeconds",
        min=1,
        unit="s",
        help="A connection without traffic for that long is closed.",
    )
