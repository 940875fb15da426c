"""`pocketmq lake`: topics as Apache Iceberg tables, brought up to date with stores, archives or brokers."""

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.bulk.moments import AGO, UNITS_MS
from pocketmq.cli import contexts
from pocketmq.cli.exits import CannotBegin, ExitCode
from pocketmq.cli.options import Json
from pocketmq.cli.output import (
    json_text,
    print_fields,
    print_json,
    print_line,
    with_progress,
)
from pocketmq.model.as_json import as_object
from pocketmq.remoting.errors import IllegalArgument, PocketMQError
from pocketmq.remoting.lazy_names import needs

if TYPE_CHECKING:
    from pocketmq.bulk.bodies.columns import BodyColumns
    from pocketmq.bulk.offsets import LossRule
    from pocketmq.lake.copy import LakeCopy, RowSource
    from pocketmq.lake.maintain import Maintained, Upkeep
    from pocketmq.lake.tables import LakeTables
    from pocketmq.spark.brokers.connection import BrokerAccess

_EVERY_S = 30.0
_UPKEEP_S = 3600.0
_RETRY_MS, _FIRST_CONTACT_MS = 120_000, 10_000
_NAME_SERVERS = re.compile(r"[^/\\,;]+:\d+(;[^/\\,;]+:\d+)*;?")


class TableFormat(StrEnum):
    """What `--format` names."""

    ICEBERG = "iceberg"
    DELTA = "delta"


_Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="Folder or URI of a store or archive, a comma list, a glob; or name servers, host:port;...",
    ),
]
_Warehouse = Annotated[
    str, typer.Argument(metavar="WAREHOUSE", help="Folder or URI of the tables.")
]
_Topics = Annotated[list[str] | None, typer.Option(help="Only this topic; may be repeated.")]
_Catalog = Annotated[
    str | None,
    typer.Option(
        help="A catalog of your pyiceberg configuration (default: the file catalog.db in WAREHOUSE)."
    ),
]
_Format = Annotated[
    TableFormat,
    typer.Option("--format", help="What tables to write; delta needs the extra `delta`."),
]
_Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Continue until Ctrl-C with what is stored next.")
]
_Every = Annotated[float, typer.Option(min=1, help="With --follow: seconds between two commits.")]
_Compare = Annotated[
    bool,
    typer.Option("--check", help="Change nothing: compare the tables with SOURCE row by row."),
]
_Sealed = Annotated[
    bool, typer.Option("--sealed", help="Leave out the log file that is still being written.")
]
_SkipLosses = Annotated[
    bool,
    typer.Option(
        "--skip-losses", help="Continue behind damaged records and deleted files; report them."
    ),
]
_SystemTopics = Annotated[
    bool, typer.Option("--system-topics", help="Include the broker's own topics.")
]
_BodySchema = Annotated[
    str | None,
    typer.Option(
        help="Fields of bodies as columns: 'id BIGINT, name STRING', the file of a JSON Schema or Avro "
        "schema, the URL of a registry's subject, or orders.desc#shop.Order."
    ),
]
_Partition = Annotated[
    str | None,
    typer.Option(
        help="Partition new tables by hour, day, month or year of storeTimestamp, by topic, brokerName, "
        "queueId, tags or bornHost; several with commas (default: day)."
    ),
]
_Compact = Annotated[
    bool,
    typer.Option("--compact", help="Merge small files afterwards; with --follow once an hour."),
]
_KeepSnapshots = Annotated[
    str | None,
    typer.Option(
        metavar="AGE",
        help="Expire snapshots older than this, as 7d, and delete files that nothing names; with --follow "
        "once an hour.",
    ),
]
_BrokerName = Annotated[
    str | None,
    typer.Option(
        help="The broker's name in the tables (default: the folder above `store`). For several stores a JSON "
        'map of folder to name, {"/data/a/store":"broker-a"}.'
    ),
]


