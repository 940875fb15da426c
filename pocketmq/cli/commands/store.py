"""`pocketmq store`: look into a store directory, check it, mend it, take its messages out.

ls, dump, balance, verify and export only read, also beside a running broker; repair needs the broker stopped.
Backups are in store_backup.py.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from pocketmq.cli.exits import CannotBegin, ExitCode
from pocketmq.cli.options import Json, Yes
from pocketmq.cli.output import (
    json_text,
    print_fields,
    print_json,
    print_line,
    print_rows,
    with_progress,
)
from pocketmq.cli.store_backup import backup, backups, restore
from pocketmq.cli.store_balance import of_files
from pocketmq.files.records import Damage, Entry
from pocketmq.remoting.errors import IllegalArgument, PocketMQError, ProtocolError
from pocketmq.remoting.lazy_names import needs

if TYPE_CHECKING:
    from pocketmq.store.findings import Problem
    from pocketmq.store.repair.reader import StoreReader

app = typer.Typer()
app.command("balance")(of_files)
for each in (backup, backups, restore):
    app.command()(each)

Folder = Annotated[str, typer.Argument(metavar="DIR", help="The broker's --data directory.")]
Topic = Annotated[str | None, typer.Option(help="Only this topic.")]

# Between two looks at what was appended.
_LOOK_INTERVAL_S = 0.2


def _opened_store(folder: str, *, file: bool = False) -> "StoreReader":
    """file: a file of a truncated end of a log is accepted, too."""
    from pocketmq.cli.servers.server_log import keep_readable
    from pocketmq.store.errors import StoreForeign
    from pocketmq.store.repair.reader import StoreReader

    keep_readable()
    if not file and os.path.isfile(folder):
        raise CannotBegin(f"{folder} is a file: name the broker's --data directory")
    try:
        return StoreReader(folder)
    except StoreForeign as error:
        raise CannotBegin(str(error)) from error


class BodyForm(StrEnum):
    """How a body is shown."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    NONE = "none"


@app.command("ls")
def list_queues(folder: Folder, topic: Topic = None, as_json: Json = False) -> None:
    """The log and the queues with their offsets."""
    store = _opened_store(folder)
    rows = []
    for queue in store.queues(lambda name: topic in (None, name)):
        low, high = store.offsets(queue)
        where = {"topic": queue.topic, "queueId": queue.queue_id}
        rows.append({**where, "minOffset": low, "maxOffset": high, "messages": high - low})
    summary = store.summary()
    fields = {
        "store": summary.root,
        "lastWrittenBy": summary.written_by,
        "stoppedCleanly": summary.stopped_cleanly,
        "logFrom": summary.log_first,
        "logTo": summary.log_end,
        "logFiles": summary.log_files,
        "onDisk": summary.disk_size,
    }
    if as_json:
        print_json({**fields, "queues": rows})
        return
    print_fields(fields, as_json=False)
    print_line("")
    print_rows(rows, as_json=False, empty="no queues")


