"""IsolatedGroup: the sub-groups of one isolated group in order, and which of them owns each message. Ours.

A pure state machine; the rules that it follows are the numbered ones of isolate.py. Why they are what they
are: docs/decisions/0005-isolate-exactly-one.md.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from pocketmq.broker.client_channel import ClientChannel
from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.groups.sub_group import (
    FAR,
    LIFE,
    Change,
    Debt,
    Do,
    Heard,
    Life,
    QueueKey,
    QueueState,
    Rewind,
    SubGroup,
)
from pocketmq.broker.refused import OffsetMoved
from pocketmq.remoting.agreement import signature
from pocketmq.remoting.java_hash import string_hash
from pocketmq.remoting.names import retry_topic
from pocketmq.remoting.peer import Peer
from pocketmq.remoting.record import properties_of, queue_offset_of
from pocketmq.remoting.subscription import SubscriptionData
from pocketmq.store import EntryFilter

log = logging.getLogger(__name__)

# Sub-groups of one group that left and are remembered.
DEPARTED_MAX = 256


class SubGroupFilter:
    """The store's EntryFilter of one sub-group's pull."""

    __slots__ = ("codes", "properties", "record")

    def __init__(
        self,
        codes: frozenset[int] | None,
        record: Callable[[memoryview], bool] | None,
        properties: Callable[[bytes], bool] | None,
    ) -> None:
        self.codes = codes
        self.record = record
        # What a held pull asks of a new message.
        self.properties = properties


# The first offset in [begin, end) of a queue that the filter lets through; `end` or more without one.
FirstMatch = Callable[[str, int, int, int, EntryFilter], int]


class IsolatedGroup:
    """The sub-groups of one group, in order. A pure state machine."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sequence = 0
        self.sub_groups: list[SubGroup] = []
        # Where the first sub-group began in each queue: a later one begins there, too.
        self.begun: dict[QueueKey, int] = {}
        self._by_id: dict[str, SubGroup] = {}
        self._of: dict[Peer, SubGroup] = {}

    # ------------------------------------------------------------ members

    def of(self, connection: Peer) -> SubGroup | None:
        """The sub-group of a member."""
        return self._of.get(connection)

    def of_client(self, client_id: str) -> SubGroup | None:
        """The sub-group of the member with this client id."""
        for connection, sub_group in self._of.items():
            if sub_group.connections.get(connection) == client_id:
                return sub_group
        return None

    def live(self) -> list[SubGroup]:
        """The sub-groups that have members, or whose members are expected back."""
        return [each for each in self.sub_groups if not each.departed]

    def find(self, subscriptions: Mapping[str, SubscriptionData]) -> SubGroup | None:
        """The live sub-group with this subscription."""
        wanted = signature(subscriptions)
        for each in self.sub_groups:
            if not each.departed and each.id.startswith(wanted):
                return each
        return None

    def place_members(
        self,
        channels: Mapping[Peer, ClientChannel],
        now_ms: int,
        offsets: ConsumerOffsetManager,
        first_match: FirstMatch,
    ) -> bool:
        """Put each member into its sub-group; True when a sub-group was made."""
        made = False
        before, of = self._of, dict[Peer, SubGroup]()
        for each in self.sub_groups:
            each.connections.clear()
        for connection, channel in channels.items():
            sub_group = self.find(channel.subscriptions)
            if sub_group is None:
                sub_group = self._make(channel.subscriptions, now_ms, offsets, first_match)
                made = True
            sub_group.connections[connection] = channel.client_id
            of[connection] = sub_group
            if before.get(connection, sub_group) is not sub_group:
                _send_back(sub_group)
        self._of = of
        for each in self.sub_groups:
            before_it = each.life
            life = LIFE[before_it, Change.MEMBER_IN if each.connections else Change.LAST_OUT]
            if life is Life.ACTIVE:
                each.left_ms = 0
            elif life is not before_it:
                each.left_ms = now_ms
                log.info("sub-group has no member any more group=%s %s", self.name, each)
        return made

    def _make(
        self,
        subscriptions: Mapping[str, SubscriptionData],
        now_ms: int,
        offsets: ConsumerOffsetManager,
        first_match: FirstMatch,
    ) -> SubGroup:
        """A new sub-group at the end of the order: it inherits the group's offsets, and debts (4)."""
        self.sequence += 1
        made = SubGroup(self.sequence, subscriptions, now_ms)
        self.add(made)
        for topic in [*made.subscriptions, retry_topic(self.name)]:
            for queue_id, offset in offsets.of_topic(self.name, topic).items():
                made.queues[topic, queue_id] = QueueState.at(offset)
                self.begun.setdefault((topic, queue_id), offset)
        _send_back(made)
        for departed in self.sub_groups:
            if departed.departed:
                self._owe(departed, made, first_match, rewind=False)
        log.info("sub-group begins group=%s %s", self.name, made)
        return made

    def add(self, sub_group: SubGroup) -> None:
        """Put one at the end of the order."""
        self.sub_groups.append(sub_group)
        self._by_id[sub_group.id] = sub_group

    # ------------------------------------------------------------ who owns a message

    def gets(self, asker: SubGroup, topic: str, queue_id: int, offset: int, text: bytes) -> bool:
        """Whether `asker` owns the message with these properties at this offset (1, 3, 4)."""
        if not asker.matches(topic, text):
            return False
        for earlier in self.sub_groups:
            if earlier is asker:
                break
            if (
                earlier.subscribes(topic)
                and (not earlier.departed or self._took(earlier, topic, queue_id, offset, text))
                and earlier.matches(topic, text)
            ):
                return False
        state = asker.queues.get((topic, queue_id))
        if state is None or offset >= state.own_from:
            return True
        return self._is_owed(state, topic, offset, text)

    def _is_owed(self, state: QueueState, topic: str, offset: int, text: bytes) -> bool:
        for debt in state.debts:
            if debt.begin <= offset < debt.end:
                departed = self._by_id.get(debt.of)
                if departed is not None and departed.matches(topic, text):
                    return True
        return False

    def _took(
        self, departed: SubGroup, topic: str, queue_id: int, offset: int, text: bytes
    ) -> bool:
        """True if a departed sub-group owned this message and had consumed it."""
        state = departed.queues.get((topic, queue_id))
        if state is None:
            return False
        if offset >= state.offset and (
            offset >= state.own_from or self._is_owed(state, topic, offset, text)
        ):
            return False
        # It has passed the message, which an earlier sub-group owned at that time.
        return not any(
            each.sequence < departed.sequence
            and each.departure > departed.departure
            and each.subscribes(topic)
            and each.matches(topic, text)
            for each in self.sub_groups
        )

    def filter(
        self, asker: SubGroup, topic: str, queue_id: int, offset: int
    ) -> SubGroupFilter | None:
        """The filter of a pull by `asker` from `offset` on; None lets everything through."""
        asked = asker.subscriptions.get(topic)
        if (
            asked is not None
            and asked.is_tag
            and not self._has_history(asker, topic, queue_id, offset)
        ):
            earlier = self._earlier(asker, topic)
            if asked.is_all and not earlier:
                return None
            codes = _codes_left(asked, [each.subscriptions[topic] for each in earlier])
            if codes is not None:
                return SubGroupFilter(codes, None, None)

        def passes(record: memoryview) -> bool:
            at = queue_offset_of(record)
            return self.gets(asker, topic, queue_id, at, properties_of(record))

        def passes_new(properties: bytes) -> bool:
            return self.gets(asker, topic, queue_id, FAR, properties)

        return SubGroupFilter(asker.codes(topic), passes, passes_new)

    def _earlier(self, asker: SubGroup, topic: str) -> list[SubGroup]:
        """The live sub-groups before `asker` that pull the topic."""
        return [
            each
            for each in self.sub_groups
            if each.sequence < asker.sequence and not each.departed and each.subscribes(topic)
        ]

    def _has_history(self, asker: SubGroup, topic: str, queue_id: int, offset: int) -> bool:
        """Whether debts or a departed sub-group decide about messages from `offset` on."""
        key = (topic, queue_id)
        state = asker.queues.get(key)
        if state is not None and offset < state.own_from:
            return True
        return any(
            each.departed
            and each.sequence < asker.sequence
            and key in each.queues
            and offset < each.queues[key].end
            for each in self.sub_groups
        )

    # ------------------------------------------------------------ offsets

    def start(self, asker: SubGroup, key: QueueKey, offsets: ConsumerOffsetManager) -> int:
        """Where `asker` goes on in a queue; -1 when neither it nor the group has an offset."""
        state = asker.queues.get(key)
        if state is None:
            # Others may have begun since it joined: its messages before that offset must not be skipped.
            begun = self.begun.get(key)
            inherited = offsets.query(self.name, *key) if begun is None else begun
            if inherited < 0:
                return -1
            state = self._begin(asker, key, inherited)
        return state.offset

    def _begin(self, asker: SubGroup, key: QueueKey, offset: int) -> QueueState:
        """`asker` first reads a queue. Sub-groups that left before anyone read it begin and end there."""
        state = asker.queues[key] = QueueState.at(offset)
        self.begun.setdefault(key, offset)
        for each in self.sub_groups:
            if each.departed and key not in each.queues and each.subscribes(key[0]):
                each.queues[key] = QueueState.at(offset)
        return state

    def _intrude(self, asker: SubGroup, key: QueueKey, offset: int) -> QueueState:
        """A client that did not ask where to begin: it may still read where its old sub-group was."""
        state = self._begin(asker, key, self.begun.get(key, offset))
        state.rewind = Rewind.FOREIGN
        return state

    def check_pull(self, asker: SubGroup, key: QueueKey, offset: int) -> None:
        """A pull arrives. Raises: OffsetMoved until its client has gone back."""
        state = asker.queues.get(key)
        if state is None:
            state = self._intrude(asker, key, offset)
        before = state.rewind
        if (
            state.hear(Heard.PULL_AHEAD if offset > state.offset else Heard.PULL_HERE)
            is not Do.ANSWER
        ):
            raise OffsetMoved(state.offset)
        if before:
            for debt in state.debts:
                debt.is_ahead = False
        state.passed = offset

    def pulled(self, asker: SubGroup, key: QueueKey, following: int) -> None:
        """The pull was answered: its client goes on at `following`."""
        state = asker.queues.get(key)
        if state is not None:
            state.passed = following

    def commit(self, asker: SubGroup, key: QueueKey, offset: int) -> bool:
        """A member commits; False if it has not gone back yet, so that this does not count."""
        state = asker.queues.get(key)
        if state is None:
            state = self._intrude(asker, key, offset)
        do = state.hear(
            Heard.COMMIT_AHEAD
            if offset > state.offset
            else Heard.COMMIT_BEHIND
            if offset < state.offset
            else Heard.COMMIT_HERE
        )
        if do is Do.NOTE:
            state.own_from = max(state.own_from, offset)
            for debt in state.debts:
                if not debt.is_ahead:
                    debt.begin = max(debt.begin, offset)
            state.debts = [debt for debt in state.debts if debt.begin < debt.end]
        if do is Do.NOTE or do is Do.IGNORE:
            return False
        if do is Do.TAKE_AGAIN:
            state.own_from = offset
        state.offset = offset
        if offset >= state.own_from:
            state.debts.clear()
        elif state.debts:
            state.debts = [debt for debt in state.debts if debt.end > offset]
        return True

    def reset(self, topic: str, queue_id: int, offset: int) -> None:
        """Every sub-group goes on at `offset` (7)."""
        key = (topic, queue_id)
        for each in self.sub_groups:
            state = each.queues.get(key)
            if each.departed:
                if state is not None:
                    state.own_from = min(state.own_from, offset)
                    state.offset = min(state.offset, offset)
            elif each.subscribes(topic):
                each.queues[key] = QueueState.at(offset)
                each.queues[key].rewind = Rewind.FOREIGN

    def forget_topic(self, topic: str) -> None:
        """Nobody has read its queues yet."""
        for each in self.sub_groups:
            each.queues = {key: state for key, state in each.queues.items() if key[0] != topic}
        self.begun = {key: offset for key, offset in self.begun.items() if key[0] != topic}

    def lowest(self, key: QueueKey) -> int | None:
        """The offset of the group: the lowest of its live sub-groups; None if none has one (5)."""
        found = [
            each.queues[key].offset
            for each in self.sub_groups
            if not each.departed and key in each.queues and each.subscribes(key[0])
        ]
        return min(found, default=None)

    # ------------------------------------------------------------ leaving

    def depart(self, leaving: SubGroup, now_ms: int, first_match: FirstMatch) -> set[QueueKey]:
        """A sub-group has left for good (3). Returns: the queues in which others were sent back."""
        # Queues that it never read, where others, live or departed, have passed messages that it owned.
        begun = {key: 0 for heir in self.live() for key in heir.queues} | self.begun
        for key, offset in begun.items():
            if key not in leaving.queues and leaving.subscribes(key[0]):
                leaving.queues[key] = QueueState.at(offset)
        self.sequence += 1
        leaving.departure = self.sequence
        leaving.left_ms = now_ms
        moved: set[QueueKey] = set()
        for heir in self.live():
            moved |= self._owe(leaving, heir, first_match, rewind=True)
        log.info(
            "sub-group has left for good; what it had not consumed goes to whoever asks for it "
            "group=%s %s queues_sent_back=%d",
            self.name,
            leaving,
            len(moved),
        )
        return moved

    def _owe(
        self, departed: SubGroup, heir: SubGroup, first_match: FirstMatch, *, rewind: bool
    ) -> set[QueueKey]:
        """Give `heir` the messages owed to a departed sub-group; returns the queues that have some."""
        moved: set[QueueKey] = set()
        if heir.sequence < departed.sequence:
            # The heir always owned what both ask for.
            return moved
        for key, left_at in departed.queues.items():
            if not heir.subscribes(key[0]):
                continue
            state = heir.queues.get(key)
            if state is None:
                # It has not read this queue yet: it begins where the first sub-group did.
                heir.queues[key] = QueueState.at(self.begun.get(key, left_at.offset))
                heir.queues[key].rewind = Rewind.FOREIGN
                continue
            seen = max(state.end, state.passed)
            owing = self._with_debt(state, Debt(departed.id, left_at.offset, seen))
            heir.queues[key] = owing
            begin = self._first_owed(departed, heir, key, left_at.offset, seen, first_match)
            if begin >= seen:
                heir.queues[key] = state
                continue
            owing.offset = min(state.offset, begin)
            owing.debts[-1].begin = begin
            owing.debts[-1].is_ahead = begin < state.passed
            if rewind and begin < state.passed:
                owing.hear(Heard.OWED)
            moved.add(key)
        return moved

    def _with_debt(self, state: QueueState, debt: Debt) -> QueueState:
        """`state` with one more debt; the rest of the older ones begins at its offset."""
        older = [
            Debt(each.of, max(each.begin, state.offset), each.end, each.is_ahead)
            for each in state.debts
        ]
        return QueueState(
            min(state.offset, debt.begin),
            state.end,
            [*older, debt],
            state.rewind,
            state.passed,
        )

    def _first_owed(
        self,
        departed: SubGroup,
        heir: SubGroup,
        key: QueueKey,
        begin: int,
        end: int,
        first_match: FirstMatch,
    ) -> int:
        """The first offset of [begin, end) that is owed; without tags codes to look for: `begin`."""
        topic, queue_id = key
        wanted, asked = heir.codes(topic), departed.codes(topic)
        codes = wanted if asked is None else asked if wanted is None else wanted & asked
        if codes is None:
            return begin
        if not codes:
            return end

        def passes(record: memoryview) -> bool:
            at = queue_offset_of(record)
            text = properties_of(record)
            return departed.matches(topic, text) and self.gets(heir, topic, queue_id, at, text)

        return first_match(topic, queue_id, begin, end, SubGroupFilter(codes, passes, None))

    def forget_departed(self, now_ms: int, remember_ms: int) -> bool:
        """Forget departed sub-groups that no longer matter; True if there was one (4)."""
        departed = [each for each in self.sub_groups if each.departed]
        live = self.live()
        # A departed sub-group may itself have been owed messages, which decides what it consumed.
        owing = {
            debt.of
            for each in self.sub_groups
            for state in each.queues.values()
            for debt in state.debts
        }
        too_many = len(departed) - DEPARTED_MAX
        gone = {
            each.id
            for number, each in enumerate(departed)
            if number < too_many
            or now_ms - each.left_ms >= remember_ms
            or (
                each.id not in owing
                and not any(_leans_on(other, each) for other in departed)
                and _is_settled(each, live)
            )
        }
        if not gone:
            return False
        for name in sorted(gone):
            log.info("sub-group forgotten group=%s %s", self.name, self._by_id.pop(name))
        for each in departed:
            # What it was not given is no longer known: better some messages twice than one never.
            for lost in departed:
                if lost.id in gone and _leans_on(each, lost):
                    _give_up_from(each, lost)
        self.sub_groups = [each for each in self.sub_groups if each.id not in gone]
        for each in self.sub_groups:
            for state in each.queues.values():
                if any(debt.of in gone for debt in state.debts):
                    # What it was owed is no longer known: better some messages twice than one never.
                    state.own_from = state.offset
                    state.debts.clear()
        return True

    # ------------------------------------------------------------ the file

    def to_json(self) -> dict[str, Any]:
        begun: dict[str, dict[int, int]] = {}
        for (topic, queue_id), offset in self.begun.items():
            begun.setdefault(topic, {})[queue_id] = offset
        return {
            "begun": begun,
            "sequence": self.sequence,
            "subGroups": [each.to_json() for each in self.sub_groups],
        }

    @classmethod
    def from_json(cls, name: str, data: Mapping[str, Any], now_ms: int) -> "IsolatedGroup":
        """Raises: KeyError, TypeError, ValueError if it is no row of this file."""
        made = cls(name)
        for topic, queues in data["begun"].items():
            for queue_id, offset in queues.items():
                made.begun[str(topic), int(queue_id)] = int(offset)
        for each in data["subGroups"]:
            made.add(SubGroup.from_json(each, now_ms))
        made.sequence = max([int(data["sequence"]), *(each.sequence for each in made.sub_groups)])
        return made


