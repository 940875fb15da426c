"""Requests, as one table: one row per code with everything that servers and their guards know of it.

    code      number and name: codes.py; PocketMQ's own are below
    header    class of its header fields, `answer` that of its answer's; None: no header fields
    access    the right an account needs if signatures are checked; None: an administrator's
    admin     for an administrator's code what a user needs by policies; None: a super user's
    server    the servers that answer it; if no server does, `why` gives the reason

One noun: the table of requests. The tables of handlers are compared with it (`complete`), access control
obeys it, and the compatibility page is generated from it. RocketMQ's numbers and headers are in codes.py and
headers.py; for a code that only PocketMQ has, everything is here.
Source of the accesses: PlainAccessValidator, RocketMQ 4.9.7, for the codes that it looks at; the resources
that headers of RocketMQ 5.5.0 name; for the rest, which clients send without being an administrator's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Flag, StrEnum, auto
from typing import TypeVar

from pocketmq.remoting import admin_headers as ah
from pocketmq.remoting import headers as h
from pocketmq.remoting.codes import DescribedCode, RequestCode
from pocketmq.remoting.header import Header

_T = TypeVar("_T")


class PocketRequestCode(DescribedCode):
    """Requests that only PocketMQ answers, with JSON bodies. Our own range, far above RocketMQ's numbers.

    RocketMQ answers them with REQUEST_CODE_NOT_SUPPORTED, and so does an older PocketMQ.
    """

    # Header group? -> {"activeCount", "raisedCount", "groups": [{"group", "mode", "members",
    # "findings", "subGroups"}]}: groups whose members differ, or the requested one.
    GET_GROUP_FINDINGS = 900_001, "asking whose members differ"
    # Header msgId? topic? queueId? queueOffset? group? -> {"topic", "queueId", "queueOffset",
    # "recordedSince", "tracks": [{"group", "trackType", "verdict", "text", "deliveries"}]}: a message by
    # its offset id, by topic and unique key, or by its place; 22 if it does not exist.
    GET_MESSAGE_TRACK = 900_002, "asking what became of the message"
    # Header topic? count? key? -> {"behindMs", "offsetBehind", "counting", "counts": {topic: n}, "messages":
    # [{"topic", "queueId", "msgId", "deliverTimestamp", "storeTimestamp", "storeSize", "rollTimes",
    # "recallHandle", "keys"}]}: the next messages that wait for a delivery time (not those of delay levels);
    # counting: after a crash the counts are too low for some seconds.
    GET_TIMERS = 900_003, "asking for delayed messages"
    # Header act: promote (role?, force?), demote (newBrokerId), resync. The broker changes its role at run
    # time, or accepts refused slaves again; SYSTEM_ERROR with the reason if it does not.
    CHANGE_ROLE = 900_004, "changing the broker's role"
    # -> {"isolated", "orderInfo", "locks"}: what our slaves copy besides RocketMQ's tables.
    GET_REPLICA_TABLES = 900_005
    # Header topic, one-way, from a name server to a client that asked for the topic's route in vain and
    # said `tellWhenKnown` in its query: it has a route now.
    NOTIFY_TOPIC_KNOWN = 900_006
    # A slave with an account and its master prove themselves to each other before the slave signs anything;
    # the ticket opens one connection to the port for slaves. broker/ha/proof.py has the words.
    INTRODUCE = 900_010
    FOLLOW = 900_011
    # Header group, topic? since? (ms) -> {"recordedSince", "topics": [rows of model/balance.py]}; with
    # states (names with commas) -> {"recordedSince", "rows": [{"topic", "broker", "queueId", "first", "last",
    # "state", "cause", "member", "time"}]}: the messages that are in one of these states.
    GET_GROUP_BALANCE = 900_012, "asking for the balance of a group"
    # Header group, state (lost, skipped), count (0: dry run), topic? since? (ms) -> {"given", "left",
    # "unwanted", "deleted"}: the next messages in that state are given to their group again.
    REDELIVER = 900_013, "redelivering messages"
    # A slave gets what it lacks of the delivery record (broker/delivery/record_copy.py).
    GET_DELIVERIES = 900_014
    # -> {"changed", "needsRestart", "failure"}: names of settings. The broker reads its configuration and
    # certificates again.
    RELOAD = 900_015, "reading the configuration again"
    # Header topic, group? begins? (of the name) cursor? count? -> {"count", "cursor"? (of the next page),
    # "liteTopics": [{"liteTopic", "minOffset", "maxOffset", "lastUpdate", "offset"?, "lag"?}]}
    GET_LITE_TOPICS = 900_016, "asking for lite topics"
    # Header topic, name, replace? and the plan as JSON (broker/schedules/schedule.py) -> the schedule.
    CREATE_SCHEDULE = 900_020, "creating a schedule"
    # Header topic, name, act: pause, resume, delete.
    CHANGE_SCHEDULE = 900_021, "changing a schedule"
    # Header topic? name? owner? -> {"schedules": [rows]}: bodies only with a name.
    GET_SCHEDULES = 900_022, "asking for schedules"


class GetGroupFindingsHeader(Header):
    group: str | None = None


class GetMessageTrackHeader(Header, own=True):
    msg_id: str | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    group: str | None = None


class GetGroupBalanceHeader(Header, own=True):
    group: str
    topic: str | None = None
    since: int | None = None
    states: str | None = None
    after: str | None = None


class RedeliverHeader(Header, own=True):
    group: str
    state: str
    count: int
    topic: str | None = None
    since: int | None = None
    after: str | None = None


class GetDeliveriesHeader(Header):
    size: int
    ending: str
    before: str
    sums: int


class GetDeliveriesResponseHeader(Header):
    part: str


class GetTimersHeader(Header, own=True):
    topic: str | None = None
    count: int | None = None
    key: str | None = None


class GetLiteTopicsHeader(Header, own=True):
    topic: str
    group: str | None = None
    begins: str | None = None
    cursor: str | None = None
    count: int | None = None


class CreateScheduleHeader(Header):
    topic: str
    name: str
    replace: bool | None = None


class ChangeScheduleHeader(Header):
    topic: str
    name: str
    act: str


class GetSchedulesHeader(Header):
    topic: str | None = None
    name: str | None = None
    owner: str | None = None


class ChangeRoleHeader(Header, own=True):
    act: str
    role: str | None = None
    force: bool | None = None
    new_broker_id: int | None = None
    target: str | None = None


class WaitingRouteHeader(ah.GetRouteInfoHeader):
    """Asks a name server of ours for NOTIFY_TOPIC_KNOWN, too; RocketMQ's ignore that."""

    tell_when_known: bool | None = None


