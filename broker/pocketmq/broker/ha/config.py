"""HaConfig: the settings of roles and replication, with RocketMQ's names. Source: BrokerConfig,
MessageStoreConfig, RocketMQ 4.9.7 and 5.3.3.
"""

from dataclasses import dataclass

from pocketmq.broker.address_config import AddressConfig
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.names import MASTER_ID
from pocketmq.remoting.settings import key

SLAVE, SYNC_MASTER, ASYNC_MASTER = "SLAVE", "SYNC_MASTER", "ASYNC_MASTER"
REFUSE, CUT = "refuse", "cut"


@dataclass
class HaConfig(AddressConfig):
    """The broker's role among the brokers of its name."""

    broker_id: int = key(
        MASTER_ID,
        name="brokerId",
        min=0,
        help="0: the master of its name. A slave has a number of its own, from 1 on.",
    )
    broker_role: str = key(
        ASYNC_MASTER,
        name="brokerRole",
        choices=(ASYNC_MASTER, SYNC_MASTER, SLAVE),
        help="ASYNC_MASTER answers a send at once, SYNC_MASTER when slaves have it (inSyncReplicas). SLAVE "
        "follows the master of its name.",
    )
    broker_ip2: str = key(
        "", name="brokerIP2", help="Address that slaves are told; by default brokerIP1."
    )
    ha_listen_port: int = key(
        0,
        name="haListenPort",
        min=0,
        max=65535,
        help="Port for slaves; 0: listenPort + 1, or any free one when that is taken.",
    )
    ha_master_address: str = key(
        "",
        name="haMasterAddress",
        help="Slave: `ip:port` of its master's port for slaves. Empty: what the name server says.",
    )
    ha_send_heartbeat_interval: int = key(
        5_000,
        name="haSendHeartbeatInterval",
        runtime=True,
        min=1,
        unit="ms",
        help="A master or a slave that has nothing to say gives a sign of life so often.",
    )
    ha_housekeeping_interval: int = key(
        20_000,
        name="haHousekeepingInterval",
        runtime=True,
        min=1,
        unit="ms",
        help="Without a sign of life for so long the connection between master and slave is closed.",
    )
    ha_transfer_batch_size: int = key(
        32_768,
        name="haTransferBatchSize",
        runtime=True,
        min=1,
        max=1 << 20,
        unit="bytes",
        help="A master sends at most so much of its log in one piece.",
    )
    ha_max_gap_not_in_sync: int = key(
        256 << 20,
        name="haMaxGapNotInSync",
        runtime=True,
        min=0,
        unit="bytes",
        help="A slave that is farther behind does not count as in sync. RocketMQ 4.9: haSlaveFallbehindMax.",
    )
    slave_timeout: int = key(
        3_000,
        name="slaveTimeout",
        runtime=True,
        min=1,
        unit="ms",
        help="SYNC_MASTER: a send that slaves do not have by then is answered with FLUSH_SLAVE_TIMEOUT; it "
        "is stored.",
    )
    in_sync_replicas: int = key(
        2,
        name="inSyncReplicas",
        runtime=True,
        min=1,
        help="SYNC_MASTER: a send is answered with success when so many brokers have it, the master counted. "
        "RocketMQ 5.x waits for nobody by default (1); 4.9 has no such setting and waits for one slave.",
    )
    min_in_sync_replicas: int = key(
        1,
        name="minInSyncReplicas",
        runtime=True,
        min=1,
        help="SYNC_MASTER: while fewer brokers are in sync, the master counted, a send is refused and not "
        "stored (but with WAIT=false). RocketMQ 5.x does so only with an acting master or a controller.",
    )
    enable_auto_in_sync_replicas: bool = key(
        False,
        name="enableAutoInSyncReplicas",
        runtime=True,
        help="SYNC_MASTER: wait for the brokers that are in sync now, at most inSyncReplicas and at least "
        "minInSyncReplicas. With a minimum of 1 a master that is alone answers with success.",
    )
    inner_client_authentication_credentials: str = key(
        "",
        name="innerClientAuthenticationCredentials",
        help='Account that this broker signs with what it asks of others, as JSON: {"accessKey": ..., '
        '"secretKey": ...}. A slave needs an administrator\'s where its master has aclEnable.',
    )
    slave_read_enable: bool = key(
        False,
        name="slaveReadEnable",
        runtime=True,
        help="Suggest to consumers that are far behind to read from a slave.",
    )
    slave_sync_interval: int = key(
        3_000,
        name="slaveSyncInterval",
        runtime=True,
        min=100,
        unit="ms",
        help="Slave: pause between two copies of the master's topics, groups and offsets.",
    )
    slave_divergence: str = key(
        REFUSE,
        name="slaveDivergence",
        choices=(REFUSE, CUT),
        runtime=True,
        help="Slave whose log has an end that its master never had. refuse: it does not follow, and says so. "
        "cut: that end is kept in a file and cut off.",
    )


def check_role(config: HaConfig) -> None:
    """Check that role and broker id go together. Raises: IllegalArgument, one sentence."""
    if config.broker_role == SLAVE and config.broker_id == MASTER_ID:
        raise IllegalArgument("brokerRole=SLAVE needs a brokerId of its own: set it to 1 or higher")
    if config.broker_role != SLAVE and config.broker_id != MASTER_ID:
        raise IllegalArgument(
            f"brokerId={config.broker_id} is a slave's number, and brokerRole={config.broker_role} a "
            "master's: set brokerRole=SLAVE, or brokerId=0"
        )
