"""Diagnosis: what is wrong with a consumer group, from facts gathered elsewhere. Ours.

Pure: the broker's `/metrics`, the console and the command line each gather the facts in their own way and get
the same symptoms in the same words. The thresholds are settings of the broker (Thresholds.KEYS).

    GROUP_DIFFERS        members subscribe differently, and lose messages (remoting.agreement)
    NOBODY_ONLINE        no member, and a message has waited for too long; a note while it has not, none once
                         nothing waits and the group is unused for a day, or if it reads in batches
    GROUP_DISABLED       a broker's configuration of the group forbids to consume
    TOPIC_NOT_READABLE   a topic's permission forbids to read; TOPIC_READ_ONLY: to write
    LAG                  too far behind, or behind and not catching up soon; with the time until it is empty
    FAILING              messages fail; retries lie up to hours apart, so that an hour counts, too
    DEAD_LETTERS         messages were dead-lettered
    MESSAGES_LOST        the group has moved past messages that a member wanted (model.balance)
    MEMBER_STUCK         a member holds messages and has finished none for too long, or none of one queue
    QUEUES_UNREAD        non-empty queues that no member reports as its own
    ONE_MEMBER_HAS_ALL   several members, and one of them has every queue
    IDLE_MEMBERS         more members than queues
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from pocketmq.model.agreement import GroupFinding
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import retry_topic
from pocketmq.model.track import Severity
from pocketmq.remoting.java_number import number

# In and out counters are not read at the same instant.
_NOISE = 0.02
# An hour may see this many times as many failures as a minute.
_HOUR_TIMES = 10
# A backlog that needs longer than this is not catching up.
_SOON_S = 86_400
# A backlog that the group needs longer for is not worked off soon, at however few messages.
_LONG_S = 600
# Members commit every five seconds: one that has begun within this time may have finished something.
_BEGUN_MS = 10_000
# A group that no member has used for longer is not missed.
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits from which on something is a symptom. lag_max: messages; retries_max: failures a minute;
    dead_letters_max: messages; stuck_ms: time without a finished message while some are held; offline_ms: how
    long a message waits for a group without members.
    """

    KEYS: ClassVar[Mapping[str, str]] = {
        "lag_max": "doctorLagMax",
        "retries_max": "doctorRetriesPerMinuteMax",
        "dead_letters_max": "doctorDeadLettersMax",
        "stuck_ms": "doctorStuckTime",
        "offline_ms": "doctorOfflineTime",
    }

    lag_max: int = 10_000
    retries_max: int = 10
    dead_letters_max: int = 0
    stuck_ms: int = 120_000
    offline_ms: int = 600_000

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Self:
        """Read a broker's settings; RocketMQ's brokers have none of these."""
        found = {name: settings.get(key, "") for name, key in cls.KEYS.items()}
        return cls(**{name: int(text) for name, text in found.items() if text.isdecimal()})


@dataclass(slots=True)
class TopicFacts:
    """A topic as the group sees it. Rates are messages a second over the last minute, None if unknown.

    queues: those that are read; closed_on, read_only_on: brokers whose permission lacks reading, writing.
    """

    topic: str
    lag: int = 0
    in_rate: float | None = None
    out_rate: float | None = None
    queues: int = 0
    closed_on: list[str] = field(default_factory=list)
    read_only_on: list[str] = field(default_factory=list)


@dataclass(slots=True)
class MemberFacts:
    """queues: topic -> number of its queues, None if it did not report. stuck_ms: how long it has finished
    nothing of one queue that it holds messages of, 0 if it holds none; stuck_at: how many messages it holds
    in all, and where, in words; idle_ms: how long it has finished nothing of any queue.
    """

    client_id: str
    queues: Mapping[str, int] | None = None
    stuck_ms: int = 0
    stuck_at: str = ""
    idle_ms: int = 0

    @classmethod
    def of(
        cls, client_id: str, table: Mapping[MessageQueue, Mapping[str, Any]], now_ms: int
    ) -> Self:
        """Read a member's mqTable (ProcessQueueInfo by queue): its slowest non-empty queue decides."""
        stuck_ms, place, newest_ms, in_all, queues = 0, "", 0, 0, 0
        for queue, row in table.items():
            held = number(row.get("cachedMsgCount") or 0) + number(
                row.get("transactionMsgCount") or 0
            )
            in_all += held
            queues += held > 0
            last_ms = number(row.get("lastConsumeTimestamp") or 0)
            newest_ms = max(newest_ms, last_ms)
            if held and 0 < last_ms < now_ms - stuck_ms:
                least = row.get("transactionMsgMinOffset") or row.get("cachedMsgMinOffset") or 0
                stuck_ms = now_ms - last_ms
                place = f"{queue.topic}, queue {queue.queue_id}, from offset {number(least)} on"
        if place:
            among = "of" if queues == 1 else f"of {queues} queues, for longest those of"
            place = f"{_count(in_all, 'message')} {among} {place}"
        counts = Counter(queue.topic for queue in table)
        return cls(client_id, counts, stuck_ms, place, now_ms - newest_ms)


