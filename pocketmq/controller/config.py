"""The controller's settings. Source: ControllerConfig, RocketMQ 5.5.0; the port and the file are ours, since
its own are those of its Raft groups.
"""

from dataclasses import dataclass

from pocketmq.remoting.serving.log_levels import LogConfig
from pocketmq.remoting.settings import key


@dataclass
class ControllerConfig(LogConfig):
    """One controller."""

    listen_port: int = key(
        9878,
        name="controllerListenPort",
        min=0,
        max=65_535,
        help="PocketMQ only: port of the controller; 0: any free one.",
    )
    bind_address: str = key(
        "127.0.0.1",
        name="controllerBindAddress",
        help="PocketMQ only: address to listen on. The controller checks no accounts, as RocketMQ's: any "
        "program that reaches it can elect.",
    )
    advertised_address: str = key(
        "",
        name="controllerAdvertisedAddress",
        help="PocketMQ only: `ip:port` that brokers are given; by default where it listens.",
    )
    group: str = key(
        "DefaultController",
        name="controllerGroup",
        help="PocketMQ only: name of the group that answers to brokers carry.",
    )
    path: str = key(
        "",
        name="controllerPath",
        help="PocketMQ only: file of the sets of brokers. If empty, `controller.json` under the data folder.",
    )
    etcd: str = key(
        "",
        name="controllerEtcd",
        help="PocketMQ only: URLs of etcd's members (`http://10.0.0.1:2379;http://10.0.0.2:2379`) to keep "
        "the sets in place of the file: start as many controllers as you like, one of them leads.",
    )
    own_id: str = key(
        "",
        name="controllerId",
        help="PocketMQ only: name of this controller among those of one etcd; by default host and process.",
    )
    etcd_ca_path: str = key(
        "",
        name="controllerEtcdCaPath",
        help="PocketMQ only: certificates to trust for https; by default the system's.",
    )
    etcd_cert_path: str = key(
        "", name="controllerEtcdCertPath", help="PocketMQ only: this client's certificate for etcd."
    )
    etcd_key_path: str = key(
        "", name="controllerEtcdKeyPath", help="PocketMQ only: the key of that certificate."
    )
    scan_not_active_broker_interval: int = key(
        1_000,
        name="controllerScanInterval",
        min=10,
        unit="ms",
        help="Interval between checks for masters whose heartbeats have stopped. RocketMQ: "
        "scanNotActiveBrokerInterval, 5,000.",
    )
    heartbeat_timeout: int = key(
        10_000,
        name="controllerHeartBeatTimeoutMills",
        min=100,
        unit="ms",
        help="A broker without a heartbeat for so long is dead, unless its own heartbeats name another time.",
    )

    def etcd_endpoints(self) -> list[str]:
        """Return the URLs. Raises: ValueError for any other text."""
        urls = [each.strip() for each in self.etcd.replace(",", ";").split(";") if each.strip()]
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"controllerEtcd takes URLs as http://10.0.0.1:2379, not {url!r}")
        return urls
