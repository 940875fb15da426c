"""ElectionConfig: the settings of a broker whose role a controller decides. Source: BrokerConfig,
MessageStoreConfig, RocketMQ 5.5.0.
"""

from dataclasses import dataclass

from pocketmq.remoting.settings import Settings, key


@dataclass
class ElectionConfig(Settings):
    """Whether a controller decides, and how."""

    enable_controller_mode: bool = key(
        False,
        name="enableControllerMode",
        help="A controller decides which broker of this name leads: brokerRole and brokerId are its own. A "
        "send succeeds when every broker in sync has it.",
    )
    controller_addr: str = key(
        "",
        name="controllerAddr",
        help="Controllers, 'host:port;host:port'.",
    )
    broker_election_priority: int = key(
        2_147_483_647,
        name="brokerElectionPriority",
        runtime=True,
        min=0,
        help="Of two brokers with equal logs the one with the smaller number is elected.",
    )
    broker_heartbeat_interval: int = key(
        1_000,
        name="brokerHeartbeatInterval",
        runtime=True,
        min=10,
        unit="ms",
        help="Interval between heartbeats to controllers.",
    )
    controller_heart_beat_timeout_mills: int = key(
        10_000,
        name="controllerHeartBeatTimeoutMills",
        runtime=True,
        min=100,
        unit="ms",
        help="A controller replaces this master when no heartbeat has come for so long.",
    )
    sync_broker_metadata_period: int = key(
        2_000,
        name="syncBrokerMetadataPeriod",
        runtime=True,
        min=10,
        unit="ms",
        help="Interval between questions to the controller who leads; its notices come at once. RocketMQ: "
        "5,000.",
    )
    async_learner: bool = key(
        False,
        name="asyncLearner",
        help="Follow, but never count as in sync: this broker is never elected.",
    )
    ha_max_time_slave_not_catchup: int = key(
        15_000,
        name="haMaxTimeSlaveNotCatchup",
        runtime=True,
        min=100,
        unit="ms",
        help="With a controller: a slave that has not had the end of the log for so long is not in sync.",
    )
