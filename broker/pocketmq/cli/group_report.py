"""What is known of a group, and what is suspicious: for `group show` and `group doctor`."""

from typing import TYPE_CHECKING, Any

from pocketmq.cli.moments import show_moment
from pocketmq.cli.site import SiteRefused
from pocketmq.remoting.agreement import own_topics
from pocketmq.remoting.codes import version_name

if TYPE_CHECKING:
    from pocketmq.admin import Admin, QueueProgress


async def describe(admin: "Admin", group: str) -> dict[str, Any]:
    """All that is known of a group. Raises: SiteRefused when nothing is."""
    from pocketmq.admin.views import group_view

    view = await group_view(admin, group)
    connection = view.connection
    if connection is None and not view.progress:
        await check_known(admin, group)
    found: dict[str, Any] = {
        "group": group,
        "mode": view.mode,
        "members": [],
        "subscriptions": [],
        "queues": [queue_row(row) for row in view.progress],
        "findings": [finding.to_json() for _, finding in view.findings],
        "warnings": [finding.text for _, finding in view.findings],
    }
    if connection is None:
        return found
    found["consume_type"] = connection.consume_type
    found["message_model"] = connection.message_model
    found["consume_from_where"] = connection.consume_from_where
    found["subscriptions"] = [
        {"topic": topic, "expression": each.sub_string, "version": each.sub_version}
        for topic, each in sorted(connection.subscriptions.items())
    ]
    found["members"] = [
        {
            "client": each.member.client_id,
            "address": each.member.address,
            "language": each.member.language,
            "version": version_name(each.member.version),
            "subscribes": [
                f"{topic}: {asked.sub_string}"
                for topic, asked in own_topics(each.own or {}).items()
            ],
        }
        for each in view.members
    ]
    return found


def more_warnings(found: dict[str, Any]) -> list[str]:
    """What a doctor says beside `describe`'s own warnings: nobody online, queues without an owner."""
    if not found["members"]:
        return ["nobody of the group is online: nothing is consumed"]
    ownerless = [row for row in found["queues"] if row["owner"] is None and row["lag"] > 0]
    if not ownerless:
        return []
    return [
        f"{len(ownerless)} queues with messages have no member that says it consumes them: a member does "
        "not answer, or subscribes to another topic"
    ]


async def check_known(admin: "Admin", group: str) -> None:
    """Refuse a group that no broker has heard of. Raises: SiteRefused."""
    if group in await admin.groups.names() or await admin.groups.progress(group):
        return
    raise SiteRefused(
        f"there is no group {group!r} here: nobody is online as it, and it has neither offsets nor a "
        "configuration. See: pocketmq group list"
    )


def queue_row(row: "QueueProgress") -> dict[str, Any]:
    """How far a group is in one queue."""
    return {
        "topic": row.queue.topic,
        "broker": row.queue.broker_name,
        "queue": row.queue.queue_id,
        "end": row.broker_offset,
        "offset": row.consumer_offset,
        "lag": row.lag,
        "last": show_moment(row.last_ms),
        "owner": row.owner,
    }
