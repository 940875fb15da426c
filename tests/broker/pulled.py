"""Messages to pull."""

from tests.broker.serving import Peer


async def fill(peer: Peer, *tags: str, topic: str = "T", queue_id: int = 0) -> None:
    for place, tag in enumerate(tags):
        await peer.produce(topic, b"%d" % place, queue_id=queue_id, TAGS=tag)
