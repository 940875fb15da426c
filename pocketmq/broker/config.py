"""The broker's settings, as broker.conf names them. Source: BrokerConfig, NettyServerConfig, 4.9.7."""

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pocketmq.broker.delivery.record_config import RecordConfig
from pocketmq.broker.election.config import ElectionConfig
from pocketmq.broker.figures.doctor_config import DoctorConfig
from pocketmq.broker.ha.config import HaConfig
from pocketmq.broker.nameservers.address_config import AddressConfig
from pocketmq.broker.once.config import OnceConfig
from pocketmq.broker.table_config import TableConfig
from pocketmq.model.names import TRACE_TOPIC
from pocketmq.remoting.serving.log_levels import LogConfig
from pocketmq.remoting.settings import key
from pocketmq.remoting.transport.limits import ConnectionLimits

_IDENTITY = "name servers and clients know the broker by it"
_OPEN = "the port is already open"
_AT_START = "it is read only once, when the broker starts"
_FILTERS = "the filters on disk were built with it"
_FIXED = {
    _IDENTITY: "brokerName brokerClusterName brokerId brokerRole brokerIP1 brokerIP2",
    "the slave has been using it since its start": "haMasterAddress masterAddress "
    "innerClientAuthenticationCredentials asyncLearner",
    _OPEN: "bindAddress listenPort fastListenEnable haListenPort advertisedPort",
    _AT_START: "defaultTopicQueueNums clusterTopicEnable brokerTopicEnable traceTopicEnable "
    "msgTraceTopicName timerWheelEnable aclEnable aclFile authenticationEnabled authorizationEnabled "
    "initAuthenticationUser enableControllerMode controllerAddr "
    "sendOnceWindow sendOnceKeys",
    _FILTERS: "expectConsumerNumUseFilter maxErrorRateOfBloomFilter",
    "the files on disk have that size": "mappedFileSizeTimerLog",
    "messages are waiting in topics of that name": "enableRetryTopicV2",
    "open connections keep their limits": "frameMaxLength maxConnections maxConnectionsPerAddress "
    "halfFramesMaxSize unreadMaxSize keptRequestsMaxSize",
}


