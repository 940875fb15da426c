"""HaConfig: the settings of roles and replication, with RocketMQ's names. Source: BrokerConfig,
MessageStoreConfig, RocketMQ 4.9.7 and 5.3.3.
"""

from dataclasses import dataclass

from pocketmq.model.names import MASTER_ID
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.settings import Settings, key

SLAVE, SYNC_MASTER, ASYNC_MASTER = "SLAVE", "SYNC_MASTER", "ASYNC_MASTER"
REFUSE, CUT = "refuse", "cut"


@dataclass
class HaConfig(Settings):
    """The broker's role among the brokers of its name."""

    broker_id: int = key(
        MASTER_ID,
        name="brokerId",
        min=0,
        help="0: the master of its name. Each slave has a number of its own, from 1 on.",
    )
    broker_role: str = key(
        ASYNC_MASTER,
        name="brokerRole",
        choices=(ASYNC_MASTER, SYNC_MASTER, SLAVE),
        help="ASYNC_MASTER answers a send at once, SYNC_MASTER when slaves have it (inSyncReplicas). SLAVE "
        "follows the master of its name.",
    )
    broker_ip2: str = key(
        "", name="brokerIP2", help="Address given to slaves; by default brokerIP1."
    )
    ha_listen_port: int = key(
        0,
        name="haListenPort",
        min=0,
        max=65535,
        help="Port for slaves; 0: listenPort + 1, or any free one if that is taken.",
    )
    ha_master_address: str = key(
        "",
        name="haMasterAddress",
        help="Slave: `ip:port` of its master's port for slaves. If empty, the name server is asked.",
    )
    master_address: str = key(
        "",
        name="masterAddress",
        help="Slave: `ip:port` of its master, where it signs its requests in any case. If empty, the name "
        "server is asked, and a slave with an account signs once the master has proved that it knows the "
        "account.",
    )
    ha_send_heartbeat_interval: int = key(
        5_000,
        name="haSendHeartbeatInterval",
        runtime=True,
        min=1,
        unit="ms",
        help="Interval between heartbeats of a master or slave that has nothing else to send.",
    )
    ha_housekeeping_interval: int = key(
        20_000,
        name="haHousekeepingInterval",
        runtime=True,
        min=1,
        unit="ms",
        help="The connection between master and slave is closed after this time without a heartbeat.",
    )
    ha_transfer_batch_size: int = key(
        32_768,
        name="haTransferBatchSize",
        runtime=True,
        min=1,
        max=1 << 20,
        unit="bytes",
        help="Most bytes of the log that a master sends at once.",
    )
    ha_max_gap_not_in_sync: int = key(
        256 << 20,
        name="haMaxGapNotInSync",
        runtime=True,
        min=0,
        unit="bytes",
        help="A slave that is further behind than this is not in sync. RocketMQ 4.9: haSlaveFallbehindMax.",
    )
    slave_timeout: int = key(
        3_000,
        name="slaveTimeout",
        runtime=True,
        min=1,
        unit="ms",
        help="SYNC_MASTER: a send that slaves do not have within this time is answered with "
        "FLUSH_SLAVE_TIMEOUT; it is stored.",
    )
    in_sync_replicas: int = key(
        2,
        name="inSyncReplicas",
        runtime=True,
        min=1,
        help="SYNC_MASTER: a send succeeds when this many brokers have it, including the master. RocketMQ "
        "5.x waits for no slave by default (1); 4.9 has no such setting and waits for one slave.",
    )
    min_in_sync_replicas: int = key(
        1,
        name="minInSyncReplicas",
        runtime=True,
        min=1,
        help="SYNC_MASTER: a send is refused and not stored while fewer brokers than this are in sync, "
        "including the master (except sends with WAIT=false). RocketMQ 5.x does so only with an acting "
        "master or a controller.",
    )
    enable_auto_in_sync_replicas: bool = key(
        False,
        name="enableAutoInSyncReplicas",
        runtime=True,
        help="SYNC_MASTER: wait for the brokers that are in sync now, at most inSyncReplicas and at least "
        "minInSyncReplicas. With a minimum of 1, a master without slaves answers with success.",
    )
    inner_client_authentication_credentials: str = key(
        "",
        name="innerClientAuthenticationCredentials",
        help='Account with which this broker signs its requests to others, as JSON: {"accessKey": ..., '
        '"secretKey": ...}. A slave needs an administrator\'s if its master has aclEnable.',
    )
    slave_read_enable: bool = key(
        False,
        name="slaveReadEnable",
        runtime=True,
        help="Tell consumers that are far behind to read from a slave.",
    )
    slave_sync_interval: int = key(
        3_000,
        name="slaveSyncInterval",
        runtime=True,
        min=100,
        unit="ms",
        help="Slave: interval between copies of the master's topics, groups and offsets.",
    )
    slave_divergence: str = key(
        REFUSE,
        name="slaveDivergence",
        choices=(REFUSE, CUT),
        runtime=True,
        help="What a slave does when its log ends with data that its master never had. refuse: it does not "
        "follow, and says so. cut: the data is saved to a file and cut off.",
    )


def check_role(config: HaConfig) -> None:
    """Check that role and broker id go together. Raises: IllegalArgument, one sentence."""
    if config.broker_role == SLAVE and config.broker_id == MASTER_ID:
        raise IllegalArgument("brokerRole=SLAVE needs a brokerId of its own: set it to 1 or higher")
    if config.broker_role != SLAVE and config.broker_id != MASTER_ID:
        raise IllegalArgument(
            f"brokerId={config.broker_id} is a slave's number, but brokerRole={config.broker_role} is a "
            "master's: set brokerRole=SLAVE, or brokerId=0"
        )
