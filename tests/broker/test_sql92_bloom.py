"""The Bloom filter of ConsumeQueueExt, bit for bit (disk.md 5)."""

import random
import tarfile
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any

import pytest

from pocketmq.broker.sql92.bloom import BloomFilter, BloomFilterData, is_hit
from pocketmq.broker.sql92.consumer_filter import ConsumerFilterData
from pocketmq.broker.sql92.message_filter import ExpressionMessageFilter
from pocketmq.model.message_codec import properties_to_dict
from pocketmq.model.record import properties_of, read_record
from pocketmq.model.subscription import build_subscription
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting import fastjson
from pocketmq.remoting.errors import IllegalArgument
from tests.broker.serving import Peer, serving
from tests.broker.test_sql92 import rocketmq
from tests.interop.driver import Driver

__all__ = ["rocketmq"]
STORES = Path(__file__).parents[1] / "golden" / "data" / "stores"
ENTRY = Struct(">qiq")
UNIT = Struct(">hqqh")


def test_positions_are_those_of_the_recorded_brokers() -> None:
    """disk.md 5: 20 percent, 32 consumers: k = 3, m = 112."""
    bloom = BloomFilter(20, 32)
    assert (bloom.k, bloom.m) == (3, 112)
    assert bloom.positions("group1#TopicTest") == (79, 5, 68)
    assert bloom.positions("GdGidSql0#GdExt") == (42, 23, 4)
    assert bloom.positions("GdGidSql1#GdExt") == (70, 63, 87)


def test_sizes_and_positions_are_rocketmqs_for_any_setting(rocketmq: tuple[str, Driver]) -> None:
    """Any maxErrorRateOfBloomFilter and expectConsumerNumUseFilter, names of any script."""
    _, driver = rocketmq
    chance = random.Random(92)
    letters = "abcXYZ019_-%|#中文é𝟓 "
    for rate, consumers in [(20, 32), (1, 1), (99, 7), (10, 128), (50, 64), (3, 1000)]:
        names = ["".join(chance.choices(letters, k=chance.randrange(60))) for _ in range(50)]
        said = driver.call("bloom", rate=rate, consumers=consumers, names=names)
        bloom = BloomFilter(rate, consumers)
        assert (bloom.k, bloom.m) == (said["k"], said["m"])
        assert [list(bloom.positions(name)) for name in names] == said["positions"]
        members = [BloomFilterData(bloom.positions(name), bloom.m) for name in names]
        assert list(bloom.bit_map(members)) == said["bytes"]


def test_a_bad_setting_is_refused_by_its_name() -> None:
    with pytest.raises(IllegalArgument, match="maxErrorRateOfBloomFilter"):
        BloomFilter(100, 32)
    with pytest.raises(IllegalArgument, match="expectConsumerNumUseFilter"):
        BloomFilter(20, 0)


class RecordedExt:
    """A recorded store with ConsumeQueueExt: its filters, and (record, unit) pairs of one topic."""

    def __init__(self, archive: Path, topic: str) -> None:
        self.topic = topic
        self._files: dict[str, bytes] = {}
        with tarfile.open(archive) as tar:
            for member in tar.getmembers():
                content = tar.extractfile(member) if member.isfile() else None
                if content is not None:
                    self._files[member.name.partition("/")[2]] = content.read()
        config: Any = fastjson.loads(self._files["config/consumerFilter.json"])
        held = config["filterDataByTopic"][topic]["groupFilterData"]
        self.filters = [ConsumerFilterData.from_json(entry) for entry in held.values()]

    def pairs(self) -> Iterator[tuple[memoryview, int, bytes]]:
        """(record, store time of the unit, bit map) of all entries with a unit."""
        log = self._folder("commitlog")
        for queue in self._queues():
            units = self._folder(f"consumequeue_ext/{self.topic}/{queue}")
            for position, size, code in ENTRY.iter_unpack(
                self._folder(f"consumequeue/{self.topic}/{queue}")
            ):
                if size <= 0 or code > -(1 << 31) - 1:
                    continue
                at = code + (1 << 63)
                _, _, store_ms, length = UNIT.unpack_from(units, at)
                yield (
                    memoryview(log)[position : position + size],
                    store_ms,
                    units[at + UNIT.size : at + UNIT.size + length],
                )

    def _queues(self) -> set[str]:
        start = f"consumequeue/{self.topic}/"
        return {name.split("/")[2] for name in self._files if name.startswith(start)}

    def _folder(self, folder: str) -> bytes:
        names = sorted(name for name in self._files if name.startswith(f"{folder}/"))
        return b"".join(self._files[name] for name in names)


