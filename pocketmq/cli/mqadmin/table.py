"""The commands of mqadmin as data. Source: MQAdminStartup and its commands, RocketMQ 4.9.7 and 5.5.0.

    module:                               where the functions of its commands are, in this package
      name | what it does | instead       a function is called like its command, and yields lines and rows;
                                          instead: the `pocketmq` command, or - and why no command does
        letter:name letter:name=          = takes a value, ! must be given, of those with ? one must be given
        ={field:<20} #Head|  {:>4} #Head  the columns of its rows (see printed.Template); + continues them;
        +  {:<4} #Head                    a command may have several tables
        > part.method letter name=letter  instead of a function: the call of the administration, or a request
                                          by its name; @masters, @brokers, @servers: one call each, with its
                                          address; letter:flag, letter:list: what the text is
        < text with {letter} and {at}     printed after each call; * for each item of its answer; . at the end
-n (name servers) and -h belong to every command.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pocketmq.cli.mqadmin.printed import Template


class MqOption(NamedTuple):
    """One option: -letter, --name; of some of 5.x the name is the letter, too."""

    letter: str
    name: str
    takes_value: bool
    required: bool
    is_one_of: bool


@dataclass(slots=True)
class MqCommand:
    """One command. module: empty if it is not served; instead: the `pocketmq` command that does the same;
    why: the reason if no command does; call: the words of `>`; lines: how its answer is printed.
    """

    name: str
    summary: str
    module: str = ""
    instead: str = ""
    why: str = ""
    options: list[MqOption] = field(default_factory=list)
    tables: list[Template] = field(default_factory=list)
    call: list[str] = field(default_factory=list)
    lines: list[tuple[str, Template]] = field(default_factory=list)

    @property
    def function(self) -> str:
        """Return the name of the function that answers it, where there is no call."""
        return re.sub("(?<=[a-z])(?=[A-Z])", "_", self.name).lower()

    @property
    def one_of(self) -> str:
        """Return the letters of which one must be given."""
        return "".join(option.letter for option in self.options if option.is_one_of)


_ROWS = """
topics:
  updateTopic | create a topic, or change it | topic create
    b:brokerAddr? c:clusterName? t:topic=! r:readQueueNums= w:writeQueueNums= p:perm= o:order=
    u:unit= s:hasUnitSub= a:attributes=
  deleteTopic | delete a topic from brokers and name servers | topic delete
    t:topic=! c:clusterName=!
    > topics.delete t cluster=c
    . delete topic [{t}] from cluster [{c}] success.
    . delete topic [{t}] from NameServer success.
  topicList | list topics; with -c their clusters and groups, too | topic list --all
    c:clusterModel
    ={:<20} #Cluster Name|  {:<64} #Topic|  {:<64} #Consumer Group
  topicRoute | which brokers have a topic | topic show
    t:topic=! l:list
    ={:<45} #ClusterName|  {:<32} #BrokerName|  {:<46} #BrokerAddrs|  {:<10} #ReadQueue|  {:<11} #WriteQueue
    +  {:<5} #Perm
  topicStatus | what each queue of a topic holds | topic show
    t:topic=! c:cluster=
    ={queue.broker_name:<32} #Broker Name|  {queue.queue_id:<4} #QID|  {min_offset:<20} #Min Offset
    +  {max_offset:<20} #Max Offset|    {last_update_ms:moment} #Last Updated
    > topics.status t
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
    ={queue.topic:<64} #Topic|  {queue.broker_name:<32} #Broker Name|  {queue.queue_id:<4} #QID
    +  {broker_offset:<20} #Broker Offset|  {consumer_offset:<20} #Consumer Offset|  {lag:<20} #Diff
    +  {last_ms:second} #LastTime
    ={queue.topic:<64} #Topic|  {queue.broker_name:<32} #Broker Name|  {queue.queue_id:<4} #QID
    +  {broker_offset:<20} #Broker Offset|  {consumer_offset:<20} #Consumer Offset
    +  {owner:host:<20} #Client IP| {lag:<20} #Diff|  {last_ms:second} #LastTime
    ={:<64} #Group|  {:<6} #Count|  {:<24} #Version| {:<5} #Type|  {:<14} #Model|  {:<7} #TPS|  {} #Diff Total
  consumerStatus | the members of a group, and whether they agree | group doctor
    g:consumerGroup=! i:clientId= b:brokerAddr= s:jstack
    ={:<10} #Index| {:<40} #ClientId| {:<20} #Version| {} #Subscribes
  consumer | the members of a group, and whether they agree | group doctor
    g:consumerGroup=! s:jstack
    ={:<10} #Index| {:<40} #ClientId| {:<20} #Version| {} #Subscribes
  consumerConnection | the connected members of a group, and its subscription | group show
    g:consumerGroup=! b:brokerAddr=
    ={client_id:<36} #ClientId| {address:<22} #ClientAddr| {language:<10} #Language
    + {version:release} #Version
    ={:<20} #Topic| {} #SubExpression
  getConsumerConfig | the configuration of a group on each broker | group show
    g:groupName=!
  resetOffsetByTime | move a group to a time: now, 2026-11-21#12:00:00:000, ms since 1970 | offset reset --to
    g:group=! t:topic=! s:timestamp=! f:force= c:cplus
    ={queue.broker_name:<40} #brokerName|  {queue.queue_id:<40} #queueId|  {new_offset:<40} #offset
  resetOffsetByTimeOld | the same, by writing the offsets; for members that are offline | offset reset --to
    g:group=! t:topic=! s:timestamp=! f:force=
    ={:<20} #brokerName|  {:<20} #queueId|  {:<20} #brokerOffset|  {:<20} #consumerOffset
    +  {:<20} #timestampOffset|  {:<20} #rollbackOffset
  skipAccumulatedMessage | move a group behind all that is stored | offset reset --to latest
    g:group=! t:topic=! f:force=
    ={:<20} #brokerName|  {:<20} #queueId|  {:<20} #brokerOffset|  {:<20} #consumerOffset
    +  {:<20} #timestampOffset|  {:<20} #rollbackOffset
  cloneGroupOffset | give a group the offsets of another | offset copy
    s:srcGroup=! d:destGroup=! t:topic=! o:offline=
    > groups.copy_offsets s d t
    . clone group offset success. srcGroup[{s}], destGroup=[{d}], topic[{t}]
  getConsumerStatus | the offsets that members have in memory | group show
    g:group=! t:topic=! i:originClientId=
    ={:<50} #clientId|  {:<15} #brokerName|  {:<15} #queueId|  {:<20} #offset
  setConsumeMode | how 5.x clients get messages: PULL or POP | - for all groups: defaultMessageRequestMode
    b:brokerAddr? c:clusterName? t:topicName=! g:groupName=! m:mode=! q:popShareQueueNum=
  producer | every producer at a broker | group producers
    b:broker=!
  producerConnection | the connected producers of a group | group producers
    g:producerGroup=! t:topic=!
