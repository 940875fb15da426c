"""What the members of a group say: own subscriptions and queues; and whether they agree (S85, S87, S92).

PocketMQ's broker keeps every member's own subscription and its guard judges. Elsewhere each member is asked
(GET_CONSUMER_RUNNING_INFO), as rocketmq-dashboard does, and compared here.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pocketmq.admin import GroupConnection, Member, RunningInfo
from pocketmq.client.errors import ConsumerNotOnline
from pocketmq.console.json_rows import queue_row, subscription_rows, subscriptions_of, users_first
from pocketmq.console.state import Console
from pocketmq.remoting.codes import version_name
from pocketmq.remoting.errors import PocketMQError, RemotingError
from pocketmq.remoting.message import MessageQueue
from pocketmq.remoting.names import RETRY_PREFIX
from pocketmq.remoting.subscription import SubscriptionData

_ASK_WITHIN_S = 3
_ASKED_MAX = 64

Subscriptions = Mapping[str, SubscriptionData]


@dataclass(slots=True)
class GroupMembers:
    """connection: None when nobody is online, or those that were reached know of nobody (failure).

    own: None for a member that could not be asked.
    """

    connection: GroupConnection | None = None
    failure: RemotingError | None = None
    own: dict[str, Subscriptions | None] = field(default_factory=dict)
    queues: dict[str, list[MessageQueue]] = field(default_factory=dict)
    last_update_ms: dict[str, int] = field(default_factory=dict)
    told: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def owners(self) -> dict[MessageQueue, str]:
        return _owners(self.queues)

    @property
    def members(self) -> tuple[Member, ...]:
        return () if self.connection is None else self.connection.members

    @property
    def stored(self) -> Subscriptions:
        return {} if self.connection is None else self.connection.subscriptions


async def members_of(console: Console, group: str) -> GroupMembers:
    """All that can be learned; members and brokers that do not answer are left out."""
    found = GroupMembers()
    try:
        found.connection = await console.admin.groups.connection(group)
    except ConsumerNotOnline:
        pass
    except RemotingError as error:
        found.failure = error
    doctor = await console.admin.doctor.groups(group)
    found.told = {broker: groups[0] for broker, groups in doctor.items() if groups}
    for told in found.told.values():
        for member in told["members"]:
            client = member["clientId"]
            found.own[client] = subscriptions_of(member["subscriptions"])
            found.last_update_ms[client] = max(
                member["lastUpdate"], found.last_update_ms.get(client, 0)
            )
    infos = await _ask(console, group, found.members)
    for client, info in infos.items():
        found.queues[client] = sorted(info.queues, key=users_first)
        found.own.setdefault(client, info.subscriptions)
    return found


async def count_members(console: Console, group: str) -> int:
    """How many members are online."""
    try:
        return len((await console.admin.groups.connection(group)).members)
    except ConsumerNotOnline:
        return 0


async def owners_of(console: Console, group: str) -> dict[MessageQueue, str]:
    """Which member has which queue."""
    try:
        connection = await console.admin.groups.connection(group)
    except (ConsumerNotOnline, RemotingError):
        return {}
    infos = await _ask(console, group, connection.members)
    return _owners({client: list(info.queues) for client, info in infos.items()})


def _owners(queues: Mapping[str, Iterable[MessageQueue]]) -> dict[MessageQueue, str]:
    """Who has a queue; several, where members broadcast or are isolated, joined by commas."""
    found: dict[MessageQueue, list[str]] = {}
    for client in sorted(queues):
        for queue in queues[client]:
            found.setdefault(queue, []).append(client)
    return {queue: ", ".join(clients) for queue, clients in found.items()}


async def _ask(console: Console, group: str, members: Iterable[Member]) -> dict[str, RunningInfo]:
    """What the members say of themselves; those that do not answer soon are left out."""
    found: dict[str, RunningInfo] = {}

    async def ask(member: Member) -> None:
        try:
            async with asyncio.timeout(_ASK_WITHIN_S):
                info = await console.admin.groups.running_info(group, member.client_id)
        except (PocketMQError, TimeoutError):
            return
        found[member.client_id] = info

    async with asyncio.TaskGroup() as tasks:
        for member in list(members)[:_ASKED_MAX]:
            tasks.create_task(ask(member), name=f"ask {member.client_id}")
    return found


def member_rows(members: GroupMembers) -> list[dict[str, Any]]:
    """GroupMember rows of API.md."""
    rows: list[dict[str, Any]] = []
    for member in members.members:
        own = members.own.get(member.client_id)
        rows.append(
            {
                "clientId": member.client_id,
                "address": member.address,
                "language": member.language,
                "version": version_name(member.version),
                "lastUpdate": members.last_update_ms.get(member.client_id),
                "subscriptions": None if own is None else subscription_rows(own.values()),
                "differs": [] if own is None else differing(own, members.stored),
                "queues": [queue_row(each) for each in members.queues.get(member.client_id, ())],
            }
        )
    return rows


def _wish(subscription: SubscriptionData | None) -> tuple[str, str] | None:
    """What is asked for; the order and the blanks of tags do not matter."""
    if subscription is None:
        return None
    if subscription.expression_type == "TAG":
        return "TAG", " || ".join(sorted(subscription.tags_set)) or "*"
    return subscription.expression_type, subscription.sub_string


def _topics(*all_subscriptions: Subscriptions) -> list[str]:
    names = {name for each in all_subscriptions for name in each}
    return sorted(name for name in names if not name.startswith(RETRY_PREFIX))


def differing(own: Subscriptions, stored: Subscriptions) -> list[str]:
    """Topics for which a member asks for something else than the broker keeps for its group."""
    return [
        topic for topic in _topics(own, stored) if _wish(own.get(topic)) != _wish(stored.get(topic))
    ]


def verdict(group: str, members: GroupMembers) -> dict[str, Any]:
    """The Verdict of API.md: the guard's where a PocketMQ broker told, else a comparison."""
    count = len(members.members)
    if not count:
        text = "Nobody of this group is online."
        if members.failure is not None:
            text = f"Nobody of this group is known to those brokers that answer: {members.failure}"
        return _verdict("none", None, [], text)
    if members.told:
        findings = [
            {**finding, "broker": broker}
            for broker, told in _once(members.told)
            for finding in told["findings"]
        ]
        return _verdict("guard", not findings, findings, _text(findings, members))
    known = {client: own for client, own in members.own.items() if own is not None}
    if len(known) < 2 and count > 1:
        return _verdict(
            "none", None, [], f"{count - len(known)} of {count} members did not say what they want."
        )
    findings = _compare(group, known, members.stored)
    return _verdict("members", not findings, findings, _text(findings, members))


