"""IsolatedGroup: how members join the sub-groups of one isolated group, read, commit and leave. Ours.

A pure state machine; the numbers refer to the rules in isolate.py. The reasons are in
docs/decisions/0005-isolate-exactly-one.md. Who owns a message: sub_group_order.py.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from pocketmq.broker.groups.client_channel import ClientChannel
from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.modes.sub_group import (
    LIFE,
    QueueEvent,
    QueueKey,
    QueueState,
    Reaction,
    Rewind,
    SubGroup,
    SubGroupEvent,
    SubGroupState,
)
from pocketmq.broker.modes.sub_group_debts import forgettable, owe, write_off
from pocketmq.broker.modes.sub_group_order import FirstMatch, SubGroupOrder
from pocketmq.broker.refused import OffsetMoved
from pocketmq.model.names import retry_topic
from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting.transport.peer import Peer

log = logging.getLogger(__name__)


class IsolatedGroup:
    """The members of one group's sub-groups, and their offsets. A state machine; order: the sub-groups."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.order = SubGroupOrder()
        self.sequence = 0
        # Where the first sub-group began in each queue: a later one begins there, too.
        self.begun: dict[QueueKey, int] = {}
        self._of: dict[Peer, SubGroup] = {}

    # ------------------------------------------------------------ members

    def of(self, connection: Peer) -> SubGroup | None:
        """Return the sub-group of a member."""
        return self._of.get(connection)

    def of_client(self, client_id: str) -> SubGroup | None:
        """Return the sub-group of the member with this client id."""
        for connection, sub_group in self._of.items():
            if sub_group.connections.get(connection) == client_id:
                return sub_group
        return None

    def place_members(
        self,
        channels: Mapping[Peer, ClientChannel],
        now_ms: int,
        offsets: ConsumerOffsetManager,
        first_match: FirstMatch,
    ) -> bool:
        """Put each member into its sub-group; True if a sub-group was created."""
        made = False
        before, of = self._of, dict[Peer, SubGroup]()
        for each in self.order.sub_groups:
            each.connections.clear()
        for connection, channel in channels.items():
            sub_group = self.order.find(channel.subscriptions)
            if sub_group is None:
                sub_group = self._make(channel.subscriptions, now_ms, offsets, first_match)
                made = True
            sub_group.connections[connection] = channel.client_id
            of[connection] = sub_group
            if before.get(connection, sub_group) is not sub_group:
                _send_back(sub_group)
        self._of = of
        for each in self.order.sub_groups:
            before_it = each.life
            life = LIFE[
                before_it, SubGroupEvent.MEMBER_IN if each.connections else SubGroupEvent.LAST_OUT
            ]
            if life is SubGroupState.ACTIVE:
                each.left_ms = 0
            elif life is not before_it:
                each.left_ms = now_ms
                log.info("the last member of a sub-group has left group=%s %s", self.name, each)
        return made

    def _make(
        self,
        subscriptions: Mapping[str, SubscriptionData],
        now_ms: int,
        offsets: ConsumerOffsetManager,
        first_match: FirstMatch,
    ) -> SubGroup:
        """Append a new sub-group, which inherits the group's offsets, and debts (4)."""
        self.sequence += 1
        made = SubGroup(self.sequence, subscriptions, now_ms)
        self.order.add(made)
        for topic in [*made.subscriptions, retry_topic(self.name)]:
            for queue_id, offset in offsets.of_topic(self.name, topic).items():
                made.queues[topic, queue_id] = QueueState.at(offset)
                self.begun.setdefault((topic, queue_id), offset)
        _send_back(made)
        for departed in self.order.sub_groups:
            if departed.departed:
                owe(self.order, self.begun, departed, made, first_match, rewind=False)
        log.info("a sub-group begins group=%s %s", self.name, made)
        return made

    # ------------------------------------------------------------ offsets

    def start(self, asker: SubGroup, key: QueueKey, offsets: ConsumerOffsetManager) -> int:
        """Return `asker`'s start offset in a queue; -1 if neither it nor the group has one."""
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
        """Let `asker` read a queue for the first time; sub-groups that departed unread begin
        and end there.
        """
        state = asker.queues[key] = QueueState.at(offset)
        self.begun.setdefault(key, offset)
        for each in self.order.sub_groups:
            if each.departed and key not in each.queues and each.subscribes(key[0]):
                each.queues[key] = QueueState.at(offset)
        return state

    def _intrude(self, asker: SubGroup, key: QueueKey, offset: int) -> QueueState:
        """Let in a client that did not query its start: it may still read where its old sub-group was."""
        state = self._begin(asker, key, self.begun.get(key, offset))
        state.rewind = Rewind.FOREIGN
        return state

    def check_pull(self, asker: SubGroup, key: QueueKey, offset: int) -> None:
        """Check a pull. Raises: OffsetMoved until its client has gone back."""
        state = asker.queues.get(key)
        if state is None:
            state = self._intrude(asker, key, offset)
        before = state.rewind
        if (
            state.hear(QueueEvent.PULL_AHEAD if offset > state.offset else QueueEvent.PULL_HERE)
            is not Reaction.ANSWER
        ):
            raise OffsetMoved(state.offset)
        if before:
            for debt in state.debts:
                debt.is_ahead = False
        state.passed = offset

    def pulled(self, asker: SubGroup, key: QueueKey, following: int) -> None:
        """Note that a pull was answered: its client continues at `following`."""
        state = asker.queues.get(key)
        if state is not None:
            state.passed = following

    def commit(self, asker: SubGroup, key: QueueKey, offset: int) -> bool:
        """Apply a member's commit; False, and ignored, if it has not gone back yet."""
        state = asker.queues.get(key)
        if state is None:
            state = self._intrude(asker, key, offset)
        do = state.hear(
            QueueEvent.COMMIT_AHEAD
            if offset > state.offset
            else QueueEvent.COMMIT_BEHIND
            if offset < state.offset
            else QueueEvent.COMMIT_HERE
        )
        if do is Reaction.NOTE:
            state.own_from = max(state.own_from, offset)
            for debt in state.debts:
                if not debt.is_ahead:
                    debt.begin = max(debt.begin, offset)
            state.debts = [debt for debt in state.debts if debt.begin < debt.end]
        if do is Reaction.NOTE or do is Reaction.IGNORE:
            return False
        if do is Reaction.TAKE_AGAIN:
            state.own_from = offset
        state.offset = offset
        if offset >= state.own_from:
            state.debts.clear()
        elif state.debts:
            state.debts = [debt for debt in state.debts if debt.end > offset]
        return True

    def reset(self, topic: str, queue_id: int, offset: int) -> None:
        """Set every sub-group to `offset` (7)."""
        key = (topic, queue_id)
        for each in self.order.sub_groups:
            state = each.queues.get(key)
            if each.departed:
                if state is not None:
                    state.own_from = min(state.own_from, offset)
                    state.offset = min(state.offset, offset)
            elif each.subscribes(topic):
                each.queues[key] = QueueState.at(offset)
                each.queues[key].rewind = Rewind.FOREIGN

    def cut(self, max_offset: Callable[[str, int], int]) -> None:
        """Forget progress beyond the ends of the queues: those messages are lost, and others replace them."""
        for each in self.order.sub_groups:
            for key, state in each.queues.items():
                state.cut(max_offset(*key))
        for key, offset in self.begun.items():
            self.begun[key] = min(offset, max_offset(*key))

    def forget_topic(self, topic: str) -> None:
        """Forget all progress in a topic's queues."""
        for each in self.order.sub_groups:
            each.queues = {key: state for key, state in each.queues.items() if key[0] != topic}
        self.begun = {key: offset for key, offset in self.begun.items() if key[0] != topic}

    def lowest(self, key: QueueKey) -> int | None:
        """Return the group's offset: the lowest of its live sub-groups; None if none has one (5)."""
        found = [
            each.queues[key].offset
            for each in self.order.sub_groups
            if not each.departed and key in each.queues and each.subscribes(key[0])
        ]
        return min(found, default=None)

    # ------------------------------------------------------------ leaving

    def depart(self, leaving: SubGroup, now_ms: int, first_match: FirstMatch) -> set[QueueKey]:
        """Remove a sub-group for good (3). Returns: the queues in which others were sent back."""
        # Queues that it never read, where others, live or departed, have passed messages that it owned.
        begun = {key: 0 for heir in self.order.live() for key in heir.queues} | self.begun
        for key, offset in begun.items():
            if key not in leaving.queues and leaving.subscribes(key[0]):
                leaving.queues[key] = QueueState.at(offset)
        self.sequence += 1
        leaving.departure = self.sequence
        leaving.left_ms = now_ms
        moved: set[QueueKey] = set()
        for heir in self.order.live():
            moved |= owe(self.order, self.begun, leaving, heir, first_match, rewind=True)
        log.info(
            "a sub-group has ended; its unread messages go to members that ask for them group=%s %s "
            "queues_sent_back=%d",
            self.name,
            leaving,
            len(moved),
        )
        return moved

    def forget_departed(self, now_ms: int, remember_ms: int) -> bool:
        """Forget departed sub-groups that no longer matter; True if there were any (4)."""
        gone = forgettable(self.order, now_ms, remember_ms)
        for each in self.order.sub_groups:
            if each.id in gone:
                log.info("a sub-group was forgotten group=%s %s", self.name, each)
        if gone:
            write_off(self.order, gone)
        return bool(gone)

    # ------------------------------------------------------------ the file

    def to_json(self) -> dict[str, Any]:
        begun: dict[str, dict[int, int]] = {}
        for (topic, queue_id), offset in self.begun.items():
            begun.setdefault(topic, {})[queue_id] = offset
        return {
            "begun": begun,
            "sequence": self.sequence,
            "subGroups": [each.to_json() for each in self.order.sub_groups],
        }

    @classmethod
    def from_json(cls, name: str, data: Mapping[str, Any], now_ms: int) -> "IsolatedGroup":
        """Parse a row of the file. Raises: KeyError, TypeError, ValueError if it is malformed."""
        made = cls(name)
        for topic, queues in data["begun"].items():
            for queue_id, offset in queues.items():
                made.begun[str(topic), int(queue_id)] = int(offset)
        for each in data["subGroups"]:
            made.order.add(SubGroup.from_json(each, now_ms))
        made.sequence = max(
            [int(data["sequence"]), *(each.sequence for each in made.order.sub_groups)]
        )
        return made


def _send_back(sub_group: SubGroup) -> None:
    """Send a joining member, which may be in the middle of queues, to where its sub-group begins."""
    for state in sub_group.queues.values():
        state.hear(QueueEvent.MEMBER_CAME)
        if not state.debts:
            state.own_from = state.end
