"""check: what would be lost or different, reported before anything begins; no I/O. Source: RocketMQ 4.9.7,
5.5.0.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pocketmq.cli.migration.source import BrokerFacts

REFUSED, TOLD = "refused", "told"


@dataclass(frozen=True, slots=True)
class MigrationFinding:
    """level: REFUSED: the migration cannot begin; TOLD: it can, but something differs afterwards."""

    level: str
    text: str


# Settings of a source that can not be followed, with the value that says so.
_CANNOT = {
    (
        "enableControllerMode",
        "true",
    ): "the source is in controller mode and speaks another language to its "
    "slaves: start it with enableControllerMode=false",
    (
        "enableDLegerCommitLog",
        "true",
    ): "the source replicates its log with DLedger, which no slave can follow: move its messages "
    "by consuming and sending them",
    ("duplicationEnable", "true"): "the source has duplicationEnable=true and accepts no slave",
    ("brokerRole", "SLAVE"): "the source is a slave itself: name its master",
    (
        "aclEnable",
        "true",
    ): "the source has aclEnable=true and refuses a slave's requests: let this machine in "
    "by globalWhiteRemoteAddresses, and set aclEnable=false on both sides during the migration",
    (
        "authenticationEnabled",
        "true",
    ): "the source has authenticationEnabled=true and refuses a slave's requests:"
    " switch it off during the migration",
    (
        "timerRocksDBEnable",
        "true",
    ): "the source keeps its timers in RocksDB and does not tell a slave "
    "how far they have come: start it with timerRocksDBEnable=false",
    (
        "popConsumerKVServiceEnable",
        "true",
    ): "the source keeps in RocksDB what was popped and not acknowledged, which no slave sees: start it with "
    "popConsumerKVServiceEnable=false and popConsumerKVServiceInit=true, and write it into the log by "
    "mqadmin exportPopRecord",
}
_DIFFERENT = {
    (
        "storeType",
        "defaultRocksDB",
    ): "queues that the source keeps in RocksDB are rebuilt from the log",
    ("transientStorePoolEnable", "true"): "transientStorePoolEnable has no effect here",
    (
        "slaveReadEnable",
        "true",
    ): "slaveReadEnable must be set here as well if slaves are to serve reads",
}


def inward(facts: BrokerFacts, free_size: int) -> Iterator[MigrationFinding]:
    """Yield the findings about a source. free_size: bytes on the disk that its log is copied to."""
    settings = facts.settings
    for (name, value), text in _CANNOT.items():
        if settings.get(name) == value:
            yield MigrationFinding(REFUSED, text)
    if facts.log_size + int(settings.get("mappedFileSizeCommitLog", 0)) > free_size:
        yield MigrationFinding(
            REFUSED,
            f"the source's log has {facts.log_size} bytes, and {free_size} are free in the folder here",
        )
    if facts.static_topics:
        names = ", ".join(facts.static_topics[:5])
        yield MigrationFinding(
            REFUSED,
            "topics are static (their queues are spread over brokers by a table that PocketMQ does not "
            f"have), {len(facts.static_topics)} of them: {names}",
        )
    lite = sorted(name for name, row in facts.topics.items() if "LITE" in _message_type(row))
    if lite:
        yield MigrationFinding(
            REFUSED,
            f"{len(lite)} topics have lite topics, with which no move was tried: {', '.join(lite[:5])}",
        )
    for (name, value), text in _DIFFERENT.items():
        if settings.get(name) == value:
            yield MigrationFinding(TOLD, text)
    if settings.get("messageStorePlugIn"):
        yield MigrationFinding(
            TOLD,
            "what the source has moved to other storage (messageStorePlugIn) and deleted from its "
            "log is not migrated",
        )
    compact = sorted(
        name
        for name, row in facts.topics.items()
        if "COMPACTION" in str((row.get("attributes") or {}).get("cleanup.policy", ""))
    )
    if compact:
        yield MigrationFinding(
            TOLD,
            f"{len(compact)} topics are compacted at the source; here all their messages are kept "
            f"as long as any others"
            f": {', '.join(compact[:5])}",
        )


def _message_type(row: object) -> str:
    attributes = (row.get("attributes") or {}) if isinstance(row, dict) else {}
    return str(attributes.get("message.type", ""))


@dataclass(frozen=True, slots=True)
class PocketFeatures:
    """Features of our broker that an Apache broker may not accept.

    timers, pops: messages that wait for their delivery time, and pops that are not acknowledged.
    long_topics: with names beyond 127 bytes. isolated: groups in mode isolate. schedules: by name.
    """

    timers: int
    pops: int
    long_topics: tuple[str, ...]
    isolated: tuple[str, ...]
    has_acl: bool = False
    schedules: tuple[str, ...] = ()


def outward(ours: PocketFeatures, version: str) -> Iterator[MigrationFinding]:
    """Yield the findings about a move to an Apache broker of this version, "4.9" or "5"."""
    if ours.has_acl:
        yield MigrationFinding(
            REFUSED,
            "this broker has aclEnable=true and refuses a slave's requests: start it without "
            "aclEnable during the migration",
        )
    if version == "4.9":
        if ours.timers:
            yield MigrationFinding(
                REFUSED,
                "messages wait for their own delivery time, and RocketMQ 4.9 would never deliver them "
                f"({ours.timers} timers): wait until they are due (--drain), or move to 5.x",
            )
        if ours.pops:
            yield MigrationFinding(
                REFUSED,
                "messages were popped and are not acknowledged, and RocketMQ 4.9 would never redeliver "
                f"them ({ours.pops} pops): stop consumers that pop, and wait until the invisible times "
                "are over (--drain)",
            )
        if ours.long_topics:
            yield MigrationFinding(
                REFUSED,
                f"{len(ours.long_topics)} topics have names of more than 127 bytes, whose "
                f"messages RocketMQ 4.9 "
                f"cannot read: {', '.join(ours.long_topics[:3])}",
            )
        yield MigrationFinding(TOLD, "RocketMQ 4.9 serves neither pop nor timers")
    yield MigrationFinding(
        TOLD,
        "gRPC clients are not redirected: this broker refuses them after the takeover, and the "
        "Apache broker needs Apache's proxy for them",
    )
    if ours.schedules:
        yield MigrationFinding(
            TOLD,
            f"schedules end with this broker ({len(ours.schedules)}), since the Apache broker has none: "
            f"{', '.join(ours.schedules[:5])}. `pocketmq schedule list` shows what another program has to "
            "send from the takeover on",
        )
    if ours.isolated:
        yield MigrationFinding(
            TOLD,
            f"{len(ours.isolated)} groups are in mode isolate: at the Apache broker their members "
            f"share queues whatever they subscribe to, and continue from the group's own offsets:"
            f" {', '.join(ours.isolated[:5])}",
        )