@dataclass(slots=True)
class GroupFacts:
    """members: None if unknown. divides: the members divide the queues among them (clustering, neither
    isolated nor popping). unread: non-empty queues without an owner, if every member has answered.
    retry_lag: messages that wait in the group's retry topic, which topics does not list. offline_ms: how long
    no member has been online; waiting_ms: how long the next message has waited; None if unknown. in_batches:
    members come and leave by design. lost: messages by topic, as the balance counts them.
    """

    group: str
    members: Sequence[MemberFacts] | None = None
    divides: bool = True
    topics: Sequence[TopicFacts] = ()
    findings: Sequence[GroupFinding] = ()
    retries_per_minute: float | None = None
    retries_in_hour: int = 0
    dead_letters: int = 0
    disabled_on: Sequence[str] = ()
    unread: int = 0
    retry_lag: int = 0
    offline_ms: int | None = None
    waiting_ms: int | None = None
    in_batches: bool = False
    lost: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Symptom:
    """One problem: a short description, and what to do about it."""

    kind: str
    severity: Severity
    group: str
    text: str
    advice: str
    topic: str | None = None
    since_ms: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "severity": self.severity.value,
            "group": self.group,
            "topic": self.topic,
            "text": self.text,
            "advice": self.advice,
            "since": self.since_ms,
            "parameters": dict(self.parameters),
        }


def diagnose(facts: GroupFacts, limits: Thresholds) -> list[Symptom]:
    """Return the symptoms, the gravest first."""
    found = [
        *_differences(facts),
        *_members(facts, limits),
        *(symptom for topic in facts.topics for symptom in _topic(facts, topic, limits)),
        *_failures(facts, limits),
    ]
    order = list(Severity)
    return sorted(found, key=lambda each: order.index(each.severity))


def is_sick(symptoms: Sequence[Symptom]) -> bool:
    """Return True if an operator should act."""
    return any(each.severity is not Severity.INFO for each in symptoms)


