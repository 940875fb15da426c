"""The commands of mqadmin as data. Source: MQAdminStartup and its commands, RocketMQ 4.9.7 and 5.5.0.

    module:                                     where the functions of its commands are, in this package;
      name | what it does | pocketmq command    a function is called like its command; the `pocketmq` command
        letter:name letter:name=                does the same, or - and why none does.
                                                = takes a value, ! must be given, of those with ?
                                                one must be given
        =%-20s #Head|  %-4s #Head               the columns of what it shows, RocketMQ's, each with its width;
        +%-4s #Head                             + continues them; a command may have several tables
        > part.method letter name=letter        instead of a function: the call of the administration,
        < text with {letter}                    and what is said after it
-n (name servers) and -h belong to every command.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class MqOption:
    """One option: -letter, --name; of some of 5.x the name is the letter, too."""

    letter: str
    name: str
    takes_value: bool
    required: bool
    is_one_of: bool


@dataclass(slots=True)
class MqCommand:
    """One command. run: `module:function`, or a call `part.method letter`, empty if it is not served;
    instead: the `pocketmq` command that does the same; why: the reason if no command does.
    """

    name: str
    summary: str
    run: str = ""
    instead: str = ""
    why: str = ""
    options: list[MqOption] = field(default_factory=list)
    # (heading, how a row is formatted) of each of its tables.
    tables: list[tuple[str, str]] = field(default_factory=list)
    # After a call.
    said: list[str] = field(default_factory=list)

    @property
    def one_of(self) -> str:
        """Return the letters of which one must be given."""
        return "".join(option.letter for option in self.options if option.is_one_of)


_SERVED = """
topics:
  updateTopic | create a topic, or change it | topic create
    b:brokerAddr? c:clusterName? t:topic=! r:readQueueNums= w:writeQueueNums= p:perm= o:order=
    u:unit= s:hasUnitSub= a:attributes=
  deleteTopic | delete a topic from brokers and name servers | topic delete
    t:topic=! c:clusterName=!
    > topics.delete t cluster=c
    < delete topic [{t}] from cluster [{c}] success.
    < delete topic [{t}] from NameServer success.
  topicList | list topics; with -c their clusters and groups, too | topic list --all
    c:clusterModel
    =%-20s #Cluster Name|  %-64s #Topic|  %-64s #Consumer Group
  topicRoute | which brokers have a topic | topic show
    t:topic=! l:list
    =%-45s #ClusterName|  %-32s #BrokerName|  %-46s #BrokerAddrs|  %-10s #ReadQueue|  %-11s #WriteQueue
    +  %-5s #Perm
  topicStatus | what each queue of a topic holds | topic show
    t:topic=! c:cluster=
    =%-32s #Broker Name|  %-4s #QID|  %-20s #Min Offset|  %-20s #Max Offset|    %s #Last Updated
  topicClusterList | the clusters that have a topic | topic show
    t:topic=!
  updateTopicPerm | change the permission of a topic: 6 read and write, 4 read, 2 write | topic create --perm
    b:brokerAddr? c:clusterName? t:topic=! p:perm=!
  updateOrderConf | get, put or delete the order configuration of a topic | topic create --order
    t:topic=! v:orderConf= m:method=!
  allocateMQ | how the queues of a topic would be shared by members | group show
    t:topic=! i:ipList=!
