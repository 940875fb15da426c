"""Story: what happens in a run, made from its seed before it begins, so that events can be left out.

    at      what                  of whom         how long, how many ...
     1.250  send plain            producer-1      5
     7.004  cut power             broker-a        3000

A story without an event is the same story but for that: times, delays and chance of the parts do not move.
"""

import random
from dataclasses import dataclass, replace
from typing import NamedTuple

LENGTH_MS = 30_000
DELAYS_S = (1, 5, 10, 30)
"""Of the delay levels that are used: an event's number says which."""
GROUPS: dict[str, tuple[str, ...]] = {
    "reader": ("plain", "batch", "crowd", "batches", "delay", "timer", "transaction"),
    "ordered": ("ordered",),
    "isolated": ("mixed",),
    "popper": ("popped",),
    "sorted": ("sorted",),
    "receiver": ("received",),
}
"""What is sent to the topic of each group; a group's members are called after it. A story has two of the
first four of them, and perhaps one of the others."""
MORE_GROUPS = ("sorted", "receiver")
TOPIC_OF = {
    "reader": "plain",
    "ordered": "ordered",
    "isolated": "mixed",
    "popper": "popped",
    "sorted": "sorted",
    "receiver": "received",
}


class Wave(NamedTuple):
    """Messages that are sent at once: how many, and how many in each send."""

    size: int
    each: int


WAVES = {"crowd": Wave(40, 1), "batches": Wave(24, 3)}
"""Of a kind whose messages are sent in waves, three in an event: the broker learns from the first."""
TAGS = {"isolated-1": "a", "isolated-2": "b", "isolated-3": "a"}
"""What a member subscribes; the others take all."""
FILES = ("commitlog/", "consumequeue/", "index/", "config/", "checkpoint", "deliveries/")
"""What is in the paths of files whose calls fail."""
CROSSING = "consumequeue/.*/0*[1-9][0-9]*$"
"""Of the files of a queue all but its first: what is made when the queue crosses into its next file."""
QUEUE_ENTRIES = (200, 20)
"""How many entries a queue's file has: the fewer, the more often a queue crosses into its next one."""
BROKERS = ("broker-a", "broker-b")
CONSUMERS = (
    *("reader-1", "reader-2", "reader-3"),
    *("ordered-1", "ordered-2"),
    *("isolated-1", "isolated-2", "isolated-3"),
    *("popper-1", "popper-2"),
    *("sorted-1", "receiver-1"),
)


def group_of(member: str) -> str:
    """
    >>> group_of("reader-1")
    'reader'
    """
    return member.partition("-")[0]


def topic_of(kind: str, number: int) -> str:
    """Where event `number` sends messages of a kind."""
    if kind == "fresh":
        return f"fresh-{number}"
    return next(TOPIC_OF[group] for group, kinds in GROUPS.items() if kind in kinds)


def tag_of(key: str) -> str:
    """The tag of the message with this key, which ends with its place in its event.

    >>> tag_of("mixed-7-0"), tag_of("mixed-7-1")
    ('a', 'b')
    """
    return "ab"[int(key.rpartition("-")[2]) % 2]


@dataclass(frozen=True, order=True)
class Event:
    """number: its place in the whole story. amount: ms or a count, as the kind has it."""

    at_ms: int
    number: int
    kind: str
    who: str
    amount: int = 0
    other: str = ""

    def __str__(self) -> str:
        who = f"{self.who} and {self.other}" if self.other else self.who
        return (
            f"#{self.number:<3} {self.at_ms / 1000:8.3f} s  {self.kind:<18} {who:<24} {self.amount}"
        )


@dataclass(frozen=True)
class Story:
    """sync_flush: of all brokers. brokers, consumers: those that exist from the start. from_last: new
    groups begin at the end of the queues. length_ms: how long the cluster is troubled. queue_entries: of
    one file of a queue. clocks_off_ms: by how much the clocks of the consumers are wrong, to the end.
    invisible_ms: of what is popped in order."""

    seed: int
    sync_flush: bool
    brokers: tuple[str, ...]
    consumers: tuple[str, ...]
    events: tuple[Event, ...]
    from_last: bool = False
    length_ms: int = LENGTH_MS
    queue_entries: int = QUEUE_ENTRIES[0]
    clocks_off_ms: int = 0
    invisible_ms: int = 4_000

    @property
    def groups(self) -> list[str]:
        """Those that have members, in the order of GROUPS."""
        return [group for group in GROUPS if any(group_of(c) == group for c in self.consumers)]

    def only(self, numbers: set[int]) -> "Story":
        """The same story with these events alone."""
        return replace(self, events=tuple(e for e in self.events if e.number in numbers))

    def __str__(self) -> str:
        flush = "SYNC_FLUSH" if self.sync_flush else "ASYNC_FLUSH"
        who = ", ".join(self.brokers + self.consumers)
        head = f"seed {self.seed}: {flush}, {who}, {self.queue_entries} entries a file"
        if self.clocks_off_ms:
            head += f", clocks of consumers off by {self.clocks_off_ms / 1000:+.0f} s"
        return "\n".join([head, *(f"  {event}" for event in self.events)])


