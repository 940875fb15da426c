"""needs_of: the topics and groups of a request, and what is needed there, by its row (requests.py)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pocketmq.broker.access.account import EITHER, AccountPermission, Need
from pocketmq.broker.access.fronts import AccessDenied, NeededRights
from pocketmq.model.message_codec import get_property
from pocketmq.model.names import is_broker_only, is_retry_topic, retry_topic
from pocketmq.model.pop_receipt import normal_topic
from pocketmq.model.record import Record, read_record
from pocketmq.remoting import fastjson
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import ProtocolError
from pocketmq.remoting.java_number import long
from pocketmq.remoting.requests import Right

MessageAt = Callable[[int], memoryview | None]


def needs_of(request: RemotingCommand, access: Right, message_at: MessageAt) -> Iterator[Need]:
    """Yield the rights that this request needs.

    Raises: AccessDenied for a request that does not name its topic or group; ProtocolError for a body that
    is not JSON, or larger than its handler would read.
    """
    values: Any = fastjson.loads_request(request.body) if access.in_body else request.ext or {}
    groups: list[str] = []
    if access.group is not None:
        groups = named(values, access.group, access)
        for group in groups:
            yield retry_topic(group), AccountPermission.SUB
    if access.publish is not None:
        for topic in named(values, access.publish, access):
            yield write_need(topic)
    if access.either is not None:
        for topic in named(values, access.either, access):
            yield topic, EITHER
    if access.subscribe is not None:
        for topic in named(values, access.subscribe, access):
            yield normal_topic(topic, groups[0]) if access.popped else topic, AccountPermission.SUB
    if access.read_at is not None:
        for topic in _topics_at(values, access.read_at, access, message_at):
            yield topic, AccountPermission.SUB
    if access.write_at is not None:
        for topic in _topics_at(values, access.write_at, access, message_at):
            yield write_need(topic)


def _topics_at(values: Any, path: str, access: Right, message_at: MessageAt) -> Iterator[str]:
    for position in named(values, path, access):
        yield from _own_topics(position, message_at)


def _own_topics(position: str, message_at: MessageAt) -> list[str]:
    """Return the topic a stored message is meant for (not the system topic it waits in); [] if absent."""
    try:
        # As the headers read it: a spelling that only they understand would be a way around.
        data = message_at(long(position))
    except ValueError:
        raise AccessDenied(f"{position!r} is not a position in the log") from None
    if data is None:
        return []
    record = read_record(data, check_crc=False)
    topic = record.topic
    if is_broker_only(topic):
        topic = _text(record, b"REAL_TOPIC") or topic
    first = _text(record, b"RETRY_TOPIC") if is_retry_topic(topic) else None
    return [topic] if first is None else [topic, first]


def _text(record: Record, name: bytes) -> str | None:
    raw = get_property(record.properties, name)
    return None if raw is None else raw.decode("utf-8", "replace")


def write_need(topic: str) -> Need:
    """Return the permission needed to write to a topic: a retry topic belongs to its own group."""
    return topic, AccountPermission.SUB if is_retry_topic(topic) else AccountPermission.PUB


def named(values: Any, path: str, access: Right) -> list[str]:
    """Return the names at `path`."""
    if access.in_body:
        names = _in_body(values, path)
    else:
        name = values.get(path)
        names = [] if name is None else [name]
    if not names and not access.optional:
        raise AccessDenied(f"the request lacks {path}")
    return names


def _in_body(values: Any, path: str) -> list[str]:
    *way, last = path.split(".")
    found = [values]
    for word in way:
        below = [each.get(word) if isinstance(each, Mapping) else each for each in found]
        found = [item for each in below for item in (each if isinstance(each, list) else [each])]
        found = [each for each in found if each is not None]
    names: list[Any] = [each.get(last) if isinstance(each, Mapping) else None for each in found]
    # A handler might make a name of it.
    if not all(isinstance(name, str) for name in names):
        raise AccessDenied(f"{path} of the request is not a name")
    return names


def values_of(request: RemotingCommand, path: str) -> list[str]:
    """Return the names at a path of a request's body; none if it cannot be read."""
    try:
        return _in_body(fastjson.loads_request(request.body), path)
    except (AccessDenied, ProtocolError):
        return []


def needs_of_call(wanted: NeededRights) -> Iterator[Need]:
    """Yield the rights that a call of another front needs."""
    yield from ((retry_topic(group), AccountPermission.SUB) for group in wanted.groups)
    yield from (write_need(topic) for topic in wanted.publish)
    yield from ((topic, EITHER) for topic in wanted.either)
    yield from ((topic, AccountPermission.SUB) for topic in wanted.subscribe)