class NotifyTopicKnownHeader(Header):
    topic: str


class IntroduceHeader(Header):
    account: str
    nonce: str
    address: str


class IntroduceResponseHeader(Header):
    challenge: str
    ha_address: str
    proof: str


class FollowHeader(Header):
    account: str
    nonce: str
    challenge: str
    proof: str


class FollowResponseHeader(Header):
    ticket: int


class AnsweringServer(Flag):
    """Which servers answer a request."""

    NOBODY = 0
    BROKER = auto()
    NAME_SERVER = auto()
    CLIENT = auto()
    CONTROLLER = auto()


@dataclass(frozen=True, slots=True)
class Right:
    """The right that a request needs, by the fields that name its topics and groups.

    publish, subscribe, either: topics; group: what the account must be able to subscribe as. Fields of the
    header, or of the JSON body as a path: `acks.c` is the `c` of each element of `acks`. read_at, write_at:
    header fields with the position of a message, whose own topic and group count; one that is written is a
    half message. popped: the topic may be the group's own pop retry topic. optional: a request without such
    a field needs no right. unsigned: the request carries a proof of its own, and no signature is checked.
    """

    publish: str | None = None
    subscribe: str | None = None
    either: str | None = None
    group: str | None = None
    read_at: str | None = None
    write_at: str | None = None
    in_body: bool = False
    popped: bool = False
    optional: bool = False
    unsigned: bool = False

    def __str__(self) -> str:
        """Return it in words.

        >>> str(Right(subscribe="topic", group="consumerGroup"))
        'subscribe `topic`; subscribe as `consumerGroup`'
        """
        if self.unsigned:
            return "a proof of its own instead of a signature"
        words = (
            ("publish to `%s`", self.publish),
            ("subscribe `%s`", self.subscribe),
            ("publish to or subscribe `%s`", self.either),
            ("subscribe as `%s`", self.group),
            ("subscribe the topic of the message at `%s`", self.read_at),
            ("publish to the topic of the half message at `%s`", self.write_at),
        )
        return "; ".join(text % field for text, field in words if field is not None)


