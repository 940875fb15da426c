"""What rocketmq-exporter (master of 2025) and rocketmq-dashboard 2.1.0 ask of name server and broker.

Taken from their calls of MQAdminExt (MetricsCollectTask, ClientMetricTaskRunnable; the services of the
dashboard) and from what rocketmq-tools 4.9.4 and 5.3.3 send for each. Words in capitals are put in by the
test. The order matters: what changes something comes after what looks, and is put right again.

One noun: the table of these requests.
"""

from dataclasses import dataclass, field

from pocketmq.remoting.codes import RequestCode as Code
from pocketmq.remoting.codes import ResponseCode as Answer

NAMESRV, BROKER = "name server", "broker"
BOTH, EXPORTER, DASHBOARD = "both", "exporter", "dashboard"


@dataclass(frozen=True)
class Row:
    """One request.

    call: what the tool calls it. reads: what it takes from the JSON of the answer, `*` is any name or place.
    wants: the code of the answer; at_497: that of RocketMQ 4.9.7 where it cannot do what 5.x can.
    headers: fields that it takes from the answer's header.
    """

    call: str
    tools: str
    target: str
    code: Code
    fields: dict[str, str] = field(default_factory=dict)
    body: str = ""
    reads: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    wants: Answer = Answer.SUCCESS
    at_497: Answer | None = None


_OFFSETS = (
    "offsetTable.*.minOffset",
    "offsetTable.*.maxOffset",
    "offsetTable.*.lastUpdateTimestamp",
)
_STATS = (
    "offsetTable.*.brokerOffset",
    "offsetTable.*.consumerOffset",
    "offsetTable.*.lastTimestamp",
    "consumeTps",
)
_CONNECTION = (
    "connectionSet.*.clientId",
    "connectionSet.*.clientAddr",
    "connectionSet.*.language",
    "connectionSet.*.version",
)
_CONSUMER = (
    *_CONNECTION,
    "subscriptionTable.*.topic",
    "subscriptionTable.*.subString",
    "subscriptionTable.*.subVersion",
    "subscriptionTable.*.tagsSet",
    "consumeType",
    "messageModel",
    "consumeFromWhere",
)
_WINDOWS = tuple(
    f"stats{window}.{name}"
    for window in ("Minute", "Hour", "Day")
    for name in ("sum", "tps", "avgpt")
)
_TOPIC_CONFIG = (
    "topicName",
    "readQueueNums",
    "writeQueueNums",
    "perm",
    "topicFilterType",
    "topicSysFlag",
    "order",
)
_ROUTE = (
    "queueDatas.*.brokerName",
    "queueDatas.*.readQueueNums",
    "queueDatas.*.writeQueueNums",
    "queueDatas.*.perm",
    "brokerDatas.*.cluster",
    "brokerDatas.*.brokerName",
    "brokerDatas.*.brokerAddrs.0",
)
_NEW_TOPIC = {
    "topic": "MadeByTheDashboard",
    "defaultTopic": "TBW102",
    "readQueueNums": "2",
    "writeQueueNums": "2",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}
_NEW_GROUP = (
    '{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
    '"consumeMessageOrderly":false,"groupName":"made_by_the_dashboard","groupSysFlag":0,'
    '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
    '"whichBrokerWhenConsumeSlowly":1}'
)
_AT_QUEUE = {"topic": "TOPIC", "queueId": "0"}


def _stats(name: str, key: str, tools: str = EXPORTER) -> Row:
    return Row(
        f"viewBrokerStatsData {name}",
        tools,
        BROKER,
        Code.VIEW_BROKER_STATS_DATA,
        {"statsName": name, "statsKey": key},
        reads=_WINDOWS,
    )


def _refused(call: str, code: Code, **fields: str) -> Row:
    """5.x access control and the like: both 4.9.7 and we answer that they do not have it."""
    return Row(call, DASHBOARD, BROKER, code, fields, wants=Answer.REQUEST_CODE_NOT_SUPPORTED)


