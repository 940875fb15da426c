"""Further traps of RocketMQ's controller mode, as stories of a set of three that end badly under its rule."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pocketmq.broker.election import epochs, identity
from pocketmq.store.following import Following
from tests.simulation import java_rules
from tests.simulation.nodes import BrokerNode
from tests.simulation.trio import Course, Plan, Trio, run
from tests.simulation.watch import NAME

_SLICE = 1_000
_SOON_S = 4.0
"""A set is whole again after less than this, unless something waits for its own sake."""


def _plan(**settings: object) -> Plan:
    return Plan(1, sync_flush=False, min_in_sync=1, settings=tuple(settings.items()))


def _named(trio: Trio, name: str) -> BrokerNode:
    return next(each for each in trio.brokers if each.name == name)


def _place(broker: BrokerNode, file: str) -> Path:
    return Path(broker.disk.root, file)


async def _whole_again(trio: Trio, since_s: float) -> None:
    """All three are in sync within _SOON_S of a moment."""
    await trio.until(lambda: trio.are_in_sync(3), "three are in sync")
    if trio.now_s - since_s > _SOON_S:
        trio.watch.fault(f"three are in sync after {trio.now_s - since_s:.1f} s only")


# ------------------------------------------------------------ the log


async def _parted(trio: Trio, length_ms: int = 12_000) -> None:
    """broker-a leads, and continues to write where no other broker and no controller hears it."""
    await trio.more(20)
    await trio.has("cut from brokers", "broker-a", length_ms)
    await trio.has("cut from the controller", "broker-a", length_ms)
    await trio.until(lambda: not trio.leads("broker-a"), "another leads")
    await trio.more(20)


async def _its_list_of_epochs_is_lost(trio: Trio) -> None:
    await _parted(trio)
    await trio.has("kill", "broker-a", 12_000)
    await asyncio.sleep(0.1)
    _place(_named(trio, "broker-a"), epochs.FILE_NAME).unlink()
    await asyncio.sleep(16.0)


@contextmanager
def _once_received(
    fits: Callable[[Following, bytes], bool], act: Callable[[], None], brokers: int = 1
) -> Iterator[None]:
    """Do something at once when each of so many brokers has received such a piece, and nothing behind it."""
    ours = Following.receive
    left = [act] * brokers

    def receive(self: Following, data: bytes | memoryview) -> None:
        ours(self, data)
        if left and fits(self, bytes(data)):
            left.pop()()

    Following.receive = receive  # type: ignore[method-assign]
    try:
        yield
    finally:
        Following.receive = ours  # type: ignore[method-assign]
        assert len(left) < brokers


async def _killed_after_a_cut(trio: Trio) -> None:
    """It is cut back, takes a little of what the new master has, and dies: its old tail lies behind that."""
    await _parted(trio)
    old = _named(trio, "broker-a")
    with _once_received(
        lambda following, _: following is old.store.following,
        lambda: trio.trouble_now("kill", "broker-a", 1_000),
    ):
        await asyncio.sleep(20.0)


async def _master_dies_amid_a_record(trio: Trio) -> None:
    """Both slaves have a part of a message that takes several slices."""
    await trio.more(20)

    def die() -> None:
        trio.trouble_now("kill", "broker-a", 6_000)
        raise ConnectionResetError("what is under way does not arrive")

    with _once_received(lambda _, data: b"large" in data, die, brokers=2):
        await trio.send_large()
    await asyncio.sleep(6.0)
    await trio.more(20)


@pytest.mark.parametrize(
    ("rule", "course"),
    [
        (java_rules.without_epochs_nothing_is_compared, _its_list_of_epochs_is_lost),
        (java_rules.a_cut_moves_the_end_alone, _killed_after_a_cut),
        (java_rules.half_a_record_stays, _master_dies_amid_a_record),
    ],
)
def test_the_logs_stay_equal(rule: Callable[[], java_rules.Rule], course: Course) -> None:
    with rule():
        assert run(_plan(haTransferBatchSize=_SLICE), course).wrong
    assert not run(_plan(haTransferBatchSize=_SLICE), course).wrong


# ------------------------------------------------------------ who leads


async def _controller_loses_its_file(trio: Trio) -> None:
    """broker-c, which lacks what was acknowledged, is the first that is back."""
    await trio.more(10)
    await trio.has("kill", "broker-c", 60_000)
    await trio.until(lambda: trio.are_in_sync(2), "two are in sync")
    await trio.more(20)
    trio.may_send(False)
    for who in ("broker-a", "broker-b", "controller"):
        await trio.has("kill", who, 60_000)
    await asyncio.sleep(0.1)
    os.unlink(os.path.join(trio.controller.disk.root, "controller.json"))
    trio.controller.start()
    _named(trio, "broker-c").start()
    await asyncio.sleep(8.0)
    for name in ("broker-a", "broker-b"):
        _named(trio, name).start()
    await asyncio.sleep(8.0)
    # As an operator does, by the length of the logs.
    if trio.master() is None or trio.are_in_sync(0):
        await trio.has("elect", "broker-a")
        await asyncio.sleep(4.0)


async def _a_copy_of_a_store(trio: Trio) -> None:
    """broker-c begins with what broker-b is called by."""
    await trio.more(10)
    copy, original = _named(trio, "broker-c"), _named(trio, "broker-b")
    await trio.has("kill", "broker-c", 60_000)
    await asyncio.sleep(0.1)
    name = _place(copy, identity.FILE_NAME)
    name.write_text(_place(original, identity.FILE_NAME).read_text())
    copy.start()
    await asyncio.sleep(6.0)
    running = trio.controller.running
    assert running is not None
    row = running.sets.sets[NAME]
    if not any(each.address.startswith(f"{original.ip}:") for each in row.replicas.values()):
        trio.watch.fault("the copy has taken the place of its original")
    await trio.has("kill", "broker-c", 60_000)
    await asyncio.sleep(0.1)
    _place(copy, identity.FILE_NAME).unlink()
    copy.start()


@pytest.mark.parametrize(
    ("rule", "course"),
    [
        (java_rules.a_lost_file_begins_anew, _controller_loses_its_file),
        (java_rules.the_later_address_counts, _a_copy_of_a_store),
    ],
)
def test_a_broker_that_may_not_lead_does_not(
    rule: Callable[[], java_rules.Rule], course: Course
) -> None:
    with rule():
        assert run(_plan(), course).wrong
    assert not run(_plan(), course).wrong


# ------------------------------------------------------------ how long it takes


async def _slave_returns(trio: Trio) -> None:
    await trio.more(10)
    await trio.has("kill", "broker-c", 200)
    await trio.until(lambda: not trio.are_in_sync(3), "it is out")
    await _whole_again(trio, trio.now_s)


async def _master_is_not_registered_yet(trio: Trio) -> None:
    """broker-b leads, and its slaves ask for its port before it could register."""
    await trio.more(10)
    await trio.has("cut from the name server", "broker-b", 3_000)
    await trio.has("elect", "broker-b")
    await trio.until(lambda: trio.leads("broker-b"), "broker-b leads")
    await asyncio.sleep(3.0)
    await _whole_again(trio, trio.now_s)


@pytest.mark.parametrize(
    ("rule", "course"),
    [
        (java_rules.the_first_report_waits, _slave_returns),
        (java_rules.any_masters_port_is_right, _master_is_not_registered_yet),
    ],
)
def test_the_set_is_soon_whole_again(rule: Callable[[], java_rules.Rule], course: Course) -> None:
    with rule():
        assert run(_plan(), course).wrong
    assert not run(_plan(), course).wrong


async def _master_stops(trio: Trio) -> None:
    await trio.more(10)
    await trio.has("stop", "master")
    await asyncio.sleep(8.0)


def test_a_stop_costs_little() -> None:
    with java_rules.a_stop_takes_its_time():
        assert run(_plan(), _master_stops).longest_s > 5.0
    ours = run(_plan(), _master_stops)
    assert not ours.wrong
    assert ours.longest_s < 2.0
