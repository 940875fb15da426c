"""Databases: what RocketMQ 5.x may have in RocksDB instead of files, which PocketMQ does not read.

A store is opened without its database only where nothing is lost by it: queues are built again from the log.
Everything else is refused, with what to do. Source: BrokerController, PopConsumerService, RocketMQ 5.5.0.
"""

import os

from pocketmq.files.layout import DATABASE
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


def refuse_databases(root: str) -> None:
    """Raises: StoreForeign if topics, groups, offsets or pops are in RocksDB: we would see none of them."""
    config = os.path.join(root, "config")
    for name, file in _DATABASES.items():
        if os.path.exists(os.path.join(config, name, DATABASE)):
            raise StoreForeign(
                root,
                f"config/{name} is a RocksDB database, which PocketMQ does not read. Write it as a file by "
                f"mqadmin rocksDBConfigToJson -p {config} -t {name} -e {config}/{file}; then move "
                f"config/{name} and consumequeue out of the store (queues are built again from the log)",
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
