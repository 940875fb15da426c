"""Sets of three brokers under a controller: nothing acknowledged is lost, whatever happens; and stories that
end badly under RocketMQ's rules.
"""

import asyncio
from collections.abc import Callable

import pytest

from tests.simulation import java_rules
from tests.simulation.trio import Course, Plan, Trio, plan_of, run


@pytest.mark.slow
def test_a_set_of_three_loses_nothing_acknowledged(trios: range) -> None:
    for seed in trios:
        outcome = run(plan_of(seed))
        wrong = "\n".join(outcome.wrong[:20])
        assert not wrong, f"{plan_of(seed)}\n{wrong}\npython -m tests.simulation.trio {seed} --said"
        assert outcome.promised


def _plan(**settings: object) -> Plan:
    return Plan(1, sync_flush=False, min_in_sync=1, settings=tuple(settings.items()))


async def _cut_from_the_controller(trio: Trio) -> None:
    await trio.more(20)
    await trio.has("cut from the controller", "master", 30_000)
    await asyncio.sleep(12.0)


async def _frozen_and_thawed(trio: Trio) -> None:
    await trio.more(20)
    await trio.has("freeze", "master", 6_000)
    await asyncio.sleep(10.0)


async def _alone_when_its_machine_dies(trio: Trio) -> None:
    await trio.more(20)
    await trio.has("cut from brokers", "master", 8_000)
    await asyncio.sleep(2.0)
    await trio.has("without power", "master", 10_000)
    await asyncio.sleep(12.0)


async def _power_is_cut_for_a_moment(trio: Trio) -> None:
    await trio.more(30)
    await trio.has("without power", "master", 500)
    await asyncio.sleep(6.0)


async def _two_elections_at_one_end(trio: Trio) -> None:
    """broker-b leads, writes a tail that no other has, and dies; then another leads from where it began."""
    await trio.more(20)
    trio.may_send(False)
    await asyncio.sleep(3.0)
    await trio.has("elect", "broker-b")
    await trio.until(lambda: trio.are_in_sync(3) and trio.leads("broker-b"), "broker-b leads")
    await asyncio.sleep(6.0)
    # Without a controller the set cannot shrink.
    await trio.has("kill", "controller", 8_000)
    await trio.has("kill", "broker-a", 10_000)
    await trio.has("kill", "broker-c", 10_000)
    trio.may_send(True)
    await asyncio.sleep(5.0)
    await trio.has("kill", "broker-b", 12_000)
    await asyncio.sleep(15.0)


@pytest.mark.parametrize(
    ("rule", "course"),
    [
        (java_rules.its_own_set_shrinks_at_once, _cut_from_the_controller),
        (java_rules.its_own_set_shrinks_at_once, _frozen_and_thawed),
        (java_rules.one_copy_is_enough, _alone_when_its_machine_dies),
        (java_rules.an_epoch_begins_behind_the_last_one, _two_elections_at_one_end),
        (java_rules.a_log_is_what_is_there, _power_is_cut_for_a_moment),
    ],
)
def test_what_rocketmq_loses_is_kept(rule: Callable[[], java_rules.Rule], course: Course) -> None:
    with rule():
        assert run(_plan(), course).wrong
    assert not run(_plan(), course).wrong


async def _connection_reset(trio: Trio) -> None:
    await trio.more(10)
    await trio.has("reset", "master")
    await asyncio.sleep(4.0)


async def _controller_restarted(trio: Trio) -> None:
    """While the master is busy for a moment."""
    await trio.more(10)
    await trio.has("freeze", "master", 2_500)
    await trio.has("kill", "controller", 100)
    await asyncio.sleep(5.0)


@pytest.mark.parametrize(
    ("rule", "course"),
    [
        (java_rules.a_closed_connection_is_a_death, _connection_reset),
        (java_rules.a_new_controller_knows_who_is_dead, _controller_restarted),
    ],
)
def test_a_living_master_is_not_replaced(
    rule: Callable[[], java_rules.Rule], course: Course
) -> None:
    with rule():
        assert run(_plan(), course).epochs > 1
    ours = run(_plan(), course)
    assert (ours.epochs, ours.wrong) == (1, [])


async def _slave_takes_and_says_nothing(trio: Trio) -> None:
    await trio.more(10)
    await trio.has("freeze", "broker-c", 25_000)
    await asyncio.sleep(25.0)


def test_a_slave_that_reports_nothing_holds_up_no_send_for_long() -> None:
    plan = _plan(haHousekeepingInterval=60_000)
    with java_rules.sent_is_caught_up():
        assert run(plan, _slave_takes_and_says_nothing).longest_s > 10.0
    ours = run(plan, _slave_takes_and_says_nothing)
    assert not ours.wrong
    assert ours.longest_s < 10.0


async def _killed_with_a_young_topic(trio: Trio) -> None:
    await trio.more(10)
    await trio.create_topic("young")
    await trio.send_to("young")
    await trio.has("kill", "master", 3_000)
    await asyncio.sleep(5.0)
    master = trio.master()
    if master is None or not master.knows("young"):
        trio.watch.fault("a topic with messages is unknown")


def test_a_topic_that_was_just_made_outlives_its_master() -> None:
    plan = _plan(slaveSyncInterval=10_000, autoCreateTopicEnable="false")
    with java_rules.the_last_copy_of_topics_counts():
        assert run(plan, _killed_with_a_young_topic).wrong
    assert not run(plan, _killed_with_a_young_topic).wrong
