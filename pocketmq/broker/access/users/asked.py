"""What a request asks for, as resources and actions of policies.

Requests of clients name their topics and groups by the rows of requests.py, as for the accounts of
plain_acl.yml: publishing is Pub, consuming Sub. Administrators' have an action there; a code with neither is
for super users, and so is every change of users and policies: one who may change policies may do everything.
RocketMQ 5.5.0 lets each user send the codes that it has no header for, updateBrokerConfig among them.
Source: DefaultAuthorizationContextBuilder and the headers' annotations, RocketMQ 5.5.0.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pocketmq.broker.access.account import EITHER, AccountPermission, Need
from pocketmq.broker.access.fronts import AccessDenied
from pocketmq.broker.access.needs import MessageAt, named, needs_of
from pocketmq.broker.access.users.policy import Asked, ResourceKind
from pocketmq.model.names import RETRY_PREFIX
from pocketmq.remoting import fastjson
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import REQUESTS, Action, Administration, Right


def asked_by(
    request: RemotingCommand, right: Right | None, cluster: str, message_at: MessageAt
) -> Iterator[Asked]:
    """Yield the resources of a request; each must be allowed.

    Raises: AccessDenied if it is for super users, or does not name its topic or group; ProtocolError.
    """
    if right is not None:
        row = REQUESTS.get(request.code)
        more = None if row is None else row.also
        yield from asked_by_needs(needs_of(request, right, message_at), more)
        return
    admin = REQUESTS[request.code].admin
    if admin is None:
        raise AccessDenied(f"request code={request.code} is for super users")
    found = [] if admin.cluster else list(_named_by(request, admin))
    if found:
        yield from found
    else:
        yield Asked(ResourceKind.CLUSTER, cluster, frozenset({admin.action}))


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
            actions.add(Action.PUB)
        if wanted & AccountPermission.SUB:
            actions.add(Action.SUB)
        if wanted == EITHER:
            actions.add(Action.GET)
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
