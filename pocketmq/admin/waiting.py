"""Waiting: how long the next message of a group has waited. The look does not count as consumption."""

from collections.abc import Iterable

from pocketmq.admin.admin import Admin
from pocketmq.admin.types import QueueProgress
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.headers import QueryConsumeQueueHeader

_RECORD_SIZE_MAX = 256 << 10


async def waiting_ms(admin: Admin, rows: Iterable[QueueProgress]) -> int | None:
    """Return the age of the next message in the queue with the greatest lag, ms; 0 if nothing waits.

    None if it cannot be obtained: the broker does not answer, the message was deleted, or too large to be
    fetched only for its time. Two requests: QUERY_CONSUME_QUEUE, VIEW_MESSAGE_BY_ID.
    """
    furthest = max(rows, key=lambda row: row.lag, default=None)
    if furthest is None or furthest.lag <= 0:
        return 0
    queue = furthest.queue
    try:
        address = next(each.address for each in await admin.site.masters(None, queue.broker_name))
        answer = await admin.site.api.requests.ask(
            address,
            RequestCode.QUERY_CONSUME_QUEUE,
            QueryConsumeQueueHeader(queue.topic, queue.queue_id, furthest.consumer_offset, 1),
        )
        found = fastjson.loads(answer.body).get("queueData") if answer.body else None
        if not found or int(found[0]["physicSize"]) > _RECORD_SIZE_MAX:
            return None
        message = await admin.site.api.view_message(
            address, int(found[0]["physicOffset"]), queue.topic
        )
    except (PocketMQError, StopIteration, KeyError, TypeError, ValueError):
        return None
    return max(0, admin.clock.now_ms() - message.store_timestamp)
