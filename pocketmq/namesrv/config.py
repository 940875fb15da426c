"""The name server's settings, with the names that namesrv.conf gives them. Source: NamesrvConfig, 4.9.7."""

from dataclasses import dataclass

from pocketmq.remoting.serving.log_levels import LogConfig
from pocketmq.remoting.settings import key


@dataclass
class NamesrvConfig(LogConfig):
    """One name server."""

    listen_port: int = key(
        9876,
        name="listenPort",
        min=0,
        max=65_535,
        help="Port of the name server; 0: any free one.",
    )
    bind_address: str = key(
        "127.0.0.1",
        name="bindAddress",
        help="Address to listen on. 127.0.0.1 unless set; 0.0.0.0 listens on every address.",
    )
    kv_config_path: str = key(
        "",
        name="kvConfigPath",
        help="File of the key-value configuration. If empty, it is kept in memory only.",
    )
    order_message_enable: bool = key(
        False,
        name="orderMessageEnable",
        runtime=True,
        help="Add a topic's order configuration to its route.",
    )
    route_by_client: bool = key(
        False,
        name="routeByClient",
        runtime=True,
        help="PocketMQ only: tell a client the address by which it has reached this machine, instead of "
        "brokerIP1, for the brokers on it.",
    )
    broker_timeout: int = key(
        120_000,
        name="brokerTimeout",
        min=1_000,
        unit="ms",
        runtime=True,
        help="A broker that has not registered for this long is removed.",
    )
    scan_not_active_broker_interval: int = key(
        5_000,
        name="scanNotActiveBrokerInterval",
        min=10,
        unit="ms",
        help="Interval between checks for brokers that no longer register.",
    )
    server_channel_max_idle_time_seconds: int = key(
        120,
        name="serverChannelMaxIdleTimeSeconds",
        min=1,
        unit="s",
        help="A connection without traffic for this long is closed.",
    )
