"""Views: a group for every user interface (console, command line, mqadmin).

PocketMQ's brokers report each member's own subscription and their guard's findings. With other brokers each
member is asked (GET_CONSUMER_RUNNING_INFO), as rocketmq-dashboard does, and compared by the same rules.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pocketmq.admin.admin import Admin
from pocketmq.admin.first_offsets import with_first
from pocketmq.admin.groups import with_owners
from pocketmq.admin.types import GroupConnection, Member, QueueProgress, RunningInfo
from pocketmq.client.errors import ConsumerNotOnline
from pocketmq.model.agreement import GroupFinding, Subscriptions, differences, differing, losses
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import is_retry_topic
from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting.errors import PocketMQError, RemotingError


@dataclass(slots=True)
class GroupRow:
    """A group in one row. members, lag: None if no broker that was reached knows."""

    group: str
    members: int | None = 0
    consume_type: str | None = None
    message_model: str | None = None
    version: int | None = None
    topics: list[str] = field(default_factory=list)
    lag: int | None = 0


@dataclass(slots=True)
class MemberView:
    """own: its own subscriptions, None if they could not be obtained; last_update_ms: its last heartbeat;
    pops: it shares each queue with the others.
    """

    member: Member
    own: Subscriptions | None
    differs: list[str]
    info: RunningInfo | None
    last_update_ms: int | None
    pops: bool

    @property
    def queues(self) -> list[MessageQueue]:
        """Return the queues that the member reports as its own; the group's retry topic last."""
        return [] if self.info is None else sorted(self.info.queues, key=users_first)


@dataclass(slots=True)
class GroupView:
    """All that is known of a group.

    connection: None if no member is online, or no reachable broker knows the group (failure). told: what each
    PocketMQ broker reports, by its name. findings: where members differ, with the reporting broker, None if
    compared here. known: members whose own subscription is known.
    """

    group: str
    connection: GroupConnection | None
    failure: RemotingError | None
    members: list[MemberView]
    progress: list[QueueProgress]
    told: dict[str, dict[str, Any]]
    findings: list[tuple[str | None, GroupFinding]]

    @property
    def stored(self) -> Subscriptions:
        """Return the subscriptions that the broker keeps for the group."""
        return {} if self.connection is None else self.connection.subscriptions

    @property
    def mode(self) -> str | None:
        """Return `compatible`, `strict` or `isolate`; several if brokers differ; None: no
        broker has modes.
        """
        return ", ".join(sorted({str(each["mode"]) for each in self.told.values()})) or None

    @property
    def known(self) -> int:
        return sum(each.own is not None for each in self.members)

    @property
    def is_shared(self) -> bool:
        """Return True if members pop, so that queues need no owner."""
        return any(each.pops for each in self.members)

    @property
    def lag(self) -> int:
        return lag_of(self.progress)

    def lag_in(self, topic: str) -> int:
        """Return the lag in one topic, messages."""
        return lag_of(row for row in self.progress if row.queue.topic == topic)

    @property
    def sub_groups(self) -> int:
        """Return the current number of sub-groups of an isolated group."""
        counts = (
            sum(each["state"] == "active" for each in told["subGroups"])
            for told in self.told.values()
        )
        return max(counts, default=0)

    @property
    def agreement(self) -> tuple[str, bool | None, str]:
        """Return the source (guard, members, none), whether members agree (None: unknown), and a sentence."""
        count = len(self.members)
        if not count and self.failure is not None:
            return (
                "none",
                None,
                f"The brokers that answer know no member of this group: {self.failure}",
            )
        if not count:
            return "none", None, "No member of this group is online."
        source = "guard" if self.told else "members"
        if self.findings:
            return source, False, " ".join(finding.text for _, finding in self.findings)
        if not self.told and self.known < 2 < count + 1:
            text = f"{count - self.known} of {count} members did not report their subscriptions."
            return "none", None, text
        if self.sub_groups > 1:
            return (
                source,
                True,
                f"The members subscribe differently, but the group is isolated: {self.sub_groups} "
                "sub-groups, each with its own offsets. Nothing is lost.",
            )
        if count == 1:
            return (
                source,
                True,
                "The only member subscribes to what the broker has on record for the group.",
            )
        return source, True, f"All {count} members subscribe to the same."


def users_first(queue: MessageQueue) -> tuple[bool, MessageQueue]:
    """Sort key of queues: those of a group's retry topic, which every member also has, come last."""
    return is_retry_topic(queue.topic), queue


def lag_of(rows: Iterable[QueueProgress]) -> int:
    """Return the lag over all queues, messages."""
    return sum(row.lag for row in rows)


