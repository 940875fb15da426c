"""RecordConfig: the setting of the delivery record. PocketMQ only."""

from dataclasses import dataclass

from pocketmq.remoting.settings import Settings, key


@dataclass
class RecordConfig(Settings):
    """How much is kept of what was delivered to whom."""

    delivery_record_size: int = key(
        32 << 20,
        name="deliveryRecordSize",
        min=0,
        unit="bytes",
        runtime=True,
        help="Disk space for the record of deliveries, from which message tracks are made. 0: no record.",
    )
    balance_groups: str = key(
        "",
        name="balanceGroups",
        runtime=True,
        help="Groups whose balance /metrics shows (pocketmq_group_messages), separated by commas, besides "
        "those that `pocketmq group balance` or the console asked about.",
    )
