"""Stories that ended badly once, told on purpose: what a seed shows only now and then."""

import pytest

from tests.simulation.run import run
from tests.simulation.story import Event, Story


def _story(seed: int, *events: tuple[int, str, str, int, str], **changes: object) -> Story:
    """events: ms, kind, of whom, how long or how many, with whom."""
    made = tuple(
        Event(at, number, kind, who, amount, other)
        for number, (at, kind, who, amount, other) in enumerate(sorted(events))
    )
    values: dict[str, object] = {
        "seed": seed,
        "sync_flush": True,
        "brokers": ("broker-a",),
        "consumers": ("reader-1", "ordered-1"),
        "events": made,
    }
    return Story(**(values | changes))  # type: ignore[arg-type]


def test_a_group_that_was_away_gets_what_was_sent_meanwhile() -> None:
    """Its offsets are kept, however long it is away, also when the oldest messages have expired by then."""
    story = _story(
        1,
        *[(2_000 + 100 * number, "send plain", "producer-1", 12, "") for number in range(6)],
        (20_000, "stop client", "reader-1", 150_000, ""),
        *[(40_000 + 100 * number, "send plain", "producer-1", 12, "") for number in range(24)],
        (60_000, "delete old files", "broker-a", 0, ""),
        length_ms=175_000,
        from_last=True,
    )
    assert not run(story).wrong


@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_told_send_ok_after_a_failed_fsync(seed: int) -> None:
    """Callers share the log's flushes: the second would be told that all is well."""
    sends = [(at, "send plain", "producer-1", 1, "") for at in range(55_000, 66_000, 40)]
    story = _story(
        seed,
        *sends,
        (54_000, "slow disk", "broker-a", 12_000, ""),
        (59_700 + 100 * seed, "sync fails", "broker-a", 1, "commitlog/"),
        length_ms=70_000,
    )
    assert not run(story).wrong


@pytest.mark.parametrize("seed", range(3))
def test_what_a_failed_fsync_left_in_the_cache_is_written_again(seed: int) -> None:
    """The kernel takes it for written: a power cut after the restart must not lose it."""
    story = _story(
        seed,
        *[(at, "send plain", "producer-1", 3, "") for at in range(2_000, 8_000, 1_000)],
        (9_000, "sync fails", "broker-a", 1, "commitlog/"),
        sync_flush=False,
    )
    assert not run(story).wrong


def test_a_full_disk_ends_no_broker_while_delays_are_due() -> None:
    story = _story(
        3,
        (4_000, "send delay", "producer-1", 12, ""),
        (6_000, "disk full", "broker-a", 20_000, ""),
    )
    assert not run(story).wrong


def test_a_clock_that_was_set_right_makes_no_delay_due_at_once() -> None:
    story = _story(
        4,
        (2_000, "clock ahead", "broker-a", 3_000, ""),
        (3_000, "send plain", "producer-1", 2, ""),
        (10_000, "send delay", "producer-1", 5, ""),
        (11_000, "send delay", "producer-1", 5, ""),
    )
    assert not run(story).wrong


@pytest.mark.parametrize("fails", range(1, 5))
def test_a_topic_that_could_not_be_kept_takes_no_messages(fails: int) -> None:
    """What was acknowledged can be asked for after a crash."""
    story = _story(
        5,
        (3_000, "file fails", "broker-a", fails, "topics.json"),
        (3_100, "send fresh", "producer-1", 3, ""),
        (4_000, "kill", "broker-a", 1_000, ""),
    )
    assert not run(story).wrong


@pytest.mark.parametrize("seed", range(6))
def test_timers_due_at_a_power_cut_are_delivered(seed: int) -> None:
    """That they were delivered may not be on the disk before they are."""
    story = _story(
        seed,
        (1_000, "send timer", "producer-1", 12, ""),
        (3_010 + 40 * seed, "cut power", "broker-a", 1_000, ""),
        length_ms=5_000,
    )
    assert not run(story).wrong


def test_leaving_a_fresh_broker_moves_no_other_member() -> None:
    """The broker has not heard its heartbeat yet: its last commit is no administrator's reset."""
    story = _story(
        1,
        (1_000, "send mixed", "producer-1", 1, ""),
        (6_000, "partition", "broker-a", 30_000, "isolated-1"),
        (8_000, "send mixed", "producer-1", 12, ""),
        (15_000, "kill", "broker-a", 1_000, ""),
        (17_000, "kill client", "isolated-1", 500, ""),
        (19_000, "stop client", "isolated-2", 200, ""),
        consumers=("isolated-1", "isolated-2"),
        length_ms=40_000,
    )
    assert not run(story).wrong


def _sends(kind: str, count: int = 100) -> list[tuple[int, str, str, int, str]]:
    return [(1_000 + 150 * n, f"send {kind}", "producer-1", 8, "") for n in range(count)]


@pytest.mark.parametrize("seed", range(3))
def test_a_change_in_the_millisecond_of_its_pop_keeps_others(seed: int) -> None:
    story = _story(seed, *_sends("popped"), consumers=("popper-1", "popper-2"), length_ms=20_000)
    assert not run(story).wrong


@pytest.mark.parametrize("seed", range(2))
def test_a_receive_that_is_cancelled_at_once_gives_all_back(seed: int) -> None:
    """Over gRPC, in one read with its RST_STREAM."""
    story = _story(seed, *_sends("received"), consumers=("receiver-1",), length_ms=20_000)
    assert not run(story).wrong


@pytest.mark.parametrize("seed", range(3))
def test_acknowledged_orderly_pops_block_nothing_after_a_kill(seed: int) -> None:
    """It would be invisible for longer than anybody waits here."""
    story = _story(
        seed,
        *_sends("sorted"),
        *[(2_300 + 2_900 * n, "kill", "broker-a", 800, "") for n in range(5)],
        consumers=("sorted-1",),
        invisible_ms=3_600_000,
        length_ms=20_000,
    )
    assert not run(story).wrong


@pytest.mark.parametrize("off_ms", [-3_600_000, 3_600_000])
def test_consumers_whose_clocks_are_wrong_get_everything(off_ms: int) -> None:
    story = _story(
        1,
        *_sends("popped", 5),
        *_sends("sorted", 5),
        *_sends("plain", 5),
        consumers=("popper-1", "sorted-1", "reader-1"),
        clocks_off_ms=off_ms,
        length_ms=20_000,
    )
    assert not run(story).wrong


def test_connections_lost_on_the_way_are_made_again() -> None:
    story = _story(
        1,
        *_sends("plain", 20),
        *_sends("popped", 20),
        *[(2_500, "forget connections", "broker-a", 0, other) for other in ("producer-1",)],
        *[
            (2_600, "forget connections", "broker-a", 0, other)
            for other in ("reader-1", "popper-1")
        ],
        (2_700, "forget connections", "broker-a", 0, "name-server"),
        consumers=("reader-1", "popper-1"),
        length_ms=20_000,
    )
    assert not run(story).wrong
