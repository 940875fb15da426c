"""Request codes that a broker of ours does not serve, each with the reason: the other half of the table of
handlers. They are answered as RocketMQ 4.9 answers what it does not know: code 3, " request type N not
supported". A test walks all of RequestCode: each has a handler or stands here. The compatibility page of the
documentation is made from both.
"""

from collections.abc import Iterable, Mapping

from pocketmq.remoting.codes import RequestCode

_NAME_SERVER = "asked of a name server, not of a broker"
_CLIENT = "asked by a broker of a client"
_UNUSED = "in RocketMQ's list of codes, but sent and served by nobody"
_CONTROLLER = "5.x controller mode: there is no controller here"
_POP = "5.5: back to the files of check points from RocksDB; there are only files here"
_TIMER = "5.5 timers in RocksDB: there is one engine here, the wheel"
_LITE = "5.5 lite topics, which the 4.9 face does not offer"
_AUTH = "5.x users and policies: access control here is RocketMQ 4's, in files"
_COLD = "5.x cold data flow control: there is no separate reader to slow down"
_ROCKSDB = "5.x RocksDB store: tables here are RocketMQ's JSON files"
_HA = "5.x replication handshake; there are no replicas of this broker"
_CONTAINER = "5.x broker container: one process is one broker here"
_FORBIDDEN = "5.x bans of a group from one topic; consumeEnable=false bans it from all"
_STATIC = "5.x static topics, which the 4.9 face does not offer"


def _rows(*parts: tuple[str, Iterable[RequestCode]]) -> Mapping[RequestCode, str]:
    return {code: why for why, codes in parts for code in codes}


_C = RequestCode
NOT_SERVED: Mapping[RequestCode, str] = _rows(
    (
        _NAME_SERVER,
        (
            _C.PUT_KV_CONFIG,
            _C.GET_KV_CONFIG,
            _C.DELETE_KV_CONFIG,
            _C.REGISTER_BROKER,
            _C.UNREGISTER_BROKER,
            _C.GET_ROUTEINFO_BY_TOPIC,
            _C.GET_BROKER_CLUSTER_INFO,
            _C.WIPE_WRITE_PERM_OF_BROKER,
            _C.ADD_WRITE_PERM_OF_BROKER,
            _C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            _C.DELETE_TOPIC_IN_NAMESRV,
            _C.REGISTER_TOPIC_IN_NAMESRV,
            _C.GET_KVLIST_BY_NAMESPACE,
            _C.GET_TOPICS_BY_CLUSTER,
            _C.GET_SYSTEM_TOPIC_LIST_FROM_NS,
            _C.GET_UNIT_TOPIC_LIST,
            _C.GET_HAS_UNIT_SUB_TOPIC_LIST,
            _C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            _C.UPDATE_NAMESRV_CONFIG,
            _C.GET_NAMESRV_CONFIG,
            _C.QUERY_DATA_VERSION,
            _C.GET_BROKER_MEMBER_GROUP,
            _C.BROKER_HEARTBEAT,
        ),
    ),
    (
        _CLIENT,
        (
            _C.CHECK_TRANSACTION_STATE,
            _C.NOTIFY_CONSUMER_IDS_CHANGED,
            _C.RESET_CONSUMER_CLIENT_OFFSET,
            _C.GET_CONSUMER_STATUS_FROM_CLIENT,
            _C.PUSH_REPLY_MESSAGE_TO_CLIENT,
            _C.NOTIFY_UNSUBSCRIBE_LITE,
        ),
    ),
    (
        _UNUSED,
        (
            _C.QUERY_BROKER_OFFSET,
            _C.GET_TOPIC_CONFIG_LIST,
            _C.GET_TOPIC_NAME_LIST,
            _C.TRIGGER_DELETE_FILES,
            _C.GET_CLIENT_CONFIG,
            _C.SUSPEND_CONSUMER,
            _C.RESUME_CONSUMER,
            _C.RESET_CONSUMER_OFFSET_IN_CONSUMER,
            _C.RESET_CONSUMER_OFFSET_IN_BROKER,
            _C.ADJUST_CONSUMER_THREAD_POOL,
            _C.WHO_CONSUME_THE_MESSAGE,
            _C.REGISTER_FILTER_SERVER,
            _C.REGISTER_MESSAGE_FILTER_CLASS,
        ),
    ),
    (
        _CONTROLLER,
        (
            _C.CONTROLLER_ALTER_SYNC_STATE_SET,
            _C.CONTROLLER_ELECT_MASTER,
            _C.CONTROLLER_REGISTER_BROKER,
            _C.CONTROLLER_GET_REPLICA_INFO,
            _C.CONTROLLER_GET_METADATA_INFO,
            _C.CONTROLLER_GET_SYNC_STATE_DATA,
            _C.GET_BROKER_EPOCH_CACHE,
            _C.NOTIFY_BROKER_ROLE_CHANGED,
            _C.UPDATE_CONTROLLER_CONFIG,
            _C.GET_CONTROLLER_CONFIG,
            _C.CLEAN_BROKER_DATA,
            _C.CONTROLLER_GET_NEXT_BROKER_ID,
            _C.CONTROLLER_APPLY_BROKER_ID,
            _C.NOTIFY_MIN_BROKER_ID_CHANGE,
        ),
    ),
    (
        _POP,
        (_C.POP_ROLLBACK,),
    ),
    (_TIMER, (_C.SWITCH_TIMER_ENGINE,)),
    (
        _LITE,
        (
            _C.POP_LITE_MESSAGE,
            _C.LITE_SUBSCRIPTION_CTL,
            _C.ACK_LITE_MESSAGE,
            _C.GET_BROKER_LITE_INFO,
            _C.GET_PARENT_TOPIC_INFO,
            _C.GET_LITE_TOPIC_INFO,
            _C.GET_LITE_CLIENT_INFO,
            _C.GET_LITE_GROUP_INFO,
            _C.TRIGGER_LITE_DISPATCH,
        ),
    ),
    (
        _AUTH,
        (
            _C.AUTH_CREATE_USER,
            _C.AUTH_UPDATE_USER,
            _C.AUTH_DELETE_USER,
            _C.AUTH_GET_USER,
            _C.AUTH_LIST_USER,
            _C.AUTH_CREATE_ACL,
            _C.AUTH_UPDATE_ACL,
            _C.AUTH_DELETE_ACL,
            _C.AUTH_GET_ACL,
            _C.AUTH_LIST_ACL,
        ),
    ),
    (
        _COLD,
        (
            _C.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            _C.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
            _C.GET_COLD_DATA_FLOW_CTR_INFO,
            _C.SET_COMMITLOG_READ_MODE,
        ),
    ),
    (_ROCKSDB, (_C.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, _C.EXPORT_ROCKSDB_CONFIG_TO_JSON)),
    (
        _HA,
        (_C.EXCHANGE_BROKER_HA_INFO, _C.GET_BROKER_HA_STATUS, _C.RESET_MASTER_FLUSH_OFFSET),
    ),
    (_CONTAINER, (_C.ADD_BROKER, _C.REMOVE_BROKER)),
    (_FORBIDDEN, (_C.UPDATE_AND_GET_GROUP_FORBIDDEN,)),
    (_STATIC, (_C.UPDATE_AND_CREATE_STATIC_TOPIC,)),
)
