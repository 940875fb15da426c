"""The header fields of clients' requests and answers; admin_headers.py has those of tools and name servers.
requests.py assigns both to codes.

A field with a default is optional on the wire; names travel in camel case unless `wire("...")` says
otherwise. Sources: *RequestHeader and *ResponseHeader, RocketMQ 4.9.7 and 5.5.0.
"""

from pocketmq.remoting.header import Header, wire

# ------------------------------------------------------------ sending


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


class SendMessageV2Header(Header):
    producer_group: str = wire("a")
    topic: str = wire("b")
    default_topic: str = wire("c")
    default_topic_queue_nums: int = wire("d")
    queue_id: int = wire("e")
    sys_flag: int = wire("f")
    born_timestamp: int = wire("g")
    flag: int = wire("h")
    properties: str | None = wire("i", default=None)
    reconsume_times: int | None = wire("j", default=None)
    unit_mode: bool | None = wire("k", default=None)
    max_reconsume_times: int | None = wire("l", default=None)
    batch: bool | None = wire("m", default=None)
    bname: str | None = wire("n", default=None)


class SendMessageResponseHeader(Header):
    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = wire("MSG_REGION", default=None)
    trace_on: str | None = wire("TRACE_ON", default=None)


class ConsumerSendMsgBackHeader(Header):
    offset: int
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None
    bname: str | None = None


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


class CheckTransactionStateHeader(Header):
    tran_state_table_offset: int
    commit_log_offset: int
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    bname: str | None = None


class RecallMessageHeader(Header):
    topic: str
    recall_handle: str
    producer_group: str | None = None
    bname: str | None = None


class RecallMessageResponseHeader(Header):
    msg_id: str


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


class PullMessageResponseHeader(Header):
    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    offset_delta: int | None = None
    forbidden_type: int | None = None


class QueryConsumerOffsetHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None
    bname: str | None = None


class QueryConsumerOffsetResponseHeader(Header):
    offset: int


class UpdateConsumerOffsetHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: int
    bname: str | None = None


class SearchOffsetHeader(Header):
    topic: str
    queue_id: int
    timestamp: int
    boundary_type: str | None = None
    bname: str | None = None


class SearchOffsetResponseHeader(Header):
    offset: int


class GetMaxOffsetHeader(Header):
    topic: str
    queue_id: int
    committed: bool | None = None
    bname: str | None = None


class GetMaxOffsetResponseHeader(Header):
    offset: int


class GetMinOffsetHeader(Header):
    topic: str
    queue_id: int
    bname: str | None = None


class GetMinOffsetResponseHeader(Header):
    offset: int


class GetEarliestMsgStoretimeHeader(Header):
    topic: str
    queue_id: int
    bname: str | None = None


class GetEarliestMsgStoretimeResponseHeader(Header):
    timestamp: int


class QueryMessageHeader(Header):
    topic: str
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int
    unique_key_query: bool | None = wire("_UNIQUE_KEY_QUERY", default=None)
    index_type: str | None = None
    last_key: str | None = None


class QueryMessageResponseHeader(Header):
    index_last_update_timestamp: int
    index_last_update_phyoffset: int


class ViewMessageHeader(Header):
    offset: int
    topic: str | None = None


class QueryConsumeQueueHeader(Header):
    topic: str
    queue_id: int
    index: int
    count: int
    consumer_group: str | None = None


# ------------------------------------------------------------ membership


class UnregisterClientHeader(Header):
    client_id: str = wire("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None
    bname: str | None = None


class GetConsumerListHeader(Header):
    consumer_group: str
    bname: str | None = None


class NotifyConsumerIdsChangedHeader(Header):
    consumer_group: str


class ResetOffsetHeader(Header):
    topic: str
    group: str
    timestamp: int
    is_force: bool
    queue_id: int | None = None
    offset: int | None = None


class GetConsumerStatusHeader(Header):
    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfoHeader(Header):
    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


class ConsumeMessageDirectlyHeader(Header):
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None


# ------------------------------------------------------------ pop (5.x)


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


class PopMessageResponseHeader(Header):
    pop_time: int
    invisible_time: int
    revive_qid: int
    rest_num: int
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int
    bname: str | None = None
    lite_topic: str | None = None


class ChangeInvisibleTimeHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int
    invisible_time: int
    bname: str | None = None
    lite_topic: str | None = None


class ChangeInvisibleTimeResponseHeader(Header):
    pop_time: int
    invisible_time: int
    revive_qid: int


class PopLiteMessageHeader(Header):
    client_id: str
    consumer_group: str
    topic: str
    max_msg_num: int
    invisible_time: int
    poll_time: int
    born_time: int
    attempt_id: str | None = None
    bname: str | None = None


class PopLiteMessageResponseHeader(Header):
    pop_time: int
    invisible_time: int
    revive_qid: int
    order_count_info: str | None = None


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


class NotificationResponseHeader(Header):
    has_msg: bool
    polling_full: bool | None = None


class PollingInfoHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    bname: str | None = None


class PollingInfoResponseHeader(Header):
    polling_num: int


class PeekMessageHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    max_msg_nums: int
    bname: str | None = None
