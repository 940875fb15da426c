"""The store's settings, with the names that broker.conf gives them. Source: MessageStoreConfig, 4.9.7."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pocketmq.files.layout import LOST_FOUND
from pocketmq.remoting.settings import Settings, key

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


_INDEX_HEADER = 40

_LAYOUT = "it determines the layout of files on disk"
_AT_START = "it is read only once, when the store is opened"
_FIXED = {
    _LAYOUT: "mappedFileSizeCommitLog mappedFileSizeConsumeQueue mappedFileSizeConsumeQueueExt "
    "mapperFileSizeBatchConsumeQueue maxHashSlotNum maxIndexNum "
    "autoMessageVersionOnTopicLen",
    _AT_START: "storePathRootDir storePathCommitLog",
    "answers that wait for a flush depend on it": "flushDiskType",
    "messages are waiting on the current levels": "messageDelayLevel",
}


@dataclass
class StoreConfig(Settings):
    """The settings of one store. File sizes of an existing store are taken from its files."""

    FIXED: ClassVar[Mapping[str, str]] = {
        name: why for why, names in _FIXED.items() for name in names.split()
    }

    store_path_root_dir: str = key(
        "", name="storePathRootDir", help="Directory of the store; created if it does not exist."
    )
    store_path_commit_log: str = key(
        "",
        name="storePathCommitLog",
        help="Directory of the commit log; by default 'commitlog' in storePathRootDir.",
    )
    mapped_file_size_commit_log: int = key(
        1 << 30,
        name="mappedFileSizeCommitLog",
        min=1024,
        unit="bytes",
        help="Size of one commit log file.",
    )
    mapped_file_size_consume_queue: int = key(
        300_000 * 20,
        name="mappedFileSizeConsumeQueue",
        min=20,
        unit="bytes",
        help="Size of one consume queue file; rounded up to whole entries of 20 bytes.",
    )
    mapped_file_size_consume_queue_ext: int = key(
        48 << 20,
        name="mappedFileSizeConsumeQueueExt",
        min=64,
        unit="bytes",
        help="Size of one file of the consume queue extension.",
    )
    mapped_file_size_batch_consume_queue: int = key(
        300_000 * 46,
        name="mapperFileSizeBatchConsumeQueue",
        min=46,
        unit="bytes",
        help="Size of one file of a batch consume queue (RocketMQ 5.x; the name really is spelt this way).",
    )
    enable_consume_queue_ext: bool = key(
        False,
        name="enableConsumeQueueExt",
        runtime=True,
        help="Keep store times and filter bitmaps next to the consume queues.",
    )
    flush_disk_type: str = key(
        "ASYNC_FLUSH",
        name="flushDiskType",
        choices=("ASYNC_FLUSH", "SYNC_FLUSH"),
        help="SYNC_FLUSH: SEND_OK means that the message is on the disk. ASYNC_FLUSH: it survives "
        "a crash of the process, and reaches the disk within"
        " flushIntervalCommitLog.",
    )
    flush_interval_commit_log: int = key(
        500,
        name="flushIntervalCommitLog",
        min=1,
        unit="ms",
        runtime=True,
        help="Interval between flushes of the commit log.",
    )
    flush_commit_log_least_pages: int = key(
        4,
        name="flushCommitLogLeastPages",
        min=0,
        unit="pages of 4 KiB",
        runtime=True,
        help="A flush of the commit log is skipped while less than this has been written.",
    )
    flush_commit_log_thorough_interval: int = key(
        10_000,
        name="flushCommitLogThoroughInterval",
        min=1,
        unit="ms",
        runtime=True,
        help="After this time the commit log is flushed, however little has been written.",
    )
    flush_interval_consume_queue: int = key(
        1_000,
        name="flushIntervalConsumeQueue",
        min=1,
        unit="ms",
        runtime=True,
        help="Interval between flushes of the consume queues' dirty files.",
    )
    flush_consume_queue_thorough_interval: int = key(
        60_000,
        name="flushConsumeQueueThoroughInterval",
        min=1,
        unit="ms",
        runtime=True,
        help="After this time all consume queues are flushed and the checkpoint is written.",
    )
    sync_flush_timeout: int = key(
        5_000,
        name="syncFlushTimeout",
        min=1,
        unit="ms",
        runtime=True,
        help="A send that waits longer for SYNC_FLUSH is answered with FLUSH_DISK_TIMEOUT.",
    )
    file_reserved_time: int = key(
        72,
        name="fileReservedTime",
        min=0,
        unit="hours",
        runtime=True,
        help="A commit log file may be deleted this long after its last write.",
    )
    delete_when: str = key(
        "04",
        name="deleteWhen",
        runtime=True,
        help="Hours of the day at which expired files are deleted, separated by ';'.",
    )
    disk_max_used_space_ratio: int = key(
        75,
        name="diskMaxUsedSpaceRatio",
        min=10,
        max=99,
        unit="percent",
        runtime=True,
        help="Above this disk usage expired files are deleted at any hour.",
    )
    disk_space_clean_forcibly_ratio: float = key(
        0.85,
        name="diskSpaceCleanForciblyRatio",
        min=0.1,
        max=1.0,
        runtime=True,
        help="Above this disk usage the oldest files are deleted whatever their age.",
    )
    clean_file_forcibly_enable: bool = key(
        True,
        name="cleanFileForciblyEnable",
        runtime=True,
        help="Above diskSpaceCleanForciblyRatio delete files before they expire. If off, the disk "
        "fills up and messages are refused.",
    )
    disk_space_warning_level_ratio: float = key(
        0.90,
        name="diskSpaceWarningLevelRatio",
        min=0.1,
        max=1.0,
        runtime=True,
        help="Above this disk usage messages are refused.",
    )
    clean_resource_interval: int = key(
        10_000,
        name="cleanResourceInterval",
        runtime=True,
        min=100,
        unit="ms",
        help="Interval between checks for files to delete.",
    )
    wait_for_archive: bool = key(
        False,
        name="waitForArchive",
        runtime=True,
        help="Expired files are deleted only once `pocketmq store archive` has copied them. Above "
        "diskSpaceCleanForciblyRatio they are deleted anyway, and the log says so.",
    )
    delete_file_batch_max: int = key(
        10,
        name="deleteFileBatchMax",
        min=1,
        unit="files",
        runtime=True,
        help="At most this many commit log files are deleted in one round.",
    )
    max_hash_slot_num: int = key(
        5_000_000,
        name="maxHashSlotNum",
        min=1,
        help="Hash slots of one index file.",
    )
    max_index_num: int = key(
        20_000_000,
        name="maxIndexNum",
        min=2,
        help="Entries of one index file.",
    )
    message_index_enable: bool = key(
        True,
        name="messageIndexEnable",
        runtime=True,
        help="Index messages by keys and unique keys.",
    )
    message_index_tags: bool = key(
        False,
        name="messageIndexTags",
        runtime=True,
        help="PocketMQ only: index the tag too, as RocketMQ 5.x does, so that its query type 'T' works.",
    )
    max_message_size: int = key(
        4 << 20,
        name="maxMessageSize",
        min=1,
        unit="bytes",
        runtime=True,
        help="Largest body.",
    )
    max_msgs_num_batch: int = key(
        64,
        name="maxMsgsNumBatch",
        min=1,
        runtime=True,
        help="Largest number of records in the answer to a query by key.",
    )
    access_message_in_memory_max_ratio: int = key(
        40,
        name="accessMessageInMemoryMaxRatio",
        min=0,
        max=100,
        unit="percent",
        runtime=True,
        help="Part of the machine's memory that counts as holding the end of the log. Consumers that read "
        "further back are directed to a slave (slaveReadEnable); a new group whose queues begin further "
        "back begins where its client says.",
    )
    message_delay_level: str = key(
        DELAY_LEVELS,
        name="messageDelayLevel",
        help="The delays of levels 1, 2, ...; units s, m, h, d.",
    )
    flush_delay_offset_interval: int = key(
        10_000,
        name="flushDelayOffsetInterval",
        min=1,
        unit="ms",
        runtime=True,
        help="Interval between saves of config/delayOffset.json.",
    )
    auto_message_version_on_topic_len: bool = key(
        True,
        name="autoMessageVersionOnTopicLen",
        help="Store topics of more than 127 bytes in the record layout of RocketMQ 5.x, which 4.9 "
        "cannot read. Only retry topics of groups that pop have such names. If off, a group that "
        "would need such a name cannot pop.",
    )

    @property
    def consume_queue_file_size(self) -> int:
        """Return mappedFileSizeConsumeQueue rounded up to whole entries."""
        return -(-self.mapped_file_size_consume_queue // 20) * 20

    @property
    def consume_queue_ext_file_size(self) -> int | None:
        """Return mappedFileSizeConsumeQueueExt; None if no extension is written."""
        return self.mapped_file_size_consume_queue_ext if self.enable_consume_queue_ext else None


def sizes_of(root: Path) -> dict[str, Any]:
    """Return the file size settings with which a store was written, as its files show them.

    New files must have the same size: Apache's broker does not start on a store whose files differ from its
    settings. An index file does not tell its slots: RocketMQ's default ratio is assumed, one for four
    entries.
    """
    found: dict[str, int] = {}
    for name, folder in (
        ("mapped_file_size_commit_log", "commitlog"),
        ("mapped_file_size_consume_queue", "consumequeue"),
        ("mapped_file_size_consume_queue_ext", "consumequeue_ext"),
        ("mapped_file_size_batch_consume_queue", "batchconsumequeue"),
        ("index", "index"),
    ):
        files = sorted(path for path in (root / folder).rglob("*") if path.name.isdigit())
        sizes = [
            path.stat().st_size
            for path in files
            if LOST_FOUND not in path.relative_to(root).parts and path.is_file()
        ]
        if sizes:
            found[name] = sizes[0]
    index = found.pop("index", 0)
    if index > _INDEX_HEADER:
        slots = (index - _INDEX_HEADER) // (4 + 4 * 20)
        found["max_hash_slot_num"], found["max_index_num"] = slots, 4 * slots
    return found