@app.command()
def dump(
    folder: Folder,
    topic: Topic = None,
    queue: Annotated[int | None, typer.Option(help="Only this queue.")] = None,
    first: Annotated[int, typer.Option("--from", help="First offset in the queue.")] = 0,
    position: Annotated[
        int | None, typer.Option(help="The record at this position in the log, in bytes.")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="At most this many.")] = 100,
    body: Annotated[BodyForm, typer.Option(help="How to show bodies.")] = BodyForm.TEXT,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Keep printing new records; with --json, one per line."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Messages as they are stored: by place, by queue, or all in the order of the log.

    For the end that was cut off a log, name its file: DIR/dropped/commitlog-...
    """
    store = _opened_store(folder, file=True)
    chosen = (
        _appended(store, topic, queue) if follow else _chosen(store, topic, queue, first, position)
    )
    rows = (message_fields(store, entry, body) for entry in islice(chosen, count))
    if as_json and not follow:
        print_json(list(rows))
        return
    shown = False
    for row in rows:
        shown = True
        if as_json:
            print_line(json_text(row))
        else:
            print_fields(row, as_json=False)
            print_line("")
    if not shown:
        print_line("no messages")


def _appended(store: "StoreReader", topic: str | None, queue: int | None) -> Iterator[Entry]:
    """Yield what a broker stores from now on."""

    def wait() -> bool:
        time.sleep(_LOOK_INTERVAL_S)
        return True

    wanted = None if topic is None else topic.encode()
    for found in store.follow(store.end_of_records(), wait=wait):
        if not isinstance(found, Entry):
            continue
        if wanted in (None, found.topic) and queue in (None, found.queue_id):
            yield found


def _chosen(
    store: "StoreReader", topic: str | None, queue: int | None, first: int, position: int | None
) -> Iterator[Entry]:
    if position is not None:
        found = store.record_at(position)
        if not isinstance(found, Entry):
            why = "nothing is there" if found is None else found
            raise CannotBegin(f"there is no record at {position}: {why}")
        yield found
        return
    if topic is None:
        yield from (found for found in store.walk() if isinstance(found, Entry))
        return
    queues = [q for q in store.queues(topic.__eq__) if queue in (None, q.queue_id)]
    if not queues:
        raise CannotBegin(f"the store has no queue of topic {topic!r}: see `pocketmq store ls`")
    for chosen in queues:
        for each in store.entries(chosen, first):
            found = store.record_at(each.position)
            if isinstance(found, Entry):
                yield found


def message_fields(store: "StoreReader", entry: Entry, form: BodyForm) -> dict[str, Any]:
    """Return one stored message in words; times in ms since 1970."""
    # Only commands that show messages load the codec.
    from pocketmq.model.message_codec import offset_msg_id, properties_to_dict
    from pocketmq.model.record import read_record
    from pocketmq.remoting.hosts import unpack_host

    record = read_record(store.bytes_at(entry.position, entry.size), check_crc=False)
    fields: dict[str, Any] = {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "position": record.position,
        "storeSize": record.size,
        "offsetMsgId": offset_msg_id(record.store_host, record.position),
        "storeTimestamp": record.store_ms,
        "bornTimestamp": record.born_ms,
        "bornHost": unpack_host(record.born_host),
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "reconsumeTimes": record.reconsume_times,
        "properties": properties_to_dict(record.properties),
    }
    if form is not BodyForm.NONE:
        fields["body"] = _body_text(bytes(record.body), record.sys_flag, form)
    return fields


def _body_text(body: bytes, sys_flag: int, form: BodyForm) -> str:
    from pocketmq.model.message_codec import decompress

    try:
        body = decompress(body, sys_flag)
    except (ProtocolError, PocketMQError):
        # What cannot be unpacked is shown as it is stored.
        pass
    if form is BodyForm.HEX:
        return body.hex()
    if form is BodyForm.BASE64:
        import base64

        return base64.b64encode(body).decode("ascii")
    return body.decode("utf-8", "backslashreplace")


@app.command()
def verify(folder: Folder, as_json: Json = False) -> None:
    """Check every record, queue entry, index entry and side file. Exit code 1 when anything is wrong.

    Each finding has a code, and says who mends it: the next start, `store repair`, or you. Messages that
    `store repair` gave up are only counted; it notes them in its folder before-repair-*.
    """
    from pocketmq.model.as_json import as_object
    from pocketmq.model.track import Severity
    from pocketmq.store.doctor.examination import diagnose

    found = diagnose(_opened_store(folder), with_progress, now_ms=time.time_ns() // 1_000_000)
    if as_json:
        print_json(
            {
                "records": found.records,
                "entries": found.entries,
                "sideFiles": found.side_files,
                "givenUp": found.given_up,
                "queuesUnseen": found.queues_unseen,
                "problems": as_object(found.problems),
            }
        )
    else:
        print_line(
            f"{found.records} records, {found.entries} queue entries, {found.side_files} side files checked"
        )
        if found.queues_unseen:
            print_line("the queues are in RocksDB, which is not read: they were not checked")
        if found.given_up:
            print_line(
                f"{found.given_up} messages were lost before a repair; see before-repair-*/damaged"
            )
        _print_problems(found.problems)
    if any(each.severity is not Severity.INFO for each in found.problems):
        raise typer.Exit(int(ExitCode.FAILED))


def _print_problems(problems: "Sequence[Problem]") -> None:
    """Print a table of findings, and below it once for each code who mends it and how."""
    from pocketmq.model.as_json import as_object

    columns = {"code": "code", "where": "where", "bytes": "bytes", "what": "what"}
    print_rows(as_object([*problems]), as_json=False, empty="nothing is wrong", columns=columns)
    for code, advice in {each.code: each.advice for each in problems}.items():
        print_line(f"{code}: {advice}")


@app.command()
def du(folder: Folder, as_json: Json = False) -> None:
    """What the store's bytes are spent on: by folder, and in the log by topic."""
    from pocketmq.store.repair.diff import folders_use, topics_use

    store = _opened_store(folder)
    folders = folders_use(store.root)
    use = sorted(topics_use(store, with_progress).items(), key=lambda item: -item[1].size)
    topics = [
        {
            "topic": name,
            "messages": each.messages,
            "bytes": each.size,
            "oldest": each.oldest_ms or None,
            "newest": each.newest_ms or None,
        }
        for name, each in use
    ]
    if as_json:
        print_json({"folders": folders, "topics": topics})
        return
    print_rows([{"folder": name, "bytes": size} for name, size in folders.items()], as_json=False)
    print_rows(topics, as_json=False, empty="no messages")


