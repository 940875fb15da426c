"""The groups' filters and consumerFilter.json; S78, disk.md 9."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.sql92.bloom import BloomFilter
from pocketmq.broker.sql92.consumer_filter import CLEAN_TIME_SPAN_MS, ConsumerFilterManager
from pocketmq.model.subscription import SubscriptionData, build_subscription
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import ManualClock
from pocketmq.store import ConfigFile

STORES = Path(__file__).parents[1] / "golden" / "data" / "stores"


@pytest.fixture
def manager(tmp_path: Path, clock: ManualClock) -> ConsumerFilterManager:
    return ConsumerFilterManager(
        ConfigFile(str(tmp_path / "consumerFilter.json")), clock, BloomFilter()
    )


def sql(topic: str, expression: str, version: int) -> SubscriptionData:
    return build_subscription(topic, expression, "SQL92", version)


def held(manager: ConsumerFilterManager, topic: str = "T", group: str = "g") -> Any:
    found = manager.get(topic, group)
    assert found is not None
    return found


def test_a_filter_is_kept_per_topic_and_group_with_its_version(
    manager: ConsumerFilterManager,
) -> None:
    """S78: what a heartbeat with SQL92 leaves behind; tags leave nothing."""
    manager.register("g", [sql("T", "a > 1", 5), build_subscription("U", "tagA")])
    assert held(manager).client_version == 5
    assert held(manager).matches({"a": "2"})
    assert not held(manager).matches({"a": "1"})
    assert manager.get("U", "g") is None
    assert manager.get("T", "other") is None
    assert manager.dirty


def test_only_a_greater_version_replaces_the_expression(manager: ConsumerFilterManager) -> None:
    """Invariant 1, as for subscriptions (S68)."""
    manager.register("g", [sql("T", "a > 1", 5)])
    manager.register("g", [sql("T", "a > 2", 5)])
    assert held(manager).expression == "a > 1"
    manager.register("g", [sql("T", "a > 2", 6)])
    assert (held(manager).expression, held(manager).client_version) == ("a > 2", 6)


def test_an_unchanged_expression_keeps_its_birth(
    manager: ConsumerFilterManager, clock: ManualClock
) -> None:
    """Bit maps since its birth stay usable; only the version moves on."""
    manager.register("g", [sql("T", "a > 1", 5)])
    born_ms = held(manager).born_ms
    clock.advance_ms(1_000)
    manager.register("g", [sql("T", "a > 1", 9)])
    assert (held(manager).born_ms, held(manager).client_version) == (born_ms, 9)
    clock.advance_ms(1_000)
    manager.register("g", [sql("T", "a > 7", 10)])
    assert held(manager).born_ms == born_ms + 2_000


def test_a_wrong_expression_removes_the_old_one(manager: ConsumerFilterManager) -> None:
    """Invariant 4: the client's pulls are then answered with 27 and it learns of its mistake."""
    manager.register("g", [sql("T", "a >", 5)])
    assert manager.get("T", "g") is None
    manager.register("g", [sql("T", "a > 1", 6)])
    manager.register("g", [sql("T", "a >", 7)])
    assert manager.get("T", "g") is None


def test_a_filter_dies_and_revives_with_its_group(
    manager: ConsumerFilterManager, clock: ManualClock
) -> None:
    """Invariant 2."""
    manager.register("g", [sql("T", "a > 1", 5), sql("U", "b > 1", 5)])
    clock.advance_ms(10)
    manager.register("g", [sql("T", "a > 1", 5)])
    assert not held(manager).is_dead
    assert held(manager, "U").is_dead
    manager.unregister("g")
    assert held(manager).is_dead
    assert manager.bit_map("T", {"a": "2"}) == manager.bloom.bit_map([held(manager).bloom])
    manager.register("g", [sql("T", "a > 1", 5), sql("U", "b > 1", 6)])
    assert not held(manager).is_dead
    assert not held(manager, "U").is_dead


def test_a_dead_filter_is_removed_a_day_later(
    manager: ConsumerFilterManager, clock: ManualClock
) -> None:
    manager.register("g", [sql("T", "a > 1", 5)])
    clock.advance_ms(10)
    manager.unregister("g")
    clock.advance_ms(CLEAN_TIME_SPAN_MS - 1)
    manager.clean()
    assert held(manager).is_dead
    clock.advance_ms(1)
    manager.clean()
    assert manager.get("T", "g") is None
    assert manager.to_json() == {"filterDataByTopic": {}}


