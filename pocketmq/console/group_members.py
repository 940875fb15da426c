"""The members' reports, as rows of API.md (S85, S87, S92)."""

from typing import Any

from pocketmq.admin.views.group import GroupView
from pocketmq.admin.views.rows import ClientRow, QueueRow, SubscriptionRow
from pocketmq.model.as_json import as_object


def member_rows(view: GroupView) -> list[dict[str, Any]]:
    """Return GroupMember rows."""
    return [
        {
            **as_object(ClientRow.of(each.member)),
            "lastUpdate": each.last_update_ms,
            "subscriptions": None
            if each.own is None
            else as_object(SubscriptionRow.of_all(each.own.values())),
            "differs": each.differs,
            "queues": [as_object(QueueRow.of(queue)) for queue in each.queues],
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
