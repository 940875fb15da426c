"""Counters and windows: what brokerStatus and statsAll show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.figures import stats as stats_module
from pocketmq.broker.figures.stats import BrokerStats, Totals
from pocketmq.remoting.clock import ManualClock


class Store:
    """Totals that the test moves."""

    def __init__(self) -> None:
        self.put = self.found = self.miss = self.transferred = 0

    def __call__(self) -> Totals:
        return Totals(self.put, self.found, self.miss, self.transferred)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def stats(clock: ManualClock, store: Store) -> BrokerStats:
    return BrokerStats(clock, "c", store)


def run(stats: BrokerStats, clock: ManualClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance_ms(1_000)
        stats.tick()


def test_what_was_never_counted_is_unknown(stats: BrokerStats) -> None:
    """VIEW_BROKER_STATS_DATA answers `not exist` then."""
    assert stats.windows("TOPIC_PUT_NUMS", "T") is None
    assert stats.windows("NONSENSE", "T") is None
    assert stats.group_get_tps("g", "T") == 0.0


def test_a_rate_is_right_in_the_first_minute(stats: BrokerStats, clock: ManualClock) -> None:
    """A zero from before the broker's start made it less than half of what came in, and a minute of it."""
    counter = stats.put_counter("T", 0)
    for second in range(1, 90):
        counter.nums += 20
        run(stats, clock, 1)
        assert stats.topic_put_tps("T") == 20, second
        # What is said of a minute is counted, not reckoned up from some seconds.
        stats.count_sent_back("g", "T")
        assert stats.minute("SNDBCK_PUT_NUMS", "T@g").sum <= min(second, 60)


def test_an_item_is_there_with_its_first_message(stats: BrokerStats, clock: ManualClock) -> None:
    """Its first point is a made-up zero one period ago: 5 messages in 10 s."""
    run(stats, clock, 10)
    counter = stats.put_counter("T", 1)
    counter.nums += 5
    counter.size += 500
    found = stats.windows("TOPIC_PUT_NUMS", "T")
    assert found is not None
    minute, hour, day = found
    assert minute.to_json() == {"avgpt": 1.0, "sum": 5, "tps": 0.5}
    assert hour.sum == day.sum == 5
    assert hour.tps == pytest.approx(5 / 600)
    assert day.tps == pytest.approx(5 / 3600)
    size = stats.windows("TOPIC_PUT_SIZE", "T")
    assert size is not None
    assert (size[0].sum, size[0].avgpt) == (500, 100.0)


def test_a_minute_is_seven_samples_of_ten_seconds(stats: BrokerStats, clock: ManualClock) -> None:
    """10 per second: the window's sum settles at 600, whatever came before."""
    counter = stats.put_counter("T", 0)
    for _ in range(100):
        counter.nums += 10
        run(stats, clock, 1)
    minute = stats.windows("TOPIC_PUT_NUMS", "T")
    assert minute is not None
    assert (minute[0].sum, minute[0].tps) == (600, 10.0)
    run(stats, clock, 80)
    minute = stats.windows("TOPIC_PUT_NUMS", "T")
    assert minute is not None
    assert minute[0].sum == 0
    assert stats.hour_sum("TOPIC_PUT_NUMS", "T") == 1_000


@given(st.lists(st.sampled_from((0, 0, 0, 0, 0, 1, 5)), min_size=1, max_size=60))
def test_a_window_is_that_of_its_last_seven_samples(added: list[int]) -> None:
    """Those that say nothing new are not kept."""
    clock = ManualClock()
    stats = BrokerStats(clock, "c", Store())
    counter = stats.put_counter("T", 0)
    samples = [(0, 0)]
    for count in added:
        counter.nums += count
        run(stats, clock, 10)
        samples = [*samples, (len(samples) * 10 + 10, counter.nums)]
        (first_s, first), (last_s, last) = samples[-7:][0], samples[-1]
        found = stats.windows("QUEUE_PUT_NUMS", "T@0")
        assert found is not None
        assert found[0].sum == last - first
        if first or first_s:
            assert found[0].tps == pytest.approx((last - first) / (last_s - first_s))
    # Seven samples see six steps.
    assert counter.minute is not stats_module.STILL or not any(added[-6:])
    changes = sum(count > 0 for count in added[-7:])
    assert len(counter.minute) <= 4 * (2 * changes + 3)


def test_windows_that_come_to_rest_with_other_values_keep_them(
    stats: BrokerStats, clock: ManualClock
) -> None:
    """An hour is still with one message, then the minute with two: each knows the change that it saw."""
    counter = stats.put_counter("T", 0)
    counter.nums = 1
    run(stats, clock, 2 * 3_600)
    assert counter.minute is counter.hour is stats_module.STILL
    run(stats, clock, 30)
    counter.nums = 2
    run(stats, clock, 120)
    found = stats.windows("QUEUE_PUT_NUMS", "T@0")
    assert found is not None
    assert [window.sum for window in found] == [0, 0, 1]
    run(stats, clock, 600)
    found = stats.windows("QUEUE_PUT_NUMS", "T@0")
    assert found is not None
    assert [window.sum for window in found] == [0, 1, 1]
    run(stats, clock, 3_600)
    found = stats.windows("QUEUE_PUT_NUMS", "T@0")
    assert found is not None
    assert [window.sum for window in found] == [0, 0, 2]


