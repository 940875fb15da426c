"""A revoked task that waits in the broker for its ETA is recalled; pocketmq.integrations.celery installs it.

Each worker that hears of a revocation looks among what waits for its queues. What is due now comes to a
worker, which drops it as with any other transport. Several workers may recall one task: the broker drops it
once.
"""

import logging
from collections.abc import Iterable
from typing import Any

from pocketmq.remoting.lazy_names import without_extra

try:
    from celery.worker.control import Panel
    from kombu.utils.functional import maybe_list
except ModuleNotFoundError as missing:
    raise without_extra("pocketmq.integrations.celery_revoke", missing, "celery") from None

from pocketmq.client.errors import BrokerRefused
from pocketmq.integrations.kombu.link import Link
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

_IDS_MAX = 100


def install() -> None:
    """Have this worker recall what it is told to revoke."""
    revoke = Panel.data["revoke"]
    if revoke.__module__ == __name__:
        return

    def revoke_and_recall(state: Any, task_id: Any, **options: Any) -> Any:
        answer = revoke(state, task_id, **options)
        recall(state.app, [str(each) for each in maybe_list(task_id) or ()])
        return answer

    Panel.data["revoke"] = revoke_and_recall


def recall(app: Any, task_ids: list[str]) -> None:
    """Recall the tasks that wait in the broker, of the queues that this program consumes."""
    if len(task_ids) > _IDS_MAX:
        log.info("of %d revoked tasks the workers drop those that are due", len(task_ids))
        return
    try:
        with app.connection_for_write() as connection:
            link = connection.default_channel.link
            link.call(_recall(link, list(app.amqp.queues.consume_from), task_ids))
    except (PocketMQError, OSError) as error:
        log.warning("revoked tasks that wait are dropped when they are due reason=%s", error)


async def _recall(link: Link, queues: Iterable[str], task_ids: list[str]) -> None:
    delays = link.admin.delays
    for queue in queues:
        topic = (await link.kind(queue)).topic
        for task_id in task_ids:
            for broker in await delays.list(topic, key=task_id, cluster=link.where.cluster):
                for each in broker.messages or ():
                    if task_id not in each.keys.split():
                        # A broker that does not know the key lists all.
                        continue
                    try:
                        await delays.recall(each.broker, topic, each.recall_handle)
                        log.info("recalled a revoked task id=%s queue=%s", task_id, queue)
                    except BrokerRefused:
                        # It is due now.
                        continue