messages:
  sendMessage | send a message | message send
    t:topic=! p:body=! k:key= c:tags= b:broker= i:qid= m:msgTraceEnable=
    ={message_queue.broker_name:<32} #Broker Name|  {message_queue.queue_id:<4} #QID
    +  {status:<20} #Send Result|    {msg_id} #MsgId
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
    ={msg_id:<50} #Message ID| {queue_id:>4} #QID| {queue_offset:>40} #Offset
    > messages.by_key t k count_max=m:number begin_ms=b:time end_ms=e:time
  queryMsgByOffset | a message by its place | store dump --from
    t:topic=! b:brokerName=! i:queueId=! o:offset=!
  queryMsgTraceById | the trace of a message: its sender, its consumers, how long it took | message track
    i:msgId=! t:traceTopic=
    ={:<10} #Type| {:<20} #ProducerGroup| {:<20} #ClientHost| {:<20} #SendTime| {:<10} #CostTimes
    + {:<10} #Status
    ={:<10} #Type| {:<20} #ConsumerGroup| {:<20} #ClientHost| {:<20} #ConsumerTime| {:<10} #CostTimes
    + {:<10} #Status
  queryCq | entries of a queue's index | store dump
    t:topic=! q:queue=! i:index=! c:count= b:broker= g:consumer=
  DecodeMessageId | address and time in a client's message id | message find --id
    i:messageId=!
  sendMsgStatus | send to a broker and print how long it took | bench produce
    b:brokerName=! s:messageSize= c:count=
  checkMsgSendRT | send to each queue in turn and print how long it took | bench produce
    t:topic=! a:amount= s:size=
    ={:<32} #Broker Name|  {:<4} #QID|  {:<20} #Send Result|    {} #RT
