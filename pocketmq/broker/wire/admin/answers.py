"""Shared by the admin processors: answers in JSON, queues as keys, pages of tables, common refusals."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import ResponseCode, Version
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.fastjson import ObjectKey

_V = TypeVar("_V")

# RocketMQ's text of a fresh answer: some handlers leave it beside SUCCESS, and tools print it.
UNSET_REMARK = "not set any response code"


def json_answer(
    request: RemotingCommand, content: Any, ext: dict[str, str] | None = None
) -> RemotingCommand:
    """Return SUCCESS with a body in fastjson's dialect."""
    return request.answer(ResponseCode.SUCCESS, ext=ext, body=fastjson.dumps(content))


def asks_as_five(request: RemotingCommand) -> bool:
    """Return True if the client is of 5.x and shows fields that 4.9 lacks."""
    return request.version >= Version.V5_0_0_SNAPSHOT


def queue_key(broker_name: str, topic: str, queue_id: int) -> ObjectKey:
    """Return a MessageQueue as the key of a JSON map: an object literal."""
    return ObjectKey.of(brokerName=broker_name, queueId=queue_id, topic=topic)


def topic_missing(request: RemotingCommand, topic: str) -> RemotingCommand:
    """Return TOPIC_NOT_EXIST with the remark of GET_TOPIC_STATS_INFO."""
    return request.answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")


def page(table: Mapping[str, _V], begin: int, count: int | None) -> dict[str, _V]:
    """Return entries `begin` to `begin + count` of a table by name, as 5.x tools and slaves request them."""
    names = sorted(table)[max(0, begin) :]
    if count is not None and count > 0:
        names = names[:count]
    return {name: table[name] for name in names}
