"""Rates: messages a second over the last minute, the same for every user interface.

in    messages stored in a topic (TOPIC_PUT_NUMS)
out   messages that a group is done with: committed, or acknowledged if it pops (GROUP_CONSUMED_NUMS, which
      PocketMQ's brokers count). RocketMQ's GROUP_GET_NUMS counts what was pulled, and that may wait in a
      member that hangs: where a broker of RocketMQ keeps a part of the topic, the rate is unknown.
"""

from pocketmq.admin.admin import Admin
from pocketmq.admin.settings import Counted
from pocketmq.remoting.errors import PocketMQError

CONSUMED = "GROUP_CONSUMED_NUMS"


async def counted(admin: Admin, topic: str, name: str, key: str) -> Counted | None:
    """Return a counter over the topic's brokers; zeros if never counted, None if no broker answers."""
    try:
        masters = await admin.site.masters_of(topic)
    except PocketMQError:
        return None
    found = await admin.settings.counted((address for _, address in masters), name, key)
    return found if found.answers else None


async def stored_rate(admin: Admin, topic: str) -> float | None:
    """Return messages a second into a topic; None if no broker answers."""
    found = await counted(admin, topic, "TOPIC_PUT_NUMS", topic)
    return None if found is None else found.tps


async def consumed_rate(admin: Admin, group: str, topic: str) -> float | None:
    """Return messages of a topic a second that a group is done with; None if unknown."""
    found = await counted(admin, topic, CONSUMED, f"{topic}@{group}")
    return found.tps if found is not None and found.known == found.answers else None