cluster:
  clusterList | brokers with their rates | cluster list
    m:moreStats i:interval= c:clusterName=
    ={broker.cluster:<16} #Cluster Name|  {broker.name:<22} #Broker Name|  {broker.broker_id:<4} #BID
    +  {broker.address:<22} #Addr| {brokerVersionDesc:<16} #Version| {inLoad:>19} #InTPS(LOAD)
    + {deliveredLoad:>19} #OutTPS(LOAD)| {pageCacheLockTimeMills:>10} #PCWait(ms)
    + {hours:>5} #Hour| {space:>6} #SPACE
    ={broker.cluster:<16} #Cluster Name|  {broker.name:<32} #Broker Name| {inYesterday:>14} #InTotalYest
    + {deliveredYesterday:>14} #OutTotalYest| {inToday:>14} #InTotalToday| {deliveredToday:>14} #OutTotalToday
  clusterRT | send to each broker of a cluster and print the mean time | bench produce
    a:amount= s:size= c:cluster= p:printAsTlog= m:machineRoom= i:interval=
    ={:<24} #Cluster Name|  {:<24} #Broker Name|  {:<8} #RT|  {:<16} #successCount|  {:<16} #failCount
  brokerStatus | all that a broker counts | cluster numbers
    b:brokerAddr? c:clusterName?
    > settings.runtime @masters
    * {c:if:{at:<24} }{key:<32}: {value}
  brokerConsumeStats | how far every group of a broker is | group list
    b:brokerAddr=! t:timeoutMillis= l:level= o:order=
    ={:<64} #Topic|  {:<64} #Group|  {:<32} #Broker Name|  {:<4} #QID|  {:<20} #Broker Offset
    +  {:<20} #Consumer Offset|  {:<20} #Diff|  {:second} #LastTime
  haStatus | masters with their slaves, and how far behind | ha status
    b:brokerAddr? c:clusterName? i:interval=
    ={addr:<32} #SlaveAddr|  {slaveAckOffset:<16} #SlaveAckOffset| {diff:>16} #Diff
    + {transferredByteInSecond:kilo:>16} #TransferSpeed(KB/s)| {status:>16} #Status
    + {transferFromWhere:>16} #TransferFromWhere
  statsAll | rates and lag of every topic and group | group list
    a:activeTopic t:topic=
    ={:<64} #Topic|  {:<64} #Consumer Group| {:>12} #Accumulation| {:>11} #InTPS| {:>11} #OutTPS
    + {:>14} #InMsg24Hour| {:>14} #OutMsg24Hour
  getBrokerConfig | the settings of brokers | cluster config
    b:brokerAddr? c:clusterName?
    > settings.broker @masters
    < ============{c:if:Master: }{at}============
    * {key:<50}=  {value}
    <
  updateBrokerConfig | change a setting that may change while a broker runs | cluster config --set
    b:brokerAddr? c:clusterName? k:key=! v:value=!
  getNamesrvConfig | the settings of the name servers | namesrv --print-config
    > settings.name_server @servers
    < ============{at}============
    * {key:<50}=  {value}
  updateNamesrvConfig | change a setting of the name servers | namesrv --set
    k:key=! v:value=!
  wipeWritePerm | stop producers from sending to a broker | cluster writable BROKER no
    b:brokerName=!
  addWritePerm | let producers send to a broker again | cluster writable BROKER yes
    b:brokerName=!
  updateKvConfig | set a value in the name servers' table | - the page Name server of the console
    s:namespace=! k:key=! v:value=!
    > settings.put_kv s k v
    . create or update kv config to namespace success.
  deleteKvConfig | delete a value from the name servers' table | - the page Name server of the console
    s:namespace=! k:key=!
    > settings.delete_kv s k
    . delete kv config from namespace success.
  cleanExpiredCQ | delete queue files whose messages have expired | - not needed: they go with the log's files
    b:brokerAddr= c:cluster=
    > CLEAN_EXPIRED_CONSUMEQUEUE @masters
    . success
  cleanUnusedTopic | delete the queues of deleted topics | - not needed: topic delete deletes them, too
    b:brokerAddr= c:cluster=
    > CLEAN_UNUSED_TOPIC @masters
    . success
  deleteExpiredCommitLog | delete log files whose time is over | - not needed: the broker does, at deleteWhen
    b:brokerAddr= c:cluster=
    > DELETE_EXPIRED_COMMITLOG @masters
    . success
  updateAclConfig | make an account, or change it | account set
    b:brokerAddr? c:clusterName? a:accessKey=! s:secretKey=! w:whiteRemoteAddress= i:defaultTopicPerm=
    u:defaultGroupPerm= t:topicPerms= g:groupPerms= m:admin=
    > settings.set_account @brokers a s white_remote_address=w admin=m:flag default_topic_perm=i
    > default_group_perm=u topic_perms=t group_perms=g
    < create or update plain access config to {at} success.
  deleteAclConfig | delete an account | account delete
    b:brokerAddr? c:clusterName? a:accessKey=!
    > settings.delete_account @brokers a
    < delete plain access config account from {at} success.
    . account's accesskey is:{a}
  updateGlobalWhiteAddr | set the addresses that need no signature | account white
    b:brokerAddr? c:clusterName? g:globalWhiteRemoteAddresses=! p:aclFileFullPath=
    > settings.set_white_addresses @brokers g:list file=p
    < update global white remote addresses to {at} success.
  getAclConfig | accounts and what they may do | account list
    b:brokerAddr? c:clusterName?
  clusterAclConfigVersion | the versions of the files with accounts | account list
    b:brokerAddr? c:clusterName?
    ={:<16} #Cluster Name|  {:<22} #Broker Name|  {:<22} #Broker Addr|  {:<20} #AclFilePath
    +  {:<22} #AclConfigVersionNum|  {:<22} #AclLastUpdateTime
