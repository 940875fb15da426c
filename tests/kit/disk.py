"""How full the disk of the machine is must not decide a test: above 90 % a broker refuses messages."""

from collections.abc import Mapping

ANY_DISK: Mapping[str, str] = {
    "POCKETMQ_DISK_MAX_USED_SPACE_RATIO": "99",
    "POCKETMQ_DISK_SPACE_CLEAN_FORCIBLY_RATIO": "1.0",
    "POCKETMQ_DISK_SPACE_WARNING_LEVEL_RATIO": "1.0",
}
"""Variables under which a PocketMQ broker sends and keeps its files on any disk."""

ANY_DISK_JAVA = (
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=1.0",
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=1.0",
)
"""The same for a real broker, as options of its JVM."""
