"""Debts: messages that a departed sub-group had not consumed, and the sub-groups that get them. Ours.

The numbers refer to the rules in isolate.py; the reasons are in
docs/decisions/0005-isolate-exactly-one.md.
"""

from collections.abc import Mapping

from pocketmq.broker.modes.sub_group import Debt, QueueEvent, QueueKey, QueueState, Rewind, SubGroup
from pocketmq.broker.modes.sub_group_order import FirstMatch, SubGroupFilter, SubGroupOrder
from pocketmq.model.record import properties_of, queue_offset_of

# Sub-groups of one group that left and are remembered.
DEPARTED_MAX = 256


def owe(
    order: SubGroupOrder,
    begun: Mapping[QueueKey, int],
    departed: SubGroup,
    heir: SubGroup,
    first_match: FirstMatch,
    *,
    rewind: bool,
) -> set[QueueKey]:
    """Give `heir` the messages owed to a departed sub-group; return the queues that have some.

    begun: where the first sub-group ever began in each queue. rewind: whether its clients are sent back.
    """
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
            heir.queues[key] = QueueState.at(begun.get(key, left_at.offset))
            heir.queues[key].rewind = Rewind.FOREIGN
            continue
        seen = max(state.end, state.passed)
        owing = _with_debt(state, Debt(departed.id, left_at.offset, seen))
        heir.queues[key] = owing
        begin = _first_owed(order, departed, heir, key, left_at.offset, seen, first_match)
        if begin >= seen:
            heir.queues[key] = state
            continue
        owing.offset = min(state.offset, begin)
        owing.debts[-1].begin = begin
        owing.debts[-1].is_ahead = begin < state.passed
        if rewind and begin < state.passed:
            owing.hear(QueueEvent.OWED)
        moved.add(key)
    return moved


def _with_debt(state: QueueState, debt: Debt) -> QueueState:
    """Return `state` with one more debt; what is left of the older ones begins at its offset."""
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
    order: SubGroupOrder,
    departed: SubGroup,
    heir: SubGroup,
    key: QueueKey,
    begin: int,
    end: int,
    first_match: FirstMatch,
) -> int:
    """Return the first owed offset of [begin, end); `begin` if there are no tag codes to look for."""
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
        return departed.matches(topic, text) and order.gets(heir, topic, queue_id, at, text)

    return first_match(topic, queue_id, begin, end, SubGroupFilter(codes, passes, None))


def forgettable(order: SubGroupOrder, now_ms: int, remember_ms: int) -> set[str]:
    """Return the ids of the departed sub-groups that no longer matter (4)."""
    departed = [each for each in order.sub_groups if each.departed]
    live = order.live()
    # A departed sub-group may itself have been owed messages, which decides what it consumed.
    owing = {
        debt.of
        for each in order.sub_groups
        for state in each.queues.values()
        for debt in state.debts
    }
    too_many = len(departed) - DEPARTED_MAX
    return {
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


def write_off(order: SubGroupOrder, gone: set[str]) -> None:
    """Forget sub-groups. What they owed others is no longer known: better to deliver some messages twice
    than one never.
    """
    departed = [each for each in order.sub_groups if each.departed]
    for each in departed:
        for lost in departed:
            if lost.id in gone and _leans_on(each, lost):
                _give_up_from(each, lost)
    order.remove(gone)
    for each in order.sub_groups:
        for state in each.queues.values():
            if any(debt.of in gone for debt in state.debts):
                state.own_from = state.offset
                state.debts.clear()


def _leans_on(departed: SubGroup, earlier: SubGroup) -> bool:
    """True if `earlier` preceded `departed` and left after it: its offsets decide what that one consumed."""
    return (
        departed.departed
        and earlier.sequence < departed.sequence
        and earlier.departure > departed.departure
    )


def _give_up_from(departed: SubGroup, earlier: SubGroup) -> None:
    """Limit what `departed` counts as consumed to what `earlier` had consumed."""
    for key, state in departed.queues.items():
        left_at = earlier.queues.get(key)
        if left_at is not None and left_at.offset < state.end:
            state.own_from = state.offset = min(state.offset, left_at.offset)
            state.debts.clear()


def _is_settled(departed: SubGroup, live: list[SubGroup]) -> bool:
    """Return True if others subscribe all of its messages, and have passed what it had consumed."""
    if not any(each.covers(departed) for each in live):
        return False
    for each in live:
        for key, state in each.queues.items():
            left_at = departed.queues.get(key)
            if left_at is not None and state.offset < left_at.end:
                return False
    return True