def test_a_bit_map_names_the_groups_that_want_the_record(
    manager: ConsumerFilterManager,
) -> None:
    assert manager.bit_map("T", {"a": "1"}) is None
    manager.register("low", [sql("T", "a < 5", 1)])
    manager.register("high", [sql("T", "a > 5", 1)])
    bits = manager.bit_map("T", {"a": "1"})
    assert bits == manager.bloom.bit_map([held(manager, group="low").bloom])
    assert manager.bit_map("T", {}) == bytes(14)


def test_filters_are_dead_after_a_restart_until_registration(
    manager: ConsumerFilterManager, clock: ManualClock, tmp_path: Path
) -> None:
    """Invariant 3: RocketMQ dates their death 30 s back, but not before their birth."""
    manager.register("g", [sql("T", "a > 1", 5)])
    born_ms = held(manager).born_ms
    manager.persist()
    clock.advance_ms(100_000)
    again = ConsumerFilterManager(
        ConfigFile(str(tmp_path / "consumerFilter.json")), clock, BloomFilter()
    )
    again.load()
    assert held(again).is_dead
    assert held(again).dead_ms == clock.now_ms() - 30_000
    assert held(again).born_ms == born_ms
    assert held(again).matches({"a": "2"})
    other_size = ConsumerFilterManager(
        ConfigFile(str(tmp_path / "consumerFilter.json")), clock, BloomFilter(10, 32)
    )
    other_size.load()
    assert other_size.get("T", "g") is None


@pytest.mark.parametrize("store", ["v497-ext.clean", "v497-ext.crash"])
def test_a_recorded_file_is_read_and_written_as_it_was(
    manager: ConsumerFilterManager, store: str
) -> None:
    """disk.md 9: consumerFilter.json of a real broker, key for key; only alive entries become dead."""
    with tarfile.open(STORES / f"{store}.tar.gz") as tar:
        name = next(name for name in tar.getnames() if name.endswith("/consumerFilter.json"))
        content = tar.extractfile(name)
        assert content is not None
        recorded: Any = fastjson.loads(content.read())
    manager.from_json(recorded)
    written: Any = json.loads(json.dumps(manager.to_json()))
    for topic in recorded["filterDataByTopic"].values():
        for entry in topic["groupFilterData"].values():
            if not entry["dead"]:
                entry["dead"] = True
                entry["deadTime"] = held(manager, entry["topic"], entry["consumerGroup"]).dead_ms
    assert written == recorded


def test_a_broken_entry_is_left_out_and_the_rest_is_read(
    manager: ConsumerFilterManager, caplog: pytest.LogCaptureFixture
) -> None:
    """A side file may hold anything: nothing in it stops the broker."""
    manager.register("g", [sql("T", "a > 1", 5)])
    good = manager.to_json()["filterDataByTopic"]["T"]["groupFilterData"]["g"]
    broken = [{}, 7, {**good, "bornTime": "soon"}, {**good, "bloomFilterData": {"bitNum": 112}}]
    groups = {"g": good, **{f"g{number}": entry for number, entry in enumerate(broken)}}
    manager.from_json({"filterDataByTopic": {"T": {"groupFilterData": groups}, "U": None}})
    assert [data.group for data in manager.of_topic("T")] == ["g"]
    assert caplog.text.count("skipped an entry that cannot be read") == len(broken)
    rubbish: Any
    for rubbish in (None, [], "x", {"filterDataByTopic": 5}):
        manager.from_json(rubbish)
    unparsable = {**good, "expression": "a >"}
    manager.from_json({"filterDataByTopic": {"T": {"groupFilterData": {"g": unparsable}}}})
    assert held(manager).matches({}), "as RocketMQ: what does not parse lets everything through"


def test_filters_of_any_number_of_names_are_not_kept(
    manager: ConsumerFilterManager, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that uses a new group each time left each one's expression behind, for a day."""
    monkeypatch.setattr("pocketmq.broker.sql92.consumer_filter.DEAD_SIZE_MAX", 20_000)
    manager.register("stays", [sql("T", "a > 1", 1)])
    for number in range(100):
        clock.advance_ms(1)
        manager.register(f"g{number}", [sql(f"T{number % 7}", "a > 1", 1)])
        manager.unregister(f"g{number}")
    kept = [n for n in range(100) if manager.get(f"T{n % 7}", f"g{n}") is not None]
    assert kept == list(range(81, 100))
    assert not held(manager, "T", "stays").is_dead
    # One that is in use again does not count.
    manager.register("g81", [sql("T4", "a > 1", 2)])
    clock.advance_ms(1)
    manager.register("more", [sql("T", "a > 1", 1)])
    manager.unregister("more")
    assert manager.get("T4", "g81") is not None
    assert manager.get("T5", "g82") is not None
    again = ConsumerFilterManager(manager._file, clock, BloomFilter())
    manager.persist()
    again.load()
    assert len(again.to_json()["filterDataByTopic"]) <= 8