def story_of(seed: int) -> Story:
    """The story of a seed."""
    chance = random.Random(f"{seed} story")
    brokers = BROKERS[: chance.choice((1, 1, 2))]
    groups = chance.sample([group for group in GROUPS if group not in MORE_GROUPS], 2)
    consumers = tuple(
        name
        for name in CONSUMERS
        if group_of(name) in groups and (name.endswith("-1") or chance.random() < 0.5)
    )
    kinds = [kind for group in groups for kind in GROUPS[group]]
    made: list[tuple[int, str, str, int, str]] = []
    for _ in range(chance.randint(12, 30)):
        at, kind, count = chance.randrange(LENGTH_MS), chance.choice(kinds), _count(chance)
        if kind in WAVES:
            count = 3 * WAVES[kind].size
        made.append((at, f"send {kind}", "producer-1", count, ""))
        if kind in WAVES and chance.random() < 0.3:
            # While these are on their way to the disk.
            cut = "cut power", chance.choice(brokers), chance.randint(500, 8_000), ""
            made.append((at + chance.randint(1, 40), *cut))
    made += [_fault(chance, brokers, consumers) for _ in range(chance.randint(1, 7))]
    # A source of chance of its own: what was there before it is told as before.
    crossing = random.Random(f"{seed} crossing")
    queue_entries = crossing.choice(QUEUE_ENTRIES)
    if queue_entries == min(QUEUE_ENTRIES):
        made += _crossings(crossing, brokers, kinds)
    more = random.Random(f"{seed} pops")
    clocks_off_ms = more.choice((0, 0, -3_600_000, 3_600_000))
    if more.random() < 0.5:
        group = more.choice(MORE_GROUPS)
        consumers += (f"{group}-1",)
        made += _pops(more, brokers, f"{group}-1")
    made.sort()
    events = tuple(
        Event(at, number, kind, who, amount, other)
        for number, (at, kind, who, amount, other) in enumerate(made)
    )
    sync_flush = chance.random() < 0.5
    return Story(
        seed,
        sync_flush,
        brokers,
        consumers,
        events,
        queue_entries=queue_entries,
        clocks_off_ms=clocks_off_ms,
    )


def _pops(
    chance: random.Random, brokers: tuple[str, ...], member: str
) -> list[tuple[int, str, str, int, str]]:
    """Messages for a member that pops, and what happens to it."""
    (kind,) = GROUPS[group_of(member)]
    made = [
        (chance.randrange(LENGTH_MS), f"send {kind}", "producer-1", _count(chance), "")
        for _ in range(chance.randint(3, 10))
    ]
    return [*made, *(_fault(chance, brokers, (member,)) for _ in range(chance.randint(0, 2)))]


def _crossings(
    chance: random.Random, brokers: tuple[str, ...], kinds: list[str]
) -> list[tuple[int, str, str, int, str]]:
    """Messages enough for each queue to cross into its next file, where the disk fails."""
    made: list[tuple[int, str, str, int, str]] = []
    for _ in range(chance.randint(1, 3)):
        at, kind = chance.randrange(1_000, LENGTH_MS - 5_000), chance.choice(kinds)
        count = 3 * WAVES[kind].size if kind in WAVES else 70
        made.append((at, f"send {kind}", "producer-1", count, ""))
        broker, calls = chance.choice(brokers), chance.choice((1, 1, 2, 3, 5, 8))
        made.append((at + chance.randrange(300), "file fails", broker, calls, CROSSING))
    return made


def _count(chance: random.Random) -> int:
    return chance.choice((1, 1, 2, 3, 8))


def _fault(
    chance: random.Random, brokers: tuple[str, ...], consumers: tuple[str, ...]
) -> tuple[int, str, str, int, str]:
    at = chance.randrange(1_000, LENGTH_MS)
    broker = chance.choice(brokers)
    consumer = chance.choice(consumers)
    hosts = ("name-server", "producer-1", *consumers)
    kind, who, amount, other = chance.choice(
        (
            ("kill", broker, chance.randint(100, 8_000), ""),
            ("cut power", broker, chance.randint(500, 8_000), ""),
            ("crash at call", broker, chance.randint(1, 60), ""),
            ("stop", broker, chance.randint(100, 5_000), ""),
            ("kill client", consumer, chance.randint(100, 8_000), ""),
            ("unplug client", consumer, chance.randint(1_000, 20_000), ""),
            ("stop client", consumer, chance.randint(100, 8_000), ""),
            ("partition", broker, chance.randint(500, 20_000), chance.choice(hosts)),
            ("reset", broker, 0, chance.choice(hosts)),
            ("slow network", broker, chance.randint(1_000, 10_000), ""),
            ("slow disk", broker, chance.randint(1_000, 10_000), ""),
            ("disk full", broker, chance.randint(1_000, 15_000), ""),
            ("sync fails", broker, 1, chance.choice(FILES)),
            ("file fails", broker, chance.randint(1, 6), chance.choice(FILES)),
            ("clock ahead", broker, chance.randint(500, 10_000), ""),
        )
    )
    return at, kind, who, amount, other
