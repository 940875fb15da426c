"""What a group does with members that differ: every mode's answer to every question, without a broker."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.groups.client_channel import ClientChannel
from pocketmq.broker.groups.consumer_group import ConsumerGroup
from pocketmq.broker.modes.isolated_group import IsolatedGroup
from pocketmq.broker.modes.policy import Compatible, Isolate, Strict
from pocketmq.broker.modes.sub_group import (
    LIFE,
    STEPS,
    Debt,
    QueueEvent,
    QueueState,
    Reaction,
    Rewind,
    SubGroup,
    SubGroupEvent,
    SubGroupState,
)
from pocketmq.broker.modes.sub_group_debts import owe
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.refused import OffsetMoved, Refused
from pocketmq.broker.services import Parts
from pocketmq.model.subscription import build_subscription
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.headers import PullMessageHeader
from pocketmq.store import MessageStore, StoreConfig
from tests.broker.bare import HOST, Asker, bare_parts

MODES = ["compatible", "strict", "isolate"]
KEY = ("T", 0)
QUEUE = GroupQueue("g", "T", 0)


class Site:
    """A broker's parts, and members of group g."""

    def __init__(self, store: MessageStore, mode: str) -> None:
        self.clock = ManualClock()
        config = BrokerConfig(broker_name="b", group_mode=mode)
        self.parts: Parts = bare_parts(store, self.clock, config)
        self.policies = self.parts.members.policies

    def join(self, client_id: str, tags: str) -> tuple[Asker, str | None]:
        """A heartbeat, as handlers of both protocols take it: asked for admission, then entered or not."""
        connection = Asker()
        channel = ClientChannel(connection, client_id, "JAVA", 407)
        self.clock.advance_ms(1)
        asked = build_subscription("T", tags, sub_version=self.clock.now_ms())
        refusal = self.policies.entered("g").admit("g", channel, {"T": asked})
        if refusal is None:
            self.parts.members.consumers.register(
                "g", channel, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST", [asked]
            )
        return connection, refusal

    @property
    def group(self) -> ConsumerGroup:
        return self.parts.members.consumers.groups["g"]

    def filter_codes(self, connection: Asker) -> frozenset[int] | None:
        pull = PullMessageHeader("g", "T", 0, 0, 32, 0, 0, 0, 0)
        config = self.parts.tables.groups.find("g")
        assert config is not None
        found = self.policies.of("g").filter(pull, config, connection)
        return None if found is None else found.codes