@app.command()
def diff(
    folder: Folder,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The other store.")],
    as_json: Json = False,
) -> None:
    """Which messages only one of two stores has, or that differ, by queue and offset.

    Exit code 1 when there are any.
    """
    from pocketmq.store.repair.diff import differences

    found = [
        {"topic": topic, "queueId": queue, "queueOffset": offset, "what": what}
        for topic, queue, offset, what in differences(_opened_store(folder), _opened_store(other))
    ]
    print_rows(found, as_json=as_json, empty="both hold the same messages")
    if found:
        raise typer.Exit(int(ExitCode.FAILED))


@app.command()
def repair(folder: Folder, yes: Yes = False, as_json: Json = False) -> None:
    """Build queues and index again from the log; stop the broker first.

    The old ones are kept beside, with a copy of the damaged places of the log, whose messages are lost.
    Every broker then skips these places and serves the messages behind them. Offsets beyond the end of their
    queue are moved to it. Exit code 1 when something is left that only you can mend.
    """
    from pocketmq.cli.cluster import confirm
    from pocketmq.model.as_json import as_object
    from pocketmq.model.track import Severity
    from pocketmq.remoting.clock import SystemClock
    from pocketmq.store.errors import StoreError
    from pocketmq.store.repair.rebuild import Repair

    _opened_store(folder)
    try:
        work = Repair(folder, SystemClock())
        work.check()
        confirm(f"queues and index of {folder} will be built again, and damage overwritten", yes)
        done = work.run(work.prepare(with_progress))
    except StoreError as error:
        raise CannotBegin(str(error)) from error
    result = {
        "queues": done.queues,
        "damagedPlaces": done.damaged_places,
        "offsetsMoved": done.offsets_moved,
        "oldFiles": str(done.old_files),
    }
    if as_json:
        print_json({**result, "left": as_object(done.left)})
    else:
        print_fields(result, as_json=False)
        if done.left:
            _print_problems(done.left)
    if any(each.severity is Severity.ERROR for each in done.left):
        raise typer.Exit(int(ExitCode.FAILED))


class ExportForm(StrEnum):
    """What export writes."""

    JSONL = "jsonl"
    PARQUET = "parquet"