groups:
  updateSubGroup | create a consumer group, or change it | group create
    b:brokerAddr? c:clusterName? g:groupName=! s:consumeEnable= m:consumeFromMinEnable=
    d:consumeBroadcastEnable= q:retryQueueNums= r:retryMaxTimes= i:brokerId=
    w:whichBrokerWhenConsumeSlowly= a:notifyConsumerIdsChanged= o:consumeMessageOrderly=
    p:groupRetryPolicy= attributes:attributes=
  deleteSubGroup | delete a consumer group | group delete
    b:brokerAddr? c:clusterName? g:groupName=! r:removeOffset=
  consumerProgress | how far a group is, or all groups | offset show
    g:groupName= t:topicName= s:showClientIP=
    =%-64s #Topic|  %-32s #Broker Name|  %-4s #QID|  %-20s #Broker Offset|  %-20s #Consumer Offset
    +  %-20s #Diff|  %s #LastTime
    =%-64s #Topic|  %-32s #Broker Name|  %-4s #QID|  %-20s #Broker Offset|  %-20s #Consumer Offset
    +  %-20s #Client IP| %-20s #Diff|  %s #LastTime
    =%-64s #Group|  %-6s #Count|  %-24s #Version| %-5s #Type|  %-14s #Model|  %-7s #TPS|  %s #Diff Total
  consumerStatus | the members of a group, and whether they agree | group doctor
    g:consumerGroup=! i:clientId= b:brokerAddr= s:jstack
    =%-10s #Index| %-40s #ClientId| %-20s #Version| %s #Subscribes
  consumer | the members of a group, and whether they agree | group doctor
    g:consumerGroup=! s:jstack
    =%-10s #Index| %-40s #ClientId| %-20s #Version| %s #Subscribes
  consumerConnection | the connected members of a group, and its subscription | group show
    g:consumerGroup=! b:brokerAddr=
    =%-36s #ClientId| %-22s #ClientAddr| %-10s #Language| %s #Version
    =%-20s #Topic| %s #SubExpression
  getConsumerConfig | the configuration of a group on each broker | group show
    g:groupName=!
  resetOffsetByTime | move a group to a time: now, 2026-11-21#12:00:00:000, ms since 1970 | offset reset --to
    g:group=! t:topic=! s:timestamp=! f:force= c:cplus
    =%-40s #brokerName|  %-40s #queueId|  %-40s #offset
  resetOffsetByTimeOld | the same, by writing the offsets; for members that are offline | offset reset --to
    g:group=! t:topic=! s:timestamp=! f:force=
    =%-20s #brokerName|  %-20s #queueId|  %-20s #brokerOffset|  %-20s #consumerOffset
    +  %-20s #timestampOffset|  %-20s #rollbackOffset
  skipAccumulatedMessage | move a group behind all that is stored | offset reset --to latest
    g:group=! t:topic=! f:force=
    =%-20s #brokerName|  %-20s #queueId|  %-20s #brokerOffset|  %-20s #consumerOffset
    +  %-20s #timestampOffset|  %-20s #rollbackOffset
  cloneGroupOffset | give a group the offsets of another | offset copy
    s:srcGroup=! d:destGroup=! t:topic=! o:offline=
    > groups.copy_offsets s d t
    < clone group offset success. srcGroup[{s}], destGroup=[{d}], topic[{t}]
  getConsumerStatus | the offsets that members have in memory | group show
    g:group=! t:topic=! i:originClientId=
    =%-50s #clientId|  %-15s #brokerName|  %-15s #queueId|  %-20s #offset
  setConsumeMode | how 5.x clients get messages: PULL or POP | - for all groups: defaultMessageRequestMode
    b:brokerAddr? c:clusterName? t:topicName=! g:groupName=! m:mode=! q:popShareQueueNum=
  producer | every producer at a broker | group producers
    b:broker=!
  producerConnection | the connected producers of a group | group producers
    g:producerGroup=! t:topic=!
messages:
  sendMessage | send a message | message send
    t:topic=! p:body=! k:key= c:tags= b:broker= i:qid= m:msgTraceEnable=
    =%-32s #Broker Name|  %-4s #QID|  %-20s #Send Result|    %s #MsgId
  consumeMessage | print messages of a topic; no offset is moved | message tail
    t:topic=! b:brokerName= i:queueId= o:offset= g:consumerGroup= s:beginTimestamp= e:endTimestamp=
    c:MessageNumber=
  printMsg | print all messages of a topic | message find --since
    t:topic=! c:charsetName= s:subExpression= b:beginTimestamp= e:endTimestamp= d:printBody=
  printMsgByQueue | print all messages of one queue, or count its tags | message find --since
    t:topic=! a:brokerName=! i:queueId=! c:charsetName= s:subExpression= b:beginTimestamp=
    e:endTimestamp= p:print= d:printBody= f:calculate=
  queryMsgById | a message by its offset id, and what became of it | message track
    i:msgId=! t:topic= g:consumerGroup= d:clientId= s:sendMessage= u:unitName=
  queryMsgByUniqueKey | a message by its client's id, and what became of it | message track
    i:msgId=! g:consumerGroup= d:clientId= t:topic=! a:showAll
  queryMsgByKey | messages by a key | message find --key
    t:topic=! k:msgKey=! b:beginTimestamp= e:endTimestamp= m:maxNum=
    =%-50s #Message ID| %4s #QID| %40s #Offset
  queryMsgByOffset | a message by its place | store dump --from
    t:topic=! b:brokerName=! i:queueId=! o:offset=!
  queryMsgTraceById | the trace of a message: its sender, its consumers, how long it took | message track
    i:msgId=! t:traceTopic=
    =%-10s #Type| %-20s #ProducerGroup| %-20s #ClientHost| %-20s #SendTime| %-10s #CostTimes| %-10s #Status
    =%-10s #Type| %-20s #ConsumerGroup| %-20s #ClientHost| %-20s #ConsumerTime| %-10s #CostTimes
    + %-10s #Status
  queryCq | entries of a queue's index | store dump
    t:topic=! q:queue=! i:index=! c:count= b:broker= g:consumer=
  DecodeMessageId | address and time in a client's message id | message find --id
    i:messageId=!
  sendMsgStatus | send to a broker and print how long it took | bench produce
    b:brokerName=! s:messageSize= c:count=
  checkMsgSendRT | send to each queue in turn and print how long it took | bench produce
    t:topic=! a:amount= s:size=
    =%-32s #Broker Name|  %-4s #QID|  %-20s #Send Result|    %s #RT
