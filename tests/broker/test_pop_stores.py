"""A store that a real 5.5.0 broker wrote in the middle of pops is taken over by ours.

Of the 24 messages of GdPop its broker had popped 14: 6 were acknowledged, 2 had come again, 3 were
postponed by 2.5 hours and 3 were invisible for as long, most of that in records that its timer still holds.
"""

from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.clock import SystemClock
from tests.broker.popping import Popped, Popper
from tests.broker.serving import Peer, serving
from tests.golden.golden_stores import unpack
from tests.kit.waiting import until_async

# Three hours after the store was written.
BEGIN_MS = 1_795_251_621_000 + 3 * 3_600_000
ACKED = {b"pop %d" % n for n in (0, 6, 12, 1, 5, 9)}
ALL = {b"pop %d" % n for n in range(24)}
AGAIN = {b"pop %d" % n for n in (4, 10, 2, 8, 14, 3, 7, 11)}


class Later(SystemClock):
    """The machine's time, but beginning at BEGIN_MS."""

    def __init__(self) -> None:
        self._shift_ms = BEGIN_MS - super().now_ms()

    def now_ms(self) -> int:
        return super().now_ms() + self._shift_ms


def handed_over(broker: Broker) -> bool:
    """The timer has delivered what the Apache broker gave it, and it was taken in and revived."""
    revived = broker.parts.messages.store.max_offset("%RETRY%GdGidPop_GdPop", 0)
    return revived >= len(AGAIN) and len(broker.parts.services.pop.log.state) == 0


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("v550-main.clean", "GoldenCluster"),
        ("v550-main.crash", "GoldenCluster"),
        # Its log of pops has the name of the cluster.
        ("v550-main.clean", "DefaultCluster"),
        ("v550-main.crash", "DefaultCluster"),
    ],
)
async def test_everything_that_was_not_acknowledged_is_popped_once(
    tmp_path: Path, name: str, cluster: str
) -> None:
    store = unpack(name, tmp_path)
    async with serving(
        store,
        clock=Later(),
        store={"mapped_file_size_commit_log": 65_536},
        broker_cluster_name=cluster,
    ) as broker:
        await until_async(lambda: handed_over(broker))
        async with await Peer.at(broker) as peer:
            popper = Popper(peer, broker.clock.now_ms, "GdPop", "GdGidPop")
            messages: list[Popped] = []
            while len(messages) < 18:
                found = await popper.pop()
                assert found
                messages += found
            assert await popper.pop() == []
            assert sorted(message.body for message in messages) == sorted(ALL - ACKED)
            again = {message.body for message in messages if message.reconsume_times == 1}
            assert again == AGAIN
            for message in messages:
                assert (await popper.ack(message)).code == 0
        assert len(broker.parts.services.pop.log.state) == 0
