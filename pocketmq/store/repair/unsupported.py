"""Foreign: what a RocketMQ broker may keep otherwise than in the files that PocketMQ reads.

A store is opened without it only where nothing is lost by that: queues in RocksDB are built again from the
log. Everything else is refused, with what to do.
Source: BrokerController, PopConsumerService, TopicQueueMappingManager, DLedgerCommitLog, RocketMQ 5.5.0.
"""

import os
from pathlib import Path
from typing import Any

from pocketmq.files.layout import DATABASE
from pocketmq.store.config_file import ConfigFile
from pocketmq.store.errors import StoreForeign

# What RocketMQ 5.x has in RocksDB with storeType=defaultRocksDB, and the file that it has otherwise.
_DATABASES = {
    "topics": "topics.json",
    "subscriptionGroups": "subscriptionGroup.json",
    "consumerOffsets": "consumerOffset.json",
}
# All of these in one database: with configManagerVersion=v2, and with useSingleRocksDBForAllConfigs=true.
_WHOLE_DATABASES = ("rdb", "metadata")
# Messages that were popped and not acknowledged, with popConsumerKVServiceEnable=true.
_POP_DATABASE = "kvStore"


def refuse_foreign(root: str) -> None:
    """Raises: StoreForeign if something of the broker's would not be seen, or not be found again."""
    _refuse_databases(root)
    _refuse_dledger(root)
    _refuse_static_topics(root)


def _refuse_databases(root: str) -> None:
    """Topics, groups, offsets and pops in RocksDB: we would see none of them."""
    config = os.path.join(root, "config")
    for name, file in _DATABASES.items():
        if os.path.exists(os.path.join(config, name, DATABASE)):
            raise StoreForeign(
                root,
                f"config/{name} is a RocksDB database, which PocketMQ does not read. Write it as a file by "
                f"mqadmin of RocketMQ 5.4 or newer: mqadmin rocksDBConfigToJson -p {config} -t {name} "
                f"-e {config}/{file}; then move config/{name} and consumequeue out of the store (queues are "
                "built again from the log)",
            )
    for name in _WHOLE_DATABASES:
        if os.path.exists(os.path.join(config, name, DATABASE)):
            raise StoreForeign(
                root,
                f"config/{name} is a RocksDB database with topics, groups and offsets, which PocketMQ "
                "does not read and no tool writes as files. Start the RocketMQ broker and take it over "
                "while it runs: pocketmq migrate --from NAMESRV --broker NAME",
            )
    if os.path.exists(os.path.join(root, _POP_DATABASE, DATABASE)):
        raise StoreForeign(
            root,
            f"{_POP_DATABASE} is a RocksDB database of messages that were popped and not acknowledged, which "
            "PocketMQ does not read: they would not come again. Start the RocketMQ broker with "
            "popConsumerKVServiceEnable=false and popConsumerKVServiceInit=true, write them into its log by "
            f"mqadmin exportPopRecord -b ADDRESS, stop it, and move {_POP_DATABASE} out of the store",
        )


def _refuse_dledger(root: str) -> None:
    """What `commitlog` still holds is from before; queues would be cut to its end."""
    file = next(Path(root).glob("dledger-*/data/*"), None)
    if file is not None:
        folder = file.parent.parent.name
        raise StoreForeign(
            root,
            f"its messages are in {folder}, a log of DLedger (enableDLegerCommitLog=true), which PocketMQ "
            "does not read. Run PocketMQ beside that broker on a folder of its own, and let clients go over "
            "to it",
        )


def _refuse_static_topics(root: str) -> None:
    """Their queues and offsets are others than those on the disk, by a table that only RocketMQ follows."""
    value = ConfigFile(os.path.join(root, "config", "topicQueueMapping.json")).load()
    table = value.get("topicQueueMappingInfoMap") if isinstance(value, dict) else None
    moved = sorted(topic for topic, mapping in (table or {}).items() if not _is_as_stored(mapping))
    if moved:
        raise StoreForeign(
            root,
            f"{len(moved)} topics are static ({', '.join(moved[:5])}), and their queues have other numbers "
            "or offsets than on the disk, which PocketMQ does not follow. Consume them to the end at the "
            "RocketMQ brokers, and remove them by mqadmin deleteTopic",
        )


def _is_as_stored(mapping: Any) -> bool:
    """Return True if each queue of a static topic is here, with the number and the offsets of its files."""
    try:
        hosted = mapping["hostedQueues"]
        return len(hosted) == mapping["totalQueues"] and all(
            len(parts) == 1
            and parts[0]["queueId"] == int(number)
            and parts[0]["logicOffset"] == parts[0]["startOffset"] == 0
            for number, parts in hosted.items()
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
