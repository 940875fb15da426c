"""A bad network between a master and its slave, under load: the two logs never part.

The seed is printed; POCKETMQ_SEED replays it (as far as the machine's own timing allows).
`--replica-faults N` for more rounds.
"""

import logging
import os
import random
from pathlib import Path

import pytest

from pocketmq.broker.ha.config import SYNC_MASTER
from tests.crash.replica_pair import ReplicaPair
from tests.kit.waiting import until_async as until

log = logging.getLogger(__name__)


async def _cut(pair: ReplicaPair, chance: random.Random) -> None:
    """Anywhere in a frame, and once more soon after the slave has come back."""
    proxy = pair.proxy
    proxy.piece_max = chance.choice([7, 1_000])
    for _ in range(2):
        enough = proxy.passed + chance.randrange(3_000)
        await until(lambda enough=enough: proxy.passed > enough)  # type: ignore[misc]
        proxy.cut()


async def _stall(pair: ReplicaPair, chance: random.Random) -> None:
    """Neither end is told: sends wait, and then say that slaves do not have them."""
    pair.proxy.stalled = True
    await pair.more_answers(4, 12, 11)


async def _delay(pair: ReplicaPair, chance: random.Random) -> None:
    pair.proxy.delay_s = chance.uniform(0.01, 0.1)
    await pair.more_answers(8, 0, 11, 12)


async def _halves(pair: ReplicaPair, chance: random.Random) -> None:
    """Frames come in pieces of a few bytes."""
    pair.proxy.piece_max = chance.choice([3, 12, 100])
    await pair.more_answers(20, 0, 11, 12)


FAULTS = [_halves, _stall, _cut, _delay]


async def test_a_bad_network_between_a_master_and_its_slave(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What was promised is with both; a slave comes back by itself when the network is good again."""
    rounds = int(request.config.getoption("--replica-faults"))
    seed = int(os.environ.get("POCKETMQ_SEED", random.randrange(2**32)))
    log.info("seed %d", seed)
    chance = random.Random(seed)
    async with ReplicaPair(tmp_path, SYNC_MASTER, chance).running() as pair:
        for number in range(rounds):
            await pair.more_answers(20)
            fault = FAULTS[1 + number] if number < 2 else chance.choice(FAULTS)
            log.info("round %d: %s", number, fault.__name__)
            await fault(pair, chance)
            pair.compare_logs()
            pair.proxy.heal()
            await pair.in_sync()
        served = await pair.settle()
        pair.check(served)
        assert not pair.twice
        assert not pair.lost(served), f"seed {seed}"
        assert not pair.dropped()
        log.info("%d promised, answers %s", len(pair.promised), pair.answers)
