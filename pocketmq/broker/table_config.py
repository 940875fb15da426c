"""TableConfig: how large tables may become that clients fill by using new names. PocketMQ only: in RocketMQ
each name that a client ever used is kept, in memory and on the disk.
"""

from dataclasses import dataclass

from pocketmq.remoting.settings import Settings, key


@dataclass
class TableConfig(Settings):
    """Bounds of the tables of topics, groups and offsets; rows of administrators do not fall under them."""

    auto_create_subscription_group_max: int = key(
        50_000,
        name="autoCreateSubscriptionGroupMax",
        runtime=True,
        min=1,
        help="No more groups are created by first use while there are this many (about 3 KB each). Those "
        "with default settings that were never used are deleted when nine tenths are reached.",
    )
    auto_create_topic_max: int = key(
        100_000,
        name="autoCreateTopicMax",
        runtime=True,
        min=1,
        help="No more topics are created by a first send while there are this many (about 5 KB each).",
    )
    schedules_max: int = key(
        5_000,
        name="schedulesMax",
        runtime=True,
        min=0,
        max=10_000,
        help="Schedules that are kept; 0: none may be created.",
    )
    schedule_max_size: int = key(
        16_384,
        name="scheduleMaxSize",
        runtime=True,
        min=1,
        max=1 << 20,
        unit="bytes",
        help="Largest message of a schedule: body, tags, keys and properties.",
    )
    consumer_offset_table_size: int = key(
        128 << 20,
        name="consumerOffsetTableSize",
        runtime=True,
        min=1 << 20,
        unit="bytes",
        help="No group gets offsets in a further topic, or queue, while the table of offsets takes this much "
        "memory, at about 1,500 bytes for a group and topic and 150 for a queue. Clients that are no member "
        "of the group fill at most half of it.",
    )
    max_lite_subscription_count: int = key(
        100_000,
        name="maxLiteSubscriptionCount",
        min=1,
        runtime=True,
        help="Subscriptions to lite topics: pairs of a client and a lite topic.",
    )
    enable_lmq_quota: bool = key(
        False,
        name="enableLmqQuota",
        runtime=True,
        help="Refuse the first message of a lite topic while there are maxLmqConsumeQueueNum.",
    )
    max_lmq_consume_queue_num: int = key(
        20_000,
        name="maxLmqConsumeQueueNum",
        runtime=True,
        min=1,
        help="How many lite topics there may be, with enableLmqQuota.",
    )
    min_lite_ttl: int = key(
        15 * 60_000,
        name="minLiteTTl",
        min=1,
        unit="ms",
        runtime=True,
        help="A lite topic is not deleted before its last message is this old, whatever its parent's "
        "attribute lite.topic.expiration says.",
    )
    lite_ttl_check_interval: int = key(
        120_000,
        name="liteTtlCheckInterval",
        min=1_000,
        unit="ms",
        runtime=True,
        help="Within this time the age of every lite topic is looked at once.",
    )