:
  startMonitoring | watch lag and dead letters | group doctor
  exportConfigs | write settings to a file | cluster config --json
  exportMetadata | write topics and groups to a file | topic list --all --json
  exportMetrics | write numbers to a file | cluster numbers --json
  updateTopicList | create topics of a file | topic create
  updateSubGroupList | create groups of a file | group create
"""
# What they do, why they are not served, their names.
_NOT_SERVED = (
    (
        "access control of 5.x",
        "the broker serves them to mqadmin 5.5.0; here: pocketmq account",
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
        "the broker answers them for mqadmin 5.5.0",
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
        "RocketMQ's own mqadmin asks a PocketMQ controller; here: pocketmq ha",
        "getSyncStateSet electMaster getControllerMetaData getControllerConfig updateControllerConfig "
        "cleanBrokerMetadata getBrokerEpoch addBroker removeBroker resetMasterFlushOffset",
    ),
)


def _commands() -> Iterator[MqCommand]:
    module, command = "", MqCommand("", "")
    for line in _ROWS.strip().splitlines():
        if not line.startswith(" "):
            module = line.rstrip(":")
        elif not line.startswith("    "):
            name, summary, instead = line.strip().split(" | ")
            why = instead.removeprefix("- ") if instead.startswith("-") else ""
            command = MqCommand(name, summary, module, "" if why else instead, why)
            yield command
        else:
            _add(command, line[4], line[5:])
    for summary, why, names in _NOT_SERVED:
        for name in names.split():
            yield MqCommand(name, summary, why=why)


def _add(command: MqCommand, mark: str, rest: str) -> None:
    """Add one line of a command's row."""
    if mark == "=":
        command.tables.append(Template.of_columns(rest))
    elif mark == "+":
        command.tables[-1] += Template.of_columns(rest)
    elif mark == ">":
        command.call += rest.split()
    elif mark in "<*.":
        command.lines.append((mark, Template(rest.removeprefix(" "))))
    else:
        command.options += map(_option, (mark + rest).split())


def _option(word: str) -> MqOption:
    letter, _, rest = word.partition(":")
    return MqOption(letter, rest.rstrip("=!?"), rest[-1] in "=!?", "!" in rest, "?" in rest)


COMMANDS = tuple(_commands())


def find(name: str) -> MqCommand | None:
    """Return a command by its name, ignoring case."""
    return next((each for each in COMMANDS if each.name.lower() == name.lower()), None)