@pytest.fixture(scope="module", params=["v497-ext.clean", "v497-ext.crash"])
def recorded(request: pytest.FixtureRequest) -> RecordedExt:
    return RecordedExt(STORES / f"{request.param}.tar.gz", "GdExt")


def test_bit_maps_are_those_that_a_real_broker_stored(recorded: RecordedExt) -> None:
    """ConsumeQueueExt bit for bit, from the expressions and the records' properties."""
    bloom = BloomFilter()
    born_ms = max(data.born_ms for data in recorded.filters)
    compared = hits = 0
    for record, store_ms, bit_map in recorded.pairs():
        if store_ms <= born_ms:
            continue
        properties = properties_to_dict(read_record(record).properties)
        members = [data.bloom for data in recorded.filters if data.matches(properties)]
        assert bloom.bit_map(member for member in members if member is not None) == bit_map
        compared += 1
        hits += bool(members)
    assert compared > 20
    assert 0 < hits < compared


def test_the_filters_of_a_recorded_store_never_rule_out_a_match(recorded: RecordedExt) -> None:
    """A bit map may let too much through, never too little, and maps older than a filter are not asked."""
    bloom = BloomFilter()
    ruled_out = 0
    for record, store_ms, bit_map in recorded.pairs():
        assert properties_of(record) == read_record(record).properties
        for data in recorded.filters:
            accepts = ExpressionMessageFilter(data).record
            assert accepts is not None
            matches = data.matches(properties_to_dict(properties_of(record)))
            assert accepts(record) is matches
            may = data.may_match(store_ms, bit_map, bloom)
            assert may or not matches
            ruled_out += not may
            assert data.may_match(data.born_ms, bit_map, bloom)
            assert data.may_match(store_ms, b"", bloom)
            assert data.may_match(store_ms, bit_map, BloomFilter(10, 32))
    assert ruled_out


def test_a_map_holds_all_members_and_others_only_by_chance() -> None:
    bloom = BloomFilter(20, 32)
    members = [bloom.data(f"group{number}", "T") for number in range(32)]
    bit_map = bloom.bit_map(members)
    assert all(is_hit(member, bit_map) for member in members)
    others = [bloom.data(f"other{number}", "T") for number in range(2_000)]
    assert 0.1 < sum(is_hit(other, bit_map) for other in others) / len(others) < 0.3


async def test_a_broker_writes_the_bit_maps_of_its_groups_and_reads_by_tag_all_the_same(
    tmp_path: Path,
) -> None:
    """enableConsumeQueueExt with enableCalcFilterBitMap: units as disk.md 5 describes them."""
    ext = {"enable_consume_queue_ext": True}
    async with serving(tmp_path, store=ext, enable_calc_filter_bit_map=True) as broker:
        broker.parts.tables.topics.update(TopicConfig("T", 4, 4))
        broker.parts.tables.filters.register("low", [build_subscription("T", "a < 5", "SQL92", 1)])
        broker.parts.tables.filters.register("high", [build_subscription("T", "a > 5", "SQL92", 1)])
        async with await Peer.at(broker) as peer:
            for a in ("1", "5", "9"):
                await peer.produce("T", b"x", queue_id=0, TAGS="A", a=a)
        wanted = [broker.parts.tables.filters.bit_map("T", {"a": a}) for a in ("1", "5", "9")]
        (file,) = (tmp_path / "consumequeue_ext" / "T" / "0").iterdir()
        units, at = file.read_bytes(), 0
        for bit_map in wanted:
            assert bit_map is not None
            size, code, _, length = UNIT.unpack_from(units, at)
            assert (size, code, length) == (UNIT.size + 14, ord("A"), 14)
            assert units[at + UNIT.size : at + size] == bit_map
            at += size
        assert len(set(wanted)) == 3
        assert broker.parts.messages.store.read("T", 0, 0, 32).count == 3
