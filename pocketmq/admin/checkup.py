"""Checkup: gathers from brokers and members what the diagnosis of a group needs (remoting.diagnosis).

Counters over the last minute and hour (VIEW_BROKER_STATS_DATA) tell the rates, as admin.rates defines them.
What cannot be obtained is left out of the diagnosis, never guessed.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass

from pocketmq.admin.admin import Admin
from pocketmq.admin.rates import consumed_rate, counted, stored_rate
from pocketmq.admin.views.group import GroupView, MemberView, group_view
from pocketmq.admin.waiting import waiting_ms
from pocketmq.client.errors import NoRoute
from pocketmq.model.agreement import own_topics
from pocketmq.model.balance import State
from pocketmq.model.diagnosis import (
    GroupFacts,
    MemberFacts,
    Symptom,
    Thresholds,
    TopicFacts,
    diagnose,
)
from pocketmq.model.names import dlq_topic, is_retry_topic, retry_topic
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.errors import PocketMQError

_READ, _WRITE = 4, 2


@dataclass(slots=True)
class Checkup:
    """A group with its symptoms, the gravest first."""

    view: GroupView
    symptoms: list[Symptom]


async def check_group(
    admin: Admin, group: str, limits: Thresholds | None = None, *, with_lost: bool = True
) -> Checkup:
    """Diagnose a group. limits: default to the brokers' own; with_lost: also by its balance, which a broker
    keeps from the first question on.
    """
    view = await group_view(admin, group)
    facts = await gather_facts(admin, view)
    if with_lost:
        facts.lost = await messages_lost(admin, group)
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
            tasks.create_task(counted(admin, each, "SNDBCK_PUT_NUMS", f"{each}@{group}"))
            for each in topics
        ]
        dead = tasks.create_task(_dead_letters(admin, group))
        configs = tasks.create_task(_configs(admin, group))
        waits = tasks.create_task(waiting_ms(admin, view.progress))
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
        sum(each.minute for each in known) if known else None,
        sum(each.hour for each in known),
        dead.result(),
        sorted(name for name, each in configs.result().items() if not each.consume_enable),
        _unread(view),
        view.lag_in(retry_topic(group)),
        _offline_ms(view, now_ms),
        waits.result(),
        any(each.reads_batches for each in configs.result().values()),
    )


def _offline_ms(view: GroupView, now_ms: int) -> int | None:
    """Return for how long no member has been online, as far as is known; None while one is.

    By the brokers' word; else since the newest message that the group has consumed was stored.
    """
    if view.members:
        return None
    told = (each.get("offlineSince") for each in view.told.values())
    since = max((int(each) for each in told if each), default=0)
    since = since or max((row.last_ms for row in view.progress), default=0)
    return max(0, now_ms - since) if since > 0 else None


async def _topic_facts(admin: Admin, view: GroupView, topic: str) -> TopicFacts:
    facts = TopicFacts(topic, view.lag_in(topic))
    facts.in_rate = await stored_rate(admin, topic)
    facts.out_rate = await consumed_rate(admin, view.group, topic)
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


async def messages_lost(admin: Admin, group: str) -> dict[str, int]:
    """Return the number of lost messages by topic; {} if no broker of PocketMQ tells."""
    found: Counter[str] = Counter()
    try:
        for balances in (await admin.balances.of_group(group)).values():
            found.update({each.topic: each.of(State.LOST) for each in balances})
    except PocketMQError:
        return {}
    return dict(found)


async def _dead_letters(admin: Admin, group: str) -> int:
    try:
        rows = await admin.topics.status(dlq_topic(group), partial=True)
    except (NoRoute, PocketMQError):
        return 0
    return sum(row.count for row in rows)


async def _configs(admin: Admin, group: str) -> dict[str, GroupConfig]:
    """Return the group's configuration by broker."""
    try:
        configs = await admin.groups.configs(partial=True)
    except PocketMQError:
        return {}
    return {broker: table[group] for broker, table in configs.items() if group in table}


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
