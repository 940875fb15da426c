"""A SQL92 filter over a long queue: each pull is short, together they reach the end."""

from pathlib import Path

from pocketmq.broker.sql92 import compile_expression
from pocketmq.broker.sql92.consumer_filter import ConsumerFilterData
from pocketmq.broker.sql92.message_filter import ExpressionMessageFilter
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.message_codec import encode_batch, pack_address
from pocketmq.store import MessageStore, ReadStatus, StoreConfig
from pocketmq.store.message_reader import RECORD_SCAN_MAX

HOST = pack_address("127.0.0.1", 10911)


async def test_a_filter_that_lets_nothing_through_does_not_hold_up_the_broker(
    tmp_path: Path,
) -> None:
    """Issue 3 part 8: a subscription of one client must not stop the others; nextBeginOffset goes on."""
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
