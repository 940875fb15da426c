"""The files of one broker: commit log, consume queues, index, in RocketMQ's layout. No sockets."""

from pocketmq.store.config_file import ConfigFile
from pocketmq.store.delay import DelayService
from pocketmq.store.errors import (
    DiskFull,
    FlushFailed,
    MessageIllegal,
    MessageTooLarge,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreForeign,
    StoreLocked,
    StoreNotWriteable,
    StoreUnreadable,
)
from pocketmq.store.message_reader import EntryFilter, ReadResult, ReadStatus
from pocketmq.store.message_store import Appended, AppendedBatch, MessageStore
from pocketmq.store.read_store import QueryResult
from pocketmq.store.store_config import StoreConfig

__all__ = [
    "Appended",
    "AppendedBatch",
    "ConfigFile",
    "DelayService",
    "DiskFull",
    "EntryFilter",
    "FlushFailed",
    "MessageIllegal",
    "MessageStore",
    "MessageTooLarge",
    "QueryResult",
    "ReadResult",
    "ReadStatus",
    "StoreClosed",
    "StoreConfig",
    "StoreError",
    "StoreFailed",
    "StoreForeign",
    "StoreLocked",
    "StoreNotWriteable",
    "StoreUnreadable",
]
