"""Checkup: gathers from brokers and members what the diagnosis of a group needs (remoting.diagnosis).

Rates come from counters over the last minute and hour (VIEW_BROKER_STATS_DATA), which Apache's brokers
have, too. What cannot be obtained is left out of the diagnosis, never guessed.
"""

import asyncio
from dataclasses import dataclass

from pocketmq.admin.admin import Admin
from pocketmq.admin.settings import Counted
from pocketmq.admin.views.group import GroupView, MemberView, group_view
from pocketmq.client.errors import NoRoute
from pocketmq.model.agreement import own_topics
from pocketmq.model.diagnosis import (
    GroupFacts,
    MemberFacts,
    Symptom,
    Thresholds,
    TopicFacts,
    diagnose,
)
from pocketmq.model.names import dlq_topic, is_retry_topic, retry_topic
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.errors import PocketMQError

_READ, _WRITE = 4, 2


@dataclass(slots=True)
class Checkup:
    """A group with its symptoms, the gravest first."""

    view: GroupView
    symptoms: list[Symptom]


async def check_group(admin: Admin, group: str, limits: Thresholds | None = None) -> Checkup:
    """Diagnose a group. limits: default to the brokers' own."""
    view = await group_view(admin, group)
    facts = await gather_facts(admin, view)
    return Checkup(view, diagnose(facts, limits or await thresholds(admin)))


async def thresholds(admin: Admin) -> Thresholds:
    """Return the limits of the first broker that reports its settings; brokers of a cluster should agree."""
    for master in await admin.site.masters():
        try:
            return Thresholds.of(await admin.settings.broker(master.address))
        except PocketMQError:
            continue
    return Thresholds()


async def gather_facts(admin: Admin, view: GroupView) -> GroupFacts:
    """Return what is known of the group, for `diagnose`."""
    group = view.group
    names = {row.queue.topic for row in view.progress} | own_topics(view.stored).keys()
    topics = sorted(name for name in names if not is_retry_topic(name))
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(_topic_facts(admin, view, each)) for each in topics]
        returned = [
            tasks.create_task(_counted(admin, each, "SNDBCK_PUT_NUMS", f"{each}@{group}"))
            for each in topics
        ]
        dead = tasks.create_task(_dead_letters(admin, group))
        disabled = tasks.create_task(_disabled_on(admin, group))
    counts = [each.result() for each in returned]
    known = [each for each in counts if each is not None]
    model = "" if view.connection is None else view.connection.message_model
    is_unknown = view.connection is None and view.failure is not None
    now_ms = admin.clock.now_ms()
    return GroupFacts(
        group,
        None if is_unknown else [_member_facts(each, now_ms) for each in view.members],
        model != "BROADCASTING" and view.sub_groups < 2 and not view.is_shared,
        [each.result() for each in asked],
        [finding for _, finding in view.findings],
        sum(each.tps for each in known) * 60 if known else None,
        sum(each.hour for each in known),
        dead.result(),
        disabled.result(),
        _unread(view),
        view.lag_in(retry_topic(group)),
    )


async def _topic_facts(admin: Admin, view: GroupView, topic: str) -> TopicFacts:
    facts = TopicFacts(topic, view.lag_in(topic))
    facts.in_rate = await _rate(admin, topic, "TOPIC_PUT_NUMS", topic)
    facts.out_rate = await _rate(admin, topic, "GROUP_GET_NUMS", f"{topic}@{view.group}")
    configs: dict[str, TopicConfig] = {}
    try:
        configs = await admin.topics.configs(topic)
    except PocketMQError:
        # A deleted topic, or an unreachable broker: the report is made without it.
        pass
    facts.queues = sum(each.read_queues for each in configs.values())
    facts.closed_on = [name for name, each in configs.items() if not each.perm & _READ]
    facts.read_only_on = [
        name for name, each in configs.items() if each.perm & _READ and not each.perm & _WRITE
    ]
    return facts


async def _rate(admin: Admin, topic: str, name: str, key: str) -> float | None:
    found = await _counted(admin, topic, name, key)
    return None if found is None else found.tps


async def _counted(admin: Admin, topic: str, name: str, key: str) -> Counted | None:
    """Return a counter over the topic's brokers; zeros if never counted, None if no broker answers."""
    try:
        masters = await admin.site.masters_of(topic)
    except PocketMQError:
        return None
    found = await admin.settings.counted((address for _, address in masters), name, key)
    return found if found.answers else None


async def _dead_letters(admin: Admin, group: str) -> int:
    try:
        rows = await admin.topics.status(dlq_topic(group), partial=True)
    except (NoRoute, PocketMQError):
        return 0
    return sum(row.count for row in rows)


async def _disabled_on(admin: Admin, group: str) -> list[str]:
    try:
        configs = await admin.groups.configs()
    except PocketMQError:
        return []
    return sorted(
        broker
        for broker, table in configs.items()
        if group in table and not table[group].consume_enable
    )


def _member_facts(member: MemberView, now_ms: int) -> MemberFacts:
    client_id = member.member.client_id
    if member.info is None:
        return MemberFacts(client_id)
    return MemberFacts.of(client_id, member.info.queues, now_ms)


def _unread(view: GroupView) -> int:
    """Return the number of non-empty queues without an owner, if every member reported its queues."""
    if not view.members or any(each.info is None for each in view.members):
        return 0
    return sum(row.owner is None and not row.shared and row.lag > 0 for row in view.progress)
