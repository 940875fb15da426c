"""kill -9 of the broker under mixed load, while it runs and while it starts: nothing acknowledged is lost.

The seed is printed; POCKETMQ_SEED replays the moments (as far as the machine's own timing allows).
`--kill-rounds N` for more rounds.
"""

import asyncio
import logging
import os
import random
import time
from pathlib import Path

import pytest

from tests.crash.mixed_load import WORKERS, Ledger, batch, burst, plain, verify, work
from tests.interop.brokers import PocketBroker
from tests.kit.nursery import Nursery

log = logging.getLogger(__name__)
# Small files: many ends of files are crossed, and many are there when the broker starts.
SMALL = {
    "mappedFileSizeCommitLog": 256 << 10,
    "mappedFileSizeConsumeQueue": 2_000,
    "mappedFileSizeTimerLog": 64 << 10,
    "maxHashSlotNum": 1_024,
    "maxIndexNum": 4_096,
    "flushConsumerOffsetInterval": 200,
    "flushDelayOffsetInterval": 200,
    "cleanResourceInterval": 100,
    # A machine whose own disk is nearly full would delete what is to be kept.
    "diskSpaceCleanForciblyRatio": 1.0,
}
DELETES = {"fileReservedTime": 0, "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24))}


@pytest.mark.slow
@pytest.mark.parametrize("retained", [True, False], ids=["kept", "deleted-meanwhile"])
def test_nothing_acknowledged_is_lost_by_kill_9_under_mixed_load(
    retained: bool, tmp_path: Path, request: pytest.FixtureRequest, nursery: Nursery
) -> None:
    """Plain, batch, delay, timer, transaction and pop; files roll over; without `kept` they are deleted."""
    rounds = max(1, int(request.config.getoption("--kill-rounds")) // 5)
    seed = int(os.environ.get("POCKETMQ_SEED", random.randrange(2**32)))
    log.warning("seed %d", seed)
    chance = random.Random(seed)
    ledger = Ledger()
    broker = PocketBroker(
        tmp_path,
        broker_name="b",
        config={**SMALL, **({} if retained else DELETES)},
        nursery=nursery,
    )
    workers = WORKERS if retained else (plain, batch, burst)
    starts: list[float] = []

    async def one_round(seconds: float) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(work(broker.address, ledger, workers))
            await asyncio.sleep(seconds)
            await asyncio.to_thread(broker.kill)

    try:
        for _ in range(rounds):
            if chance.random() < 0.3:
                broker.launch()
                time.sleep(chance.uniform(0.05, 0.5))
                broker.kill()
            before = time.monotonic()
            broker.start()
            starts.append(time.monotonic() - before)
            asyncio.run(one_round(chance.uniform(0.05, 0.6)))
        broker.start()
        asyncio.run(verify(broker.address, ledger, retained=retained))
        assert broker.stop() == 0
    finally:
        broker.kill()
    starts.sort()
    log.warning(
        "rounds=%d acknowledged=%d popped=%d start p50=%.2f s p99=%.2f s",
        rounds,
        ledger.count,
        len(ledger.popped),
        starts[len(starts) // 2],
        starts[int(len(starts) * 0.99)],
    )
    assert ledger.count > rounds