async def group_row(admin: Admin, group: str) -> GroupRow:
    """Return a group in one row; what cannot be reached is None."""
    row = GroupRow(group)
    try:
        connection = await admin.groups.connection(group)
        row.members = len(connection.members)
        row.consume_type = connection.consume_type
        row.message_model = connection.message_model
        row.version = min((each.version for each in connection.members), default=None)
    except ConsumerNotOnline:
        pass
    except PocketMQError:
        row.members = None
    try:
        progress = await admin.groups.progress(group, partial=True)
        row.topics = sorted({each.queue.topic for each in progress})
        row.lag = lag_of(progress)
    except PocketMQError:
        row.lag = None
    return row


async def member_count(admin: Admin, group: str) -> int:
    """Return the number of online members."""
    try:
        return len((await admin.groups.connection(group)).members)
    except ConsumerNotOnline:
        return 0


async def group_view(admin: Admin, group: str) -> GroupView:
    """View a group; members and brokers that do not answer are left out."""
    connection, failure = None, None
    try:
        connection = await admin.groups.connection(group)
    except ConsumerNotOnline:
        pass
    except RemotingError as error:
        failure = error
    doctor = await admin.doctor.groups(group)
    told = {broker: groups[0] for broker, groups in sorted(doctor.items()) if groups}
    members = () if connection is None else connection.members
    infos = await admin.groups.running_infos(group, members)
    progress = await with_first(admin, await admin.groups.progress(group, partial=True), infos)
    if connection is not None:
        progress = with_owners(progress, connection, infos)
    own, seen_ms = _own(told, infos)
    stored: Subscriptions = {} if connection is None else connection.subscriptions
    views = []
    for member in members:
        asked = own.get(member.client_id)
        views.append(
            MemberView(
                member,
                asked,
                [] if asked is None else differing(asked, stored),
                infos.get(member.client_id),
                seen_ms.get(member.client_id),
                connection is not None and connection.pops(member),
            )
        )
    view = GroupView(group, connection, failure, views, progress, told, [])
    view.findings = _told_findings(told) if told else _compared(view)
    return view


def _own(
    told: Mapping[str, Mapping[str, Any]], infos: Mapping[str, RunningInfo]
) -> tuple[dict[str, Subscriptions], dict[str, int]]:
    """Return each member's own subscription and last heartbeat, by client id."""
    own: dict[str, Subscriptions] = {}
    seen_ms: dict[str, int] = {}
    for member in (each for group in told.values() for each in group["members"]):
        client_id = str(member["clientId"])
        own[client_id] = subscriptions_of(member["subscriptions"])
        seen_ms[client_id] = max(int(member["lastUpdate"]), seen_ms.get(client_id, 0))
    for client_id, info in infos.items():
        own.setdefault(client_id, info.subscriptions)
    return own, seen_ms


def subscriptions_of(data: Iterable[Mapping[str, Any]]) -> dict[str, SubscriptionData]:
    """Parse a member's subscriptions by topic, from a broker's answer."""
    found = [SubscriptionData.from_json(each) for each in data]
    return {each.topic: each for each in found}


def _told_findings(told: Mapping[str, Mapping[str, Any]]) -> list[tuple[str | None, GroupFinding]]:
    found = [
        (broker, GroupFinding.from_json(each))
        for broker, group in told.items()
        for each in group["findings"]
    ]
    return once(found)


def once(found: Iterable[tuple[str | None, GroupFinding]]) -> list[tuple[str | None, GroupFinding]]:
    """Merge duplicates: members register at every broker, so each broker has its finding of a difference."""
    seen: dict[tuple[Any, ...], tuple[str | None, GroupFinding]] = {}
    for broker, each in found:
        seen.setdefault((each.group, each.topic, each.camps), (broker, each))
    return list(seen.values())


def _compared(view: GroupView) -> list[tuple[str | None, GroupFinding]]:
    """Return findings like the guard's, from what the members reported themselves."""
    if view.connection is None:
        return []
    own = [(each.member.client_id, each.own) for each in view.members if each.own is not None]
    found: list[tuple[str | None, GroupFinding]] = []
    for topic, camps in differences(own, view.connection.consume_type).items():
        stored = view.stored.get(topic)
        finding = GroupFinding(
            view.group,
            topic,
            None,
            True,
            None if stored is None else stored.expression,
            tuple(camps),
            tuple(losses(camps, stored, _holders(view, topic))),
        )
        found.append((None, finding))
    return found


def _holders(view: GroupView, topic: str) -> dict[int, str | None]:
    """Return the owner of each queue of a topic at one broker; unreported queues are allocated evenly."""
    holders: dict[MessageQueue, str | None] = dict.fromkeys(row.queue for row in view.progress)
    for member in view.members:
        holders.update(dict.fromkeys(member.queues, member.member.client_id))
    of_topic = {queue: who for queue, who in sorted(holders.items()) if queue.topic == topic}
    first = next(iter(of_topic), None)
    return {
        queue.queue_id: who
        for queue, who in of_topic.items()
        if first is not None and queue.broker_name == first.broker_name
    }