def _once(told: Mapping[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """The brokers' tellings without those that only repeat another broker's."""
    found: list[tuple[str, dict[str, Any]]] = []
    seen: set[str] = set()
    for broker, group in sorted(told.items()):
        key = repr([(each["topic"], each["camps"]) for each in group["findings"]])
        if key not in seen:
            seen.add(key)
            found.append((broker, group))
    return found


def _verdict(
    source: str, agree: bool | None, findings: list[dict[str, Any]], text: str
) -> dict[str, Any]:
    return {"source": source, "agree": agree, "findings": findings, "text": text}


def _text(findings: list[dict[str, Any]], members: GroupMembers) -> str:
    if findings:
        return " ".join(each["text"] for each in findings)
    sub_groups = max(
        (
            sum(each["state"] == "active" for each in told["subGroups"])
            for told in members.told.values()
        ),
        default=0,
    )
    if sub_groups > 1:
        return (
            f"The members subscribe differently, and the group is isolated: {sub_groups} sub-groups, each "
            "with offsets of its own. Nothing is lost."
        )
    count = len(members.members)
    return (
        "The only member subscribes what the broker keeps for the group."
        if count == 1
        else f"All {count} members subscribe to the same."
    )


def _compare(
    group: str, own: Mapping[str, Subscriptions], stored: Subscriptions
) -> list[dict[str, Any]]:
    """Findings in the guard's shape; who loses which queue is not known here."""
    findings: list[dict[str, Any]] = []
    for topic in _topics(*own.values()):
        camps: dict[tuple[str, str] | None, list[str]] = {}
        for client, subscriptions in sorted(own.items()):
            camps.setdefault(_wish(subscriptions.get(topic)), []).append(client)
        if len(camps) < 2:
            continue
        kept = _wish(stored.get(topic))
        words = "; ".join(
            f"{', '.join(clients)}: {wish[1] if wish else 'not at all'}"
            for wish, clients in camps.items()
        )
        findings.append(
            {
                "camps": [
                    {
                        "clientIds": clients,
                        "expression": wish[1] if wish else None,
                        "expressionType": wish[0] if wish else None,
                    }
                    for wish, clients in camps.items()
                ],
                "group": group,
                "losses": [],
                "raised": True,
                "since": None,
                "stored": kept[1] if kept else None,
                "text": f"The members of group {group!r} subscribe topic {topic!r} differently ({words}). "
                f"The broker filters by {kept[1] if kept else 'none of it'} for all of them, so messages "
                "are lost. What to do: give members with different topics or tags different groups.",
                "topic": topic,
                "broker": None,
            }
        )
    return findings
