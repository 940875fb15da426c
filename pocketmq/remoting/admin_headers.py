"""The header fields of requests about topics, groups and routes, and of their answers; as headers.py.

A field with a default is optional on the wire; names travel in camel case unless `wire("...")` says
otherwise. Sources: *RequestHeader and *ResponseHeader, RocketMQ 4.9.7 and 5.5.0.
"""

from pocketmq.remoting.header import Header

# ------------------------------------------------------------ topics and groups


class CreateTopicHeader(Header):
    topic: str
    default_topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str
    topic_sys_flag: int | None = None
    order: bool | None = None
    attributes: str | None = None
    force: bool | None = None


class DeleteTopicHeader(Header):
    topic: str


class DeleteTopicInNamesrvHeader(Header):
    topic: str
    cluster_name: str | None = None


class GetTopicConfigHeader(Header):
    topic: str
    lo: bool | None = None


class GetSubscriptionGroupConfigHeader(Header):
    group: str


class DeleteSubscriptionGroupHeader(Header):
    group_name: str
    remove_offset: bool | None = None
    clean_offset: bool | None = None


class GetTopicStatsInfoHeader(Header):
    topic: str


class QueryTopicConsumeByWhoHeader(Header):
    topic: str


class GetConsumerConnectionListHeader(Header):
    consumer_group: str


class GetProducerConnectionListHeader(Header):
    producer_group: str


class GetConsumeStatsHeader(Header):
    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class QueryConsumeTimeSpanHeader(Header):
    topic: str
    group: str


class GetBrokerConsumeStatsHeader(Header):
    is_order: bool


class ViewBrokerStatsDataHeader(Header):
    stats_name: str
    stats_key: str


class AclConfigHeader(Header):
    """Lists are comma-separated; what is not given stays as it is."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class UserHeader(Header):
    username: str | None = None


class ListUsersHeader(Header):
    filter: str | None = None


class SubjectHeader(Header):
    subject: str | None = None


class DeletePolicyHeader(Header):
    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class ListPoliciesHeader(Header):
    subject_filter: str | None = None
    resource_filter: str | None = None


class DeleteAclConfigHeader(Header):
    access_key: str


class GlobalWhiteAddrsHeader(Header):
    global_white_addrs: str
    acl_file_full_path: str | None = None


class BrokerAclInfoResponseHeader(Header):
    """The versions are JSON."""

    version: str
    broker_name: str
    broker_addr: str
    cluster_name: str
    all_acl_file_version: str | None = None


class GetBrokerConfigResponseHeader(Header):
    version: str


class CloneGroupOffsetHeader(Header):
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None


class QueryCorrectionOffsetHeader(Header):
    compare_group: str
    topic: str
    filter_groups: str | None = None


class ResumeCheckHalfMessageHeader(Header):
    msg_id: str | None = None
    topic: str | None = None


class QueryTopicsByConsumerHeader(Header):
    group: str


class QuerySubscriptionByConsumerHeader(Header):
    group: str
    topic: str


class GetAllTopicConfigHeader(Header):
    topic_seq: int | None = None
    data_version: str | None = None
    max_topic_num: int | None = None


class GetAllSubscriptionGroupHeader(Header):
    group_seq: int | None = None
    data_version: str | None = None
    max_group_num: int | None = None


class GetAllSubscriptionGroupResponseHeader(Header):
    total_group_num: int | None = None


class GroupForbiddenHeader(Header):
    group: str
    topic: str
    readable: bool | None = None


# ------------------------------------------------------------ name server


class PutKVConfigHeader(Header):
    namespace: str
    key: str
    value: str


class GetKVConfigHeader(Header):
    namespace: str
    key: str


class GetKVConfigResponseHeader(Header):
    value: str | None = None


class DeleteKVConfigHeader(Header):
    namespace: str
    key: str


class GetKVListByNamespaceHeader(Header):
    namespace: str


class RegisterBrokerHeader(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: int
    compressed: bool | None = None
    body_crc32: int | None = None
    heartbeat_timeout_millis: int | None = None
    enable_acting_master: bool | None = None


class RegisterBrokerResponseHeader(Header):
    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerHeader(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


class QueryDataVersionHeader(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


class QueryDataVersionResponseHeader(Header):
    changed: bool


class GetRouteInfoHeader(Header):
    topic: str
    accept_standard_json_only: bool | None = None


class WipeWritePermHeader(Header):
    broker_name: str


class WipeWritePermResponseHeader(Header):
    wipe_topic_count: int


class AddWritePermResponseHeader(Header):
    add_topic_count: int


class GetTopicsByClusterHeader(Header):
    cluster: str


class RegisterTopicHeader(Header):
    topic: str


class GetBrokerMemberGroupHeader(Header):
    cluster_name: str
    broker_name: str


class BrokerHeartbeatHeader(Header):
    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: int | None = None
    epoch: int | None = None
    max_offset: int | None = None
    confirm_offset: int | None = None
    heartbeat_timeout_mills: int | None = None
    election_priority: int | None = None


# ------------------------------------------------------------ controllers, 5.x

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


# ------------------------------------------------------------ lite topics


class GetParentTopicInfoHeader(Header):
    topic: str


class GetLiteTopicInfoHeader(Header):
    parent_topic: str
    lite_topic: str


class GetLiteClientInfoHeader(Header):
    parent_topic: str
    group: str
    client_id: str
    max_count: int | None = None


class GetLiteGroupInfoHeader(Header):
    group: str
    top_k: int
    lite_topic: str | None = None


class TriggerLiteDispatchHeader(Header):
    group: str
    client_id: str | None = None
