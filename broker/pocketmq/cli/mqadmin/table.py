"""The commands of mqadmin as data. Source: MQAdminStartup and its commands, RocketMQ 4.9.7 and 5.3.3.

One row a command: its name, what it does, its options, the function that does it (`module:function` in this
package; empty: PocketMQ's mqadmin does not), and the `pocketmq` command for the same.

Options are words `letter:name`, with `=` when a value follows and `!` when it must be given. `one_of` are
letters of which one must be given. -n (name servers) and -h belong to every command.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MqOption:
    """One option: -letter, --name."""

    letter: str
    name: str
    takes_value: bool
    required: bool


@dataclass(frozen=True, slots=True)
class MqCommand:
    """One command. run: `module:function`; instead: the `pocketmq` command that does the same.

    why: of a command that is not served, when nothing does the same.
    """

    name: str
    summary: str
    options: tuple[MqOption, ...]
    run: str = ""
    instead: str = ""
    one_of: str = ""
    why: str = ""


def _row(
    name: str,
    summary: str,
    options: str = "",
    run: str = "",
    instead: str = "",
    *,
    one_of: str = "",
    why: str = "",
) -> MqCommand:
    found = []
    for word in options.split():
        letter, _, rest = word.partition(":")
        found.append(MqOption(letter, rest.rstrip("=!"), "=" in rest, "!" in rest))
    return MqCommand(name, summary, tuple(found), run, instead, one_of, why)


_WHERE = "b:brokerAddr= c:clusterName="
_ACL = "edit plain_acl.yml (the setting aclFile): a broker takes up a change within a second"
_ACL_5 = "PocketMQ has the access lists of RocketMQ 4: edit plain_acl.yml (the setting aclFile)"
_CONTROLLER = "PocketMQ has no controller and no replicas"

COMMANDS: tuple[MqCommand, ...] = (
    # ---------------------------------------------------------------- topics
    _row(
        "updateTopic",
        "create a topic, or change it",
        f"{_WHERE} t:topic=! r:readQueueNums= w:writeQueueNums= p:perm= o:order= u:unit= "
        "s:hasUnitSub= a:attributes=",
        "topics:update_topic",
        "topic create",
        one_of="bc",
    ),
    _row(
        "deleteTopic",
        "delete a topic from brokers and name servers",
        "t:topic=! c:clusterName=!",
        "topics:delete_topic",
        "topic delete",
    ),
    _row(
        "topicList",
        "list topics; with -c their clusters and groups, too",
        "c:clusterModel",
        "topics:topic_list",
        "topic list --all",
    ),
    _row(
        "topicRoute",
        "which brokers have a topic",
        "t:topic=! l:list",
        "topics:topic_route",
        "topic show",
    ),
    _row(
        "topicStatus",
        "what each queue of a topic holds",
        "t:topic=! c:cluster=",
        "topics:topic_status",
        "topic show",
    ),
    _row(
        "topicClusterList",
        "the clusters that have a topic",
        "t:topic=!",
        "topics:topic_cluster_list",
        "topic show",
    ),
    _row(
        "updateTopicPerm",
        "change who may use a topic: 6 read and write, 4 read, 2 write",
        f"{_WHERE} t:topic=! p:perm=!",
        "topics:update_topic_perm",
        "topic create --perm",
        one_of="bc",
    ),
    _row(
        "updateOrderConf",
        "get, put or delete the order configuration of a topic",
        "t:topic=! v:orderConf= m:method=!",
        "topics:update_order_conf",
        "topic create --order",
    ),
    _row(
        "allocateMQ",
        "how the queues of a topic would be shared by members",
        "t:topic=! i:ipList=!",
        "topics:allocate_mq",
        "group show",
    ),
    # ---------------------------------------------------------------- groups
    _row(
        "updateSubGroup",
        "create a consumer group, or change it",
        f"{_WHERE} g:groupName=! s:consumeEnable= m:consumeFromMinEnable= d:consumeBroadcastEnable= "
        "q:retryQueueNums= r:retryMaxTimes= i:brokerId= w:whichBrokerWhenConsumeSlowly= "
        "a:notifyConsumerIdsChanged=",
        "groups:update_sub_group",
        "group create",
        one_of="bc",
    ),
    _row(
        "deleteSubGroup",
        "delete a consumer group",
        f"{_WHERE} g:groupName=! r:removeOffset=",
        "groups:delete_sub_group",
        "group delete",
        one_of="bc",
    ),
    _row(
        "consumerProgress",
        "how far a group is, or all groups",
        "g:groupName= t:topicName= s:showClientIP=",
        "groups:consumer_progress",
        "offset show",
    ),
    _row(
        "consumerStatus",
        "the members of a group, and whether they agree",
        "g:consumerGroup=! i:clientId= b:brokerAddr= s:jstack",
        "groups:consumer_status",
        "group doctor",
    ),
    _row(
        "consumer",
        "the members of a group, and whether they agree",
        "g:consumerGroup=! s:jstack",
        "groups:consumer_status",
        "group doctor",
    ),
    _row(
        "consumerConnection",
        "who is online as a group, and its subscription",
        "g:consumerGroup=! b:brokerAddr=",
        "groups:consumer_connection",
        "group show",
    ),
    _row(
        "getConsumerConfig",
        "the configuration of a group on each broker",
        "g:groupName=!",
        "groups:get_consumer_config",
        "group show",
    ),
    _row(
        "resetOffsetByTime",
        "move a group to a time: now, 2026-11-21#12:00:00:000, or ms since 1970",
        "g:group=! t:topic=! s:timestamp=! f:force= c:cplus",
        "groups:reset_offset_by_time",
        "offset reset --to",
    ),
    _row(
        "resetOffsetByTimeOld",
        "the same, by writing the offsets; for members that are offline",
        "g:group=! t:topic=! s:timestamp=! f:force=",
        "groups:reset_offset_by_time_old",
        "offset reset --to",
    ),
    _row(
        "skipAccumulatedMessage",
        "move a group behind all that is stored",
        "g:group=! t:topic=! f:force=",
        "groups:skip_accumulated_message",
        "offset reset --to latest",
    ),
    _row(
        "cloneGroupOffset",
        "give a group the offsets of another",
        "s:srcGroup=! d:destGroup=! t:topic=! o:offline=",
        "groups:clone_group_offset",
        "offset copy",
    ),
    _row(
        "getConsumerStatus",
        "the offsets that members have in memory",
        "g:group=! t:topic=! i:originClientId=",
        "groups:get_consumer_status",
        "group show",
    ),
    _row(
        "producer",
        "every producer at a broker",
        "b:broker=!",
        "groups:producer",
        "group producers",
    ),
    _row(
        "producerConnection",
        "who is online as a producer group",
        "g:producerGroup=! t:topic=!",
        "groups:producer_connection",
        "group producers",
    ),
    # ---------------------------------------------------------------- messages
    _row(
        "sendMessage",
        "send a message",
        "t:topic=! p:body=! k:key= c:tags= b:broker= i:qid= m:msgTraceEnable=",
        "messages:send_message",
        "message send",
    ),
    _row(
        "consumeMessage",
        "print messages of a topic; no offset is moved",
        "t:topic=! b:brokerName= i:queueId= o:offset= g:consumerGroup= s:beginTimestamp= "
        "e:endTimestamp= c:MessageNumber=",
        "messages:consume_message",
        "message tail",
    ),
    _row(
        "printMsg",
        "print all messages of a topic",
        "t:topic=! c:charsetName= s:subExpression= b:beginTimestamp= e:endTimestamp= d:printBody=",
        "messages:print_msg",
        "message find --since",
    ),
    _row(
        "printMsgByQueue",
        "print all messages of one queue, or count its tags",
        "t:topic=! a:brokerName=! i:queueId=! c:charsetName= s:subExpression= b:beginTimestamp= "
        "e:endTimestamp= p:print= d:printBody= f:calculate=",
        "messages:print_msg_by_queue",
        "message find --since",
    ),
    _row(
        "queryMsgById",
        "a message by its offset id, and what became of it",
        "i:msgId=! t:topic= g:consumerGroup= d:clientId= s:sendMessage= u:unitName=",
        "messages:query_msg_by_id",
        "message track",
    ),
    _row(
        "queryMsgByUniqueKey",
        "a message by its client's id, and what became of it",
        "i:msgId=! g:consumerGroup= d:clientId= t:topic=! a:showAll",
        "messages:query_msg_by_unique_key",
        "message track",
    ),
    _row(
        "queryMsgByKey",
        "messages by a key",
        "t:topic=! k:msgKey=! b:beginTimestamp= e:endTimestamp= m:maxNum=",
        "messages:query_msg_by_key",
        "message find --key",
    ),
    _row(
        "queryMsgByOffset",
        "a message by its place",
        "t:topic=! b:brokerName=! i:queueId=! o:offset=!",
        "messages:query_msg_by_offset",
        "store dump --from",
    ),
    _row(
        "queryMsgTraceById",
        "the trace of a message: who sent it, who had it, how long it took",
        "i:msgId=! t:traceTopic=",
        "messages:query_msg_trace_by_id",
        "message track",
    ),
    _row(
        "queryCq",
        "entries of a queue's index",
        "t:topic=! q:queue=! i:index=! c:count= b:broker= g:consumer=",
        "messages:query_cq",
        "store dump",
    ),
    _row(
        "DecodeMessageId",
        "address and time in a client's message id",
        "i:messageId=!",
        "messages:decode_message_id",
        "message find --id",
    ),
    _row(
        "sendMsgStatus",
        "send to a broker and print how long it took",
        "b:brokerName=! s:messageSize= c:count=",
        "messages:send_msg_status",
        "bench produce",
    ),
    _row(
        "checkMsgSendRT",
        "send to each queue in turn and print how long it took",
        "t:topic=! a:amount= s:size=",
        "messages:check_msg_send_rt",
        "bench produce",
    ),
    # ---------------------------------------------------------------- cluster
    _row(
        "clusterList",
        "brokers with their rates",
        "m:moreStats i:interval= c:clusterName=",
        "cluster:cluster_list",
        "cluster list",
    ),
    _row(
        "clusterRT",
        "send to each broker of a cluster and print the mean time",
        "a:amount= s:size= c:cluster= p:printAsTlog= m:machineRoom= i:interval=",
        "cluster:cluster_rt",
        "bench produce",
    ),
    _row(
        "brokerStatus",
        "all that a broker counts",
        _WHERE,
        "cluster:broker_status",
        "cluster numbers",
        one_of="bc",
    ),
    _row(
        "brokerConsumeStats",
        "how far every group of a broker is",
        "b:brokerAddr=! t:timeoutMillis= l:level= o:order=",
        "cluster:broker_consume_stats",
        "group list",
    ),
    _row(
        "statsAll",
        "rates and lag of every topic and group",
        "a:activeTopic t:topic=",
        "cluster:stats_all",
        "group list",
    ),
    _row(
        "getBrokerConfig",
        "the settings of brokers",
        _WHERE,
        "cluster:get_broker_config",
        "cluster config",
        one_of="bc",
    ),
    _row(
        "updateBrokerConfig",
        "change a setting that may change while a broker runs",
        f"{_WHERE} k:key=! v:value=!",
        "cluster:update_broker_config",
        "cluster config --set",
        one_of="bc",
    ),
    _row(
        "getNamesrvConfig",
        "the settings of the name servers",
        "",
        "cluster:get_namesrv_config",
        "namesrv --print-config",
    ),
    _row(
        "updateNamesrvConfig",
        "change a setting of the name servers",
        "k:key=! v:value=!",
        "cluster:update_namesrv_config",
        "namesrv --set",
    ),
    _row(
        "wipeWritePerm",
        "stop producers from sending to a broker",
        "b:brokerName=!",
        "cluster:wipe_write_perm",
        "cluster writable BROKER no",
    ),
    _row(
        "addWritePerm",
        "let producers send to a broker again",
        "b:brokerName=!",
        "cluster:add_write_perm",
        "cluster writable BROKER yes",
    ),
    _row(
        "updateKvConfig",
        "set a value in the name servers' table",
        "s:namespace=! k:key=! v:value=!",
        "cluster:update_kv_config",
    ),
    _row(
        "deleteKvConfig",
        "delete a value from the name servers' table",
        "s:namespace=! k:key=!",
        "cluster:delete_kv_config",
    ),
    _row(
        "cleanExpiredCQ",
        "delete queue files whose messages have expired",
        "b:brokerAddr= c:cluster=",
        "cluster:clean_expired_cq",
    ),
    _row(
        "cleanUnusedTopic",
        "delete the queues of topics that are gone",
        "b:brokerAddr= c:cluster=",
        "cluster:clean_unused_topic",
    ),
    _row(
        "deleteExpiredCommitLog",
        "delete log files whose time is over",
        "b:brokerAddr= c:cluster=",
        "cluster:delete_expired_commit_log",
    ),
    # ---------------------------------------------------------------- not here
    _row("startMonitoring", "watch lag and dead letters", instead="group doctor"),
    _row("exportConfigs", "write settings to a file", instead="cluster config --json"),
    _row("exportMetadata", "write topics and groups to a file", instead="topic list --all --json"),
    _row("exportMetrics", "write numbers to a file", instead="cluster numbers --json"),
    _row("updateTopicList", "create topics of a file", instead="topic create"),
    _row("updateSubGroupList", "create groups of a file", instead="group create"),
    _row("haStatus", "state of replicas", why=_CONTROLLER),
    *(
        _row(name, "access control", why=_ACL)
        for name in (
            *("updateAclConfig", "deleteAclConfig", "getAclConfig", "clusterAclConfigVersion"),
            "updateGlobalWhiteAddr",
        )
    ),
    *(
        _row(name, "access control of 5.x", why=_ACL_5)
        for name in (
            *("createUser", "updateUser", "deleteUser", "getUser", "listUser", "copyUser"),
            *("createAcl", "updateAcl", "deleteAcl", "getAcl", "listAcl", "copyAcl"),
        )
    ),
    *(
        _row(name, "controller mode of 5.x", why=_CONTROLLER)
        for name in (
            *("getSyncStateSet", "electMaster", "getControllerMetaData", "getControllerConfig"),
            *("updateControllerConfig", "cleanBrokerMetadata", "getBrokerEpoch", "addBroker"),
            *("removeBroker", "resetMasterFlushOffset"),
        )
    ),
)


def find(name: str) -> MqCommand | None:
    """A command by its name, in any case."""
    wanted = name.lower()
    for command in COMMANDS:
        if wanted == command.name.lower():
            return command
    return None
