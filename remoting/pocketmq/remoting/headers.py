"""The header fields of every request and answer, as one table (wire.md 2).

`REQUEST_HEADERS[code]` and `RESPONSE_HEADERS[code]` give the class; a code that is in neither table
carries no fields. A field with a default is optional on the wire; names travel in camel case unless
`wire("...")` says otherwise. Sources: *RequestHeader and *ResponseHeader, RocketMQ 4.9.7 and 5.5.0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.header import Header, wire

_H = TypeVar("_H", bound=type[Header])
REQUEST_HEADERS: dict[RequestCode, type[Header]] = {}
RESPONSE_HEADERS: dict[RequestCode, type[Header]] = {}


def _request(*codes: RequestCode) -> Callable[[_H], _H]:
    return _into(REQUEST_HEADERS, codes)


def _response(*codes: RequestCode) -> Callable[[_H], _H]:
    return _into(RESPONSE_HEADERS, codes)


def _into(
    table: dict[RequestCode, type[Header]], codes: tuple[RequestCode, ...]
) -> Callable[[_H], _H]:
    def register(header: _H) -> _H:
        for code in codes:
            table[code] = header
        return header

    return register


# ------------------------------------------------------------ sending


@_request(RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
@dataclass(slots=True)
class SendMessageHeader(Header):
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: int | None = None
    bname: str | None = None


@_request(
    RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2
)
@dataclass(slots=True)
class SendMessageV2Header(Header):
    producer_group: str = wire("a")
    topic: str = wire("b")
    default_topic: str = wire("c")
    default_topic_queue_nums: int = wire("d")
    queue_id: int = wire("e")
    sys_flag: int = wire("f")
    born_timestamp: int = wire("g")
    flag: int = wire("h")
    properties: str | None = wire("i", None)
    reconsume_times: int | None = wire("j", None)
    unit_mode: bool | None = wire("k", None)
    max_reconsume_times: int | None = wire("l", None)
    batch: bool | None = wire("m", None)
    bname: str | None = wire("n", None)


@_response(
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)
@dataclass(slots=True)
class SendMessageResponseHeader(Header):
    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = wire("MSG_REGION", None)
    trace_on: str | None = wire("TRACE_ON", None)


@_request(RequestCode.CONSUMER_SEND_MSG_BACK)
@dataclass(slots=True)
class ConsumerSendMsgBackHeader(Header):
    offset: int
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None
    bname: str | None = None


@_request(RequestCode.END_TRANSACTION)
@dataclass(slots=True)
class EndTransactionHeader(Header):
    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: int
    msg_id: str
    from_transaction_check: bool | None = None
    transaction_id: str | None = None
    topic: str | None = None
    bname: str | None = None


@_request(RequestCode.CHECK_TRANSACTION_STATE)
@dataclass(slots=True)
class CheckTransactionStateHeader(Header):
    tran_state_table_offset: int
    commit_log_offset: int
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    bname: str | None = None


@_request(RequestCode.RECALL_MESSAGE)
@dataclass(slots=True)
class RecallMessageHeader(Header):
    topic: str
    recall_handle: str
    producer_group: str | None = None
    bname: str | None = None


@_response(RequestCode.RECALL_MESSAGE)
@dataclass(slots=True)
class RecallMessageResponseHeader(Header):
    msg_id: str


@_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
@dataclass(slots=True)
class PushReplyMessageHeader(Header):
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    born_host: str
    store_host: str
    store_timestamp: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None


# ------------------------------------------------------------ pulling and offsets


@_request(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
@dataclass(slots=True)
class PullMessageHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    commit_offset: int
    suspend_timeout_millis: int
    sub_version: int
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    request_source: int | None = None
    bname: str | None = None


@_response(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
@dataclass(slots=True)
class PullMessageResponseHeader(Header):
    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    offset_delta: int | None = None
    forbidden_type: int | None = None


@_request(RequestCode.QUERY_CONSUMER_OFFSET)
@dataclass(slots=True)
class QueryConsumerOffsetHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None
    bname: str | None = None


@_response(RequestCode.QUERY_CONSUMER_OFFSET)
@dataclass(slots=True)
class QueryConsumerOffsetResponseHeader(Header):
    offset: int


@_request(RequestCode.UPDATE_CONSUMER_OFFSET)
@dataclass(slots=True)
class UpdateConsumerOffsetHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: int
    bname: str | None = None


@_request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
@dataclass(slots=True)
class SearchOffsetHeader(Header):
    topic: str
    queue_id: int
    timestamp: int
    boundary_type: str | None = None
    bname: str | None = None


@_response(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
@dataclass(slots=True)
class SearchOffsetResponseHeader(Header):
    offset: int


@_request(RequestCode.GET_MAX_OFFSET)
@dataclass(slots=True)
class GetMaxOffsetHeader(Header):
    topic: str
    queue_id: int
    committed: bool | None = None
    bname: str | None = None


@_response(RequestCode.GET_MAX_OFFSET)
@dataclass(slots=True)
class GetMaxOffsetResponseHeader(Header):
    offset: int


@_request(RequestCode.GET_MIN_OFFSET)
@dataclass(slots=True)
class GetMinOffsetHeader(Header):
    topic: str
    queue_id: int
    bname: str | None = None


@_response(RequestCode.GET_MIN_OFFSET)
@dataclass(slots=True)
class GetMinOffsetResponseHeader(Header):
    offset: int


@_request(RequestCode.GET_EARLIEST_MSG_STORETIME)
@dataclass(slots=True)
class GetEarliestMsgStoretimeHeader(Header):
    topic: str
    queue_id: int
    bname: str | None = None


@_response(RequestCode.GET_EARLIEST_MSG_STORETIME)
@dataclass(slots=True)
class GetEarliestMsgStoretimeResponseHeader(Header):
    timestamp: int


@_request(RequestCode.QUERY_MESSAGE)
@dataclass(slots=True)
class QueryMessageHeader(Header):
    topic: str
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int
    unique_key_query: bool | None = wire("_UNIQUE_KEY_QUERY", None)
    index_type: str | None = None
    last_key: str | None = None


@_response(RequestCode.QUERY_MESSAGE)
@dataclass(slots=True)
class QueryMessageResponseHeader(Header):
    index_last_update_timestamp: int
    index_last_update_phyoffset: int


@_request(RequestCode.VIEW_MESSAGE_BY_ID)
@dataclass(slots=True)
class ViewMessageHeader(Header):
    offset: int
    topic: str | None = None


@_request(RequestCode.QUERY_CONSUME_QUEUE)
@dataclass(slots=True)
class QueryConsumeQueueHeader(Header):
    topic: str
    queue_id: int
    index: int
    count: int
    consumer_group: str | None = None


# ------------------------------------------------------------ membership


@_request(RequestCode.UNREGISTER_CLIENT)
@dataclass(slots=True)
class UnregisterClientHeader(Header):
    client_id: str = wire("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None
    bname: str | None = None


@_request(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
@dataclass(slots=True)
class GetConsumerListHeader(Header):
    consumer_group: str
    bname: str | None = None


@_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
@dataclass(slots=True)
class NotifyConsumerIdsChangedHeader(Header):
    consumer_group: str


@_request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
@dataclass(slots=True)
class ResetOffsetHeader(Header):
    topic: str
    group: str
    timestamp: int
    is_force: bool
    queue_id: int | None = None
    offset: int | None = None


@_request(
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
)
@dataclass(slots=True)
class GetConsumerStatusHeader(Header):
    topic: str
    group: str
    client_addr: str | None = None


@_request(RequestCode.GET_CONSUMER_RUNNING_INFO)
@dataclass(slots=True)
class GetConsumerRunningInfoHeader(Header):
    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


@_request(RequestCode.CONSUME_MESSAGE_DIRECTLY)
@dataclass(slots=True)
class ConsumeMessageDirectlyHeader(Header):
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None


# ------------------------------------------------------------ topics and groups


@_request(RequestCode.UPDATE_AND_CREATE_TOPIC)
@dataclass(slots=True)
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


@_request(RequestCode.DELETE_TOPIC_IN_BROKER)
@dataclass(slots=True)
class DeleteTopicHeader(Header):
    topic: str


@_request(RequestCode.DELETE_TOPIC_IN_NAMESRV)
@dataclass(slots=True)
class DeleteTopicInNamesrvHeader(Header):
    topic: str
    cluster_name: str | None = None


@_request(RequestCode.GET_TOPIC_CONFIG)
@dataclass(slots=True)
class GetTopicConfigHeader(Header):
    topic: str
    lo: bool | None = None


@_request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
@dataclass(slots=True)
class GetSubscriptionGroupConfigHeader(Header):
    group: str


@_request(RequestCode.DELETE_SUBSCRIPTIONGROUP)
@dataclass(slots=True)
class DeleteSubscriptionGroupHeader(Header):
    group_name: str
    remove_offset: bool | None = None
    clean_offset: bool | None = None


@_request(RequestCode.GET_TOPIC_STATS_INFO)
@dataclass(slots=True)
class GetTopicStatsInfoHeader(Header):
    topic: str


@_request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
@dataclass(slots=True)
class QueryTopicConsumeByWhoHeader(Header):
    topic: str


@_request(RequestCode.GET_CONSUMER_CONNECTION_LIST)
@dataclass(slots=True)
class GetConsumerConnectionListHeader(Header):
    consumer_group: str


@_request(RequestCode.GET_PRODUCER_CONNECTION_LIST)
@dataclass(slots=True)
class GetProducerConnectionListHeader(Header):
    producer_group: str


@_request(RequestCode.GET_CONSUME_STATS)
@dataclass(slots=True)
class GetConsumeStatsHeader(Header):
    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@_request(RequestCode.QUERY_CONSUME_TIME_SPAN)
@dataclass(slots=True)
class QueryConsumeTimeSpanHeader(Header):
    topic: str
    group: str


@_request(RequestCode.GET_BROKER_CONSUME_STATS)
@dataclass(slots=True)
class GetBrokerConsumeStatsHeader(Header):
    is_order: bool


@_request(RequestCode.VIEW_BROKER_STATS_DATA)
@dataclass(slots=True)
class ViewBrokerStatsDataHeader(Header):
    stats_name: str
    stats_key: str


@_response(RequestCode.GET_BROKER_CONFIG)
@dataclass(slots=True)
class GetBrokerConfigResponseHeader(Header):
    version: str


@_request(RequestCode.CLONE_GROUP_OFFSET)
@dataclass(slots=True)
class CloneGroupOffsetHeader(Header):
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None


@_request(RequestCode.QUERY_CORRECTION_OFFSET)
@dataclass(slots=True)
class QueryCorrectionOffsetHeader(Header):
    compare_group: str
    topic: str
    filter_groups: str | None = None


@_request(RequestCode.RESUME_CHECK_HALF_MESSAGE)
@dataclass(slots=True)
class ResumeCheckHalfMessageHeader(Header):
    msg_id: str | None = None
    topic: str | None = None


@_request(RequestCode.QUERY_TOPICS_BY_CONSUMER)
@dataclass(slots=True)
class QueryTopicsByConsumerHeader(Header):
    group: str


@_request(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER)
@dataclass(slots=True)
class QuerySubscriptionByConsumerHeader(Header):
    group: str
    topic: str


@_request(RequestCode.GET_ALL_TOPIC_CONFIG)
@dataclass(slots=True)
class GetAllTopicConfigHeader(Header):
    topic_seq: int | None = None
    data_version: str | None = None
    max_topic_num: int | None = None


@_request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
@dataclass(slots=True)
class GetAllSubscriptionGroupHeader(Header):
    group_seq: int | None = None
    data_version: str | None = None
    max_group_num: int | None = None


@_response(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
@dataclass(slots=True)
class GetAllSubscriptionGroupResponseHeader(Header):
    total_group_num: int | None = None


@_request(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN)
@dataclass(slots=True)
class GroupForbiddenHeader(Header):
    group: str
    topic: str
    readable: bool | None = None


# ------------------------------------------------------------ pop (5.x)


@_request(RequestCode.POP_MESSAGE)
@dataclass(slots=True)
class PopMessageHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    max_msg_nums: int
    invisible_time: int
    poll_time: int
    born_time: int
    init_mode: int
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None
    bname: str | None = None


@_response(RequestCode.POP_MESSAGE)
@dataclass(slots=True)
class PopMessageResponseHeader(Header):
    pop_time: int
    invisible_time: int
    revive_qid: int
    rest_num: int
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@_request(RequestCode.ACK_MESSAGE)
@dataclass(slots=True)
class AckMessageHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int
    bname: str | None = None


@_request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
@dataclass(slots=True)
class ChangeInvisibleTimeHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int
    invisible_time: int
    bname: str | None = None


@_response(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
@dataclass(slots=True)
class ChangeInvisibleTimeResponseHeader(Header):
    pop_time: int
    invisible_time: int
    revive_qid: int


@_request(RequestCode.NOTIFICATION)
@dataclass(slots=True)
class NotificationHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    poll_time: int
    born_time: int
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None
    bname: str | None = None


@_response(RequestCode.NOTIFICATION)
@dataclass(slots=True)
class NotificationResponseHeader(Header):
    has_msg: bool
    polling_full: bool | None = None


@_request(RequestCode.POLLING_INFO)
@dataclass(slots=True)
class PollingInfoHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    bname: str | None = None


@_response(RequestCode.POLLING_INFO)
@dataclass(slots=True)
class PollingInfoResponseHeader(Header):
    polling_num: int


@_request(RequestCode.PEEK_MESSAGE)
@dataclass(slots=True)
class PeekMessageHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    max_msg_nums: int
    bname: str | None = None


# ------------------------------------------------------------ name server


@_request(RequestCode.PUT_KV_CONFIG)
@dataclass(slots=True)
class PutKVConfigHeader(Header):
    namespace: str
    key: str
    value: str


@_request(RequestCode.GET_KV_CONFIG)
@dataclass(slots=True)
class GetKVConfigHeader(Header):
    namespace: str
    key: str


@_response(RequestCode.GET_KV_CONFIG)
@dataclass(slots=True)
class GetKVConfigResponseHeader(Header):
    value: str | None = None


@_request(RequestCode.DELETE_KV_CONFIG)
@dataclass(slots=True)
class DeleteKVConfigHeader(Header):
    namespace: str
    key: str


@_request(RequestCode.GET_KVLIST_BY_NAMESPACE)
@dataclass(slots=True)
class GetKVListByNamespaceHeader(Header):
    namespace: str


@_request(RequestCode.REGISTER_BROKER)
@dataclass(slots=True)
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


@_response(RequestCode.REGISTER_BROKER)
@dataclass(slots=True)
class RegisterBrokerResponseHeader(Header):
    ha_server_addr: str | None = None
    master_addr: str | None = None


@_request(RequestCode.UNREGISTER_BROKER)
@dataclass(slots=True)
class UnregisterBrokerHeader(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


@_request(RequestCode.QUERY_DATA_VERSION)
@dataclass(slots=True)
class QueryDataVersionHeader(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


@_response(RequestCode.QUERY_DATA_VERSION)
@dataclass(slots=True)
class QueryDataVersionResponseHeader(Header):
    changed: bool


@_request(RequestCode.GET_ROUTEINFO_BY_TOPIC)
@dataclass(slots=True)
class GetRouteInfoHeader(Header):
    topic: str
    accept_standard_json_only: bool | None = None


@_request(RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.ADD_WRITE_PERM_OF_BROKER)
@dataclass(slots=True)
class WipeWritePermHeader(Header):
    broker_name: str


@_response(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
@dataclass(slots=True)
class WipeWritePermResponseHeader(Header):
    wipe_topic_count: int


@_response(RequestCode.ADD_WRITE_PERM_OF_BROKER)
@dataclass(slots=True)
class AddWritePermResponseHeader(Header):
    add_topic_count: int


@_request(RequestCode.GET_TOPICS_BY_CLUSTER)
@dataclass(slots=True)
class GetTopicsByClusterHeader(Header):
    cluster: str


@_request(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
@dataclass(slots=True)
class RegisterTopicHeader(Header):
    topic: str


@_request(RequestCode.GET_BROKER_MEMBER_GROUP)
@dataclass(slots=True)
class GetBrokerMemberGroupHeader(Header):
    cluster_name: str
    broker_name: str


@_request(RequestCode.BROKER_HEARTBEAT)
@dataclass(slots=True)
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


# ------------------------------------------------------------ ours: what PocketRequestCode asks


@dataclass(slots=True)
class GetGroupFindingsHeader(Header):
    group: str | None = None


@dataclass(slots=True)
class GetMessageTrackHeader(Header):
    msg_id: str | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    group: str | None = None


@dataclass(slots=True)
class GetTimersHeader(Header):
    topic: str | None = None
    count: int | None = None
