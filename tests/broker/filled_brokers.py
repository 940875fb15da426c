"""Messages for a pair, and a slave that tries again soon."""

from pocketmq.remoting.codes import ResponseCode
from tests.broker.serving import Peer


async def fill(peer: Peer, count: int = 60, size: int = 5_000, topic: str = "T") -> None:
    for number_ in range(count):
        answer = await peer.produce(topic, b"%d " % number_ + b"x" * size, queue_id=number_ % 4)
        assert answer.code == ResponseCode.SUCCESS
