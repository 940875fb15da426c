"""Trace: the timeline of a message, from the records that clients write to RMQ_SYS_TRACE_TOPIC.

Source of the records: TraceDataEncoder, RocketMQ 4.9.7 and 5.3.3 (table: pocketmq.client.tracing.trace).
A client of another version may add or leave out fields at the end of a record.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from pocketmq.client.errors import NoRoute, QueryNotFound
from pocketmq.client.tracing.trace import ContextCode, TracedMessageType, parse
from pocketmq.console.api.request import ApiRequest
from pocketmq.console.errors import bad_request
from pocketmq.console.state import Console
from pocketmq.model.message import MessageExt
from pocketmq.model.names import TRACE_TOPIC

_RECORDS_MAX = 256
# Clients before 4.4 wrote no offset id: the last field is then whether it succeeded.
_OLD_PUB_FIELDS = 13

# Names of the fields behind the record's own name, in their order.
_FIELDS: dict[str, tuple[str, ...]] = {
    "Pub": (
        "time",
        "region",
        "group",
        "topic",
        "msgId",
        "tags",
        "keys",
        "storeHost",
        "bodyLength",
        "cost",
        "type",
        "offsetMsgId",
        "success",
        "clientHost",
    ),
    "SubBefore": (
        "time",
        "region",
        "group",
        "requestId",
        "msgId",
        "retryTimes",
        "keys",
        "clientHost",
    ),
    "SubAfter": (
        "requestId",
        "msgId",
        "cost",
        "success",
        "keys",
        "contextCode",
        "time",
        "group",
    ),
    "EndTransaction": (
        "time",
        "region",
        "group",
        "topic",
        "msgId",
        "tags",
        "keys",
        "storeHost",
        "type",
        "transactionId",
        "state",
        "fromCheck",
    ),
}
_STATES = {"COMMIT_MESSAGE": "COMMIT", "ROLLBACK_MESSAGE": "ROLLBACK"}


async def show(console: Console, call: ApiRequest) -> dict[str, Any]:
    query = call.query
    key = query.text_or_none("id") or query.text_or_none("key")
    if key is None:
        raise bad_request("name a message by 'id', or by 'key'")
    topic = query.text_or_none("topic")
    trace_topic = query.text("traceTopic", TRACE_TOPIC)
    try:
        found = await console.admin.messages.by_key(trace_topic, key, count_max=_RECORDS_MAX)
    except QueryNotFound:
        found = []
    except NoRoute:
        # The usual topic is made by the first client that traces: before it there is nothing to find.
        if trace_topic != TRACE_TOPIC:
            raise
        found = []
    traces = traces_of(found)
    wanted = query.text_or_none("id")
    return {
        "traces": [
            each
            for each in traces
            if (each["msgId"] == wanted if wanted else key in (each["keys"] or "").split())
            and topic in (None, each["topic"])
        ]
    }


def traces_of(messages: Iterable[MessageExt]) -> list[dict[str, Any]]:
    """Return the traces in trace messages: spans by message id, in order of their begin."""
    traces: dict[str, dict[str, Any]] = {}
    calls: dict[tuple[str, str], dict[str, Any]] = {}
    ends: list[dict[str, str]] = []
    for message in messages:
        for record in parse(message.body):
            fields = _named(record)
            if fields is None:
                continue
            if record[0] == "SubAfter":
                # It may come in an earlier message than its SubBefore.
                ends.append(fields)
                continue
            span = _SPANS[record[0]](fields, message.born_host)
            for msg_id in fields["msgId"].split(","):
                trace = traces.setdefault(msg_id, _trace(msg_id))
                trace["spans"].append(span)
                for name in ("topic", "tags", "keys"):
                    trace[name] = trace[name] or fields.get(name) or None
                if record[0] == "SubBefore":
                    calls[fields["requestId"], msg_id] = span
    for fields in ends:
        open_span = calls.get((fields["requestId"], fields["msgId"]))
        if open_span is not None:
            _end(open_span, fields)
    for trace in traces.values():
        spans = sorted(trace["spans"], key=lambda span: span["begin"])
        trace["spans"] = spans
        trace["begin"] = spans[0]["begin"]
        trace["end"] = max(span["end"] or span["begin"] for span in spans)
    return sorted(traces.values(), key=lambda trace: trace["begin"])


def _named(record: Sequence[str]) -> dict[str, str] | None:
    names = _FIELDS.get(record[0])
    if names is None:
        return None
    fields = dict(zip(names, record[1:], strict=False))
    if record[0] == "Pub" and len(record) == _OLD_PUB_FIELDS:
        fields["success"] = fields.pop("offsetMsgId")
    return fields if "msgId" in fields else None


def _trace(msg_id: str) -> dict[str, Any]:
    return {"msgId": msg_id, "topic": None, "tags": None, "keys": None, "spans": []}


def _pub(fields: dict[str, str], host: str) -> dict[str, Any]:
    cost = _number(fields.get("cost"))
    # The record's time is that before the send; the cost is until its answer.
    begin = _number(fields.get("time")) or 0
    return {
        "kind": "PUB",
        "group": fields.get("group"),
        "host": host,
        "begin": begin,
        "end": begin + (cost or 0),
        "costMs": cost,
        "status": "SUCCESS" if fields.get("success", "true") == "true" else "FAILED",
        "retryTimes": None,
        "fields": {**fields, "type": _name(TracedMessageType, fields.get("type"))},
    }


def _sub_before(fields: dict[str, str], host: str) -> dict[str, Any]:
    return {
        "kind": "SUB",
        "group": fields.get("group"),
        "host": host,
        "begin": _number(fields.get("time")) or 0,
        "end": None,
        "costMs": None,
        "status": "UNKNOWN",
        "retryTimes": _number(fields.get("retryTimes")),
        "fields": dict(fields),
    }


def _end(span: dict[str, Any], fields: dict[str, str]) -> None:
    cost = _number(fields.get("cost"))
    span["costMs"] = cost
    span["end"] = span["begin"] + (cost or 0)
    span["status"] = _name(ContextCode, fields.get("contextCode")) or (
        "SUCCESS" if fields.get("success") == "true" else "FAILED"
    )
    span["fields"] = {**span["fields"], **{k: v for k, v in fields.items() if k != "time"}}


def _transaction(fields: dict[str, str], host: str) -> dict[str, Any]:
    begin = _number(fields.get("time")) or 0
    return {
        "kind": "TRANSACTION",
        "group": fields.get("group"),
        "host": host,
        "begin": begin,
        "end": begin,
        "costMs": None,
        "status": _STATES.get(fields.get("state", ""), "UNKNOWN"),
        "retryTimes": None,
        "fields": dict(fields),
    }


_SPANS = {"Pub": _pub, "SubBefore": _sub_before, "EndTransaction": _transaction}


def _number(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def _name(kind: type[ContextCode] | type[TracedMessageType], text: str | None) -> str | None:
    number = _number(text)
    try:
        return None if number is None else kind(number).name
    except ValueError:
        return text