@app.command()
def export(
    folder: Folder,
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", help="File to write; - is standard output. For Parquet, also a folder/."
        ),
    ] = "-",
    form: Annotated[
        ExportForm, typer.Option("--format", help="JSON, one line per message, or Parquet.")
    ] = (ExportForm.JSONL),
    topic: Topic = None,
    body: Annotated[BodyForm, typer.Option(help="How to write bodies in JSON.")] = BodyForm.BASE64,
    as_json: Json = False,
) -> None:
    """Take messages out of a store, also of a damaged one: every intact record.

    For the end that was cut off a log, name its file: DIR/dropped/commitlog-... --json prints the count.
    """
    if as_json and out == "-":
        raise CannotBegin(
            "with --json, name a file for the messages with --out: standard output gets their count"
        )
    if form is ExportForm.PARQUET:
        count = _export_parquet(folder, out, topic)
    else:
        store = _opened_store(folder, file=True)
        with _opened(out) as file:
            count = _export_lines(store, file, topic, body)
    if as_json:
        print_json({"exported": count, "file": out})
    else:
        sys.stderr.write(f"{count} messages exported\n")


def _export_lines(store: "StoreReader", file: TextIO, topic: str | None, body: BodyForm) -> int:
    from pocketmq.store.repair.repairs import FILLER_TOPIC

    wanted = None if topic is None else topic.encode()
    filler = FILLER_TOPIC.encode()
    count = 0
    for found in with_progress(store.walk(), "records"):
        if isinstance(found, Damage) or found.topic == filler or wanted not in (None, found.topic):
            continue
        file.write(json_text(message_fields(store, found, body)) + "\n")
        count += 1
    return count


def _opened(out: str) -> TextIO:
    if out == "-":
        # A copy: leaving the with block must not close standard output itself.
        return os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    try:
        return open(out, "w", encoding="utf-8")
    except OSError as error:
        raise CannotBegin(f"cannot write {out}: {error.strerror}") from error


@app.command()
def archive(
    folder: Folder,
    dest: Annotated[
        str, typer.Argument(help="A folder, or a URI such as s3://bucket/archive/broker-a.")
    ],
    as_json: Json = False,
) -> None:
    """Copy the finished files of the log elsewhere, with a catalog of what they hold; the broker may run.

    Run it again for files that were finished since. Spark and pocketmq.bulk read an archive alone, and as one
    table with the live store.
    """
    try:
        from pocketmq.bulk.archive import Archiver
        from pocketmq.bulk.errors import DataLoss, NotAStore
    except ImportError as error:
        raise CannotBegin(needs("an archive", "pyarrow", "spark")) from error
    try:
        archiver = Archiver(folder, dest)
        found = list(with_progress(archiver.run(), "files", total=len(archiver.waiting)))
    except (DataLoss, IllegalArgument, NotAStore, OSError) as error:
        raise CannotBegin(str(error)) from error
    size, records = sum(c.file.size for c in found), sum(c.file.records for c in found)
    if as_json:
        print_json({"files": len(found), "bytes": size, "records": records, "archive": dest})
    else:
        sys.stderr.write(f"{len(found)} files with {records} records archived in {dest}\n")


def _export_parquet(folder: str, out: str, topic: str | None) -> int:
    try:
        from pocketmq.bulk.errors import NotAStore
        from pocketmq.bulk.export import export_parquet
    except ImportError as error:
        raise CannotBegin(
            needs("Parquet", "pyarrow", "spark") + "; or export JSON lines"
        ) from error
    if out == "-":
        raise CannotBegin("Parquet goes to a file: name it with --out")
    topics = () if topic is None else (topic,)
    by_topic = out.endswith("/") or os.path.isdir(out)
    try:
        return export_parquet(
            folder, out, by_topic=by_topic, topics=topics, fail_on_data_loss=False
        ).rows
    except (IllegalArgument, NotAStore) as error:
        raise CannotBegin(str(error)) from error
