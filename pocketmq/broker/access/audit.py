"""The audit trail: who did what to which resource, and who was refused; messages of rmq_sys_POCKETMQ_AUDIT.

    {"time": ms, "user": ..., "address": ip:port, "act": UPDATE_AND_CREATE_TOPIC,
     "resources": {"topic": ["T"]}, "outcome": done | failed | refused, "reason": ..., "times": 1}

1. One message for each act of an administrator: a request whose row (requests.py) says that it changes
   something. What clients do all day (sends, pulls, offsets) leaves none, and costs nothing.
2. A refusal is one message, whatever was asked; the same again is counted, and told once a minute, like the
   line in the log (denial_log.py). The user of a refusal is the one that the request named, proven or not.
   Those over _REFUSALS_MAX in a minute are one message with their number.
3. Only the broker writes the topic. Names of resources are cut; secrets and values of settings are left out.
4. Keys are the user and the resources, the tag is the outcome. An act that cannot be recorded is still done,
   and the log names it: the disk may be full, and the act may be what makes room. A slave's are in its log.
Owner: the broker with accounts.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from pocketmq.broker.access.denial_log import Denial
from pocketmq.broker.access.needs import values_of
from pocketmq.broker.internal_append import InternalAppend
from pocketmq.broker.node import Node
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.model.message_codec import properties_to_text
from pocketmq.model.names import AUDIT_TOPIC
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.credentials import ACCESS_KEY
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.requests import REQUESTS, RequestRow
from pocketmq.remoting.transport.connection import Connection, Handler

log = logging.getLogger("pocketmq.audit")

DONE, FAILED, REFUSED = "done", "failed", "refused"
_READABLE = 4
_TEXT_LENGTH_MAX = 255
_NAMES_MAX = 50
_REFUSALS_MAX = 200
_WINDOW_MS = 60_000
# Fields of headers and bodies that name what an act is about.
_NAMED = (
    *(
        "topic",
        "group",
        "groupName",
        "consumerGroup",
        "srcGroup",
        "destGroup",
        "username",
        "subject",
    ),
    *("resource", "accessKey", "globalWhiteAddrs", "name", "act", "state", "role"),
)


class AuditTrail:
    """Writes the trail of one broker."""

    def __init__(self, node: Node, topics: TopicConfigManager, put: InternalAppend) -> None:
        self._node = node
        self._topics = topics
        self._put = put
        self._window_ms = 0
        self._refusals = 0

    def recorded(self, handler: Handler, row: RequestRow) -> Handler:
        """Wrap the handler of an act."""

        def acted(request: RemotingCommand, connection: Connection) -> Any:
            # Before the handler: it may change the request.
            resources = _resources(request, row)
            reply = handler(request, connection)
            outcome, reason = DONE, ""
            if isinstance(reply, RemotingCommand) and reply.code != ResponseCode.SUCCESS:
                outcome, reason = FAILED, reply.remark or f"code {reply.code}"
            user = (request.ext or {}).get(ACCESS_KEY, "")
            self._write(user, str(connection.peer), row.code.name, resources, outcome, reason)
            return reply

        return acted

    def refused(self, denial: Denial) -> None:
        """Record a refusal, or how often one occurred again (2)."""
        now_ms = self._node.clock.monotonic_ms()
        if now_ms - self._window_ms >= _WINDOW_MS:
            more = self._refusals - _REFUSALS_MAX
            self._window_ms, self._refusals = now_ms, 0
            if more > 0:
                self._write("", "", "", {}, REFUSED, f"{more} more refusals in a minute", more)
        self._refusals += 1
        if self._refusals > _REFUSALS_MAX:
            return
        code = denial.what
        act = REQUESTS[code].code.name if isinstance(code, int) and code in REQUESTS else str(code)
        self._write(denial.user, denial.peer, act, {}, REFUSED, denial.reason, denial.times)

    def _write(
        self,
        user: str,
        peer: str,
        act: str,
        resources: Mapping[str, list[str]],
        outcome: str,
        reason: str,
        times: int = 1,
    ) -> None:
        row = {
            "time": self._node.clock.now_ms(),
            "user": user[:_TEXT_LENGTH_MAX],
            "address": peer,
            "act": act[:_TEXT_LENGTH_MAX],
            "resources": resources,
            "outcome": outcome,
            "reason": reason[:_TEXT_LENGTH_MAX],
            "times": times,
        }
        text = json.dumps(row, ensure_ascii=False)
        if not self._node.role.leads:
            log.info("audit %s", text)
            return
        names = {each for found in resources.values() for each in found}
        # Keys are divided by blanks.
        keys = " ".join(
            sorted("".join(each.split()) for each in {*names, user[:_TEXT_LENGTH_MAX]} if each)
        )
        properties = properties_to_text({"KEYS": keys[:8_000], "TAGS": outcome, "WAIT": "false"})
        try:
            self._topics.create_internal(AUDIT_TOPIC, 1, _READABLE)
            self._put.put(
                AUDIT_TOPIC,
                0,
                text.encode("utf-8", "replace"),
                properties.encode("utf-8", "replace"),
                born_host=self._node.store_host,
            )
        except (PocketMQError, OSError) as error:
            log.error("the audit trail cannot be written reason=%s lost=%s", error, text)


def _resources(request: RemotingCommand, row: RequestRow) -> dict[str, list[str]]:
    """Return what an act is about, by the names of fields."""
    found: dict[str, list[str]] = {}
    ext = request.ext or {}
    for name in _NAMED:
        if ext.get(name):
            found[name] = [ext[name][:_TEXT_LENGTH_MAX]]
    for name, values in _in_body(request, row):
        found[name] = [each[:_TEXT_LENGTH_MAX] for each in values[:_NAMES_MAX]]
    return found


def _in_body(request: RemotingCommand, row: RequestRow) -> Iterator[tuple[str, list[str]]]:
    if row.admin is None or not request.body:
        return
    if row.admin.in_body:
        for path in (*row.admin.topics, *row.admin.groups):
            yield path.rpartition(".")[2], values_of(request, path)
    elif row.admin.cluster:
        # Settings as lines of key=value: the keys.
        lines = bytes(request.body[:10_000]).decode("utf-8", "replace").splitlines()
        yield "settings", [line.partition("=")[0].strip() for line in lines if "=" in line]