ROWS: tuple[Row, ...] = (
    # ------------------------------------------------------------ looking: name server
    Row(
        "examineBrokerClusterInfo",
        BOTH,
        NAMESRV,
        Code.GET_BROKER_CLUSTER_INFO,
        reads=(
            "brokerAddrTable.*.cluster",
            "brokerAddrTable.*.brokerName",
            "brokerAddrTable.*.brokerAddrs.0",
            "clusterAddrTable.CLUSTER.*",
        ),
    ),
    Row(
        "fetchAllTopicList",
        BOTH,
        NAMESRV,
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        reads=("topicList.*",),
    ),
    Row(
        "examineTopicRouteInfo",
        BOTH,
        NAMESRV,
        Code.GET_ROUTEINFO_BY_TOPIC,
        {"topic": "TOPIC"},
        reads=_ROUTE,
    ),
    Row(
        "examineTopicRouteInfo of none",
        BOTH,
        NAMESRV,
        Code.GET_ROUTEINFO_BY_TOPIC,
        {"topic": "no_such_topic"},
        wants=Answer.TOPIC_NOT_EXIST,
    ),
    Row(
        "fetchTopicsByCLuster",
        DASHBOARD,
        NAMESRV,
        Code.GET_TOPICS_BY_CLUSTER,
        {"cluster": "CLUSTER"},
        reads=("topicList.*",),
    ),
    Row(
        "getKVListByNamespace of none",
        DASHBOARD,
        NAMESRV,
        Code.GET_KVLIST_BY_NAMESPACE,
        {"namespace": "no_such_namespace"},
        wants=Answer.QUERY_NOT_FOUND,
    ),
    # ------------------------------------------------------------ looking: broker
    Row(
        "fetchBrokerRuntimeStats",
        BOTH,
        BROKER,
        Code.GET_BROKER_RUNTIME_INFO,
        reads=("table.runtime", "table.putTps", "table.msgPutTotalTodayNow"),
    ),
    Row("getBrokerConfig", DASHBOARD, BROKER, Code.GET_BROKER_CONFIG),
    Row(
        "getSystemTopicList",
        DASHBOARD,
        BROKER,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        reads=("topicList.*",),
    ),
    Row(
        "examineTopicStats",
        BOTH,
        BROKER,
        Code.GET_TOPIC_STATS_INFO,
        {"topic": "TOPIC"},
        reads=_OFFSETS,
    ),
    Row(
        "examineTopicStats of none",
        EXPORTER,
        BROKER,
        Code.GET_TOPIC_STATS_INFO,
        {"topic": "no_such_topic"},
        wants=Answer.TOPIC_NOT_EXIST,
    ),
    Row(
        "getAllTopicConfig",
        BOTH,
        BROKER,
        Code.GET_ALL_TOPIC_CONFIG,
        reads=(
            *(f"topicConfigTable.TOPIC.{name}" for name in _TOPIC_CONFIG),
            "dataVersion.counter",
            "dataVersion.timestamp",
        ),
    ),
    Row(
        "examineTopicConfig",
        DASHBOARD,
        BROKER,
        Code.GET_TOPIC_CONFIG,
        {"topic": "TOPIC", "lo": "true"},
        reads=_TOPIC_CONFIG,
        at_497=Answer.REQUEST_CODE_NOT_SUPPORTED,
    ),
    Row(
        "getAllSubscriptionGroup",
        BOTH,
        BROKER,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        reads=(
            "subscriptionGroupTable.GROUP.groupName",
            "subscriptionGroupTable.GROUP.retryQueueNums",
            "subscriptionGroupTable.GROUP.retryMaxTimes",
            "subscriptionGroupTable.GROUP.consumeEnable",
            "dataVersion.counter",
        ),
    ),
    Row(
        "queryTopicConsumeByWho",
        BOTH,
        BROKER,
        Code.QUERY_TOPIC_CONSUME_BY_WHO,
        {"topic": "TOPIC"},
        reads=("groupList.*",),
    ),
    Row(
        "examineConsumeStats",
        BOTH,
        BROKER,
        Code.GET_CONSUME_STATS,
        {"consumerGroup": "GROUP", "topic": "TOPIC"},
        reads=_STATS,
    ),
    Row(
        "examineConsumeStats of all topics",
        BOTH,
        BROKER,
        Code.GET_CONSUME_STATS,
        {"consumerGroup": "GROUP"},
        reads=_STATS,
    ),
    Row(
        "examineConsumerConnectionInfo",
        BOTH,
        BROKER,
        Code.GET_CONSUMER_CONNECTION_LIST,
        {"consumerGroup": "GROUP"},
        reads=_CONSUMER,
    ),
    Row(
        "examineConsumerConnectionInfo of none",
        BOTH,
        BROKER,
        Code.GET_CONSUMER_CONNECTION_LIST,
        {"consumerGroup": "no_such_group"},
        wants=Answer.CONSUMER_NOT_ONLINE,
    ),
    Row(
        "examineProducerConnectionInfo",
        BOTH,
        BROKER,
        Code.GET_PRODUCER_CONNECTION_LIST,
        {"producerGroup": "SENDERS"},
        reads=_CONNECTION,
    ),
    Row(
        "examineProducerConnectionInfo of none",
        DASHBOARD,
        BROKER,
        Code.GET_PRODUCER_CONNECTION_LIST,
        {"producerGroup": "no_such_group"},
        wants=Answer.SYSTEM_ERROR,
    ),
    Row(
        "getAllProducerInfo",
        EXPORTER,
        BROKER,
        Code.GET_ALL_PRODUCER_INFO,
        reads=("data.SENDERS.*.clientId", "data.SENDERS.*.remoteIP", "data.SENDERS.*.version"),
    ),
    Row(
        "getConsumerRunningInfo",
        BOTH,
        BROKER,
        Code.GET_CONSUMER_RUNNING_INFO,
        {"consumerGroup": "GROUP", "clientId": "CLIENT", "jstackEnable": "false"},
        reads=(
            "properties.PROP_CONSUME_TYPE",
            "properties.PROP_NAMESERVER_ADDR",
            "mqTable.*.commitOffset",
            "statusTable.*.consumeOKTPS",
            "statusTable.*.consumeRT",
            "statusTable.*.pullTPS",
            "subscriptionSet.*.topic",
        ),
    ),
    Row(
        "getConsumerRunningInfo with jstack",
        DASHBOARD,
        BROKER,
        Code.GET_CONSUMER_RUNNING_INFO,
        {"consumerGroup": "GROUP", "clientId": "CLIENT", "jstackEnable": "true"},
        reads=("jstack",),
    ),
    Row(
        "getConsumeStatus",
        DASHBOARD,
        BROKER,
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        {"topic": "TOPIC", "group": "GROUP", "clientAddr": ""},
        reads=("consumerTable.*.*",),
    ),
    Row(
        "queryConsumeTimeSpan",
        DASHBOARD,
        BROKER,
        Code.QUERY_CONSUME_TIME_SPAN,
        {"topic": "TOPIC", "group": "GROUP"},
        reads=(
            "consumeTimeSpanSet.*.minTimeStamp",
            "consumeTimeSpanSet.*.maxTimeStamp",
            "consumeTimeSpanSet.*.consumeTimeStamp",
            "consumeTimeSpanSet.*.delayTime",
            "consumeTimeSpanSet.*.messageQueue.queueId",
        ),
    ),
    Row(
        "fetchConsumeStatsInBroker",
        DASHBOARD,
        BROKER,
        Code.GET_BROKER_CONSUME_STATS,
        {"isOrder": "false"},
        reads=("consumeStatsList.*.GROUP.*.offsetTable", "brokerAddr", "totalDiff"),
    ),
    _stats("TOPIC_PUT_NUMS", "TOPIC", BOTH),
    _stats("TOPIC_PUT_SIZE", "TOPIC"),
    _stats("GROUP_GET_NUMS", "TOPIC@GROUP", BOTH),
    _stats("GROUP_GET_SIZE", "TOPIC@GROUP"),
    _stats("BROKER_PUT_NUMS", "CLUSTER"),
    _stats("BROKER_GET_NUMS", "CLUSTER"),
    Row(
        "viewBrokerStatsData SNDBCK_PUT_NUMS before anything came back",
        EXPORTER,
        BROKER,
        Code.VIEW_BROKER_STATS_DATA,
        {"statsName": "SNDBCK_PUT_NUMS", "statsKey": "TOPIC@GROUP"},
        wants=Answer.SYSTEM_ERROR,
    ),
    # ------------------------------------------------------------ messages
    Row("maxOffset", DASHBOARD, BROKER, Code.GET_MAX_OFFSET, _AT_QUEUE, headers=("offset",)),
    Row("minOffset", DASHBOARD, BROKER, Code.GET_MIN_OFFSET, _AT_QUEUE, headers=("offset",)),
    Row(
        "maxOffset as 5.x asks",
        DASHBOARD,
        BROKER,
        Code.GET_MAX_OFFSET,
        {**_AT_QUEUE, "committed": "true", "bname": "NAME"},
        headers=("offset",),
    ),
    Row(
        "searchOffset",
        DASHBOARD,
        BROKER,
        Code.SEARCH_OFFSET_BY_TIMESTAMP,
        {**_AT_QUEUE, "timestamp": "0", "boundaryType": "LOWER", "bname": "NAME"},
        headers=("offset",),
    ),
    Row(
        "earliestMsgStoreTime",
        DASHBOARD,
        BROKER,
        Code.GET_EARLIEST_MSG_STORETIME,
        _AT_QUEUE,
        headers=("timestamp",),
    ),
    Row(
        "queryConsumerOffset",
        DASHBOARD,
        BROKER,
        Code.QUERY_CONSUMER_OFFSET,
        {"consumerGroup": "GROUP", **_AT_QUEUE},
        headers=("offset",),
    ),
    Row(
        "pull, a page of messages by topic and time",
        DASHBOARD,
        BROKER,
        Code.PULL_MESSAGE,
        {
            "consumerGroup": "TOOLS_CONSUMER",
            **_AT_QUEUE,
            "queueOffset": "0",
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        },
        headers=("nextBeginOffset", "minOffset", "maxOffset"),
    ),
    Row(
        "queryMessage by key",
        DASHBOARD,
        BROKER,
        Code.QUERY_MESSAGE,
        {
            "topic": "TOPIC",
            "key": "KEY",
            "maxNum": "64",
            "beginTimestamp": "0",
            "endTimestamp": "9223372036854775807",
            "_UNIQUE_KEY_QUERY": "false",
        },
        headers=("indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"),
    ),
    Row(
        "queryMessage by unique key",
        DASHBOARD,
        BROKER,
        Code.QUERY_MESSAGE,
        {
            "topic": "TOPIC",
            "key": "MSG_ID",
            "maxNum": "32",
            "beginTimestamp": "0",
            "endTimestamp": "9223372036854775807",
            "_UNIQUE_KEY_QUERY": "true",
        },
    ),
    Row("viewMessage", DASHBOARD, BROKER, Code.VIEW_MESSAGE_BY_ID, {"offset": "POSITION"}),
    Row(
        "consumeMessageDirectly",
        DASHBOARD,
        BROKER,
        Code.CONSUME_MESSAGE_DIRECTLY,
        {
            "consumerGroup": "GROUP",
            "clientId": "CLIENT",
            "msgId": "OFFSET_ID",
            "brokerName": "NAME",
        },
        reads=("consumeResult", "order", "autoCommit", "spentTimeMills"),
    ),
    # ------------------------------------------------------------ changing
    Row("createAndUpdateTopicConfig", DASHBOARD, BROKER, Code.UPDATE_AND_CREATE_TOPIC, _NEW_TOPIC),
    Row(
        "createAndUpdateTopicConfig with a bad name",
        DASHBOARD,
        BROKER,
        Code.UPDATE_AND_CREATE_TOPIC,
        {**_NEW_TOPIC, "topic": "a b!"},
        wants=Answer.SYSTEM_ERROR,
    ),
    Row(
        "createAndUpdateSubscriptionGroupConfig",
        DASHBOARD,
        BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body=_NEW_GROUP,
    ),
    Row(
        "resetOffsetByTimestamp of an online group",
        DASHBOARD,
        BROKER,
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        {"topic": "TOPIC", "group": "GROUP", "timestamp": "0", "isForce": "true"},
        reads=("offsetTable.*",),
    ),
    Row(
        "resetOffsetByTimestamp of a group that is not online",
        DASHBOARD,
        BROKER,
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        {
            "topic": "TOPIC",
            "group": "made_by_the_dashboard",
            "timestamp": "0",
            "isForce": "true",
            "offset": "-1",
            "queueId": "-1",
        },
        wants=Answer.SYSTEM_ERROR,
    ),
    Row(
        "updateConsumeOffset",
        DASHBOARD,
        BROKER,
        Code.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": "made_by_the_dashboard", **_AT_QUEUE, "commitOffset": "0"},
    ),
    Row(
        "cloneGroupOffset",
        DASHBOARD,
        BROKER,
        Code.CLONE_GROUP_OFFSET,
        {
            "srcGroup": "GROUP",
            "destGroup": "made_by_the_dashboard",
            "topic": "TOPIC",
            "offline": "false",
        },
    ),
    Row(
        "updateBrokerConfig",
        DASHBOARD,
        BROKER,
        Code.UPDATE_BROKER_CONFIG,
        body="traceOn=true\n",
    ),
    Row(
        "wipeWritePermOfBroker",
        DASHBOARD,
        NAMESRV,
        Code.WIPE_WRITE_PERM_OF_BROKER,
        {"brokerName": "NAME"},
        headers=("wipeTopicCount",),
    ),
    Row(
        "addWritePermOfBroker",
        DASHBOARD,
        NAMESRV,
        Code.ADD_WRITE_PERM_OF_BROKER,
        {"brokerName": "NAME"},
        headers=("addTopicCount",),
    ),
    Row(
        "putKVConfig, createOrUpdateOrderConf",
        DASHBOARD,
        NAMESRV,
        Code.PUT_KV_CONFIG,
        {"namespace": "ORDER_TOPIC_CONFIG", "key": "MadeByTheDashboard", "value": "NAME:2"},
    ),
    Row(
        "getKVConfig",
        DASHBOARD,
        NAMESRV,
        Code.GET_KV_CONFIG,
        {"namespace": "ORDER_TOPIC_CONFIG", "key": "MadeByTheDashboard"},
        headers=("value",),
    ),
    Row(
        "getKVListByNamespace",
        DASHBOARD,
        NAMESRV,
        Code.GET_KVLIST_BY_NAMESPACE,
        {"namespace": "ORDER_TOPIC_CONFIG"},
        reads=("table.MadeByTheDashboard",),
    ),
    Row(
        "deleteKvConfig",
        DASHBOARD,
        NAMESRV,
        Code.DELETE_KV_CONFIG,
        {"namespace": "ORDER_TOPIC_CONFIG", "key": "MadeByTheDashboard"},
    ),
    Row(
        "getKVConfig of none",
        DASHBOARD,
        NAMESRV,
        Code.GET_KV_CONFIG,
        {"namespace": "ORDER_TOPIC_CONFIG", "key": "MadeByTheDashboard"},
        wants=Answer.QUERY_NOT_FOUND,
    ),
    Row("cleanExpiredConsumerQueueByAddr", DASHBOARD, BROKER, Code.CLEAN_EXPIRED_CONSUMEQUEUE),
    Row("cleanUnusedTopicByAddr", DASHBOARD, BROKER, Code.CLEAN_UNUSED_TOPIC),
    Row(
        "deleteSubscriptionGroup",
        DASHBOARD,
        BROKER,
        Code.DELETE_SUBSCRIPTIONGROUP,
        {"groupName": "made_by_the_dashboard", "removeOffset": "true", "cleanOffset": "true"},
    ),
    Row(
        "deleteTopicInBroker",
        DASHBOARD,
        BROKER,
        Code.DELETE_TOPIC_IN_BROKER,
        {"topic": "MadeByTheDashboard"},
    ),
    Row(
        "deleteTopicInNameServer",
        DASHBOARD,
        NAMESRV,
        Code.DELETE_TOPIC_IN_NAMESRV,
        {"topic": "MadeByTheDashboard"},
    ),
    # ------------------------------------------------------------ what only 5.x brokers have
    _refused("createUser", Code.AUTH_CREATE_USER, username="u"),
    _refused("updateUser", Code.AUTH_UPDATE_USER, username="u"),
    _refused("deleteUser", Code.AUTH_DELETE_USER, username="u"),
    _refused("getUser", Code.AUTH_GET_USER, username="u"),
    _refused("listUser", Code.AUTH_LIST_USER, filter=""),
    _refused("createAcl", Code.AUTH_CREATE_ACL, subject="User:u"),
    _refused("updateAcl", Code.AUTH_UPDATE_ACL, subject="User:u"),
    _refused("deleteAcl", Code.AUTH_DELETE_ACL, subject="User:u"),
    _refused("getAcl", Code.AUTH_GET_ACL, subject="User:u"),
    _refused("listAcl", Code.AUTH_LIST_ACL, subjectFilter=""),
    _refused("getColdDataFlowCtrInfo", Code.GET_COLD_DATA_FLOW_CTR_INFO),
    _refused("updateColdDataFlowCtrGroupConfig", Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG),
    _refused("removeColdDataFlowCtrGroupConfig", Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG),
    _refused("setCommitLogReadAheadMode", Code.SET_COMMITLOG_READ_MODE),
    _refused("exportPopRecords", Code.POP_ROLLBACK),
)

# What BrokerRuntimeStats of the exporter takes from GET_BROKER_RUNTIME_INFO and how it reads it.
RUNTIME_INTEGERS = (
    "bootTimestamp",
    "brokerVersion",
    "commitLogMaxOffset",
    "commitLogMinOffset",
    "dispatchBehindBytes",
    "dispatchMaxBuffer",
    "earliestMessageTimeStamp",
    "getMessageEntireTimeMax",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgPutTotalYesterdayMorning",
    "pageCacheLockTimeMills",
    "pullThreadPoolQueueCapacity",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "putMessageEntireTimeMax",
    "putMessageSizeTotal",
    "putMessageTimesTotal",
    "queryThreadPoolQueueCapacity",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize",
    "remainTransientStoreBufferNumbs",
    "sendThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "sendThreadPoolQueueSize",
    "startAcceptSendRequestTimeStamp",
)
RUNTIME_NUMBERS = ("consumeQueueDiskRatio", "commitLogDiskRatio", "putMessageAverageSize")
RUNTIME_RATES = ("putTps", "getMissTps", "getTotalTps", "getFoundTps")
RUNTIME_TEXTS = ("runtime", "brokerVersionDesc")