class Action(StrEnum):
    """What a policy of RocketMQ 5.x allows or denies."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


_CHANGES = (Action.CREATE, Action.UPDATE, Action.DELETE)


@dataclass(frozen=True, slots=True)
class Administration:
    """What an administrator's code needs by policies: an action on the topics and groups it names.

    topics, groups: fields of the header, or paths of the JSON body. A request that names none, or any with
    `cluster`, needs the action on the cluster.
    """

    action: Action
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    in_body: bool = False
    cluster: bool = False


@dataclass(frozen=True, slots=True)
class RequestRow:
    """What is known of one code; see the head of the module. also: an action that would do for `access`.

    changes: it is an act of an administrator, whatever `admin` says.
    """

    code: RequestCode | PocketRequestCode
    header: type[Header] | None = None
    answer: type[Header] | None = None
    access: Right | None = None
    server: AnsweringServer = AnsweringServer.BROKER
    why: str = ""
    admin: Administration | None = None
    also: Action | None = None
    changes: bool = False

    @property
    def is_act(self) -> bool:
        """Return True for what an administrator changes, which the audit trail keeps."""
        return self.changes or (self.admin is not None and self.admin.action in _CHANGES)


_CLUSTER_GET = Administration(Action.GET, cluster=True)
_CLUSTER_UPDATE = Administration(Action.UPDATE, cluster=True)
_TOPIC_GET = Administration(Action.GET, topics=("topic",))
_GROUP_GET = Administration(Action.GET, groups=("consumerGroup",))
_BOTH_GET = Administration(Action.GET, topics=("topic",), groups=("consumerGroup",))
_OF_GROUP = Administration(Action.GET, topics=("topic",), groups=("group",))

_UNUSED = "in RocketMQ's list of codes, but nothing sends or serves it"
_POP = "5.5: moves check points from RocksDB back to files; PocketMQ uses files only"
_TIMER = "5.5 timers in RocksDB: PocketMQ's only timer engine is the wheel"
_LITE = "no broker of RocketMQ 5.5 has a handler for it: a receipt of a lite topic is acknowledged by 200051"
_COLD = "5.x cold data flow control: PocketMQ has no separate reader to slow down"
_ROCKSDB = "5.x RocksDB store: PocketMQ keeps its tables in RocketMQ's JSON files"
_HA = "5.x slaves acting as masters, which RocketMQ 4.9 does not have"
_CONTAINER = "5.x broker container: each PocketMQ process is one broker"
_STATIC = (
    "5.x static topics, which RocketMQ 4.9 does not have; RocketMQ Streams takes ordinary ones "
    "that are there before it starts"
)

_PUBLISH, _PUBLISH_V2 = Right(publish="topic"), Right(publish="b")
_READ = Right(subscribe="topic", group="consumerGroup")
_RECEIPT = Right(subscribe="topic", group="consumerGroup", popped=True)
_QUEUE = Right(either="topic")
_UNSIGNED = Right(unsigned=True)
_LOCKS = Right(subscribe="mqSet.topic", group="consumerGroup", in_body=True)


def _served_by(server: AnsweringServer, *rows: RequestRow) -> Iterator[RequestRow]:
    return (replace(row, server=server) for row in rows)


def _unserved(why: str, *codes: RequestCode) -> Iterator[RequestRow]:
    return (RequestRow(code, server=AnsweringServer.NOBODY, why=why) for code in codes)


C, P = RequestCode, PocketRequestCode
_ROWS: tuple[RequestRow, ...] = (
    # ------------------------------------------------------------ served by brokers
    RequestRow(C.SEND_MESSAGE, h.SendMessageHeader, h.SendMessageResponseHeader, _PUBLISH),
    RequestRow(C.PULL_MESSAGE, h.PullMessageHeader, h.PullMessageResponseHeader, _READ),
    RequestRow(
        C.QUERY_MESSAGE,
        h.QueryMessageHeader,
        h.QueryMessageResponseHeader,
        Right(subscribe="topic"),
        also=Action.GET,
    ),
    RequestRow(
        C.QUERY_CONSUMER_OFFSET,
        h.QueryConsumerOffsetHeader,
        h.QueryConsumerOffsetResponseHeader,
        _READ,
        also=Action.GET,
    ),
    RequestRow(
        C.UPDATE_CONSUMER_OFFSET, h.UpdateConsumerOffsetHeader, access=_READ, also=Action.UPDATE
    ),
    RequestRow(
        C.UPDATE_AND_CREATE_TOPIC,
        ah.CreateTopicHeader,
        admin=Administration(Action.CREATE, topics=("topic",)),
    ),
    RequestRow(
        C.UPDATE_AND_CREATE_TOPIC_LIST,
        admin=Administration(Action.CREATE, topics=("topicConfigList.topicName",), in_body=True),
    ),
    RequestRow(C.GET_ALL_TOPIC_CONFIG, ah.GetAllTopicConfigHeader, admin=_CLUSTER_GET),
    RequestRow(C.UPDATE_BROKER_CONFIG, admin=_CLUSTER_UPDATE),
    RequestRow(C.GET_BROKER_CONFIG, None, ah.GetBrokerConfigResponseHeader, admin=_CLUSTER_GET),
    RequestRow(C.GET_BROKER_RUNTIME_INFO, admin=_CLUSTER_GET),
    RequestRow(
        C.SEARCH_OFFSET_BY_TIMESTAMP, h.SearchOffsetHeader, h.SearchOffsetResponseHeader, _QUEUE
    ),
    RequestRow(C.GET_MAX_OFFSET, h.GetMaxOffsetHeader, h.GetMaxOffsetResponseHeader, _QUEUE),
    RequestRow(C.GET_MIN_OFFSET, h.GetMinOffsetHeader, h.GetMinOffsetResponseHeader, _QUEUE),
    RequestRow(
        C.GET_EARLIEST_MSG_STORETIME,
        h.GetEarliestMsgStoretimeHeader,
        h.GetEarliestMsgStoretimeResponseHeader,
        _QUEUE,
    ),
    RequestRow(
        C.VIEW_MESSAGE_BY_ID, h.ViewMessageHeader, access=Right(read_at="offset"), also=Action.GET
    ),
    RequestRow(
        C.HEART_BEAT,
        access=Right(
            subscribe="consumerDataSet.subscriptionDataSet.topic",
            group="consumerDataSet.groupName",
            in_body=True,
            optional=True,
        ),
    ),
    RequestRow(
        C.UNREGISTER_CLIENT,
        h.UnregisterClientHeader,
        access=Right(group="consumerGroup", optional=True),
    ),
    RequestRow(
        C.CONSUMER_SEND_MSG_BACK,
        h.ConsumerSendMsgBackHeader,
        access=Right(group="group", read_at="offset"),
    ),
    RequestRow(C.END_TRANSACTION, h.EndTransactionHeader, access=Right(write_at="commitLogOffset")),
    RequestRow(
        C.GET_CONSUMER_LIST_BY_GROUP,
        h.GetConsumerListHeader,
        access=Right(group="consumerGroup"),
        also=Action.GET,
    ),
    RequestRow(C.LOCK_BATCH_MQ, access=_LOCKS),
    RequestRow(C.UNLOCK_BATCH_MQ, access=_LOCKS),
    RequestRow(C.GET_ALL_CONSUMER_OFFSET, admin=_CLUSTER_GET),
    RequestRow(C.GET_ALL_DELAY_OFFSET, admin=_CLUSTER_GET),
    RequestRow(
        C.CHECK_CLIENT_CONFIG,
        access=Right(subscribe="subscriptionData.topic", group="group", in_body=True),
    ),
    RequestRow(C.UPDATE_AND_CREATE_ACL_CONFIG, ah.AclConfigHeader, changes=True),
    RequestRow(C.DELETE_ACL_CONFIG, ah.DeleteAclConfigHeader, changes=True),
    RequestRow(C.GET_BROKER_CLUSTER_ACL_INFO, None, ah.BrokerAclInfoResponseHeader),
    RequestRow(C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, ah.GlobalWhiteAddrsHeader, changes=True),
    RequestRow(C.GET_BROKER_CLUSTER_ACL_CONFIG),
    RequestRow(C.AUTH_CREATE_USER, ah.UserHeader, changes=True),
    RequestRow(C.AUTH_UPDATE_USER, ah.UserHeader, changes=True),
    RequestRow(C.AUTH_DELETE_USER, ah.UserHeader, changes=True),
    RequestRow(C.AUTH_GET_USER, ah.UserHeader),
    RequestRow(C.AUTH_LIST_USER, ah.ListUsersHeader),
    RequestRow(C.AUTH_CREATE_ACL, ah.SubjectHeader, changes=True),
    RequestRow(C.AUTH_UPDATE_ACL, ah.SubjectHeader, changes=True),
    RequestRow(C.AUTH_DELETE_ACL, ah.DeletePolicyHeader, changes=True),
    RequestRow(C.AUTH_GET_ACL, ah.SubjectHeader),
    RequestRow(C.AUTH_LIST_ACL, ah.ListPoliciesHeader),
    RequestRow(C.GET_TIMER_CHECK_POINT),
    RequestRow(C.GET_TIMER_METRICS, admin=_CLUSTER_GET),
    RequestRow(
        C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        admin=Administration(Action.CREATE, groups=("groupName",), in_body=True),
    ),
    RequestRow(
        C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        ah.GetAllSubscriptionGroupHeader,
        ah.GetAllSubscriptionGroupResponseHeader,
        admin=_CLUSTER_GET,
    ),
    RequestRow(C.GET_TOPIC_STATS_INFO, ah.GetTopicStatsInfoHeader, admin=_TOPIC_GET),
    RequestRow(
        C.GET_CONSUMER_CONNECTION_LIST, ah.GetConsumerConnectionListHeader, admin=_GROUP_GET
    ),
    RequestRow(
        C.GET_PRODUCER_CONNECTION_LIST, ah.GetProducerConnectionListHeader, admin=_CLUSTER_GET
    ),
    RequestRow(
        C.DELETE_SUBSCRIPTIONGROUP,
        ah.DeleteSubscriptionGroupHeader,
        admin=Administration(Action.DELETE, groups=("groupName",)),
    ),
    RequestRow(C.GET_CONSUME_STATS, ah.GetConsumeStatsHeader, admin=_BOTH_GET),
    RequestRow(
        C.DELETE_TOPIC_IN_BROKER,
        ah.DeleteTopicHeader,
        admin=Administration(Action.DELETE, topics=("topic",)),
    ),
    RequestRow(
        C.INVOKE_BROKER_TO_RESET_OFFSET,
        h.ResetOffsetHeader,
        admin=Administration(Action.UPDATE, topics=("topic",), groups=("group",)),
    ),
    RequestRow(C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, h.GetConsumerStatusHeader, admin=_OF_GROUP),
    RequestRow(
        C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        admin=Administration(Action.CREATE, groups=("groupConfigList.groupName",), in_body=True),
    ),
    RequestRow(C.QUERY_TOPIC_CONSUME_BY_WHO, ah.QueryTopicConsumeByWhoHeader, admin=_TOPIC_GET),
    RequestRow(C.QUERY_CONSUME_TIME_SPAN, ah.QueryConsumeTimeSpanHeader, admin=_OF_GROUP),
    RequestRow(C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, admin=_CLUSTER_GET),
    RequestRow(C.CLEAN_EXPIRED_CONSUMEQUEUE, admin=_CLUSTER_UPDATE),
    RequestRow(
        C.GET_CONSUMER_RUNNING_INFO,
        h.GetConsumerRunningInfoHeader,
        server=AnsweringServer.BROKER | AnsweringServer.CLIENT,
        admin=_GROUP_GET,
    ),
    RequestRow(
        C.QUERY_CORRECTION_OFFSET,
        ah.QueryCorrectionOffsetHeader,
        admin=Administration(Action.GET, topics=("topic",), groups=("compareGroup",)),
    ),
    RequestRow(
        C.CONSUME_MESSAGE_DIRECTLY,
        h.ConsumeMessageDirectlyHeader,
        server=AnsweringServer.BROKER | AnsweringServer.CLIENT,
        admin=Administration(Action.SUB, topics=("topic",), groups=("consumerGroup",)),
        changes=True,
    ),
    RequestRow(C.SEND_MESSAGE_V2, h.SendMessageV2Header, h.SendMessageResponseHeader, _PUBLISH_V2),
    RequestRow(
        C.CLONE_GROUP_OFFSET,
        ah.CloneGroupOffsetHeader,
        admin=Administration(Action.UPDATE, topics=("topic",), groups=("srcGroup", "destGroup")),
    ),
    RequestRow(C.VIEW_BROKER_STATS_DATA, ah.ViewBrokerStatsDataHeader, admin=_CLUSTER_GET),
    RequestRow(C.CLEAN_UNUSED_TOPIC, admin=_CLUSTER_UPDATE),
    RequestRow(C.GET_BROKER_CONSUME_STATS, ah.GetBrokerConsumeStatsHeader, admin=_CLUSTER_GET),
    RequestRow(
        C.SEND_BATCH_MESSAGE, h.SendMessageV2Header, h.SendMessageResponseHeader, _PUBLISH_V2
    ),
    RequestRow(C.QUERY_CONSUME_QUEUE, h.QueryConsumeQueueHeader, admin=_BOTH_GET),
    RequestRow(C.RESUME_CHECK_HALF_MESSAGE, ah.ResumeCheckHalfMessageHeader, admin=_CLUSTER_UPDATE),
    RequestRow(C.SEND_REPLY_MESSAGE, h.SendMessageHeader, h.SendMessageResponseHeader, _PUBLISH),
    RequestRow(
        C.SEND_REPLY_MESSAGE_V2, h.SendMessageV2Header, h.SendMessageResponseHeader, _PUBLISH_V2
    ),
    RequestRow(C.GET_ALL_PRODUCER_INFO, admin=_CLUSTER_GET),
    RequestRow(C.DELETE_EXPIRED_COMMITLOG, admin=_CLUSTER_UPDATE),
    RequestRow(C.QUERY_TOPICS_BY_CONSUMER, ah.QueryTopicsByConsumerHeader, admin=_OF_GROUP),
    RequestRow(
        C.QUERY_SUBSCRIPTION_BY_CONSUMER, ah.QuerySubscriptionByConsumerHeader, admin=_OF_GROUP
    ),
    RequestRow(C.GET_TOPIC_CONFIG, ah.GetTopicConfigHeader, admin=_TOPIC_GET),
    RequestRow(
        C.GET_SUBSCRIPTIONGROUP_CONFIG,
        ah.GetSubscriptionGroupConfigHeader,
        admin=Administration(Action.GET, groups=("group",)),
    ),
    RequestRow(C.LITE_PULL_MESSAGE, h.PullMessageHeader, h.PullMessageResponseHeader, _READ),
    RequestRow(C.RECALL_MESSAGE, h.RecallMessageHeader, h.RecallMessageResponseHeader, _PUBLISH),
    RequestRow(
        C.QUERY_ASSIGNMENT, access=Right(subscribe="topic", group="consumerGroup", in_body=True)
    ),
    RequestRow(C.SET_MESSAGE_REQUEST_MODE, admin=_CLUSTER_UPDATE),
    RequestRow(C.GET_ALL_MESSAGE_REQUEST_MODE, admin=_CLUSTER_GET),
    RequestRow(C.POP_MESSAGE, h.PopMessageHeader, h.PopMessageResponseHeader, _READ),
    RequestRow(C.ACK_MESSAGE, h.AckMessageHeader, access=_RECEIPT),
    RequestRow(C.PEEK_MESSAGE, h.PeekMessageHeader, access=_READ),
    RequestRow(
        C.CHANGE_MESSAGE_INVISIBLETIME,
        h.ChangeInvisibleTimeHeader,
        h.ChangeInvisibleTimeResponseHeader,
        _RECEIPT,
    ),
    RequestRow(C.NOTIFICATION, h.NotificationHeader, h.NotificationResponseHeader, _READ),
    RequestRow(
        C.POLLING_INFO, h.PollingInfoHeader, h.PollingInfoResponseHeader, _READ, also=Action.GET
    ),
    RequestRow(C.BATCH_ACK_MESSAGE, access=Right(subscribe="acks.t", group="acks.c", in_body=True)),
    RequestRow(C.POP_LITE_MESSAGE, h.PopLiteMessageHeader, h.PopLiteMessageResponseHeader, _READ),
    RequestRow(
        C.LITE_SUBSCRIPTION_CTL,
        access=Right(
            subscribe="subscriptionSet.topic", group="subscriptionSet.group", in_body=True
        ),
    ),
    RequestRow(C.GET_BROKER_LITE_INFO, admin=_CLUSTER_GET),
    RequestRow(C.GET_PARENT_TOPIC_INFO, ah.GetParentTopicInfoHeader, admin=_TOPIC_GET),
    RequestRow(
        C.GET_LITE_TOPIC_INFO,
        ah.GetLiteTopicInfoHeader,
        admin=Administration(Action.GET, topics=("parentTopic",)),
    ),
    RequestRow(
        C.GET_LITE_CLIENT_INFO,
        ah.GetLiteClientInfoHeader,
        admin=Administration(Action.GET, topics=("parentTopic",), groups=("group",)),
    ),
    RequestRow(
        C.GET_LITE_GROUP_INFO,
        ah.GetLiteGroupInfoHeader,
        admin=Administration(Action.GET, groups=("group",)),
    ),
    RequestRow(
        C.TRIGGER_LITE_DISPATCH,
        ah.TriggerLiteDispatchHeader,
        admin=Administration(Action.UPDATE, groups=("group",)),
    ),
    RequestRow(P.GET_LITE_TOPICS, GetLiteTopicsHeader, admin=_OF_GROUP),
    RequestRow(
        P.GET_GROUP_FINDINGS,
        GetGroupFindingsHeader,
        admin=Administration(Action.GET, groups=("group",)),
    ),
    RequestRow(P.GET_MESSAGE_TRACK, GetMessageTrackHeader, admin=_CLUSTER_GET),
    RequestRow(P.GET_TIMERS, GetTimersHeader, admin=_CLUSTER_GET),
    RequestRow(P.CREATE_SCHEDULE, CreateScheduleHeader, access=_PUBLISH, changes=True),
    RequestRow(
        P.CHANGE_SCHEDULE, ChangeScheduleHeader, access=_PUBLISH, also=Action.UPDATE, changes=True
    ),
    RequestRow(P.GET_SCHEDULES, GetSchedulesHeader, access=_PUBLISH, also=Action.GET),
    RequestRow(
        P.GET_GROUP_BALANCE,
        GetGroupBalanceHeader,
        admin=Administration(Action.GET, groups=("group",)),
    ),
    RequestRow(
        P.REDELIVER, RedeliverHeader, access=Right(group="group"), also=Action.UPDATE, changes=True
    ),
    RequestRow(C.GET_BROKER_HA_STATUS, admin=_CLUSTER_GET),
    RequestRow(C.GET_BROKER_EPOCH_CACHE, admin=_CLUSTER_GET),
    RequestRow(C.NOTIFY_BROKER_ROLE_CHANGED, ah.MasterHeader, access=_UNSIGNED),
    RequestRow(P.CHANGE_ROLE, ChangeRoleHeader, admin=_CLUSTER_UPDATE),
    RequestRow(P.RELOAD, admin=_CLUSTER_UPDATE),
    RequestRow(P.GET_REPLICA_TABLES),
    RequestRow(P.GET_DELIVERIES, GetDeliveriesHeader, GetDeliveriesResponseHeader),
    RequestRow(P.INTRODUCE, IntroduceHeader, IntroduceResponseHeader, _UNSIGNED),
    RequestRow(P.FOLLOW, FollowHeader, FollowResponseHeader, _UNSIGNED),
    # ------------------------------------------------------------ served by name servers, to any client
    *_served_by(
        AnsweringServer.NAME_SERVER,
        RequestRow(C.PUT_KV_CONFIG, ah.PutKVConfigHeader),
        RequestRow(C.GET_KV_CONFIG, ah.GetKVConfigHeader, ah.GetKVConfigResponseHeader),
        RequestRow(C.DELETE_KV_CONFIG, ah.DeleteKVConfigHeader),
        RequestRow(C.REGISTER_BROKER, ah.RegisterBrokerHeader, ah.RegisterBrokerResponseHeader),
        RequestRow(C.UNREGISTER_BROKER, ah.UnregisterBrokerHeader),
        RequestRow(C.GET_ROUTEINFO_BY_TOPIC, WaitingRouteHeader),
        RequestRow(C.GET_BROKER_CLUSTER_INFO),
        RequestRow(
            C.WIPE_WRITE_PERM_OF_BROKER, ah.WipeWritePermHeader, ah.WipeWritePermResponseHeader
        ),
        RequestRow(C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        RequestRow(C.DELETE_TOPIC_IN_NAMESRV, ah.DeleteTopicInNamesrvHeader),
        RequestRow(C.REGISTER_TOPIC_IN_NAMESRV, ah.RegisterTopicHeader),
        RequestRow(C.GET_KVLIST_BY_NAMESPACE, ah.GetKVListByNamespaceHeader),
        RequestRow(C.GET_TOPICS_BY_CLUSTER, ah.GetTopicsByClusterHeader),
        RequestRow(C.GET_SYSTEM_TOPIC_LIST_FROM_NS),
        RequestRow(C.GET_UNIT_TOPIC_LIST),
        RequestRow(C.GET_HAS_UNIT_SUB_TOPIC_LIST),
        RequestRow(C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
        RequestRow(C.UPDATE_NAMESRV_CONFIG),
        RequestRow(C.GET_NAMESRV_CONFIG),
        RequestRow(
            C.QUERY_DATA_VERSION, ah.QueryDataVersionHeader, ah.QueryDataVersionResponseHeader
        ),
        RequestRow(
            C.ADD_WRITE_PERM_OF_BROKER, ah.WipeWritePermHeader, ah.AddWritePermResponseHeader
        ),
        RequestRow(C.GET_BROKER_MEMBER_GROUP, ah.GetBrokerMemberGroupHeader),
    ),
    *_served_by(
        AnsweringServer.NAME_SERVER | AnsweringServer.CONTROLLER,
        RequestRow(C.BROKER_HEARTBEAT, ah.BrokerHeartbeatHeader),
    ),
    # ------------------------------------------------------------ served by the controller, to any client
    *_served_by(
        AnsweringServer.CONTROLLER,
        RequestRow(C.CONTROLLER_ALTER_SYNC_STATE_SET, ah.AlterSyncStateSetHeader, ah.AlteredHeader),
        RequestRow(C.CONTROLLER_ELECT_MASTER, ah.ElectMasterHeader, ah.MasterHeader),
        RequestRow(C.CONTROLLER_REGISTER_BROKER, ah.RegisterReplicaHeader, ah.MasterHeader),
        RequestRow(C.CONTROLLER_GET_REPLICA_INFO, ah.ReplicaInfoHeader, ah.MasterHeader),
        RequestRow(C.CONTROLLER_GET_METADATA_INFO, None, ah.ControllerMetadataHeader),
        RequestRow(C.CONTROLLER_GET_SYNC_STATE_DATA),
        RequestRow(C.CLEAN_BROKER_DATA, ah.CleanBrokerDataHeader),
        RequestRow(C.CONTROLLER_GET_NEXT_BROKER_ID, ah.SetNameHeader, ah.NextBrokerIdHeader),
        RequestRow(C.UPDATE_CONTROLLER_CONFIG),
        RequestRow(C.GET_CONTROLLER_CONFIG),
        RequestRow(C.CONTROLLER_APPLY_BROKER_ID, ah.ApplyBrokerIdHeader, ah.SetNameHeader),
    ),
    # ------------------------------------------------------------ served by clients
    *_served_by(
        AnsweringServer.CLIENT,
        RequestRow(C.CHECK_TRANSACTION_STATE, h.CheckTransactionStateHeader),
        RequestRow(C.NOTIFY_CONSUMER_IDS_CHANGED, h.NotifyConsumerIdsChangedHeader),
        RequestRow(C.RESET_CONSUMER_CLIENT_OFFSET, h.ResetOffsetHeader),
        RequestRow(C.GET_CONSUMER_STATUS_FROM_CLIENT, h.GetConsumerStatusHeader),
        RequestRow(C.PUSH_REPLY_MESSAGE_TO_CLIENT, h.PushReplyMessageHeader),
        RequestRow(P.NOTIFY_TOPIC_KNOWN, NotifyTopicKnownHeader),
    ),
    # ------------------------------------------------------------ not served
    RequestRow(
        C.UPDATE_AND_GET_GROUP_FORBIDDEN,
        ah.GroupForbiddenHeader,
        server=AnsweringServer.NOBODY,
        why="5.x bans of a group from one topic; consumeEnable=false bans it from all",
    ),
    *_unserved(
        _UNUSED,
        C.QUERY_BROKER_OFFSET,
        C.GET_TOPIC_CONFIG_LIST,
        C.GET_TOPIC_NAME_LIST,
        C.TRIGGER_DELETE_FILES,
        C.GET_CLIENT_CONFIG,
        C.SUSPEND_CONSUMER,
        C.RESUME_CONSUMER,
        C.RESET_CONSUMER_OFFSET_IN_CONSUMER,
        C.RESET_CONSUMER_OFFSET_IN_BROKER,
        C.ADJUST_CONSUMER_THREAD_POOL,
        C.WHO_CONSUME_THE_MESSAGE,
        C.REGISTER_FILTER_SERVER,
        C.REGISTER_MESSAGE_FILTER_CLASS,
    ),
    *_unserved(_ROCKSDB, C.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, C.EXPORT_ROCKSDB_CONFIG_TO_JSON),
    *_unserved(_STATIC, C.UPDATE_AND_CREATE_STATIC_TOPIC),
    *_unserved(_CONTAINER, C.ADD_BROKER, C.REMOVE_BROKER),
    *_unserved(
        _HA, C.NOTIFY_MIN_BROKER_ID_CHANGE, C.EXCHANGE_BROKER_HA_INFO, C.RESET_MASTER_FLUSH_OFFSET
    ),
    *_unserved(
        _COLD,
        C.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        C.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        C.GET_COLD_DATA_FLOW_CTR_INFO,
        C.SET_COMMITLOG_READ_MODE,
    ),
    *_unserved(_TIMER, C.SWITCH_TIMER_ENGINE),
    *_unserved(_POP, C.POP_ROLLBACK),
    *_unserved(
        _LITE,
        C.ACK_LITE_MESSAGE,
    ),
    *_unserved(
        "a broker tells RocketMQ's proxy that another client took a lite topic; SDKs are told over gRPC",
        C.NOTIFY_UNSUBSCRIBE_LITE,
    ),
)
REQUESTS: Mapping[int, RequestRow] = {row.code: row for row in _ROWS}
assert len(REQUESTS) == len(_ROWS), "a code has two rows"


def promised(server: AnsweringServer) -> set[int]:
    """Return the codes that the rows promise of a server."""
    return {code for code, row in REQUESTS.items() if row.server & server}


def complete(server: AnsweringServer, handlers: dict[int, _T]) -> dict[int, _T]:
    """Return the handlers of a server after checking that they are exactly those that the rows promise."""
    codes = promised(server)
    assert handlers.keys() == codes, f"rows, handlers differ: {handlers.keys() ^ codes}"
    return handlers