@dataclass
class BrokerConfig(
    HaConfig,
    AddressConfig,
    ElectionConfig,
    TableConfig,
    LogConfig,
    OnceConfig,
    RecordConfig,
    DoctorConfig,
):
    """The settings of one broker."""

    FIXED: ClassVar[Mapping[str, str]] = {
        name: why for why, names in _FIXED.items() for name in names.split()
    }

    broker_name: str = key(
        "",
        name="brokerName",
        help="Name of this broker in its cluster; by default the one that its store knows, else the host's.",
    )
    broker_cluster_name: str = key(
        "DefaultCluster", name="brokerClusterName", help="Cluster that this broker belongs to."
    )
    namesrv_addr: str = key(
        "",
        name="namesrvAddr",
        runtime=True,
        help="Name servers, `ip:port;ip:port`. If empty, the one in this process.",
    )
    register_name_server_period: int = key(
        30_000,
        name="registerNameServerPeriod",
        runtime=True,
        min=10_000,
        max=60_000,
        unit="ms",
        help="Interval between registrations with the name servers.",
    )
    register_broker_timeout_mills: int = key(
        6_000,
        name="registerBrokerTimeoutMills",
        min=1,
        unit="ms",
        runtime=True,
        help="Time a name server has to answer a registration.",
    )
    force_register: bool = key(
        True,
        name="forceRegister",
        runtime=True,
        help="Register every time. If off, each name server is first asked whether anything has changed.",
    )
    compressed_register: bool = key(
        False,
        name="compressedRegister",
        runtime=True,
        help="Compress registrations; for brokers with very many topics.",
    )
    broker_permission: int = key(
        6,
        name="brokerPermission",
        min=0,
        max=7,
        runtime=True,
        help="What clients may do at this broker: 4 read, 2 write, 6 both.",
    )
    default_topic_queue_nums: int = key(
        8,
        name="defaultTopicQueueNums",
        min=1,
        help="Queues of TBW102: the most that an automatically created topic gets.",
    )
    auto_create_topic_enable: bool = key(
        True,
        name="autoCreateTopicEnable",
        runtime=True,
        help="Create a topic when a producer first sends to it.",
    )
    auto_create_subscription_group: bool = key(
        True,
        name="autoCreateSubscriptionGroup",
        runtime=True,
        help="Create a group when it is first used.",
    )
    cluster_topic_enable: bool = key(
        True,
        name="clusterTopicEnable",
        help="Clients may use the topic that has the cluster's name.",
    )
    broker_topic_enable: bool = key(
        True, name="brokerTopicEnable", help="Clients may use the topic that has the broker's name."
    )
    trace_topic_enable: bool = key(
        False, name="traceTopicEnable", help="Create the trace topic when the broker starts."
    )
    msg_trace_topic_name: str = key(
        TRACE_TOPIC, name="msgTraceTopicName", help="Name of the trace topic."
    )
    trace_on: bool = key(True, name="traceOn", runtime=True, help="Tell producers to send traces.")
    region_id: str = key(
        "DefaultRegion",
        name="regionId",
        runtime=True,
        help="Region reported to producers (MSG_REGION).",
    )
    flush_consumer_offset_interval: int = key(
        5_000,
        name="flushConsumerOffsetInterval",
        runtime=True,
        min=1,
        unit="ms",
        help="Interval between saves of config/consumerOffset.json.",
    )
    max_transfer_count_on_message_in_memory: int = key(
        32,
        name="maxTransferCountOnMessageInMemory",
        min=1,
        max=16_384,
        runtime=True,
        help="Messages that a pull is answered with at most.",
    )
    long_polling_enable: bool = key(
        True,
        name="longPollingEnable",
        runtime=True,
        help="Hold a pull that finds no message until one arrives.",
    )
    short_polling_time_mills: int = key(
        1_000,
        name="shortPollingTimeMills",
        min=1,
        unit="ms",
        runtime=True,
        help="How long a pull is held if longPollingEnable is off.",
    )
    notify_consumer_ids_changed_enable: bool = key(
        True,
        name="notifyConsumerIdsChangedEnable",
        runtime=True,
        help="Tell the members of a group at once when a member joins or leaves.",
    )
    reject_transaction_message: bool = key(
        False,
        name="rejectTransactionMessage",
        runtime=True,
        help="Refuse transactional messages.",
    )
    transaction_time_out: int = key(
        6_000,
        name="transactionTimeOut",
        min=0,
        unit="ms",
        runtime=True,
        help="A half message is not checked until it is this old.",
    )
    transaction_check_max: int = key(
        15,
        name="transactionCheckMax",
        min=0,
        runtime=True,
        help="A half message is given up after this many checks without an answer.",
    )
    transaction_check_interval: int = key(
        30_000,
        name="transactionCheckInterval",
        min=1,
        unit="ms",
        runtime=True,
        help="Interval between rounds of transaction checks (RocketMQ 5.x has 30000, 4.9 60000).",
    )
    store_reply_message_enable: bool = key(
        True,
        name="storeReplyMessageEnable",
        runtime=True,
        help="Store the replies of request-reply as well as pushing them.",
    )
    start_accept_send_request_time_stamp: int = key(
        0,
        name="startAcceptSendRequestTimeStamp",
        min=0,
        unit="ms since 1970",
        runtime=True,
        help="Sends are refused before this time.",
    )
    enable_property_filter: bool = key(
        True,
        name="enablePropertyFilter",
        runtime=True,
        help="Serve SQL92 subscriptions. RocketMQ's own default is false.",
    )
    enable_calc_filter_bit_map: bool = key(
        False,
        name="enableCalcFilterBitMap",
        runtime=True,
        help="Store a bitmap of the matching SQL92 subscriptions in consumequeue_ext.",
    )
    expect_consumer_num_use_filter: int = key(
        32,
        name="expectConsumerNumUseFilter",
        min=1,
        help="Number of groups that a bitmap is sized for.",
    )
    max_error_rate_of_bloom_filter: int = key(
        20,
        name="maxErrorRateOfBloomFilter",
        min=1,
        max=99,
        unit="percent",
        help="Error rate that a bitmap is sized for.",
    )
    filter_data_clean_time_span: int = key(
        24 * 3600 * 1000,
        name="filterDataCleanTimeSpan",
        runtime=True,
        min=1,
        unit="ms",
        help="How long the expressions of a vanished group are kept.",
    )
    lite_pull_message_enable: bool = key(
        True, name="litePullMessageEnable", runtime=True, help="Serve LITE_PULL_MESSAGE."
    )
    acl_enable: bool = key(
        False,
        name="aclEnable",
        help="Serve only requests that are signed by an account of aclFile with the right to make them, "
        "and requests from addresses that the file admits.",
    )
    acl_file: str = key(
        "",
        name="aclFile",
        help="PocketMQ only: file of the accounts, in the form of RocketMQ's plain_acl.yml; .yml files in "
        "the directory acl next to it count too. By default config/plain_acl.yml of the store. Read again "
        "when it changes.",
    )
    authentication_enabled: bool = key(
        False,
        name="authenticationEnabled",
        help="Serve only requests that are signed by an enabled user (mqadmin createUser); instead of "
        "aclEnable.",
    )
    authorization_enabled: bool = key(
        False,
        name="authorizationEnabled",
        help="With authenticationEnabled: a normal user may do only what its policies allow (mqadmin "
        "createAcl).",
    )
    init_authentication_user: str = key(
        "",
        name="initAuthenticationUser",
        help='Super user that is created at the start unless it exists, as JSON: {"username": '
        '..., "password": ...}.',
    )
    group_mode: str = key(
        "compatible",
        name="groupMode",
        choices=("compatible", "strict", "isolate"),
        runtime=True,
        help="What happens when members of one group subscribe differently. compatible: messages are lost, "
        "as in RocketMQ. strict: the second subscription is refused. isolate: each message goes to one of "
        "the members that asked for it. A group's attribute group.mode takes precedence.",
    )
    isolate_keep_time: int = key(
        60_000,
        name="isolateKeepTime",
        min=0,
        unit="ms",
        runtime=True,
        help="groupMode=isolate: how long messages are kept for a sub-group (members with one subscription) "
        "that has no member left. After that, others that ask for the same messages get them.",
    )
    isolate_remember_time: int = key(
        72 * 3_600_000,
        name="isolateRememberTime",
        min=0,
        unit="ms",
        runtime=True,
        help="groupMode=isolate: how long messages without a subscriber are kept for a new one (within "
        "fileReservedTime).",
    )
    timer_wheel_enable: bool = key(
        True,
        name="timerWheelEnable",
        help="Deliver the messages of 5.x producers at the time set on them.",
    )
    timer_max_delay_sec: int = key(
        40 * 24 * 3600,
        name="timerMaxDelaySec",
        min=1,
        unit="s",
        runtime=True,
        help="How far ahead that time may be. RocketMQ's own default is 3 days.",
    )
    mapped_file_size_timer_log: int = key(
        100 << 20,
        name="mappedFileSizeTimerLog",
        min=1024,
        unit="bytes",
        help="Size of one file of the timer log; existing files keep theirs.",
    )
    recall_message_enable: bool = key(
        True,
        name="recallMessageEnable",
        runtime=True,
        help="Let producers recall a message before its time. RocketMQ's own default is false.",
    )
    default_message_request_mode: str = key(
        "PULL",
        name="defaultMessageRequestMode",
        choices=("PULL", "POP"),
        runtime=True,
        help="How 5.x clients that ask the broker for their queues get messages, unless their group is set "
        "otherwise.",
    )
    default_pop_share_queue_num: int = key(
        -1,
        name="defaultPopShareQueueNum",
        runtime=True,
        help="With POP by default: how many other members' queues a member may pop; below 1: all of them.",
    )
    enable_retry_topic_v2: bool = key(
        False,
        name="enableRetryTopicV2",
        help="Name pop retry topics %RETRY%GROUP+TOPIC instead of %RETRY%GROUP_TOPIC. Messages in both are "
        "popped.",
    )
    pop_from_retry_probability: int = key(
        20,
        name="popFromRetryProbability",
        min=0,
        max=100,
        unit="percent",
        runtime=True,
        help="Percentage of pops that look in the retry topic first; the others look there last.",
    )
    pull_polling_size: int = key(
        4096,
        name="pullPollingSize",
        min=1,
        runtime=True,
        help="Pulls that may wait for messages of one queue. Further ones are answered with SYSTEM_BUSY, "
        "and clients try again later.",
    )
    max_pull_polling_size: int = key(
        100_000,
        name="maxPullPollingSize",
        min=1,
        runtime=True,
        help="Pulls that may wait in all; one with a SQL92 filter counts as several.",
    )
    pop_polling_size: int = key(
        1024,
        name="popPollingSize",
        min=0,
        runtime=True,
        help="Pops of one group that may wait for messages of one queue, or of all queues of a topic.",
    )
    max_pop_polling_size: int = key(
        100_000,
        name="maxPopPollingSize",
        min=0,
        runtime=True,
        help="Pops that may wait in all; one with a SQL92 filter counts as several.",
    )
    pop_dead_letter_enable: bool = key(
        True,
        name="popDeadLetterEnable",
        runtime=True,
        help="Move messages that were popped retryMaxTimes without an acknowledgement to the group's dead "
        "letters. If off, they are delivered again for ever, as in RocketMQ without its proxy.",
    )
    group_guard_grace_time: int = key(
        60_000,
        name="groupGuardGraceTime",
        min=0,
        unit="ms",
        runtime=True,
        help="Members that subscribe differently for longer than this are reported in the log and the "
        "console. Shorter differences are clients that are starting, or a change being rolled out.",
    )
    server_channel_max_idle_time_seconds: int = key(
        120,
        name="serverChannelMaxIdleTimeSeconds",
        runtime=True,
        min=1,
        unit="s",
        help="A connection without traffic for this long is closed.",
    )
    frame_max_length: int = key(
        16_777_216,
        name="frameMaxLength",
        min=1024,
        unit="bytes",
        help="Largest frame, including its length field (a system property in RocketMQ).",
    )
    max_connections: int = key(
        0,
        name="maxConnections",
        min=0,
        help="Connections served at a time; further ones are closed. 0: seven eighths of the file "
        "descriptors that the process may open.",
    )
    max_connections_per_address: int = key(
        0,
        name="maxConnectionsPerAddress",
        min=0,
        help="Connections from one IP address at a time; 0: no limit.",
    )
    half_frames_max_size: int = key(
        64 << 20,
        name="halfFramesMaxSize",
        min=1 << 20,
        unit="bytes",
        help="Memory for incomplete frames of all connections together. Above it they are read one after "
        "another.",
    )
    unread_max_size: int = key(
        256 << 20,
        name="unreadMaxSize",
        min=1 << 20,
        unit="bytes",
        help="Memory for answers that clients do not read, of all connections together. Above it the "
        "connection with the most is closed. Messages mapped from files do not count.",
    )
    kept_requests_max_size: int = key(
        128 << 20,
        name="keptRequestsMaxSize",
        min=1 << 20,
        unit="bytes",
        help="Memory for requests that wait for another client's answer, such as replies, of all connections "
        "together. One may keep a third of what is left; further ones are answered SYSTEM_BUSY.",
    )

    @property
    def connection_limits(self) -> ConnectionLimits:
        return ConnectionLimits(
            self.max_connections,
            self.max_connections_per_address,
            self.half_frames_max_size,
            self.unread_max_size,
            self.kept_requests_max_size,
        )

    def __post_init__(self) -> None:
        if not self.broker_name:
            self.broker_name = _host_name()


def _host_name() -> str:
    """Return the host name, reduced to what a topic name allows, since one topic is named after it."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())
    return name or "DEFAULT_BROKER"