def lake(
    source: _Source,
    warehouse: _Warehouse,
    topic: _Topics = None,
    table_format: _Format = TableFormat.ICEBERG,
    catalog: _Catalog = None,
    follow: _Follow = False,
    every: _Every = _EVERY_S,
    check: _Compare = False,
    sealed: _Sealed = False,
    skip_losses: _SkipLosses = False,
    system_topics: _SystemTopics = False,
    broker_name: _BrokerName = None,
    body_schema: _BodySchema = None,
    partition: _Partition = None,
    compact: _Compact = False,
    keep_snapshots: _KeepSnapshots = None,
    as_json: Json = False,
) -> None:
    """Write topics to Iceberg or Delta tables, each message exactly once; run it again for what is new.

    One table per topic, in namespace `pocketmq`. With --check: exit code 1 when a table differs.
    """
    try:
        from pocketmq.lake.copy import LakeCopy
        from pocketmq.lake.memory import use_thrifty_memory
    except ImportError as error:
        raise CannotBegin(needs("this command", error.name or "a library", "lake")) from error
    from pocketmq.bulk.offsets import LossRule

    use_thrifty_memory()
    loss = LossRule(fail=not skip_losses)
    with _named_errors(), _tables(warehouse, catalog, table_format) as opened:
        rows = _source(
            source, topic or [], loss, sealed=sealed, system=system_topics, broker_name=broker_name
        )
        try:
            if check:
                _check(opened, rows, as_json=as_json)
                return
            copy = LakeCopy(
                opened, rows, body=_body(body_schema), partitions=_partitions(partition)
            )
            upkeep = _upkeep(compact, keep_snapshots)
            if follow:
                _follow(copy, every, upkeep, topic or [], as_json=as_json)
            else:
                copy.round(_bar)
                done = None if upkeep is None else copy.maintain(upkeep, topic or [])
                _report(copy, loss, done, as_json=as_json)
        finally:
            rows.close()


@contextmanager
def _named_errors() -> Iterator[None]:
    """Turn the errors of sources and tables into one line."""
    from pocketmq.bulk.errors import DataLoss

    try:
        yield
    except DataLoss as error:
        where = f" (file {error.file}, position {error.position})" if error.position >= 0 else ""
        raise CannotBegin(
            f"{error.reason}{where}. What was read before is in the tables; --skip-losses continues behind it"
        ) from error
    except (PocketMQError, OSError) as error:
        raise CannotBegin(str(error)) from error


@contextmanager
def _tables(
    warehouse: str, catalog: str | None, table_format: TableFormat
) -> "Iterator[LakeTables]":
    if table_format is TableFormat.DELTA:
        if catalog is not None:
            raise CannotBegin("--catalog is for Iceberg: a Delta table needs no catalog")
        try:
            from pocketmq.lake.delta import DeltaError, DeltaTables, in_a_line
        except ImportError as error:
            raise CannotBegin(
                needs("--format delta", error.name or "a library", "delta")
            ) from error
        try:
            yield DeltaTables(warehouse)
        except (DeltaError, OSError) as error:
            raise CannotBegin(in_a_line(error)) from error
        return
    from pocketmq.lake.catalog import opened_catalog
    from pocketmq.lake.iceberg import IcebergTables

    with opened_catalog(warehouse, catalog) as opened:
        yield IcebergTables(opened)


def _source(
    source: str,
    topics: list[str],
    loss: "LossRule",
    *,
    sealed: bool,
    system: bool,
    broker_name: str | None,
) -> "RowSource":
    from pocketmq.bulk.partition import Topics

    wanted = Topics(tuple(topics), system=system)
    if _NAME_SERVERS.fullmatch(source):
        if sealed or broker_name is not None:
            raise CannotBegin("--sealed and --broker-name are for stores; brokers know their names")
        from pocketmq.lake.brokers import BrokerSource

        return BrokerSource(_access(source), wanted, loss)
    from pocketmq.lake.files import FileSource

    return FileSource([source], wanted, loss, sealed=sealed, broker_names=_names(broker_name))


