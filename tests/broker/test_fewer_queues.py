"""A topic gets fewer queues while messages wait for those that go: they come in the ones that stay."""

from pathlib import Path

from pocketmq.broker.broker import Broker
from pocketmq.model.record import read_records
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.serving import Peer, serving
from tests.broker.transactions import COMMIT, ending, prepare
from tests.kit.waiting import until_async as until


def bodies(broker: Broker, *queue_ids: int) -> set[bytes]:
    found = set()
    for queue_id in queue_ids:
        for buffer in broker.parts.messages.store.read("T", queue_id, 0, 100).buffers:
            found |= {bytes(record.body) for record in read_records(buffer)}
    return found


async def test_what_waits_for_a_queue_that_is_gone_comes_in_another(tmp_path: Path) -> None:
    """The queue that it was sent to is not read any more, and refuses it. RocketMQ stores it there."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        topics = broker.parts.tables.topics
        topics.update(TopicConfig("T", 8, 8))
        await peer.produce("T", b"level", queue_id=7, DELAY="1")
        await peer.produce("T", b"time", queue_id=6, TIMER_DELAY_SEC="1")
        half = await prepare(peer)
        # First nothing is sent there any more, which is still read.
        topics.update(TopicConfig("T", 8, 1))
        await peer.produce("T", b"soon", queue_id=4, DELAY="1")
        await until(lambda: bodies(broker, 4) == {b"soon"})
        await until(lambda: bodies(broker, 7) == {b"level"})
        await peer.produce("T", b"level 2", queue_id=7, DELAY="1")
        await peer.produce("T", b"time 2", queue_id=6, TIMER_DELAY_SEC="2")
        topics.update(TopicConfig("T", 1, 1))
        refused = await peer.produce("T", b"refused", queue_id=7)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        await peer.ask(RequestCode.END_TRANSACTION, ending(half, COMMIT))
        wanted = {b"level 2", b"time 2", b"half"}
        await until(lambda: wanted <= bodies(broker, 0), "all that waited is read")
