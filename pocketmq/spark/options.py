"""Every option of format("pocketmq"), declared once: name, default, range, what it does.

Names are those of Kafka's Spark source and of rocketmq-spark, to ease the migration of their jobs. Spark's
options are case-insensitive; unknown ones are an error that names the nearest.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from pocketmq.bulk.moments import moment_ms
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.settings import Settings, key

_SIZE = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d)?", re.IGNORECASE)
_DURATION_MS = {None: 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

# What was meant as an operator, in RocketMQ's expressions or in SQL.
_NOT_A_TAG = re.compile(r"[&|]|\s(?:and|or|not|in)\s", re.IGNORECASE)

READ, STREAM, WRITE = "read", "stream", "write"


@dataclass
class Options(Settings):
    """The options as given; the properties below parse texts that hold lists, JSON or sizes."""

    path: str = key(
        "", name="path", help="Store folders: one, a comma list, or a glob. Reads files."
    )
    paths: str = key(
        "", name="paths", help="What load([...]) passes: a JSON list of store folders."
    )
    conditions: str = key(
        "", name="conditions", help="What pocketmq.spark.read passes: see pushdown.Pushed."
    )
    name_server: str = key(
        "",
        name="nameServer",
        help="host:port;host:port. Reads from brokers; also the environment's NAMESRV_ADDR.",
    )
    subscribe: str = key(
        "",
        name="subscribe",
        help="Topics, a comma list; `topic` means the same. Default: every topic that is not a "
        "system topic, including groups' retry and dead-letter topics.",
    )
    topic: str = key(
        "", name="topic", help="Read: same as subscribe. Write: topic for rows without one."
    )
    subscribe_pattern: str = key(
        "", name="subscribePattern", help="Regular expression for the whole topic name."
    )
    assign: str = key("", name="assign", help='Exact queues: {"topic":{"broker":[0,1]}}.')
    broker_name: str = key(
        "",
        name="brokerName",
        help="The broker's name, which files do not hold: one name, or a JSON map of root to "
        "name. Default: the folder above `store`.",
    )
    starting_offsets: str = key(
        "",
        name="startingOffsets",
        help='earliest, latest, group, or {"topic":{"broker":{"queue":offset}}} (with one broker '
        'also {"topic":{"queue":offset}}) with -2 earliest and -1 latest. Default: earliest '
        "for a batch, latest for a stream. Queues that a JSON leaves out begin at their "
        "earliest offset, and a log line names them.",
    )
    ending_offsets: str = key(
        "latest", name="endingOffsets", help="latest, or JSON as in startingOffsets (batch)."
    )
    starting_timestamp: str = key(
        "",
        name="startingTimestamp",
        help="Begin at the first message stored then or later: `2h` ago, ISO 8601, ms since 1970.",
    )
    ending_timestamp: str = key(
        "",
        name="endingTimestamp",
        help="End before the first message stored then or later, as above.",
    )
    starting_offsets_by_timestamp: str = key(
        "", name="startingOffsetsByTimestamp", help='{"topic":{"broker":{"queue":ms}}}.'
    )
    ending_offsets_by_timestamp: str = key(
        "", name="endingOffsetsByTimestamp", help='{"topic":{"broker":{"queue":ms}}} (batch).'
    )
    starting_strategy: str = key(
        "error",
        name="startingOffsetsByTimestampStrategy",
        choices=("error", "latest"),
        help="What to do with a queue whose messages are all older than the starting timestamp.",
    )
    fail_on_data_loss: bool = key(
        True,
        name="failOnDataLoss",
        help="Fail when messages are missing (deleted files, torn tails, bad checksums); else warn.",
    )
    max_offsets_per_trigger: int = key(
        0, name="maxOffsetsPerTrigger", min=0, help="Most messages in a stream's batch; 0: all."
    )
    min_offsets_per_trigger: int = key(
        0, name="minOffsetsPerTrigger", min=0, help="Wait until this many messages have come."
    )
    max_trigger_delay: str = key(
        "15m",
        name="maxTriggerDelay",
        help="Longest wait for minOffsetsPerTrigger (ms, s, m, h, d).",
    )
    max_bytes_per_trigger: str = key(
        "0",
        name="maxBytesPerTrigger",
        help="Most bytes in a stream's batch, estimated (k, m, g); 0: all.",
    )
    min_partitions: int = key(
        0, name="minPartitions", min=0, help="At least this many tasks, if there is enough."
    )
    max_partition_bytes: str = key(
        "",
        name="maxPartitionBytes",
        help="At most this many bytes of records in a task (k, m, g). Default: 256m; for files "
        "more, where bodies are not read and every core has a task.",
    )
    batch_bytes: str = key(
        "",
        name="batchBytes",
        help="Bytes of records that are decoded together (read, 8m) or sent in a request (write, 256k).",
    )
    sub_expression: str = key(
        "*",
        name="subExpression",
        help="Tags joined by ||: TagA || TagB, or SQL92 (expressionType, brokers only).",
    )
    expression_type: str = key(
        "TAG", name="expressionType", choices=("TAG", "SQL92"), help="What subExpression is."
    )
    keys_text: str = key(
        "", name="keys", help="Only messages that have one of these keys, a comma list."
    )
    columns: str = key(
        "",
        name="columns",
        help="Columns to read: a comma list, all, or kafka. Default: the standard set.",
    )
    group: str = key(
        "", name="group", help="Consumer group to begin at, or to show the progress in."
    )
    commit_offsets: str = key(
        "none",
        name="commitOffsets",
        choices=("none", "source", "progress"),
        help="Show a stream's progress as the group's offsets: when Spark commits (source, one batch "
        "late), or from a listener (progress, see pocketmq.spark.commit_progress).",
    )
    body_schema: str = key(
        "",
        name="bodySchema",
        help="Fields of bodies as columns: Spark's DDL, infer, a JSON Schema, an Avro schema, the URL of a "
        "registry's subject, or a Protobuf descriptor set with #message.",
    )
    body_errors: str = key(
        "column",
        name="bodyErrors",
        choices=("column", "fail"),
        help="Bodies that do not fit bodySchema: null columns and a reason in _body_error, or an error.",
    )
    decompress: bool = key(True, name="decompress", help="Unpack packed bodies and inner batches.")
    verify_crc: bool = key(False, name="verifyCrc", help="Compare every body with its checksum.")
    include_system_topics: bool = key(
        False, name="includeSystemTopics", help="Also read topics that the broker keeps for itself."
    )
    pull_batch_size: int = key(
        32, name="pullBatchSize", min=1, max=65_536, help="Messages to ask for in a pull."
    )
    pull_timeout_ms: int = key(
        3000,
        name="pullTimeoutMs",
        min=1,
        unit="ms",
        help="How long to wait for an answer before asking again.",
    )
    retry_timeout_ms: int = key(
        120_000,
        name="retryTimeoutMs",
        min=0,
        unit="ms",
        help="How long a broker or name server may be away before a read, a plan or a write "
        "fails. Name servers that have never answered fail a plan after 10 s, unless this "
        "option is given.",
    )
    # Not an option: how long a plan waits for the first answer.
    first_contact_ms: int = 10_000
    access_key: str = key("", name="accessKey", help="ACL access key.")
    secret_key: str = key("", name="secretKey", help="ACL secret key.")
    security_token: str = key(
        "", name="securityToken", help="Token of temporary ACL keys, if they have one."
    )
    use_tls: bool = key(False, name="useTLS", help="Connect by TLS.")
    delivery: str = key(
        "atleastonce",
        name="delivery",
        choices=("atleastonce", "ledger", "transaction"),
        help="Write: how repeated messages are avoided; see the documentation.",
    )
    queue_selector: str = key(
        "roundrobin",
        name="queueSelector",
        choices=("roundrobin", "hash", "column"),
        help="Write: queue by turn, by hash of shardingKey (else keys), or by column queueId.",
    )

    # ---- values that are more than a word or a number

    @property
    def topics(self) -> tuple[str, ...]:
        return _words(self.subscribe or self.topic, "subscribe" if self.subscribe else "topic")

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the tags of subExpression; none means every message. Raises: IllegalArgument."""
        text = self.sub_expression.strip()
        if text in ("", "*") or self.expression_type != "TAG":
            return ()
        tags = tuple(t.strip() for t in text.split("||") if t.strip())
        if not tags:
            raise IllegalArgument(f"subExpression must be * or tags, TagA || TagB, not {text!r}")
        for tag in tags:
            if _NOT_A_TAG.search(tag):
                raise IllegalArgument(
                    f"subExpression joins tags by || only, as in TagA || TagB: {tag!r} would be one "
                    "tag. To choose tags with such characters, use a where clause on "
                    "column tags"
                )
        return tags

    @property
    def wanted_keys(self) -> tuple[str, ...]:
        return _words(self.keys_text, "keys")

    @property
    def partition_bytes(self) -> int:
        return parse_size(self.max_partition_bytes or "256m", "maxPartitionBytes", least=1)

    @property
    def bytes_per_trigger(self) -> int:
        return parse_size(self.max_bytes_per_trigger, "maxBytesPerTrigger")

    def read_batch_bytes(self) -> int:
        return parse_size(self.batch_bytes or "8m", "batchBytes", least=1)

    def send_batch_bytes(self) -> int:
        return parse_size(self.batch_bytes or "256k", "batchBytes", least=1)

    @property
    def trigger_delay_ms(self) -> int:
        found = _DURATION.fullmatch(self.max_trigger_delay.strip())
        if found is None:
            raise IllegalArgument(
                f"maxTriggerDelay must be a number with ms, s, m, h or d, not {self.max_trigger_delay!r}"
            )
        unit = found[2].lower() if found[2] else None
        return int(found[1]) * _DURATION_MS[unit]

    @property
    def assigned(self) -> dict[str, dict[str, tuple[int, ...]]] | None:
        if not self.assign:
            return None
        shape = 'assign must be JSON like {"topic":{"broker":[0,1]}}'
        raw = _json(self.assign, shape)
        result: dict[str, dict[str, tuple[int, ...]]] = {}
        if not isinstance(raw, dict) or not raw:
            raise IllegalArgument(f"{shape}, not {self.assign!r}")
        for topic, brokers in raw.items():
            if not isinstance(brokers, dict):
                raise IllegalArgument(
                    f"{shape}: the value of {topic!r} is not an object of brokers"
                )
            for broker, ids in brokers.items():
                if not isinstance(ids, list) or not all(type(i) is int and i >= 0 for i in ids):
                    raise IllegalArgument(
                        f"{shape}: the value of {broker!r} is not a list of queues"
                    )
                result.setdefault(topic, {})[broker] = tuple(ids)
        return result

    @property
    def store_paths(self) -> list[str]:
        if self.paths:
            raw = _json(self.paths, 'paths must be a JSON list ["/a/store","/b/store"]')
            if not isinstance(raw, list) or not all(isinstance(p, str) for p in raw):
                raise IllegalArgument(f"paths must be a JSON list of folders, not {self.paths!r}")
            return raw
        return [self.path] if self.path else []

    @property
    def broker_names(self) -> dict[str, str] | str | None:
        text = self.broker_name.strip()
        if not text:
            return None
        if not text.startswith("{"):
            return text
        raw = _json(text, 'brokerName must be a name or {"/data/a/store":"broker-a"}')
        if not isinstance(raw, dict) or not all(isinstance(n, str) for n in raw.values()):
            raise IllegalArgument("brokerName must map roots to names")
        return raw

    def milliseconds(self, name: str) -> int | None:
        """Return startingTimestamp or endingTimestamp."""
        text = self.starting_timestamp if name == "startingTimestamp" else self.ending_timestamp
        if not text.strip():
            return None
        try:
            return moment_ms(text)
        except IllegalArgument as error:
            raise IllegalArgument(f"{name}: {error}") from None


