"""Every option of format("pocketmq"), declared once: name, default, range, what it does.

Names are those of Kafka's Spark source and of rocketmq-spark, to ease the migration of their jobs. Spark's
options are case-insensitive; unknown ones are an error that names the nearest.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pocketmq.bulk.moments import moment_ms
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.settings import Key, Settings, key

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
_ANY_USE = {
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
# Spark's own options that reach a source or a sink.
_SPARKS = {
    "checkpointlocation",
    "queryname",
    "mergeschema",
    "path",
    "__ispythondatasource",
}
_TABLE_PROPERTIES = {
    "owner",
    "provider",
    "external",
    "is_managed_location",
    "comment",
    "collation",
}
_KAFKAS = {
    "kafka.bootstrap.servers": "nameServer names the name servers, host:9876;host2:9876",
    "kafka.group.id": "group names the group",
    "groupidprefix": "reads need no group of their own; group names one to begin at or to show progress in",
    "includeheaders": "columns=kafka has the column headers, and column properties holds the same",
    "kafkaconsumer.polltimeoutms": "pullTimeoutMs is the wait for an answer",
    "fetchoffset.numretries": "retryTimeoutMs is how long faults are lived with",
    "fetchoffset.retryintervalms": "retryTimeoutMs is how long faults are lived with",
}
# CREATE TABLE ... OPTIONS (subscribe ...) comes as subscribe and as option.subscribe.
_TABLE_OPTION = "option."


def parse_options(given: Mapping[str, str]) -> Options:
    """Parse the options' texts. Raises: IllegalArgument that names the option and what is allowed."""
    known: dict[str, Key] = {name.lower(): k for name, k in Options.keys().items()}
    values: dict[str, Any] = {}
    of_table = is_table(given)
    for name, text in _without_tables(given).items():
        found = known.get(name.lower())
        if found is None:
            if name.lower() in _SPARKS or (of_table and name.lower() in _TABLE_PROPERTIES):
                continue
            names = [k.name for k in known.values() if k.name not in NOT_FOR_USERS]
            instead = _instead_of(name)
            if instead:
                raise IllegalArgument(f"option {name!r} belongs to Kafka's source; here {instead}")
            near = get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
            hint = f"; did you mean {known[near[0]].name!r}?" if near else "."
            raise IllegalArgument(
                f"there is no option {name!r}{hint} The options are {', '.join(sorted(names))}"
            )
        if not str(text).strip() and found.type is str and not found.choices:
            # Mostly a variable of the job that was not set; as a default it would mean "everything".
            raise IllegalArgument(
                f"option {found.name} is empty: leave it out, or give {found.help}"
            )
        values[found.attribute] = found.parse(str(text))
    if "retry_timeout_ms" in values:
        values["first_contact_ms"] = values["retry_timeout_ms"]
    return Options(**values)


def _instead_of(name: str) -> str:
    """Return the replacement of a Kafka source's option; nothing for other names."""
    if name.lower() in _KAFKAS:
        return _KAFKAS[name.lower()]
    if name.lower().startswith(("kafka.", "kafkaconsumer.", "fetchoffset.")):
        return "nothing takes its place: leave it out"
    return ""


def _without_tables(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options as for load(): a catalog's table has a location instead of a path."""
    if not is_table(given):
        return dict(given)
    plain = {n: t for n, t in given.items() if not n.lower().startswith(_TABLE_OPTION)}
    places = [n for n in plain if n.lower() == "location"]
    for name in places:
        location = plain.pop(name)
        if not any(n.lower() == "path" for n in plain):
            plain["path"] = location
    return plain


def is_table(given: Mapping[str, str]) -> bool:
    """Return True for a catalog's table (CREATE TABLE ... USING pocketmq), not load() or save()."""
    names = {n.lower() for n in given}
    return {"provider", "owner"} <= names


def table_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options to keep with a table. Raises: IllegalArgument for secrets, which it would show."""
    kept = {n: t for n, t in _without_tables(given).items() if n.lower() not in _TABLE_PROPERTIES}
    secret = {n for n in given_names(kept) if n in ("accessKey", "secretKey", "securityToken")}
    if secret:
        raise IllegalArgument(
            f"{', '.join(sorted(secret))} would be stored in the catalog, where every user can "
            "read it: use a temporary view, CREATE TEMPORARY VIEW t USING pocketmq OPTIONS "
            "(...), or load()"
        )
    return kept


def given_names(given: Mapping[str, str]) -> set[str]:
    """Return the proper names of the given options."""
    known = {k.name.lower(): k.name for k in Options.keys().values()}
    return {known[n.lower()] for n in given if n.lower() in known}


def check_use(given: Mapping[str, str], use: str) -> None:
    """Refuse options that have no effect in this use (read, stream or write).

    Raises: IllegalArgument.
    """
    wrong: set[str] = set()
    names = given_names(given)
    if use == WRITE:
        allowed = WRITE_ONLY | _ANY_USE
        wrong = names - allowed - {"path"}
        what = "writing"
    elif use == STREAM:
        wrong = names & (WRITE_ONLY | BATCH_ONLY)
        what = "a stream"
    else:
        wrong = names & (WRITE_ONLY | STREAM_ONLY)
        what = "a batch read"
    if wrong:
        raise IllegalArgument(f"{', '.join(sorted(wrong))} cannot be used for {what}; leave it out")


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
