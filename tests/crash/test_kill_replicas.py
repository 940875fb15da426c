"""kill -9 of a master or of its slave under load, restart, promotion: nothing acknowledged is lost.

The seed is printed; POCKETMQ_SEED replays it (as far as the machine's own timing allows).
`--replica-kills N` for more rounds.
"""

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pocketmq.broker.ha.config import ASYNC_MASTER, SYNC_MASTER
from pocketmq.remoting.codes import ResponseCode
from tests.crash.replica_pair import ReplicaPair

log = logging.getLogger(__name__)


async def fail_over(pair: ReplicaPair) -> None:
    """The master dies for good, the slave leads, and the old one comes back as its slave."""
    await pair.kill_master()
    await pair.promote()
    await pair.more_answers(20, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.SUCCESS)
    await pair.start_slave()


async def slave_dies(pair: ReplicaPair) -> None:
    """The master serves alone, and its answers say so."""
    await pair.kill_slave()
    await pair.more_answers(20, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.SUCCESS)
    await pair.start_slave()


async def master_returns(pair: ReplicaPair) -> None:
    await pair.kill_master()
    await pair.start_master()


async def both_die(pair: ReplicaPair) -> None:
    await pair.kill_master()
    await pair.kill_slave()
    await pair.start_master()
    await pair.start_slave()


DEATHS = [fail_over, slave_dies, master_returns, both_die]


@pytest.mark.parametrize("role", [SYNC_MASTER, ASYNC_MASTER])
async def test_kill_9_of_a_master_or_its_slave(
    role: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """SYNC_MASTER loses nothing; what ASYNC_MASTER loses is in the file that keeps what was cut off."""
    rounds = int(request.config.getoption("--replica-kills")) // 2
    seed = int(os.environ.get("POCKETMQ_SEED", random.randrange(2**32)))
    log.info("seed %d", seed)
    chance = random.Random(seed)
    async with ReplicaPair(tmp_path, role, chance).running() as pair:
        deaths: list[Callable[[ReplicaPair], Awaitable[None]]] = []
        for number in range(rounds):
            await pair.more_answers(20)
            if number == 0:
                # Two logs without a common record are never made one, not even by cutting.
                await pair.in_sync()
            # The moment.
            await asyncio.sleep(chance.uniform(0, 0.2))
            deaths = deaths or chance.sample(DEATHS, len(DEATHS))
            death = DEATHS[0] if number == 0 else deaths.pop()
            log.info("round %d: %s", number, death.__name__)
            await death(pair)
            await pair.in_sync()
        served = await pair.settle()
        pair.check(served)
        lost = pair.lost(served)
        log.info("%d promised, %d lost, answers %s", len(pair.promised), len(lost), pair.answers)
        if role == SYNC_MASTER:
            assert not pair.twice
            assert not lost, f"{len(lost)} of {len(pair.promised)} promised: seed {seed}"
        else:
            assert set(lost) <= pair.dropped(), f"seed {seed}"
