"""The members' reports, as rows of API.md (S85, S87, S92)."""

from typing import Any

from pocketmq.admin.views.group import GroupView
from pocketmq.console.json_rows import queue_row, subscription_rows
from pocketmq.remoting.codes import version_name


def member_rows(view: GroupView) -> list[dict[str, Any]]:
    """Return GroupMember rows."""
    return [
        {
            "clientId": each.member.client_id,
            "address": each.member.address,
            "language": each.member.language,
            "version": version_name(each.member.version),
            "lastUpdate": each.last_update_ms,
            "subscriptions": None if each.own is None else subscription_rows(each.own.values()),
            "differs": each.differs,
            "queues": [queue_row(queue) for queue in each.queues],
            "pops": each.pops,
        }
        for each in view.members
    ]


def verdict(view: GroupView) -> dict[str, Any]:
    """Return the Verdict: the guard's if a PocketMQ broker reported it, else a comparison."""
    source, agree, text = view.agreement
    return {
        "source": source,
        "agree": agree,
        "findings": [{**finding.to_json(), "broker": broker} for broker, finding in view.findings],
        "text": text,
    }