def in_words(seconds: float) -> str:
    """Format a span of time, rounded.

    >>> in_words(42), in_words(300), in_words(7_300), in_words(200_000)
    ('42 s', '5 min', '2 h', '2 days')
    """
    for unit, size, limit in (("s", 1, 120), ("min", 60, 7_200), ("h", 3_600, 172_800)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def empty_in_s(lag: int, came: float, went: float) -> float | None:
    """Return in how many seconds nothing will wait, at these rates; None: never, or not within a day.

    >>> empty_in_s(100, 10.0, 20.0), empty_in_s(100, 10.0, 10.1), empty_in_s(100, 0.0, 0.0)
    (10.0, None, None)
    """
    gain = went - came
    seconds = lag / gain if gain > went * _NOISE else None
    return None if seconds is None or seconds > _SOON_S else seconds


# ------------------------------------------------------------ rules


def _differences(facts: GroupFacts) -> Iterator[Symptom]:
    for finding in facts.findings:
        asks = "; ".join(
            f"{len(camp.client_ids)} x [{camp.expression}]"
            if camp.expression is not None
            else f"{len(camp.client_ids)} x nothing"
            for camp in finding.camps
        )
        losing = {queue for loss in finding.losses for queue in loss.queue_ids}
        which = "1 queue loses" if len(losing) == 1 else f"{len(losing)} queues lose"
        loses = f"{which} messages" if losing else "nothing is lost now"
        yield Symptom(
            "GROUP_DIFFERS",
            Severity.ERROR if finding.raised else Severity.WARNING,
            facts.group,
            f"members ask for different things: {asks}; {loses}",
            "give each subscription its own group, let all members subscribe alike, or run: pocketmq group "
            f"mode {facts.group} isolate",
            finding.topic,
            finding.since_ms,
            {"camps": len(finding.camps), "losing": len(losing)},
        )


def _members(facts: GroupFacts, limits: Thresholds) -> Iterator[Symptom]:
    group, members = facts.group, facts.members
    if facts.disabled_on:
        yield Symptom(
            "GROUP_DISABLED",
            Severity.WARNING,
            group,
            f"consuming is switched off on {', '.join(facts.disabled_on)}",
            f"to consume again: pocketmq group create {group} --consume",
        )
    if members is None:
        return
    if not members:
        yield from _offline(facts, limits)
        return
    # Dead letters that are sent again wait there, too.
    retries = TopicFacts(retry_topic(group), facts.retry_lag)
    yield from _lag(facts, retries, limits, "GROUP_DISABLED" if facts.disabled_on else "")
    for member in members:
        if member.stuck_ms >= limits.stuck_ms:
            # Where other queues move on, the member lives: it is slow, or one message holds up a queue.
            is_dead = member.idle_ms >= limits.stuck_ms
            yield Symptom(
                "MEMBER_STUCK",
                Severity.ERROR if is_dead else Severity.WARNING,
                group,
                f"{member.client_id} has finished {'no message' if is_dead else 'nothing of one queue'} for "
                f"{in_words(member.stuck_ms / 1000)}; it holds {member.stuck_at}",
                "see where its threads and tasks stand, then restart it: the group's page of the console, "
                "Running info"
                if is_dead
                else "its other queues move on: the listener is slow, or one message holds up the queue. "
                "Where it stands: the group's page of the console, Running info",
                parameters={"client": member.client_id, "ms": member.stuck_ms},
            )
    if facts.unread:
        yield Symptom(
            "QUEUES_UNREAD",
            Severity.WARNING,
            group,
            f"{_count(facts.unread, 'queue')} with messages but no member",
            "a member may not be responding, or may subscribe to another topic: pocketmq group show "
            + group,
            parameters={"queues": facts.unread},
        )


def _offline(facts: GroupFacts, limits: Thresholds) -> Iterator[Symptom]:
    lag = facts.retry_lag + sum(each.lag for each in facts.topics)
    idle_ms = facts.waiting_ms if facts.offline_ms is None and lag else facts.offline_ms
    is_unused = not lag if idle_ms is None else idle_ms > _DAY_MS
    if facts.in_batches or (is_unused and not lag):
        return
    is_late = facts.waiting_ms is None or facts.waiting_ms >= limits.offline_ms
    is_sick = lag >= limits.lag_max or (lag > 0 and is_late and not is_unused)
    since = "" if facts.offline_ms is None else f" for {in_words(facts.offline_ms / 1000)}"
    waits = facts.waiting_ms
    late = f", the next one for {in_words(waits / 1000)}" if lag and waits is not None else ""
    yield Symptom(
        "NOBODY_ONLINE",
        Severity.WARNING if is_sick else Severity.INFO,
        facts.group,
        f"no member has been online{since}, {_count(lag, 'message')} waiting{late}",
        "start a consumer of the group; if it is not needed any more: pocketmq group delete "
        f"{facts.group} --with-offsets",
        parameters={"lag": lag, "offlineMs": facts.offline_ms, "waitingMs": facts.waiting_ms},
    )


def _topic(facts: GroupFacts, topic: TopicFacts, limits: Thresholds) -> Iterator[Symptom]:
    group, name = facts.group, topic.topic
    if topic.closed_on:
        yield Symptom(
            "TOPIC_NOT_READABLE",
            Severity.WARNING,
            group,
            f"the topic cannot be read on {', '.join(topic.closed_on)}",
            f"to read again: pocketmq topic create {name} --perm rw",
            name,
        )
    if topic.read_only_on:
        yield Symptom(
            "TOPIC_READ_ONLY",
            Severity.INFO,
            group,
            f"the topic accepts no messages on {', '.join(topic.read_only_on)}",
            f"to accept messages again: pocketmq topic create {name} --perm rw",
            name,
        )
    if facts.members:
        forbids = "TOPIC_NOT_READABLE" if topic.closed_on else ""
        yield from _lag(facts, topic, limits, "GROUP_DISABLED" if facts.disabled_on else forbids)
        if facts.divides:
            yield from _shares(facts, facts.members, topic)


def _lag(
    facts: GroupFacts, topic: TopicFacts, limits: Thresholds, forbids: str = ""
) -> Iterator[Symptom]:
    """Report lag; a tenth of the limit is too much where the group will not be through with it soon.

    forbids: the symptom by which the members may not read, since faster ones would not help then.
    """
    came, went, lag = topic.in_rate, topic.out_rate, topic.lag
    known = came is not None and went is not None
    empty_s = empty_in_s(lag, came or 0.0, went or 0.0) if known else None
    grows = known and empty_s is None
    takes_long = known and (empty_s is None or empty_s > _LONG_S)
    if lag < limits.lag_max and not (takes_long and lag * 10 >= limits.lag_max):
        return
    slope = ""
    if known:
        until = "never empty" if empty_s is None else f"empty in {in_words(empty_s)}"
        slope = f", {came:.1f} in/s, {went:.1f} out/s: {until} at this rate"
    advice = "the backlog is shrinking; check again later"
    if takes_long:
        advice = "add members (up to one for each queue), or make the listener faster"
        if forbids:
            advice = f"no member may read these messages now: see {forbids}"
        elif any(each.idle_ms >= limits.stuck_ms <= each.stuck_ms for each in facts.members or ()):
            advice = "a member hangs: see MEMBER_STUCK first"
    # By its own speed alone: what comes in now may be a burst.
    is_slow = lag > (went or 0.0) * _LONG_S and not (went == 0.0 and _has_just_begun(facts))
    yield Symptom(
        "LAG",
        Severity.ERROR if grows and (lag >= limits.lag_max or is_slow) else Severity.WARNING,
        facts.group,
        f"{_count(lag, 'message')} behind{slope}",
        advice,
        topic.topic,
        parameters={
            "lag": lag,
            "in": came,
            "out": went,
            "emptyInSeconds": None if empty_s is None else round(empty_s),
        },
    )


def _has_just_begun(facts: GroupFacts) -> bool:
    """Return True if a member has begun, or finished something, so lately that no commit need tell of it."""
    reported = [each for each in facts.members or () if each.queues]
    return any(0 < each.idle_ms < _BEGUN_MS for each in reported)


def _shares(
    facts: GroupFacts, members: Sequence[MemberFacts], topic: TopicFacts
) -> Iterator[Symptom]:
    if len(members) > topic.queues > 0:
        idle = len(members) - topic.queues
        yield Symptom(
            "IDLE_MEMBERS",
            Severity.INFO,
            facts.group,
            f"{len(members)} members share {_count(topic.queues, 'queue')}; "
            f"{idle} of them {'has' if idle == 1 else 'have'} none",
            f"pocketmq topic create {topic.topic} --queues {len(members)}, or stop {idle}",
            topic.topic,
            parameters={"members": len(members), "queues": topic.queues},
        )
    if any(each.queues is None for each in members) or len(members) < 2 or topic.queues < 2:
        return
    having = [each for each in members if (each.queues or {}).get(topic.topic)]
    if len(having) == 1 and (having[0].queues or {})[topic.topic] == topic.queues:
        yield Symptom(
            "ONE_MEMBER_HAS_ALL",
            Severity.WARNING,
            facts.group,
            f"{having[0].client_id} holds all {topic.queues} queues, although there are "
            f"{len(members)} members",
            "do the others subscribe to the topic, each with its own client id? pocketmq group show "
            + facts.group,
            topic.topic,
            parameters={"client": having[0].client_id},
        )


def _failures(facts: GroupFacts, limits: Thresholds) -> Iterator[Symptom]:
    # What commands show without a diagnosis starts without it.
    from pocketmq.model.balance import State

    group, retries = facts.group, facts.retries_per_minute
    is_now = retries is not None and retries > limits.retries_max
    if is_now or facts.retries_in_hour > limits.retries_max * _HOUR_TIMES:
        count, when = (retries or 0, "minute") if is_now else (facts.retries_in_hour, "hour")
        yield Symptom(
            "FAILING",
            Severity.WARNING,
            group,
            f"{_count(round(count), 'failure')} in the last {when}",
            "look for the listener's exceptions in the members' logs",
            # A minute is looked at more often than an hour.
            parameters={
                "perMinute": round(retries or 0),
                "perHour": max(facts.retries_in_hour, round(retries or 0)),
            },
        )
    if facts.dead_letters > limits.dead_letters_max:
        yield Symptom(
            "DEAD_LETTERS",
            State.DEAD.severity,
            group,
            f"{_count(facts.dead_letters, 'dead letter')}: given up after too many failures",
            f"pocketmq dlq list {group}; once the cause is fixed: pocketmq dlq resend {group} --all",
            parameters={"count": facts.dead_letters},
        )

    for topic, count in facts.lost.items():
        if count:
            yield Symptom(
                "MESSAGES_LOST",
                State.LOST.severity,
                group,
                lost_in_words(group, count),
                f"to give them back: pocketmq group redeliver {group} --lost",
                topic,
                parameters={"count": count},
            )


def lost_in_words(group: str, count: int) -> str:
    """Say how many messages a group has lost, and where they are listed."""
    return f"{_count(count, 'message')} lost so far: pocketmq group balance {group} --list lost"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


assert {each.name for each in fields(Thresholds)} == Thresholds.KEYS.keys()