def _access(name_server: str) -> "BrokerAccess":
    """Return how to connect, by the account of the user's environment or context."""
    from pocketmq.spark.brokers.connection import BrokerAccess

    said = contexts.environment()
    if said.get("POCKETMQ_TLS_CA"):
        raise CannotBegin(
            "pocketmq lake cannot verify the servers' certificates: leave --tls-ca away, or read the store"
        )
    return BrokerAccess(
        name_server,
        access_key=said.get("POCKETMQ_ACCESS_KEY", ""),
        secret_key=said.get("POCKETMQ_SECRET_KEY", ""),
        use_tls=said.get("POCKETMQ_TLS_ENABLE", "").lower() == "true",
        retry_timeout_ms=_RETRY_MS,
        first_contact_ms=_FIRST_CONTACT_MS,
    )


def _names(text: str | None) -> dict[str, str] | str | None:
    if text is None or not text.startswith("{"):
        return text
    import json

    try:
        found: dict[str, str] = json.loads(text)
    except ValueError as error:
        raise IllegalArgument(f"--broker-name is not JSON: {error}") from error
    return found


def _body(text: str | None) -> "BodyColumns | None":
    if text is None:
        return None
    from pocketmq.bulk.bodies.columns import BodyColumns

    return BodyColumns.of(text)


def _partitions(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    from pocketmq.lake.partitions import checked_partitions

    return checked_partitions(text)


def _upkeep(compact: bool, keep_snapshots: str | None) -> "Upkeep | None":
    """Return what to do beside copying. Raises: CannotBegin for another text than an age."""
    if not compact and keep_snapshots is None:
        return None
    from pocketmq.lake.maintain import Upkeep

    age = None if keep_snapshots is None else AGO.fullmatch(keep_snapshots.strip())
    if keep_snapshots is not None and age is None:
        raise CannotBegin(f"--keep-snapshots {keep_snapshots}: give an age, as 7d or 12h")
    return Upkeep(compact, None if age is None else int(age[1]) * UNITS_MS[age[2]])


def _bar(parts: Iterable[Any], total: int) -> Iterator[Any]:
    return with_progress(parts, "parts", total=total)


def _follow(
    copy: "LakeCopy", every_s: float, upkeep: "Upkeep | None", topics: list[str], *, as_json: bool
) -> None:
    """Copy until Ctrl-C; a line for each round that found something. Upkeep begins with the first round."""
    due = time.monotonic()
    try:
        while True:
            began = time.monotonic()
            added = copy.round(_bar)
            if added:
                line = {
                    "rows": added,
                    "tables": len(copy.copied.rows),
                    "commits": copy.copied.commits,
                }
                print_line(json_text(line) if as_json else f"{added} rows added")
            if upkeep is not None and began >= due:
                due = began + _UPKEEP_S
                copy.maintain(upkeep, topics)
            time.sleep(max(0.0, began + every_s - time.monotonic()))
    except KeyboardInterrupt:
        return


def _report(
    copy: "LakeCopy", loss: "LossRule", done: "Maintained | None", *, as_json: bool
) -> None:
    copied = copy.copied
    fields = {
        "rows": copied.total,
        "tables": [{"table": name, "rows": rows} for name, rows in sorted(copied.rows.items())],
        "files": copied.files,
        "losses": loss.losses,
        "maintained": None if done is None else as_object(done),
    }
    if as_json:
        print_json(fields)
        return
    for name, rows in sorted(copied.rows.items()):
        print_line(f"{name}: {rows} rows")
    for one in loss.losses:
        print_line(f"lost: {one}")
    print_line(f"{copied.total} rows added in {copied.files} files")
    if done is not None:
        print_line(
            f"{done.merged} small files merged into {done.into}, {done.expired} snapshots expired, "
            f"{done.deleted} files deleted that nothing names"
        )


def _check(tables: "LakeTables", source: "RowSource", *, as_json: bool) -> None:
    from pocketmq.lake.check import Check

    found = Check(tables, source).run(_bar)
    fields = as_object(found)
    if as_json:
        print_json(fields)
    else:
        for line in fields.pop("shown"):
            print_line(line)
        print_fields(fields, as_json=False)
    if not found.is_equal:
        raise typer.Exit(int(ExitCode.FAILED))
