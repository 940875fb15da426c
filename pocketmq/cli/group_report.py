"""Facts about a group, and what is suspicious: for `group show` and `group doctor`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pocketmq.cli.cluster import ClusterRefused
from pocketmq.cli.output import print_rows
from pocketmq.model.as_json import as_object
from pocketmq.model.names import is_system_group
from pocketmq.remoting.errors import did_you_mean

if TYPE_CHECKING:
    from pocketmq.admin import Admin

# What people see of a diagnosis: keys of symptoms, of camps and of losses, with their headings.
_SYMPTOMS = {
    "group": "group",
    "severity": "severity",
    "kind": "symptom",
    "topic": "topic",
    "text": "finding",
    "advice": "what to do",
}
_CAMPS = {"group": "group", "topic": "topic", "expression": "subscribes", "clientIds": "members"}
_LOSSES = {
    "group": "group",
    "topic": "topic",
    "queueIds": "queues",
    "holder": "read by",
    "lost": "lost",
    "lostTo": "lost to",
}


async def describe(admin: "Admin", group: str) -> dict[str, Any]:
    """Return everything known of a group, and its problems. Raises: ClusterRefused if nothing is known."""
    from pocketmq.admin.checkup import check_group
    from pocketmq.admin.views.rows import ClientRow, QueueProgressRow
    from pocketmq.model.agreement import own_topics
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
        "consumeType": None,
        "messageModel": None,
        "consumeFromWhere": None,
        "members": [],
        "subscriptions": [],
        "queues": [as_object(QueueProgressRow.of(row)) for row in view.progress],
        "findings": [finding.to_json() for _, finding in view.findings],
        "symptoms": [each.to_json() for each in checkup.symptoms],
    }
    if connection is None:
        return found
    found["consumeType"] = connection.consume_type
    found["messageModel"] = connection.message_model
    found["consumeFromWhere"] = connection.consume_from_where
    found["subscriptions"] = [
        {"topic": topic, "expression": each.sub_string, "version": each.sub_version}
        for topic, each in sorted(connection.subscriptions.items())
    ]
    found["members"] = [
        {
            **as_object(ClientRow.of(each.member)),
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


def print_diagnosis(found: Sequence[Mapping[str, Any]]) -> None:
    """Print the symptoms of groups, and where members differ: who subscribes what, what is lost to whom."""
    symptoms = [each for group in found for each in group["symptoms"]]
    differing = [each for group in found for each in group["findings"]]
    for rows, columns in (
        (symptoms, _SYMPTOMS),
        ([_of(each) | camp for each in differing for camp in each["camps"]], _CAMPS),
        ([_of(each) | loss for each in differing for loss in each["losses"]], _LOSSES),
    ):
        if rows:
            print_rows(rows, as_json=False, columns=columns)


def _of(finding: Mapping[str, Any]) -> dict[str, Any]:
    return {"group": finding["group"], "topic": finding["topic"]}


async def check_known(admin: "Admin", group: str) -> None:
    """Refuse a group that no broker has heard of. Raises: ClusterRefused."""
    names = await admin.groups.names()
    if group in names or await admin.groups.progress(group):
        return
    raise ClusterRefused(
        f"there is no group {group!r}{did_you_mean(group, names)}: it has neither members online, nor "
        "offsets, nor a configuration. See: pocketmq group list"
    )


def print_progress(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print a group's progress in each queue; people read `shared` where members pop."""
    if not as_json:
        rows = [
            {name: value for name, value in row.items() if name != "shared"}
            | ({"owner": "shared"} if row["shared"] else {})
            for row in rows
        ]
    print_rows(rows, as_json=as_json, empty="no offsets")