cluster:
  clusterList | brokers with their rates | cluster list
    m:moreStats i:interval= c:clusterName=
    =%-16s #Cluster Name|  %-22s #Broker Name|  %-4s #BID|  %-22s #Addr| %-16s #Version| %19s #InTPS(LOAD)
    + %19s #OutTPS(LOAD)| %10s #PCWait(ms)| %5s #Hour| %6s #SPACE
    =%-16s #Cluster Name|  %-32s #Broker Name| %14s #InTotalYest| %14s #OutTotalYest| %14s #InTotalToday
    + %14s #OutTotalToday
  clusterRT | send to each broker of a cluster and print the mean time | bench produce
    a:amount= s:size= c:cluster= p:printAsTlog= m:machineRoom= i:interval=
    =%-24s #Cluster Name|  %-24s #Broker Name|  %-8s #RT|  %-16s #successCount|  %-16s #failCount
  brokerStatus | all that a broker counts | cluster numbers
    b:brokerAddr? c:clusterName?
  brokerConsumeStats | how far every group of a broker is | group list
    b:brokerAddr=! t:timeoutMillis= l:level= o:order=
    =%-64s #Topic|  %-64s #Group|  %-32s #Broker Name|  %-4s #QID|  %-20s #Broker Offset
    +  %-20s #Consumer Offset|  %-20s #Diff|  %s #LastTime
  haStatus | masters with their slaves, and how far behind | ha status
    b:brokerAddr? c:clusterName? i:interval=
    =%-32s #SlaveAddr|  %-16s #SlaveAckOffset| %16s #Diff| %16s #TransferSpeed(KB/s)| %16s #Status
    + %16s #TransferFromWhere
  statsAll | rates and lag of every topic and group | group list
    a:activeTopic t:topic=
    =%-64s #Topic|  %-64s #Consumer Group| %12s #Accumulation| %11s #InTPS| %11s #OutTPS| %14s #InMsg24Hour
    + %14s #OutMsg24Hour
  getBrokerConfig | the settings of brokers | cluster config
    b:brokerAddr? c:clusterName?
  updateBrokerConfig | change a setting that may change while a broker runs | cluster config --set
    b:brokerAddr? c:clusterName? k:key=! v:value=!
  getNamesrvConfig | the settings of the name servers | namesrv --print-config
  updateNamesrvConfig | change a setting of the name servers | namesrv --set
    k:key=! v:value=!
  wipeWritePerm | stop producers from sending to a broker | cluster writable BROKER no
    b:brokerName=!
  addWritePerm | let producers send to a broker again | cluster writable BROKER yes
    b:brokerName=!
  updateKvConfig | set a value in the name servers' table | - the page Name server of the console
    s:namespace=! k:key=! v:value=!
    > settings.put_kv s k v
    < create or update kv config to namespace success.
  deleteKvConfig | delete a value from the name servers' table | - the page Name server of the console
    s:namespace=! k:key=!
    > settings.delete_kv s k
    < delete kv config from namespace success.
  cleanExpiredCQ | delete queue files whose messages have expired | - not needed: they go with the log's files
    b:brokerAddr= c:cluster=
  cleanUnusedTopic | delete the queues of deleted topics | - not needed: topic delete deletes them, too
    b:brokerAddr= c:cluster=
  deleteExpiredCommitLog | delete log files whose time is over | - not needed: the broker does, at deleteWhen
    b:brokerAddr= c:cluster=
accounts:
  updateAclConfig | make an account, or change it | account set
    b:brokerAddr? c:clusterName? a:accessKey=! s:secretKey=! w:whiteRemoteAddress= i:defaultTopicPerm=
    u:defaultGroupPerm= t:topicPerms= g:groupPerms= m:admin=
  deleteAclConfig | delete an account | account delete
    b:brokerAddr? c:clusterName? a:accessKey=!
  updateGlobalWhiteAddr | set the addresses that need no signature | account white
    b:brokerAddr? c:clusterName? g:globalWhiteRemoteAddresses=! p:aclFileFullPath=
  getAclConfig | accounts and what they may do | account list
    b:brokerAddr? c:clusterName?
  clusterAclConfigVersion | the versions of the files with accounts | account list
    b:brokerAddr? c:clusterName?
    =%-16s #Cluster Name|  %-22s #Broker Name|  %-22s #Broker Addr|  %-20s #AclFilePath
    +  %-22s #AclConfigVersionNum|  %-22s #AclLastUpdateTime
