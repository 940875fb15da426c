"""The sets of a controller, as a state machine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.controller.keeping import FileKeeper
from pocketmq.controller.living import Living
from pocketmq.controller.sets import ControllerRefused, ReplicaSets
from pocketmq.remoting.admin_headers import NO_BROKER, BrokerHeartbeatHeader
from pocketmq.remoting.codes import ResponseCode as R
from pocketmq.store import StoreUnreadable
from pocketmq.store.config_file import LatestFile


@dataclass
class Alive:
    epoch: int = 0
    max_offset: int = 0
    priority: int = 10


async def of_two(keeper: FileKeeper | None = None) -> ReplicaSets:
    """Broker 1 leads, 2 is in sync."""
    sets = ReplicaSets((keeper or FileKeeper(None)).keep)
    for broker_id in (1, 2):
        await sets.apply_id("c", "b", broker_id, f"10.0.0.{broker_id}:1;7")
    await sets.elect("b", 1, {1: Alive(), 2: Alive()})
    await sets.alter("b", 1, 1, {1, 2}, 1, lambda n: True)
    return sets


async def code_of(act: Any, *args: Any, **named: Any) -> R:
    with pytest.raises(ControllerRefused) as refused:
        await act(*args, **named)
    return refused.value.code


async def test_ids_are_given_once_and_again_to_the_same_broker() -> None:
    sets = ReplicaSets(FileKeeper(None).keep)
    await sets.apply_id("c", "b", 1, "10.0.0.1:1;7")
    await sets.apply_id("c", "b", 1, "10.0.0.1:1;7")
    assert await code_of(sets.apply_id, "c", "b", 1, "10.0.0.2:1;8") == R.BROKER_ID_INVALID
    assert await code_of(sets.apply_id, "c", "b", 3, "10.0.0.2:1;8") == R.BROKER_ID_INVALID
    assert sets.next_id("b") == 2


async def test_only_in_sync_brokers_are_elected_with_a_new_epoch() -> None:
    sets = await of_two()
    assert (
        await code_of(sets.elect, "b", NO_BROKER, {1: Alive(), 2: Alive()}) == R.MASTER_STILL_EXIST
    )
    found = await sets.elect("b", NO_BROKER, {2: Alive()})
    assert (found.master, found.master_epoch, found.in_sync) == (2, 2, frozenset({2}))
    assert await code_of(sets.elect, "b", NO_BROKER, {1: Alive(0, 9_999)}) == R.MASTER_NOT_AVAILABLE
    assert (sets.get("b").master, sets.get("b").master_epoch) == (None, 3)
    assert sets.get("b").in_sync == {2}, "it alone may lead again"
    assert await code_of(sets.elect, "b", 1, {1: Alive()}) == R.ELECT_MASTER_FAILED
    assert (await sets.elect("b", 2, {1: Alive(), 2: Alive()})).master_epoch == 4


async def test_the_longest_log_is_elected_then_the_smaller_priority() -> None:
    sets = await of_two()
    await sets.apply_id("c", "b", 3, "10.0.0.3:1;7")
    await sets.alter("b", 1, 1, {1, 2, 3}, 2, lambda n: True)
    longer = {2: Alive(0, 5 << 31, 10), 3: Alive(0, 1, 1)}
    assert sets.choose(sets.get("b"), NO_BROKER, longer, designated=False) == 2
    equal = {2: Alive(1, 7, 10), 3: Alive(1, 7, 1)}
    assert sets.choose(sets.get("b"), NO_BROKER, equal, designated=False) == 3


async def test_an_operator_designates_a_broker_in_sync_or_none() -> None:
    sets = await of_two()
    alive = {1: Alive(), 2: Alive()}
    assert await code_of(sets.elect, "b", 1, alive, designated=True) == R.MASTER_STILL_EXIST
    assert (await sets.elect("b", 2, alive, designated=True)).master == 2
    assert await code_of(sets.elect, "b", 1, alive, designated=True) == R.ELECT_MASTER_FAILED
    assert await code_of(sets.elect, "b", 7, alive) == R.BROKER_NEED_TO_BE_REGISTERED


async def test_a_master_that_may_be_alive_is_not_replaced() -> None:
    sets = await of_two()
    only = {2: Alive()}
    assert await code_of(sets.elect, "b", 2, only, may_replace=False) == R.ELECT_MASTER_FAILED
    assert sets.get("b").master == 1


async def test_only_the_master_with_both_epochs_changes_the_set() -> None:
    sets = await of_two()

    def alive(broker_id: int) -> bool:
        return broker_id == 1

    cases = [
        (("x", 1, 1, {1}, 2), R.ALTER_SYNC_STATE_SET_FAILED),
        (("b", 1, 1, {1, 2}, 2), R.ALTER_SYNC_STATE_SET_FAILED),
        (("b", 2, 1, {2}, 2), R.INVALID_MASTER),
        (("b", 1, 9, {1}, 2), R.FENCED_MASTER_EPOCH),
        (("b", 1, 1, {1}, 1), R.FENCED_SYNC_STATE_SET_EPOCH),
        (("b", 1, 1, {1, 9}, 2), R.INVALID_REPLICAS),
        (("b", 1, 1, {2}, 2), R.BROKER_NOT_ALIVE),
    ]
    for args, code in cases:
        assert await code_of(sets.alter, *args, alive) == code, args
    assert (await sets.alter("b", 1, 1, {1}, 2, alive)).in_sync_epoch == 3


async def test_a_lost_file_waits_for_an_operator_and_epochs_only_grow() -> None:
    sets = ReplicaSets(FileKeeper(None).keep)
    for broker_id in (1, 2):
        await sets.register("c", "b", broker_id, f"10.0.0.{broker_id}:1")
    alive = {1: Alive(5, 100), 2: Alive(6, 200)}
    assert await code_of(sets.elect, "b", 1, alive) == R.ELECT_MASTER_FAILED
    found = await sets.elect("b", 2, alive, designated=True)
    assert (found.master, found.master_epoch, found.next_id) == (2, 7, 3)


async def test_what_is_not_saved_has_not_happened() -> None:
    sets = await of_two()
    kept = sets.sets

    async def fail(*_: object) -> None:
        raise OSError("no room")

    sets._keep = fail
    for act in (
        sets.apply_id("c", "b", 3, "10.0.0.3:1;7"),
        sets.elect("b", NO_BROKER, {2: Alive()}),
        sets.alter("b", 1, 1, {1}, 2, lambda n: True),
    ):
        with pytest.raises(OSError, match="no room"):
            await act
        assert sets.sets == kept


async def test_sets_survive_their_file(tmp_path: Path) -> None:
    file = LatestFile(str(tmp_path / "controller.json"))
    sets, other = await of_two(FileKeeper(file)), ReplicaSets(FileKeeper(file).keep)
    await FileKeeper(file).start("", other.begin)
    assert other.sets == sets.sets


async def test_the_longest_log_in_sync_leads() -> None:
    """RocketMQ compares by the lower 32 bits of the difference, and may take the shorter one."""
    sets = await of_two()
    alive = {1: Alive(1, 1 << 20), 2: Alive(1, 5 << 30)}
    known = sets.get("b")
    known.master = None
    assert sets.choose(known, NO_BROKER, alive, designated=False) == 2


async def test_an_earlier_version_of_the_file_is_not_taken(tmp_path: Path) -> None:
    """It may name a broker as in sync that lacks what was acknowledged since."""
    path = tmp_path / "controller.json"
    keeper = FileKeeper(LatestFile(str(path)))
    await of_two(keeper)
    path.rename(tmp_path / "controller.json.bak")
    again = ReplicaSets(keeper.keep)
    await FileKeeper(LatestFile(str(path))).start("", again.begin)
    assert not again.sets
    path.write_bytes(b"")
    with pytest.raises(StoreUnreadable, match="Restore it"):
        await FileKeeper(LatestFile(str(path))).start("", again.begin)


async def test_a_set_without_a_master_survives_its_file(tmp_path: Path) -> None:
    keeper = FileKeeper(LatestFile(str(tmp_path / "controller.json")))
    sets = await of_two(keeper)
    await code_of(sets.elect, "b", NO_BROKER, {})
    again = ReplicaSets(keeper.keep)
    await keeper.start("10.0.0.9:1", again.begin)
    assert again.sets == sets.sets
    assert again.get("b").master is None


async def test_brokers_are_forgotten_when_they_are_dead() -> None:
    sets = await of_two()
    assert await code_of(sets.clean, "b", [2], lambda n: True, living=False) == (
        R.INVALID_CLEAN_BROKER_METADATA
    )
    await sets.clean("b", [2], lambda n: False, living=False)
    assert (list(sets.get("b").replicas), sets.get("b").in_sync) == ([1], frozenset({1}))
    await sets.clean("b", [], lambda n: False, living=False)
    assert sets.sets == {}


@given(st.lists(st.tuples(st.sampled_from(["elect", "alter", "die", "live"]), st.integers(1, 3))))
async def test_epochs_grow_and_the_master_is_in_sync(acts: list[tuple[str, int]]) -> None:
    sets = await of_two()
    await sets.apply_id("c", "b", 3, "10.0.0.3:1;7")
    alive = {n: Alive() for n in (1, 2, 3)}
    masters: dict[int, int] = {1: 1}
    for act, number in acts:
        known = sets.get("b")
        before = known.master_epoch, known.in_sync_epoch, known.in_sync
        try:
            if act == "elect":
                await sets.elect("b", number, alive)
            elif act == "alter" and known.master is not None:
                members = known.in_sync ^ {number}
                await sets.alter(
                    "b",
                    known.master,
                    known.master_epoch,
                    members,
                    known.in_sync_epoch,
                    alive.__contains__,
                )
            elif act == "die":
                alive.pop(number, None)
                if known.master == number:
                    await sets.elect("b", NO_BROKER, alive)
            else:
                alive[number] = Alive()
        except ControllerRefused:
            pass
        now = sets.get("b")
        assert (now.master_epoch, now.in_sync_epoch) >= before[:2]
        if now.master is not None:
            assert now.master in now.in_sync
            assert masters.setdefault(now.master_epoch, now.master) == now.master
            if now.master_epoch > before[0]:
                assert now.master in before[2], "it had every acknowledged message"


def test_a_broker_lives_by_its_heartbeats() -> None:
    living = Living(0, 10_000)
    header = BrokerHeartbeatHeader("c", "10.0.0.1:1", "b", 1, 3, 100, 90, 500, 7)
    assert living.may_be_alive("b", 1, 100)
    living.heard(header, "one", 1_000)
    assert living.of("b")[1].max_offset == 100
    [live] = living.over("one")
    living.heard(header, "two", 1_100)
    assert living.is_newer(live)
    assert living.over("one") == []
    assert living.expire(1_600) == []
    assert [each.broker_id for each in living.expire(1_601)] == [1]
    assert not living.may_be_alive("b", 1, 1_700), "it was heard of, and is silent"
    assert living.may_be_alive("b", 2, 9_999)
    assert not living.may_be_alive("b", 2, 10_000)
