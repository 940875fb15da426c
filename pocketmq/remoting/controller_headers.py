"""The header fields of RocketMQ's controller mode: brokers, controllers and tools. Source: the *RequestHeader
and *ResponseHeader classes of protocol.header.controller, RocketMQ 5.5.0.
"""

from pocketmq.remoting.header import Header

NO_BROKER = -1
"""Broker id of an election that the controller itself asks for."""


class ControllerMetadataHeader(Header):
    """Answer of 1005. peers: `id:ip:port;...`; the address is absent while no controller leads."""

    group: str
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str = ""


class SetNameHeader(Header):
    """1012."""

    cluster_name: str
    broker_name: str


class NextBrokerIdHeader(Header):
    """Answer of 1012."""

    cluster_name: str
    broker_name: str
    next_broker_id: int


class ApplyBrokerIdHeader(Header):
    """1013. register_check_code: `ip:port;ms`, by which the same broker is known when it asks again."""

    cluster_name: str
    broker_name: str
    applied_broker_id: int
    register_check_code: str


class RegisterReplicaHeader(Header):
    """1003."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_address: str
    invoke_time: int | None = None


class ElectMasterHeader(Header):
    """1002. designate_elect: this broker or none."""

    cluster_name: str
    broker_name: str
    broker_id: int = NO_BROKER
    designate_elect: bool = False
    invoke_time: int | None = None


class MasterHeader(Header):
    """Answer of 1002, 1003 and 1004; the header of 1008. Without a master the first two are absent."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None


class ReplicaInfoHeader(Header):
    """1004."""

    broker_name: str


class AlterSyncStateSetHeader(Header):
    """1001."""

    broker_name: str
    master_broker_id: int
    master_epoch: int
    invoke_time: int | None = None


class AlteredHeader(Header):
    """Answer of 1001."""

    new_sync_state_set_epoch: int


class CleanBrokerDataHeader(Header):
    """1011. broker_controller_ids_to_clean: `1;2`; empty: all."""

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: int | None = None
