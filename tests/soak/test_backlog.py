"""A consumer that is far behind: little memory, and no other client waits for it.

Default 60,000 messages; `--backlog 20000000` is the run of docs/reliability.md (3 GB of disk).
Waiting times are compared within one run: without the late group, and while it reads.
"""

import asyncio
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.crash.mixed_load import Peer, peer
from tests.interop.brokers import PocketBroker
from tests.soak.fill_store import QUEUES
from tests.soak.test_soak import Figures

log = logging.getLogger(__name__)
TOPIC = "Behind"
MEMORY_MAX = 100 << 20
_SAMPLES = 1_000


async def other_group(to: Peer) -> list[float]:
    """Seconds that one message took each: sent, and pulled by a group that is not behind."""
    taken: list[float] = []
    for number in range(_SAMPLES):
        begin = time.perf_counter()
        sent = await to.send("Near", 0, b"%d" % number)
        messages = await to.pull("Near", 0, sent.queue_offset)
        taken.append(time.perf_counter() - begin)
        assert [body for _, body in messages] == [b"%d" % number]
    return sorted(taken)


async def read_all(to: Peer, queue_id: int) -> int:
    offset, end = await to.bounds(TOPIC, queue_id)
    begin = offset
    while offset < end:
        messages = await to.pull(TOPIC, queue_id, offset)
        assert messages[0][0] == offset
        offset = messages[-1][0] + 1
    return offset - begin


async def read_everything(address: str) -> int:
    async with peer(address) as to:
        return sum(await asyncio.gather(*(read_all(to, each) for each in range(QUEUES))))


async def measure(
    broker: PocketBroker, figures: Figures
) -> tuple[list[float], list[float], int, int]:
    """Waiting times without and with the late group, the messages it read, and the peak of memory."""
    async with peer(broker.address) as near:
        # The first send makes the topic, whose messages are there already.
        await near.send(TOPIC, 0, b"last")
        alone = await other_group(near)
        peak = 0
        # A process of its own: decoding here would make the other group wait for this test.
        late = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.soak.test_backlog", broker.address),
            stdout=subprocess.PIPE,
        )
        assert late.stdout is not None
        assert await late.stdout.readline() == b"reads\n"
        beside = await other_group(near)
        still_reading = late.returncode is None
        done = asyncio.get_running_loop().create_task(late.stdout.read())
        while not done.done():
            peak = max(peak, figures.now()[0])
            await asyncio.wait([done], timeout=0.2)
        assert await late.wait() == 0
        log.warning("the late group read all the while: %s", still_reading)
        return alone, beside, int(await done), max(peak, figures.now()[0])


@pytest.mark.slow
def test_a_group_far_behind_costs_little_memory_and_time(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    count = int(request.config.getoption("--backlog"))
    store = tmp_path / "store"
    program = [sys.executable, "-m", "tests.soak.fill_store", str(store), TOPIC, str(count)]
    subprocess.run(program, check=True)
    broker = PocketBroker(tmp_path, store=store)
    broker.start()
    try:
        figures = Figures(broker.process.pid)
        idle = figures.now()[0]
        alone, beside, read, peak = asyncio.run(measure(broker, figures))
    finally:
        assert broker.stop() == 0
    half, last = len(alone) // 2, int(len(alone) * 0.99)
    log.warning(
        "behind=%d memory idle %.1f MB, peak %.1f MB; a message alone p50 %.2f p99 %.2f ms, "
        "beside the late group p50 %.2f p99 %.2f ms",
        count,
        idle / 1e6,
        peak / 1e6,
        alone[half] * 1e3,
        alone[last] * 1e3,
        beside[half] * 1e3,
        beside[last] * 1e3,
    )
    assert read == count + 1
    assert peak < MEMORY_MAX


if __name__ == "__main__":
    sys.stdout.write("reads\n")
    sys.stdout.flush()
    sys.stdout.write(f"{asyncio.run(read_everything(sys.argv[1]))}")
