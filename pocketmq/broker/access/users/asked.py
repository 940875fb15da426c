"""What a request asks for, as resources and actions of policies.

Requests of clients name their topics and groups by the rows of requests.py, as for the accounts of
plain_acl.yml: publishing is Pub, consuming Sub. Administrators' have a row here; a code with neither is for
super users, and so is every change of users and policies: one who may change policies may do everything.
RocketMQ 5.5.0 lets each user send the codes that it has no header for, updateBrokerConfig among them.
Source: DefaultAuthorizationContextBuilder and the headers' annotations, RocketMQ 5.5.0.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pocketmq.broker.access.account import EITHER, AccountPermission, Need
from pocketmq.broker.access.fronts import AccessDenied
from pocketmq.broker.access.needs import MessageAt, named, needs_of
from pocketmq.broker.access.users.policy import Action, Asked, ResourceKind
from pocketmq.model.names import RETRY_PREFIX
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode as C
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import PocketRequestCode as P
from pocketmq.remoting.requests import Right

_PUB, _SUB, _GET, _UPDATE = Action.PUB, Action.SUB, Action.GET, Action.UPDATE


@dataclass(frozen=True, slots=True)
class Administration:
    """What an administrator's code needs: an action on the topics and groups it names, else on the cluster.

    topics, groups: fields of the header, or paths of the JSON body. cluster: whatever it names.
    """

    action: Action
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    in_body: bool = False
    cluster: bool = False


_CLUSTER_GET = Administration(_GET, cluster=True)
_CLUSTER_UPDATE = Administration(_UPDATE, cluster=True)
_TOPIC_GET = Administration(_GET, topics=("topic",))
_GROUP_GET = Administration(_GET, groups=("consumerGroup",))
_BOTH_GET = Administration(_GET, topics=("topic",), groups=("consumerGroup",))
_OF_GROUP = Administration(_GET, topics=("topic",), groups=("group",))

ADMINISTRATION: Mapping[int, Administration] = {
    C.UPDATE_AND_CREATE_TOPIC: Administration(Action.CREATE, topics=("topic",)),
    C.UPDATE_AND_CREATE_TOPIC_LIST: Administration(
        Action.CREATE, topics=("topicConfigList.topicName",), in_body=True
    ),
    C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Administration(
        Action.CREATE, groups=("groupName",), in_body=True
    ),
    C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Administration(
        Action.CREATE, groups=("groupConfigList.groupName",), in_body=True
    ),
    C.DELETE_TOPIC_IN_BROKER: Administration(Action.DELETE, topics=("topic",)),
    C.DELETE_SUBSCRIPTIONGROUP: Administration(Action.DELETE, groups=("groupName",)),
    C.GET_TOPIC_STATS_INFO: _TOPIC_GET,
    C.GET_TOPIC_CONFIG: _TOPIC_GET,
    C.QUERY_TOPIC_CONSUME_BY_WHO: _TOPIC_GET,
    C.GET_CONSUME_STATS: _BOTH_GET,
    C.GET_CONSUMER_CONNECTION_LIST: _GROUP_GET,
    C.GET_CONSUMER_RUNNING_INFO: _GROUP_GET,
    C.GET_SUBSCRIPTIONGROUP_CONFIG: Administration(_GET, groups=("group",)),
    C.QUERY_TOPICS_BY_CONSUMER: _OF_GROUP,
    C.QUERY_SUBSCRIPTION_BY_CONSUMER: _OF_GROUP,
    C.QUERY_CONSUME_TIME_SPAN: _OF_GROUP,
    C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _OF_GROUP,
    C.QUERY_CONSUME_QUEUE: _BOTH_GET,
    C.QUERY_CORRECTION_OFFSET: Administration(_GET, topics=("topic",), groups=("compareGroup",)),
    C.INVOKE_BROKER_TO_RESET_OFFSET: Administration(_UPDATE, topics=("topic",), groups=("group",)),
    C.CLONE_GROUP_OFFSET: Administration(
        _UPDATE, topics=("topic",), groups=("srcGroup", "destGroup")
    ),
    C.CONSUME_MESSAGE_DIRECTLY: Administration(_SUB, topics=("topic",), groups=("consumerGroup",)),
    C.RESUME_CHECK_HALF_MESSAGE: _CLUSTER_UPDATE,
    C.GET_ALL_TOPIC_CONFIG: _CLUSTER_GET,
    C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _CLUSTER_GET,
    C.GET_ALL_CONSUMER_OFFSET: _CLUSTER_GET,
    C.GET_ALL_DELAY_OFFSET: _CLUSTER_GET,
    C.GET_ALL_MESSAGE_REQUEST_MODE: _CLUSTER_GET,
    C.GET_ALL_PRODUCER_INFO: _CLUSTER_GET,
    C.GET_PRODUCER_CONNECTION_LIST: _CLUSTER_GET,
    C.GET_BROKER_CONFIG: _CLUSTER_GET,
    C.GET_BROKER_RUNTIME_INFO: _CLUSTER_GET,
    C.GET_BROKER_CONSUME_STATS: _CLUSTER_GET,
    C.GET_BROKER_HA_STATUS: _CLUSTER_GET,
    C.GET_BROKER_EPOCH_CACHE: _CLUSTER_GET,
    C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _CLUSTER_GET,
    C.GET_TIMER_METRICS: _CLUSTER_GET,
    C.VIEW_BROKER_STATS_DATA: _CLUSTER_GET,
    C.UPDATE_BROKER_CONFIG: _CLUSTER_UPDATE,
    C.SET_MESSAGE_REQUEST_MODE: _CLUSTER_UPDATE,
    C.CLEAN_EXPIRED_CONSUMEQUEUE: _CLUSTER_UPDATE,
    C.CLEAN_UNUSED_TOPIC: _CLUSTER_UPDATE,
    C.DELETE_EXPIRED_COMMITLOG: _CLUSTER_UPDATE,
    P.GET_GROUP_FINDINGS: Administration(_GET, groups=("group",)),
    P.GET_GROUP_BALANCE: Administration(_GET, groups=("group",)),
    P.GET_MESSAGE_TRACK: _CLUSTER_GET,
    P.GET_TIMERS: _CLUSTER_GET,
    P.CHANGE_ROLE: _CLUSTER_UPDATE,
    P.RELOAD: _CLUSTER_UPDATE,
}

# What would do besides Pub or Sub. RocketMQ asks for Get where offsets are only looked at, and would refuse
# those that may consume.
_ALSO: Mapping[int, Action] = {
    C.QUERY_MESSAGE: _GET,
    C.VIEW_MESSAGE_BY_ID: _GET,
    C.QUERY_CONSUMER_OFFSET: _GET,
    C.GET_CONSUMER_LIST_BY_GROUP: _GET,
    C.POLLING_INFO: _GET,
    C.UPDATE_CONSUMER_OFFSET: _UPDATE,
    P.GET_SCHEDULES: _GET,
    P.CHANGE_SCHEDULE: _UPDATE,
    P.REDELIVER: _UPDATE,
}


def asked_by(
    request: RemotingCommand, right: Right | None, cluster: str, message_at: MessageAt
) -> Iterator[Asked]:
    """Yield the resources of a request; each must be allowed.

    Raises: AccessDenied if it is for super users, or does not name its topic or group; ProtocolError.
    """
    if right is not None:
        more = _ALSO.get(request.code)
        yield from asked_by_needs(needs_of(request, right, message_at), more)
        return
    row = ADMINISTRATION.get(request.code)
    if row is None:
        raise AccessDenied(f"request code={request.code} is for super users")
    found = [] if row.cluster else list(_named_by(request, row))
    if found:
        yield from found
    else:
        yield Asked(ResourceKind.CLUSTER, cluster, frozenset({row.action}))


def _named_by(request: RemotingCommand, row: Administration) -> Iterator[Asked]:
    values: Any = fastjson.loads_request(request.body) if row.in_body else request.ext or {}
    # A body without the name is an error, a header without it is about all of them.
    where = Right(in_body=row.in_body, optional=not row.in_body)
    actions = frozenset({row.action})
    for field in row.topics:
        for name in named(values, field, where):
            if name:
                yield from _topic(name, actions)
    for field in row.groups:
        for name in named(values, field, where):
            if name:
                yield Asked(ResourceKind.GROUP, name, actions)


def asked_by_needs(needs: Iterable[Need], more: Action | None = None) -> Iterator[Asked]:
    """Yield the resources of rights as plain_acl.yml has them. more: an action that would do as well."""
    for name, wanted in needs:
        actions = set()
        if wanted & AccountPermission.PUB:
            actions.add(_PUB)
        if wanted & AccountPermission.SUB:
            actions.add(_SUB)
        if wanted == EITHER:
            actions.add(_GET)
        if more is not None:
            actions.add(more)
        yield from _topic(name, frozenset(actions))


def _topic(name: str, actions: frozenset[Action]) -> Iterator[Asked]:
    """A retry topic is its group's; %RETRY%GROUP+TOPIC has messages of both."""
    if not name.startswith(RETRY_PREFIX):
        yield Asked(ResourceKind.TOPIC, name, actions)
        return
    group, plus, topic = name.removeprefix(RETRY_PREFIX).partition("+")
    yield Asked(ResourceKind.GROUP, group, actions)
    if plus:
        yield Asked(ResourceKind.TOPIC, topic, actions)


def parents(asked: Asked) -> Iterator[Asked]:
    """Yield the groups whose pop retries a group's retry topic may hold: those before each underscore."""
    if asked.kind is ResourceKind.GROUP:
        for place, character in enumerate(asked.name):
            if character == "_" and place:
                yield replace(asked, name=asked.name[:place])
