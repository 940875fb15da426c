"""Facts about a group, and what is suspicious: for `group show` and `group doctor`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pocketmq.cli.cluster import SiteRefused
from pocketmq.cli.moments import show_moment
from pocketmq.model.agreement import own_topics
from pocketmq.model.names import is_system_group
from pocketmq.remoting.codes import version_name

if TYPE_CHECKING:
    from pocketmq.admin import Admin, QueueProgress


async def describe(admin: "Admin", group: str) -> dict[str, Any]:
    """Return everything known of a group, and its problems. Raises: SiteRefused if nothing is known."""
    from pocketmq.admin.checkup import check_group
    from pocketmq.model.diagnosis import is_sick

    checkup = await check_group(admin, group)
    view = checkup.view
    connection = view.connection
    if connection is None and not view.progress:
        await check_known(admin, group)
    found: dict[str, Any] = {
        "group": group,
        "mode": view.mode,
        "state": "sick" if is_sick(checkup.symptoms) else "well",
        "members": [],
        "subscriptions": [],
        "queues": [queue_row(row) for row in view.progress],
        "findings": [finding.to_json() for _, finding in view.findings],
        "symptoms": [each.to_json() for each in checkup.symptoms],
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


async def examine(admin: "Admin", group: str | None) -> list[dict[str, Any]]:
    """Return the diagnosis of one group, or of each user group."""
    if group is not None:
        names = [group]
    else:
        names = [name for name in await admin.groups.names() if not is_system_group(name)]
    found = [await describe(admin, name) for name in names]
    shown = ("group", "mode", "state", "symptoms", "findings")
    return [{name: each[name] for name in shown} for each in found]


def symptom_rows(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the symptoms, one row each."""
    return [
        {
            "group": each["group"],
            "severity": each["severity"],
            "symptom": each["kind"],
            "topic": each["topic"],
            "finding": each["text"],
            "what to do": each["advice"],
        }
        for group in found
        for each in group["symptoms"]
    ]


def camp_rows(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the members of each subscription, where they differ."""
    return [
        {
            "group": group["group"],
            "topic": finding["topic"],
            "subscribes": camp["expression"],
            "members": camp["clientIds"],
        }
        for group in found
        for finding in group["findings"]
        for camp in finding["camps"]
    ]


def loss_rows(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages lost, their queues and the members that lose them."""
    return [
        {
            "group": group["group"],
            "topic": finding["topic"],
            "queues": loss["queueIds"],
            "read by": loss["holder"],
            "lost": loss["lost"],
            "lost to": loss["lostTo"],
        }
        for group in found
        for finding in group["findings"]
        for loss in finding["losses"]
    ]


async def check_known(admin: "Admin", group: str) -> None:
    """Refuse a group that no broker has heard of. Raises: SiteRefused."""
    if group in await admin.groups.names() or await admin.groups.progress(group):
        return
    raise SiteRefused(
        f"there is no group {group!r}: it has neither members online, nor offsets, nor a "
        "configuration. See: pocketmq group list"
    )


def queue_row(row: "QueueProgress") -> dict[str, Any]:
    """Return the group's progress in one queue."""
    return {
        "topic": row.queue.topic,
        "broker": row.queue.broker_name,
        "queue": row.queue.queue_id,
        "end": row.broker_offset,
        "offset": row.consumer_offset,
        "lag": row.lag,
        "last": show_moment(row.last_ms),
        "owner": "shared" if row.shared else row.owner,
    }
