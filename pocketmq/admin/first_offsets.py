"""First offsets: how far behind a group is before its members have committed anything.

A broker knows nothing of a queue until the first commit, up to ten seconds after a member has begun with it:
the group would be 0 behind. The member's own word counts until then: the least offset that it holds.
"""

from collections.abc import Mapping, Sequence

from pocketmq.admin.admin import Admin
from pocketmq.admin.types import QueueProgress, RunningInfo
from pocketmq.client.network.gather import together
from pocketmq.model.message import MessageQueue
from pocketmq.remoting.errors import PocketMQError

_ASKED_TOGETHER = 64


async def with_first(
    admin: Admin, rows: Sequence[QueueProgress], infos: Mapping[str, RunningInfo]
) -> list[QueueProgress]:
    """Add a row for each queue that a member holds messages of, and that has no offset at its broker.

    A queue whose broker does not answer is left out.
    """
    held = _held(infos)
    first = {queue: held[queue] for queue in sorted(held.keys() - {row.queue for row in rows})}
    if not first:
        return list(rows)
    addresses = {each.name: each.address for each in await admin.site.masters()}

    async def row(queue: MessageQueue) -> QueueProgress | None:
        address = addresses.get(queue.broker_name)
        if address is None:
            return None
        try:
            end = await admin.site.api.max_offset(address, queue)
        except PocketMQError:
            return None
        return QueueProgress(queue, end, first[queue], 0)

    added = [each for each in await together(row, first, _ASKED_TOGETHER) if each is not None]
    return sorted([*rows, *added], key=lambda each: each.queue)


def _held(infos: Mapping[str, RunningInfo]) -> dict[MessageQueue, int]:
    """Return the least offset that members hold, by queue. Broadcasting members share the queues."""
    found: dict[MessageQueue, int] = {}
    for info in infos.values():
        for queue, fields in info.queues.items():
            counts = ("cachedMsg", "transactionMsg")
            least = [
                int(fields.get(f"{kind}MinOffset") or 0)
                for kind in counts
                if int(fields.get(f"{kind}Count") or 0)
            ]
            if least:
                found[queue] = min([*least, found.get(queue, least[0])])
    return found