"""
_ACL_5 = (
    "PocketMQ has the accounts of RocketMQ 4: pocketmq account, or edit plain_acl.yml (aclFile)"
)
_CONTROLLER = "RocketMQ's own mqadmin asks a PocketMQ controller; here: pocketmq ha"
# What it does, why it is not served, the commands.
_NOT_SERVED = (
    (
        "access control of 5.x",
        _ACL_5,
        "createUser updateUser deleteUser getUser listUser copyUser createAcl updateAcl deleteAcl getAcl "
        "listAcl copyAcl",
    ),
    (
        "static topics of 5.x",
        "PocketMQ has no static topics: a topic's queues stay on their brokers",
        "updateStaticTopic remappingStaticTopic",
    ),
    (
        "lite topics of 5.x",
        "PocketMQ has no lite topics: create ordinary ones with pocketmq topic create",
        "getBrokerLiteInfo getParentTopicInfo getLiteTopicInfo getLiteClientInfo getLiteGroupInfo "
        "triggerLiteDispatch",
    ),
    (
        "RocksDB, compaction and cold data of 5.x",
        "PocketMQ keeps RocketMQ's default files; see them by pocketmq store dump",
        "exportMetadataInRocksDB rocksDBConfigToJson checkRocksdbCqWriteProgress exportPopRecord "
        "switchTimerEngine dumpCompactionLog getColdDataFlowCtrInfo updateColdDataFlowCtrGroupConfig "
        "removeColdDataFlowCtrGroupConfig setCommitLogReadAheadMode",
    ),
    (
        "controller mode of 5.x",
        _CONTROLLER,
        "getSyncStateSet electMaster getControllerMetaData getControllerConfig updateControllerConfig "
        "cleanBrokerMetadata getBrokerEpoch addBroker removeBroker resetMasterFlushOffset",
    ),
)
_ELSEWHERE = (
    ("startMonitoring", "watch lag and dead letters", "group doctor"),
    ("exportConfigs", "write settings to a file", "cluster config --json"),
    ("exportMetadata", "write topics and groups to a file", "topic list --all --json"),
    ("exportMetrics", "write numbers to a file", "cluster numbers --json"),
    ("updateTopicList", "create topics of a file", "topic create"),
    ("updateSubGroupList", "create groups of a file", "group create"),
)


def _commands() -> Iterator[MqCommand]:
    module, command = "", MqCommand("", "")
    for line in _SERVED.strip().splitlines():
        if not line.startswith(" "):
            module = line.rstrip(":")
        elif line.startswith("    ="):
            command.tables.append(_columns(line[5:]))
        elif line.startswith("    +"):
            heading, form = command.tables.pop()
            more_heading, more_form = _columns(line[5:])
            command.tables.append((heading + more_heading, form + more_form))
        elif line.startswith("    >"):
            command.run = line[5:].strip()
        elif line.startswith("    <"):
            command.said.append(line[5:].strip())
        elif line.startswith("    "):
            command.options += [_option(word) for word in line.split()]
        else:
            name, summary, instead = (*line.strip().split(" | "), "")[:3]
            function = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()
            why = instead.removeprefix("- ") if instead.startswith("-") else ""
            instead = "" if why else instead
            command = MqCommand(name, summary, f"{module}:{function}", instead, why)
            yield command
    for name, summary, other in _ELSEWHERE:
        yield MqCommand(name, summary, instead=other)
    for summary, why, names in _NOT_SERVED:
        for name in names.split():
            yield MqCommand(name, summary, why=why)


def _columns(text: str) -> tuple[str, str]:
    """Return the heading of these columns, and the format of a row.

    >>> _columns("%-4s #QID|  %s #Last Time")
    ('#QID  #Last Time', '%-4s  %s')
    """
    parts = [re.match(r"( *%-?\d*s) (.*)", each) for each in text.split("|")]
    columns = [(each[1], each[2]) for each in parts if each is not None]
    assert len(columns) == len(parts), text
    form = "".join(column for column, _ in columns)
    return form % tuple(head for _, head in columns), form


def _option(word: str) -> MqOption:
    letter, _, rest = word.partition(":")
    return MqOption(letter, rest.rstrip("=!?"), rest[-1] in "=!?", "!" in rest, "?" in rest)


COMMANDS = tuple(_commands())


def find(name: str) -> MqCommand | None:
    """Return a command by its name, ignoring case."""
    return next((each for each in COMMANDS if each.name.lower() == name.lower()), None)