def _send_back(sub_group: SubGroup) -> None:
    """A member joins that may be in the middle of queues: it must begin where its sub-group is."""
    for state in sub_group.queues.values():
        state.hear(Heard.MEMBER_CAME)
        if not state.debts:
            state.own_from = state.end


def _leans_on(departed: SubGroup, earlier: SubGroup) -> bool:
    """True if `earlier` preceded `departed` and left after it: its offsets decide what that one consumed."""
    return (
        departed.departed
        and earlier.sequence < departed.sequence
        and earlier.departure > departed.departure
    )


def _give_up_from(departed: SubGroup, earlier: SubGroup) -> None:
    """Limit what one sub-group has consumed to what the other had consumed."""
    for key, state in departed.queues.items():
        left_at = earlier.queues.get(key)
        if left_at is not None and left_at.offset < state.end:
            state.own_from = state.offset = min(state.offset, left_at.offset)
            state.debts.clear()


def _is_settled(departed: SubGroup, live: list[SubGroup]) -> bool:
    """Whether others ask for all of its messages, and have passed what it had consumed."""
    if not any(each.covers(departed) for each in live):
        return False
    for each in live:
        for key, state in each.queues.items():
            left_at = departed.queues.get(key)
            if left_at is not None and state.offset < left_at.end:
                return False
    return True


def _codes_left(asked: SubscriptionData, earlier: list[SubscriptionData]) -> frozenset[int] | None:
    """The codes of the tags that no earlier sub-group asks for; None if codes alone cannot tell."""
    if any(each.is_tag and each.is_all for each in earlier):
        return frozenset()
    if asked.is_all or not all(each.is_tag for each in earlier):
        return None
    taken = set().union(*(each.tags_set for each in earlier))
    left = {string_hash(tag) for tag in asked.tags_set - taken}
    # Two tags can share a code: then only the tag itself tells.
    return None if left & {string_hash(tag) for tag in asked.tags_set & taken} else frozenset(left)
