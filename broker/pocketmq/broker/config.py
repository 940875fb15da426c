"""The broker's settings, under their broker.conf names; broker_conf.py reads such a file. Source:
BrokerConfig, NettyServerConfig, MessageStoreConfig, RocketMQ 4.9.7.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pocketmq.broker.ha.config import HaConfig
from pocketmq.remoting.names import TRACE_TOPIC
from pocketmq.remoting.settings import key
from pocketmq.remoting.shares import ConnectionLimits

_IDENTITY = "name servers and clients know the broker by it"
_OPEN = "the port is open already"
_AT_START = "it is read once, when the broker starts"
_FILTERS = "the filters on disk are made with it"
_FIXED = {
    _IDENTITY: "brokerName brokerClusterName brokerId brokerRole brokerIP1 brokerIP2",
    "a slave uses it since its start": "haMasterAddress innerClientAuthenticationCredentials",
    _OPEN: "bindAddress listenPort fastListenEnable haListenPort advertisedPort",
    _AT_START: "defaultTopicQueueNums clusterTopicEnable brokerTopicEnable traceTopicEnable "
    "msgTraceTopicName timerWheelEnable aclEnable aclFile",
    _FILTERS: "expectConsumerNumUseFilter maxErrorRateOfBloomFilter",
    "files of that size are on disk": "mappedFileSizeTimerLog",
    "messages wait in topics of that name": "enableRetryTopicV2",
    "open connections keep their limits": "frameMaxLength maxConnections "
    "maxConnectionsPerAddress halfFramesMaxSize unreadMaxSize",
}


@dataclass
class BrokerConfig(HaConfig):
    """The settings of one broker."""

    FIXED: ClassVar[Mapping[str, str]] = {
        name: why for why, names in _FIXED.items() for name in names.split()
    }

    broker_name: str = key(
        "", name="brokerName", help="Name of this broker in its cluster; the host's name if empty."
    )
    broker_cluster_name: str = key(
        "DefaultCluster", name="brokerClusterName", help="Cluster that this broker belongs to."
    )
    namesrv_addr: str = key(
        "",
        name="namesrvAddr",
        runtime=True,
        help="Name servers, `ip:port;ip:port`. Empty: the one of this process.",
    )
    register_name_server_period: int = key(
        30_000,
        name="registerNameServerPeriod",
        runtime=True,
        min=10_000,
        max=60_000,
        unit="ms",
        help="Pause between two registrations with the name servers.",
    )
    register_broker_timeout_mills: int = key(
        6_000,
        name="registerBrokerTimeoutMills",
        min=1,
        unit="ms",
        runtime=True,
        help="How long a name server may take to answer a registration.",
    )
    force_register: bool = key(
        True,
        name="forceRegister",
        runtime=True,
        help="Register every time. Off: ask each name server first whether anything has changed.",
    )
    compressed_register: bool = key(
        False,
        name="compressedRegister",
        runtime=True,
        help="Register with a compressed body, for very many topics.",
    )
    broker_permission: int = key(
        6,
        name="brokerPermission",
        min=0,
        max=7,
        runtime=True,
        help="4 may be read, 2 may be written, 6 both.",
    )
    default_topic_queue_nums: int = key(
        8,
        name="defaultTopicQueueNums",
        min=1,
        help="Queues of TBW102, the most that an automatically created topic gets.",
    )
    auto_create_topic_enable: bool = key(
        True,
        name="autoCreateTopicEnable",
        runtime=True,
        help="A producer's first send creates its topic.",
    )
    auto_create_subscription_group: bool = key(
        True,
        name="autoCreateSubscriptionGroup",
        runtime=True,
        help="A group is created when it is first used.",
    )
    cluster_topic_enable: bool = key(
        True, name="clusterTopicEnable", help="The topic named as the cluster can be used."
    )
    broker_topic_enable: bool = key(
        True, name="brokerTopicEnable", help="The topic named as the broker can be used."
    )
    trace_topic_enable: bool = key(
        False, name="traceTopicEnable", help="Create the trace topic when the broker starts."
    )
    msg_trace_topic_name: str = key(
        TRACE_TOPIC, name="msgTraceTopicName", help="Name of the trace topic."
    )
    trace_on: bool = key(
        True, name="traceOn", runtime=True, help="Producers are told that tracing is wanted."
    )
    region_id: str = key(
        "DefaultRegion",
        name="regionId",
        runtime=True,
        help="Region that producers are told (MSG_REGION).",
    )
    flush_consumer_offset_interval: int = key(
        5_000,
        name="flushConsumerOffsetInterval",
        runtime=True,
        min=1,
        unit="ms",
        help="Pause between two saves of config/consumerOffset.json.",
    )
    long_polling_enable: bool = key(
        True, name="longPollingEnable", runtime=True, help="Hold a pull that finds nothing."
    )
    short_polling_time_mills: int = key(
        1_000,
        name="shortPollingTimeMills",
        min=1,
        unit="ms",
        runtime=True,
        help="How long such a pull is held without longPollingEnable.",
    )
    notify_consumer_ids_changed_enable: bool = key(
        True,
        name="notifyConsumerIdsChangedEnable",
        runtime=True,
        help="Tell the members of a group at once when one comes or goes.",
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
        help="A half message is not checked while it is younger than this.",
    )
    transaction_check_max: int = key(
        15,
        name="transactionCheckMax",
        min=0,
        runtime=True,
        help="A half message that was checked so often in vain is given up.",
    )
    transaction_check_interval: int = key(
        60_000,
        name="transactionCheckInterval",
        min=1,
        unit="ms",
        runtime=True,
        help="Pause between two rounds of transaction checks.",
    )
    store_reply_message_enable: bool = key(
        True,
        name="storeReplyMessageEnable",
        runtime=True,
        help="Store replies of request-reply beside pushing them.",
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
        help="Write a bit map of the SQL92 subscriptions that match into consumequeue_ext.",
    )
    expect_consumer_num_use_filter: int = key(
        32, name="expectConsumerNumUseFilter", min=1, help="Groups that a bit map is sized for."
    )
    max_error_rate_of_bloom_filter: int = key(
        20,
        name="maxErrorRateOfBloomFilter",
        min=1,
        max=99,
        unit="percent",
        help="Error rate that a bit map is sized for.",
    )
    filter_data_clean_time_span: int = key(
        24 * 3600 * 1000,
        name="filterDataCleanTimeSpan",
        runtime=True,
        min=1,
        unit="ms",
        help="Expressions of groups that are gone are kept so long.",
    )
    lite_pull_message_enable: bool = key(
        True, name="litePullMessageEnable", runtime=True, help="Serve LITE_PULL_MESSAGE."
    )
    acl_enable: bool = key(
        False,
        name="aclEnable",
        help="Serve only requests that are signed by an account of aclFile, which may do what they ask for, "
        "and requests of addresses that the file lets in.",
    )
    acl_file: str = key(
        "",
        name="aclFile",
        help="The accounts, as RocketMQ's plain_acl.yml; .yml files of the folder acl beside it count, too. "
        "Empty: config/plain_acl.yml of the store. Read again when it changes. Ours.",
    )
    group_mode: str = key(
        "compatible",
        name="groupMode",
        choices=("compatible", "strict", "isolate"),
        runtime=True,
        help="What happens when members of one group subscribe differently. compatible: as in RocketMQ, "
        "messages are lost. strict: the second subscription is refused. isolate: each message goes to "
        "one of those that asked for it. A group's attribute group.mode wins over this.",
    )
    isolate_keep_time: int = key(
        60_000,
        name="isolateKeepTime",
        min=0,
        unit="ms",
        runtime=True,
        help="groupMode=isolate: members with one subscription that have all gone are waited for so long; "
        "then others that ask for the same messages get them.",
    )
    isolate_remember_time: int = key(
        72 * 3_600_000,
        name="isolateRememberTime",
        min=0,
        unit="ms",
        runtime=True,
        help="groupMode=isolate: messages that nobody asks for any more wait so long for somebody who "
        "asks again; as long as fileReservedTime keeps them.",
    )
    timer_wheel_enable: bool = key(
        True,
        name="timerWheelEnable",
        help="Deliver messages of 5.x producers at the time that they name.",
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
        help="Size of a file of the timer log; files that are there keep theirs.",
    )
    recall_message_enable: bool = key(
        True,
        name="recallMessageEnable",
        runtime=True,
        help="Producers may cancel a message that is not due yet. RocketMQ's own default is false.",
    )
    default_message_request_mode: str = key(
        "PULL",
        name="defaultMessageRequestMode",
        choices=("PULL", "POP"),
        runtime=True,
        help="How 5.x clients that ask the broker for their queues get messages, unless their group was "
        "set otherwise.",
    )
    default_pop_share_queue_num: int = key(
        -1,
        name="defaultPopShareQueueNum",
        runtime=True,
        help="With POP by default: how many further members' queues a member pops; below 1: all.",
    )
    enable_retry_topic_v2: bool = key(
        False,
        name="enableRetryTopicV2",
        help="Name pop retry topics %RETRY%GROUP+TOPIC instead of %RETRY%GROUP_TOPIC. Messages of both "
        "are popped.",
    )
    pop_from_retry_probability: int = key(
        20,
        name="popFromRetryProbability",
        min=0,
        max=100,
        unit="percent",
        runtime=True,
        help="How many pops look for messages to be consumed again first; the others do it last.",
    )
    pull_polling_size: int = key(
        4096,
        name="pullPollingSize",
        min=1,
        runtime=True,
        help="Pulls that may wait for messages of one queue; further ones are answered with SYSTEM_BUSY, and "
        "clients try again after a while.",
    )
    max_pull_polling_size: int = key(
        100_000,
        name="maxPullPollingSize",
        min=1,
        runtime=True,
        help="Pulls that may wait in all; one with a SQL92 filter counts for several.",
    )
    pop_polling_size: int = key(
        1024,
        name="popPollingSize",
        min=0,
        runtime=True,
        help="Pops of one group that may wait for messages of one queue, or of all of a topic.",
    )
    max_pop_polling_size: int = key(
        100_000,
        name="maxPopPollingSize",
        min=0,
        runtime=True,
        help="Pops that may wait in all; one with a SQL92 filter counts for several.",
    )
    pop_dead_letter_enable: bool = key(
        True,
        name="popDeadLetterEnable",
        runtime=True,
        help="Messages that were popped in vain retryMaxTimes go to the group's dead letters. Off: they "
        "come again for ever, as in RocketMQ without its proxy.",
    )
    delivery_record_size: int = key(
        32 << 20,
        name="deliveryRecordSize",
        min=0,
        unit="bytes",
        runtime=True,
        help="Disk for the record of what was delivered to whom, which message tracks are made of. 0: no "
        "record.",
    )
    group_guard_grace_time: int = key(
        60_000,
        name="groupGuardGraceTime",
        min=0,
        unit="ms",
        runtime=True,
        help="Members that subscribe differently for longer than this are reported in the log and the "
        "console; shorter differences are clients that start, or a change that is rolled out.",
    )
    doctor_lag_max: int = key(
        10_000,
        name="doctorLagMax",
        min=1,
        runtime=True,
        help="Messages behind in a topic from which on a group counts as sick (group doctor, console and "
        "/metrics); a tenth of it where the lag does not get less.",
    )
    doctor_retries_per_minute_max: int = key(
        10,
        name="doctorRetriesPerMinuteMax",
        min=0,
        runtime=True,
        help="Messages a minute that a group may send back to consume again before it counts as sick.",
    )
    doctor_dead_letters_max: int = key(
        0,
        name="doctorDeadLettersMax",
        min=0,
        runtime=True,
        help="Dead letters that a group may have before it counts as sick.",
    )
    doctor_stuck_time: int = key(
        120_000,
        name="doctorStuckTime",
        min=1_000,
        unit="ms",
        runtime=True,
        help="A member that holds messages and has finished none for so long counts as stuck.",
    )
    server_channel_max_idle_time_seconds: int = key(
        120,
        name="serverChannelMaxIdleTimeSeconds",
        runtime=True,
        min=1,
        unit="s",
        help="A connection without traffic for so long is closed.",
    )
    frame_max_length: int = key(
        16_777_216,
        name="frameMaxLength",
        min=1024,
        unit="bytes",
        help="Largest frame, its length word included (a system property in RocketMQ).",
    )

    max_connections: int = key(
        0,
        name="maxConnections",
        min=0,
        help="Connections that are served at a time; further ones are closed. 0: as many as the process has "
        "file descriptors for, less an eighth.",
    )
    max_connections_per_address: int = key(
        0,
        name="maxConnectionsPerAddress",
        min=0,
        help="Connections of one IP address at a time; 0: any number.",
    )
    half_frames_max_size: int = key(
        64 << 20,
        name="halfFramesMaxSize",
        min=1 << 20,
        unit="bytes",
        help="Memory for frames that have not come whole, of all connections together. Beyond it they are "
        "read one after the other.",
    )
    unread_max_size: int = key(
        256 << 20,
        name="unreadMaxSize",
        min=1 << 20,
        unit="bytes",
        help="Memory for answers that clients do not read, of all connections together. Beyond it the "
        "connection with the most is closed. Messages, which are mapped from files, do not count.",
    )

    @property
    def connection_limits(self) -> ConnectionLimits:
        return ConnectionLimits(
            self.max_connections,
            self.max_connections_per_address,
            self.half_frames_max_size,
            self.unread_max_size,
        )

    def __post_init__(self) -> None:
        if not self.broker_name:
            self.broker_name = _host_name()


def _host_name() -> str:
    """Return the host name, reduced to what a topic name allows, since one topic is named after it."""
    name = "".join(
        c if (c.isalnum() and c.isascii()) or c in "-_" else "-" for c in socket.gethostname()
    )
    return name or "DEFAULT_BROKER"