# Options that mean something for one kind of use only; the rest belongs to both kinds of reading.
WRITE_ONLY = {"delivery", "queueSelector"}
ANY_USE = {
    "nameServer",
    "topic",
    "group",
    "accessKey",
    "secretKey",
    "securityToken",
    "useTLS",
    "batchBytes",
    "pullTimeoutMs",
    "retryTimeoutMs",
}
STREAM_ONLY = {
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "commitOffsets",
}
BATCH_ONLY = {"endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "conditions"}
NOT_FOR_USERS = {"paths", "conditions"}


def parse_size(text: str, name: str, *, least: int = 0) -> int:
    """Parse `256m` into bytes. Raises: IllegalArgument."""
    found = _SIZE.fullmatch(text.strip())
    size = int(found[1]) * _SIZE_UNITS[found[2].lower()] if found else -1
    if size < least:
        raise IllegalArgument(
            f"{name} must be a size in bytes of at least {least}, also with k, m or g, not {text!r}"
        )
    return size


def _words(text: str, name: str) -> tuple[str, ...]:
    """Split a comma list. Raises: IllegalArgument for an empty list, which would mean everything."""
    words = tuple(dict.fromkeys(w.strip() for w in text.split(",") if w.strip()))
    if text and not words:
        what = "key" if name == "keys" else "topic"
        raise IllegalArgument(f"{name} names no {what}: give a comma list, not {text!r}")
    return words


def _json(text: str, shape: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise IllegalArgument(f"{shape}, not {text!r}: {error}") from None
