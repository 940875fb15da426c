"""What is known of a group, and what is suspicious: for `group show` and `group doctor`.

A PocketMQ broker tells what each member asks for itself, the group's mode and the guard's findings (with what
is lost, to whom, in which queues). Of an Apache broker the members are asked, and compared here.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pocketmq.cli.moments import show_moment
from pocketmq.cli.site import SiteRefused
from pocketmq.remoting.codes import version_name
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.names import RETRY_PREFIX

if TYPE_CHECKING:
    from pocketmq.admin import Admin, GroupConnection, QueueProgress

_COMPATIBLE = "compatible"
_DIFFERENT = (
    "the members subscribe to different things: each gets only the queues that it is given, and the broker "
    "filters all of them by the last heartbeat's expression, so messages are lost to everybody. Give members "
    "with different topics or tags different groups, or set: pocketmq group mode GROUP isolate"
)


async def describe(admin: "Admin", group: str) -> dict[str, Any]:
    """All that is known of a group. Raises: SiteRefused when nothing is."""
    from pocketmq.client.errors import ConsumerNotOnline

    try:
        connection = await admin.groups.connection(group)
    except ConsumerNotOnline:
        connection = None
    progress = await admin.groups.progress(group, owners=connection is not None)
    told = [each for rows in (await admin.doctor.groups(group)).values() for each in rows]
    if connection is None and not progress:
        await check_known(admin, group)
    found: dict[str, Any] = {
        "group": group,
        "mode": ", ".join(sorted({str(each["mode"]) for each in told})) or None,
        "members": [],
        "subscriptions": [],
        "queues": [queue_row(row) for row in progress],
        "findings": _once(each for group_ in told for each in group_["findings"]),
        "warnings": [],
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
    own = await _own_subscriptions(admin, group, connection, told)
    found["members"] = [
        {
            "client": member.client_id,
            "address": member.address,
            "language": member.language,
            "version": version_name(member.version),
            "subscribes": [
                f"{topic}: {text}" for topic, text in sorted(own[member.client_id].items())
            ],
        }
        for member in connection.members
    ]
    found["warnings"] = [str(each["text"]) for each in found["findings"]]
    known = [each for each in own.values() if each]
    if (
        found["mode"] in (None, _COMPATIBLE)
        and not found["warnings"]
        and any(each != known[0] for each in known[1:])
    ):
        # An Apache broker has no guard, and ours waits for a while before it speaks.
        found["warnings"].append(_DIFFERENT.replace("GROUP", group))
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


async def _own_subscriptions(
    admin: "Admin", group: str, connection: "GroupConnection", told: Iterable[dict[str, Any]]
) -> dict[str, dict[str, str]]:
    """What each member asks for itself, by client id and topic (E2, E3); {}: could not be learned."""
    own: dict[str, dict[str, str]] = {}
    for each in told:
        for member in each["members"]:
            own[str(member["clientId"])] = {
                str(one["topic"]): str(one["subString"])
                for one in member["subscriptions"]
                if not str(one["topic"]).startswith(RETRY_PREFIX)
            }
    for member in connection.members:
        if member.client_id not in own:
            try:
                info = await admin.groups.running_info(group, member.client_id)
            except PocketMQError:
                own[member.client_id] = {}
            else:
                own[member.client_id] = {
                    topic: one.sub_string
                    for topic, one in info.subscriptions.items()
                    if not topic.startswith(RETRY_PREFIX)
                }
    return own


def _once(findings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each broker has a finding of its own for the same difference; what they say of queues differs."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in findings:
        seen.setdefault((each["topic"], each["text"]), each)
    return list(seen.values())
