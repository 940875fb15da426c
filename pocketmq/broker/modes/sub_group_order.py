"""SubGroupOrder: an isolated group's sub-groups in order, and which of them owns each message. Ours.

The numbers refer to the rules in isolate.py; the reasons are in
docs/decisions/0005-isolate-exactly-one.md.
"""

from collections.abc import Callable, Mapping

from pocketmq.broker.modes.sub_group import FAR, QueueState, SubGroup
from pocketmq.model.agreement import signature
from pocketmq.model.java_hash import string_hash
from pocketmq.model.record import properties_of, queue_offset_of
from pocketmq.model.subscription import SubscriptionData
from pocketmq.store import EntryFilter


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
        # A held pull's test of a new message's properties.
        self.properties = properties


# The first offset in [begin, end) of a queue that the filter lets through; `end` or more without one.
FirstMatch = Callable[[str, int, int, int, EntryFilter], int]


class SubGroupOrder:
    """The sub-groups of one group in order, including departed ones while they matter."""

    def __init__(self) -> None:
        self.sub_groups: list[SubGroup] = []
        self._by_id: dict[str, SubGroup] = {}

    def add(self, sub_group: SubGroup) -> None:
        """Append one to the order."""
        self.sub_groups.append(sub_group)
        self._by_id[sub_group.id] = sub_group

    def remove(self, ids: set[str]) -> None:
        """Remove these."""
        for each in ids:
            del self._by_id[each]
        self.sub_groups = [each for each in self.sub_groups if each.id not in ids]

    def live(self) -> list[SubGroup]:
        """Return the sub-groups that have members, or whose members are expected back."""
        return [each for each in self.sub_groups if not each.departed]

    def find(self, subscriptions: Mapping[str, SubscriptionData]) -> SubGroup | None:
        """Return the live sub-group with this subscription, or None."""
        wanted = signature(subscriptions)
        for each in self.sub_groups:
            if not each.departed and each.id.startswith(wanted):
                return each
        return None

    # ------------------------------------------------------------ who owns a message

    def gets(self, asker: SubGroup, topic: str, queue_id: int, offset: int, text: bytes) -> bool:
        """Return True if `asker` owns the message with these properties at this offset (1, 3, 4)."""
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
        """Return the filter of a pull by `asker` starting at `offset`; None lets everything through."""
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
        """Return the live sub-groups before `asker` that pull the topic."""
        return [
            each
            for each in self.sub_groups
            if each.sequence < asker.sequence and not each.departed and each.subscribes(topic)
        ]

    def _has_history(self, asker: SubGroup, topic: str, queue_id: int, offset: int) -> bool:
        """Return True if debts or a departed sub-group affect messages from `offset` on."""
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


def _codes_left(asked: SubscriptionData, earlier: list[SubscriptionData]) -> frozenset[int] | None:
    """Return the codes of the tags that no earlier sub-group subscribes; None if codes cannot tell."""
    if any(each.is_tag and each.is_all for each in earlier):
        return frozenset()
    if asked.is_all or not all(each.is_tag for each in earlier):
        return None
    taken = set().union(*(each.tags_set for each in earlier))
    left = {string_hash(tag) for tag in asked.tags_set - taken}
    # Two tags can share a code: then only the tag itself decides.
    return None if left & {string_hash(tag) for tag in asked.tags_set & taken} else frozenset(left)
