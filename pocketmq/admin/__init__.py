"""Administration: what mqadmin does, as typed calls.

    async with Admin(name_server="127.0.0.1:9876") as admin:
        await admin.topics.create("TopicTest", queues=4)
        for progress in await admin.groups.progress("group"):
            print(progress.queue, progress.lag)

Works with PocketMQ and with Apache RocketMQ 4.9 and 5.x. Errors are those of pocketmq.client.
"""

from pocketmq.admin.admin import Admin
from pocketmq.admin.tracks import Track
from pocketmq.admin.types import (
    ClusterBroker,
    ConsumeResultOfOne,
    GroupConnection,
    Member,
    OffsetReset,
    QueueProgress,
    QueueStatus,
    RunningInfo,
)
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.model.track import TrackType

__all__ = [
    "Admin",
    "ClusterBroker",
    "ConsumeResultOfOne",
    "GroupConfig",
    "GroupConnection",
    "Member",
    "OffsetReset",
    "QueueProgress",
    "QueueStatus",
    "RunningInfo",
    "TopicConfig",
    "Track",
    "TrackType",
]
