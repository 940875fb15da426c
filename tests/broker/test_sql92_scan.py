"""A SQL92 filter over a long queue: each pull is short, together they reach the end."""

from collections.abc import Callable
from pathlib import Path

from pocketmq.broker.events import Events
from pocketmq.broker.sql92.bloom import BloomFilter
from pocketmq.broker.sql92.consumer_filter import ConsumerFilterData, ConsumerFilterManager
from pocketmq.broker.sql92.message_filter import ExpressionMessageFilter
from pocketmq.model.record import encode_batch
from pocketmq.model.sql92 import compile_expression
from pocketmq.model.subscription import build_subscription
from pocketmq.remoting.clock import ManualClock, SystemClock
from pocketmq.remoting.hosts import pack_address
from pocketmq.store import ConfigFile, MessageStore, ReadStatus, StoreConfig
from pocketmq.store.message_reader import RECORD_SCAN_MAX

HOST = pack_address("127.0.0.1", 10911)


async def test_a_filter_that_passes_nothing_does_not_block_the_broker(
    tmp_path: Path,
) -> None:
    """A subscription of one client must not stop the others; nextBeginOffset advances."""
    config = StoreConfig(store_path_root_dir=str(tmp_path), mapped_file_size_commit_log=1 << 24)
    batch = encode_batch((0, b"x", b"a\x01%d" % number) for number in range(1_000))
    compiled = compile_expression("a = 999")
    data = ConsumerFilterData("g", "T", "a = 999", "SQL92", None, 1, 1, 0, compiled)
    matches = ExpressionMessageFilter(data)
    async with MessageStore(config, clock=SystemClock(), store_host=HOST) as store:
        for _ in range(10):
            store.append_batch("T", 0, batch, b"", 0, 1, HOST)
        found, offset, pulls = 0, 0, 0
        while (result := store.read("T", 0, offset, 32, matches)).status in (
            ReadStatus.FOUND,
            ReadStatus.NO_MATCHED_MESSAGE,
        ):
            assert 0 < result.next_offset - offset <= RECORD_SCAN_MAX
            found, offset, pulls = found + result.count, result.next_offset, pulls + 1
        assert (found, offset) == (10, 10_000)
        assert pulls >= 10_000 // RECORD_SCAN_MAX


async def test_bit_maps_spare_the_looks_at_records_that_cannot_match(tmp_path: Path) -> None:
    """S78: same messages, fewer records read; what is older than the filter is looked at."""
    clock = ManualClock()
    file = ConfigFile(str(tmp_path / "consumerFilter.json"))
    manager = ConsumerFilterManager(file, clock, BloomFilter())
    config = StoreConfig(
        store_path_root_dir=str(tmp_path / "store"),
        mapped_file_size_commit_log=1 << 22,
        enable_consume_queue_ext=True,
    )
    events = Events()
    events.arrivals.mapped_by(manager.bit_map_of)
    opened = MessageStore(config, clock=clock, store_host=HOST, arrivals=events.arrivals)
    async with opened as store:
        for number in range(300):
            if number == 100:
                clock.advance_ms(1)
                manager.register("g", [build_subscription("T", "a = 7", "SQL92", 5)])
                clock.advance_ms(1)
            store.append("T", 0, b"x", b"a\x01%d\x02" % (number % 50), 0, 0, 0, HOST)
        data = manager.get("T", "g")
        assert data is not None
        filters = ExpressionMessageFilter(data), ExpressionMessageFilter(data, manager.bloom)
        looked: list[int] = []
        for each in filters:
            accepts = each.record
            assert accepts is not None

            def counted(
                record: memoryview, accepts: Callable[[memoryview], bool] = accepts
            ) -> bool:
                looked[-1] += 1
                return accepts(record)

            looked.append(0)
            each.record = counted
            result = store.read("T", 0, 0, 1_000, each)
            assert (result.count, result.next_offset) == (6, 300)
        without, with_maps = looked
        assert without == 300
        assert 100 <= with_maps < 150