@pytest.fixture(params=MODES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    store = MessageStore(
        StoreConfig(store_path_root_dir=str(tmp_path)), clock=ManualClock(), store_host=HOST
    )
    store.open()
    yield Site(store, request.param)
    store.close()


def test_every_mode_answers_every_question(site: Site) -> None:
    """The table in the head of policy.py."""
    first, _ = site.join("c1", "A")
    second, refusal = site.join("c2", "B")
    policy = site.policies.of("g")
    site.parts.tables.offsets.place("g", "T", 0, 7)
    shown = site.group.subscriptions["T"].tags_set
    codes = {"A": frozenset({65}), "B": frozenset({66})}
    if type(policy) is Compatible:
        assert refusal is None
        assert shown == {"B"}
        assert policy.peers(site.group, first) == ["c1", "c2"]
        assert policy.start(QUEUE, first) == 7
        assert site.filter_codes(first) == codes["B"]
        assert policy.commit(QUEUE, 9, first, as_member=True) is False
        assert policy.lock_name("g", "c1") == "g"
        assert policy.pop_refusal("g", first) is None
        assert policy.may_pop("g")
    elif type(policy) is Strict:
        assert "group g is strict" in (refusal or "")
        assert shown == {"A"}
        assert policy.peers(site.group, first) == ["c1"]
        assert policy.start(QUEUE, first) == 7
        assert site.filter_codes(first) == codes["A"]
        with pytest.raises(Refused, match="group g is strict"):
            site.filter_codes(second)
        assert policy.commit(QUEUE, 9, first, as_member=True) is False
        assert policy.lock_name("g", "c1") == "g"
        assert policy.pop_refusal("g", first) is None
        assert policy.pop_refusal("g", second) == refusal
        assert policy.may_pop("g")
    else:
        assert type(policy) is Isolate
        assert refusal is None
        assert shown == {"A", "B"}
        assert policy.peers(site.group, first) == ["c1"]
        assert policy.start(QUEUE, first) == policy.start(QUEUE, second) == 7
        assert site.filter_codes(first) == codes["A"]
        assert site.filter_codes(second) == codes["B"]
        stranger = Asker()
        assert policy.commit(QUEUE, 5, first, as_member=True) is True
        assert site.parts.tables.offsets.query(*QUEUE) == 5
        assert policy.commit(QUEUE, 9, stranger, as_member=True) is True
        assert site.parts.tables.offsets.query(*QUEUE) == 5
        assert policy.commit(QUEUE, 9, stranger, as_member=False) is False
        assert len({policy.lock_name("g", name) for name in ("c1", "c2", "other")}) == 3
        assert "isolated" in (policy.pop_refusal("g", first) or "")
        assert not policy.may_pop("g")


# ---------------------------------------------------------------- isolate: states and events


class Bare:
    """One sub-group with one member in one queue, at offset 10, in some state."""

    def __init__(self, rewind: Rewind) -> None:
        self.group = IsolatedGroup("g")
        self.sub_group = SubGroup(1, {"T": build_subscription("T", "A")}, 0)
        self.group.order.add(self.sub_group)
        self.state = self.sub_group.queues[KEY] = QueueState(10, 10, [], rewind, 20)
        self.group.begun[KEY] = 0


@pytest.mark.parametrize(("rewind", "heard"), list(itertools.product(Rewind, QueueEvent)))
def test_a_sub_group_does_in_each_state_what_the_table_says(
    rewind: Rewind, heard: QueueEvent
) -> None:
    do, after = STEPS[rewind, heard]
    bare = Bare(rewind)
    group, sub_group, state = bare.group, bare.sub_group, bare.state
    if heard in (QueueEvent.PULL_AHEAD, QueueEvent.PULL_HERE):
        offset = 11 if heard is QueueEvent.PULL_AHEAD else 10
        if do is Reaction.SEND_BACK:
            with pytest.raises(OffsetMoved) as moved:
                group.check_pull(sub_group, KEY, offset)
            assert moved.value.offset == 10
        else:
            assert do is Reaction.ANSWER
            group.check_pull(sub_group, KEY, offset)
            assert state.passed == offset
    elif heard in (QueueEvent.COMMIT_AHEAD, QueueEvent.COMMIT_HERE, QueueEvent.COMMIT_BEHIND):
        offset = {
            QueueEvent.COMMIT_AHEAD: 15,
            QueueEvent.COMMIT_HERE: 10,
            QueueEvent.COMMIT_BEHIND: 5,
        }[heard]
        counts = group.commit(sub_group, KEY, offset)
        assert counts == (do in (Reaction.TAKE, Reaction.TAKE_AGAIN))
        assert state.offset == (offset if counts else 10)
        assert (
            state.own_from
            == {
                Reaction.TAKE: 10,
                Reaction.TAKE_AGAIN: offset,
                Reaction.NOTE: offset,
                Reaction.IGNORE: 10,
            }[do]
        )
    elif heard is QueueEvent.OWED:
        departed = SubGroup(0, {"T": build_subscription("T", "A")}, 0)
        departed.queues[KEY] = QueueState.at(3)
        owe(group.order, group.begun, departed, sub_group, lambda *_: 3, rewind=True)
        state = sub_group.queues[KEY]
        assert state.debts == [Debt(departed.id, 3, 20, True)]
        assert state.offset == 3
    else:
        assert heard is QueueEvent.MEMBER_CAME
        before = Asker()
        group._of[before] = SubGroup(9, {}, 0)
        channel = ClientChannel(before, "c", "JAVA", 407, subscriptions=sub_group.subscriptions)
        group.place_members({before: channel}, 1, None, lambda *_: 0)  # type: ignore[arg-type]
    assert state.rewind is after


@pytest.mark.parametrize(
    ("life", "change"), list(itertools.product(list(SubGroupState)[:3], SubGroupEvent))
)
def test_a_sub_group_lives_as_the_table_says(
    life: SubGroupState, change: SubGroupEvent, tmp_path: Path
) -> None:
    after = LIFE[life, change]
    group = IsolatedGroup("g")
    asked = {"T": build_subscription("T", "A")}
    sub_group = SubGroup(1, asked, 0 if life is SubGroupState.ACTIVE else 100)
    sub_group.departure = 1 if life is SubGroupState.DEPARTED else 0
    group.sequence = 1
    group.order.add(sub_group)
    connection = Asker()
    channel = ClientChannel(connection, "c", "JAVA", 407, subscriptions=asked)
    store = MessageStore(
        StoreConfig(store_path_root_dir=str(tmp_path)), clock=ManualClock(), store_host=HOST
    )
    store.open()
    try:
        parts = bare_parts(store, config=BrokerConfig(broker_name="b", group_mode="isolate"))
        isolated, offsets = parts.tables.isolated, parts.tables.offsets
        isolated.groups["g"] = group
        if change is SubGroupEvent.MEMBER_IN:
            group.place_members({connection: channel}, 200, offsets, lambda *_: 0)
        elif change is SubGroupEvent.LAST_OUT:
            group.place_members({}, 200, offsets, lambda *_: 0)
        elif change is SubGroupEvent.KEEP_OVER:
            # Remembered, whatever time passes: a later one that left leans on it.
            isolated.tick({})
            if sub_group in group.order.sub_groups and after is not SubGroupState.DEPARTED:
                assert sub_group.life is after
            group.order.sub_groups = [sub_group]
        elif change is SubGroupEvent.SETTLED:
            group.forget_departed(10**15, 1)
        else:
            group = IsolatedGroup.from_json("g", group.to_json(), 300)
            sub_group = group.order.sub_groups[0]
        if after is SubGroupState.FORGOTTEN:
            assert sub_group not in group.order.sub_groups
        else:
            assert sub_group.life is after
        # Who comes when its sub-group has left for good begins a new one behind it.
        made = [each for each in group.order.sub_groups if each is not sub_group]
        is_reborn = life is SubGroupState.DEPARTED and change is SubGroupEvent.MEMBER_IN
        assert [each.life for each in made] == ([SubGroupState.ACTIVE] if is_reborn else [])
    finally:
        store.close()


def test_the_tables_are_whole() -> None:
    assert set(STEPS) == set(itertools.product(Rewind, QueueEvent))
    assert set(LIFE) == set(itertools.product(list(SubGroupState)[:3], SubGroupEvent))
