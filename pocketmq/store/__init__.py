"""The files of one broker: commit log, consume queues, index, in RocketMQ's layout. No sockets.

Names are loaded on first use: a command that reads files needs few of them.
"""

from typing import TYPE_CHECKING

from pocketmq.remoting.lazy_names import lazy_names

if TYPE_CHECKING:
    from pocketmq.store.appends import Appended, AppendedBatch
    from pocketmq.store.config_file import ConfigFile, OffsetFile
    from pocketmq.store.delay import DelayService
    from pocketmq.store.errors import (
        DiskFull,
        FlushFailed,
        RecordIllegal,
        RecordTooLarge,
        StoreClosed,
        StoreError,
        StoreFailed,
        StoreForeign,
        StoreLocked,
        StoreNotWriteable,
        StoreUnreadable,
    )
    from pocketmq.store.message_reader import EntryFilter, ReadResult, ReadStatus
    from pocketmq.store.message_store import MessageStore
    from pocketmq.store.reads import QueryResult
    from pocketmq.store.store_config import StoreConfig

__all__ = [
    "Appended",
    "AppendedBatch",
    "ConfigFile",
    "DelayService",
    "DiskFull",
    "EntryFilter",
    "FlushFailed",
    "MessageStore",
    "OffsetFile",
    "QueryResult",
    "ReadResult",
    "ReadStatus",
    "RecordIllegal",
    "RecordTooLarge",
    "StoreClosed",
    "StoreConfig",
    "StoreError",
    "StoreFailed",
    "StoreForeign",
    "StoreLocked",
    "StoreNotWriteable",
    "StoreUnreadable",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "pocketmq.store.config_file": ("ConfigFile", "OffsetFile"),
        "pocketmq.store.delay": ("DelayService",),
        "pocketmq.store.errors": (
            "DiskFull",
            "FlushFailed",
            "RecordIllegal",
            "RecordTooLarge",
            "StoreClosed",
            "StoreError",
            "StoreFailed",
            "StoreForeign",
            "StoreLocked",
            "StoreNotWriteable",
            "StoreUnreadable",
        ),
        "pocketmq.store.message_reader": (
            "EntryFilter",
            "ReadResult",
            "ReadStatus",
        ),
        "pocketmq.store.appends": ("Appended", "AppendedBatch"),
        "pocketmq.store.message_store": ("MessageStore",),
        "pocketmq.store.reads": ("QueryResult",),
        "pocketmq.store.store_config": ("StoreConfig",),
    },
    renamed={"MessageIllegal": "RecordIllegal", "MessageTooLarge": "RecordTooLarge"},
)