def test_items_are_sums_over_queues_and_groups(stats: BrokerStats, clock: ManualClock) -> None:
    """Every name of the table, by its key (wire.md 2.9)."""
    run(stats, clock, 10)
    for queue_id in range(2):
        put = stats.put_counter("T", queue_id)
        put.nums, put.size, put.batched = 10, 1000, 8
        got = stats.get_counter("g", "T", queue_id)
        got.nums, got.size, got.calls, got.latency_ms = 6, 600, 3, 9
    stats.count_sent_back("g", "T")
    expected = {
        ("TOPIC_PUT_NUMS", "T"): (20, 5.0),
        ("TOPIC_PUT_SIZE", "T"): (2000, 500.0),
        ("QUEUE_PUT_NUMS", "T@1"): (10, 5.0),
        ("QUEUE_PUT_SIZE", "T@0"): (1000, 500.0),
        ("GROUP_GET_NUMS", "T@g"): (12, 2.0),
        ("GROUP_GET_SIZE", "T@g"): (1200, 200.0),
        ("GROUP_GET_LATENCY", "0@T@g"): (9, 3.0),
        ("QUEUE_GET_NUMS", "T@1@g"): (6, 2.0),
        ("QUEUE_GET_SIZE", "T@1@g"): (600, 200.0),
        ("SNDBCK_PUT_NUMS", "T@g"): (1, 1.0),
        ("BROKER_PUT_NUMS", "c"): (20, 0.0),
        ("BROKER_GET_NUMS", "c"): (12, 0.0),
    }
    for (name, key), (total, average) in expected.items():
        found = stats.windows(name, key)
        assert found is not None, name
        assert (found[0].sum, found[0].avgpt) == (total, average), name
    assert stats.group_get_tps("g", "T") == 1.2
    assert stats.topic_put_tps("T") == 2.0


def test_many_queues_are_sampled_over_several_ticks(
    stats: BrokerStats, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick samples a bounded number, whatever is counted meanwhile; in the end each has its rate."""
    monkeypatch.setattr(stats_module, "PIECE", 100)
    for number in range(200):
        stats.put_counter(f"T{number}", 0).nums = 30

    def items() -> int:
        of_queues = sum(bool(p.minute) for queues in stats.put.values() for p in queues.values())
        return len(stats._items) + of_queues

    run(stats, clock, 10)
    sampled = [items()]
    assert sampled[0] <= 100
    # Two of each topic's, and the broker's.
    while sampled[-1] < 2 * 200 + 1:
        stats.put_counter(f"U{len(sampled)}", 0).nums = 1
        run(stats, clock, 1)
        assert items() - sampled[-1] <= 100
        sampled.append(items())
        assert len(sampled) < 200
    assert {stats.minute("TOPIC_PUT_NUMS", f"T{n}").tps for n in range(200)} == {3.0}


def test_what_is_deleted_is_forgotten(stats: BrokerStats) -> None:
    for topic in ("T", "U"):
        stats.put_counter(topic, 0).nums += 1
        for group in ("g", "h"):
            stats.get_counter(group, topic, 0).nums += 1
            stats.count_sent_back(group, topic)
    for name, key in (("TOPIC_PUT_NUMS", "T"), ("GROUP_GET_NUMS", "T@g")):
        assert stats.windows(name, key) is not None
    stats.forget_topic("T")
    assert stats.windows("TOPIC_PUT_NUMS", "T") is None
    assert stats.windows("GROUP_GET_NUMS", "T@g") is None
    stats.forget_group("g")
    assert stats.windows("GROUP_GET_NUMS", "U@g") is None
    assert stats.windows("SNDBCK_PUT_NUMS", "U@h") is not None


def test_rates_are_three_numbers_from_the_first_second(
    stats: BrokerStats, clock: ManualClock, store: Store
) -> None:
    """Tools split them at the blanks and read numbers."""
    assert stats.rate_text(lambda totals: totals.put) == "0.0 0.0 0.0"
    for _ in range(700):
        store.put += 100
        run(stats, clock, 1)
    assert stats.rates(lambda totals: totals.put) == (100.0, 100.0, 100.0)
    run(stats, clock, 10)
    ten, minute, ten_minutes = stats.rates(lambda totals: totals.put)
    assert ten == 0.0
    assert minute == pytest.approx(100 * 50 / 60)
    assert ten_minutes == pytest.approx(100 * 590 / 600)


def test_the_day_turns_at_midnight(clock: ManualClock, store: Store) -> None:
    """msgPutTotalTodayMorning and the like."""
    stats = BrokerStats(clock, "c", store)
    store.put, store.transferred = 7, 5
    clock.advance_ms(24 * 3_600_000)
    stats.tick()
    assert (stats.put_total_today_morning, stats.get_total_today_morning) == (7, 5)
    store.put = 9
    clock.advance_ms(24 * 3_600_000)
    stats.tick()
    assert (stats.put_total_yesterday_morning, stats.put_total_today_morning) == (7, 9)
