"""`pocketmq store`: look into a store directory, check it, mend it, take its messages out.

ls, dump, verify and export only read, also beside a running broker; repair needs the broker stopped.
"""

import base64
import json
import os
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from pocketmq.cli.exits import CannotBegin, ExitCode
from pocketmq.cli.options import Json
from pocketmq.cli.output import print_fields, print_json, print_line, print_rows, with_progress
from pocketmq.cli.store_folder import StoreFolder
from pocketmq.remoting import fastjson
from pocketmq.remoting.errors import PocketMQError, ProtocolError
from pocketmq.remoting.message_codec import (
    decompress,
    offset_msg_id,
    properties_to_dict,
    unpack_host,
)
from pocketmq.remoting.record import read_record
from pocketmq.store.checkpoint import Checkpoint
from pocketmq.store.commit_log import Damage, Entry

app = typer.Typer(
    help="Look into a store directory, check, mend and export it.", no_args_is_help=True
)

Folder = Annotated[str, typer.Argument(metavar="DIR", help="The broker's --data directory.")]
Topic = Annotated[str | None, typer.Option(help="Only this topic.")]

# Prepared and rolled-back messages are in no queue.
_WITHOUT_ENTRY = 0x4


class BodyForm(StrEnum):
    """How a body is shown."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    NONE = "none"


@app.command("ls")
def list_queues(folder: Folder, topic: Topic = None, as_json: Json = False) -> None:
    """The log and the queues with their offsets."""
    store = StoreFolder(folder)
    rows = []
    for name, queue_id in store.queues():
        if topic is None or name == topic:
            low, high = store.bounds(name, queue_id)
            rows.append(
                {"topic": name, "queue": queue_id, "min": low, "max": high, "messages": high - low}
            )
    summary = store.summary()
    fields = {
        "store": summary.root,
        "last written by": summary.written_by,
        "stopped cleanly": summary.stopped_cleanly,
        "log from": summary.log_first,
        "log to": summary.log_end,
        "log files": summary.log_files,
        "on disk": summary.disk_size,
    }
    if as_json:
        print_json({**{name.replace(" ", "_"): v for name, v in fields.items()}, "queues": rows})
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
        int | None, typer.Option(help="The record at this place in the log, in bytes.")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="At most so many.")] = 100,
    body: Annotated[BodyForm, typer.Option(help="How bodies are shown.")] = BodyForm.TEXT,
    as_json: Json = False,
) -> None:
    """Messages as they are stored: by place, by queue, or all in the order of the log."""
    store = StoreFolder(folder)
    rows: list[dict[str, Any]] = []
    for entry in _chosen(store, topic, queue, first, position):
        if len(rows) == count:
            break
        rows.append(message_fields(store, entry, body))
    if as_json:
        print_json(rows)
        return
    for row in rows:
        print_fields(row, as_json=False)
        print_line("")
    if not rows:
        print_line("no messages")


def _chosen(
    store: StoreFolder, topic: str | None, queue: int | None, first: int, position: int | None
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
    queues = [q for t, q in store.queues() if t == topic and queue in (None, q)]
    if not queues:
        raise CannotBegin(f"the store has no queue of topic {topic!r}: see `pocketmq store ls`")
    for queue_id in queues:
        for each in store.entries(topic, queue_id, first):
            found = store.record_at(each.position)
            if isinstance(found, Entry):
                yield found


def message_fields(store: StoreFolder, entry: Entry, form: BodyForm) -> dict[str, Any]:
    """One stored message in words; times in ms since 1970."""
    record = read_record(store.bytes_at(entry.position, entry.size), check_crc=False)
    fields: dict[str, Any] = {
        "topic": record.topic,
        "queue": record.queue_id,
        "offset": record.queue_offset,
        "position": record.position,
        "size": record.size,
        "msgId": offset_msg_id(record.store_host, record.position),
        "storeTime": record.store_ms,
        "bornTime": record.born_ms,
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
    try:
        body = decompress(body, sys_flag)
    except (ProtocolError, PocketMQError):
        # What cannot be unpacked is shown as it is stored.
        pass
    if form is BodyForm.HEX:
        return body.hex()
    if form is BodyForm.BASE64:
        return base64.b64encode(body).decode("ascii")
    return body.decode("utf-8", "backslashreplace")


@app.command()
def verify(folder: Folder, as_json: Json = False) -> None:
    """Check every record, queue entry and side file. Exit code 1 when anything is wrong."""
    store = StoreFolder(folder)
    problems: list[dict[str, Any]] = []
    ends: dict[tuple[bytes, int], int] = {}
    records = _verify_log(store, problems, ends)
    entries = _verify_queues(store, problems, ends)
    files = _verify_side_files(store, problems)
    if as_json:
        print_json(
            {"records": records, "entries": entries, "side_files": files, "problems": problems}
        )
    else:
        print_line(f"{records} records, {entries} queue entries, {files} side files checked")
        print_rows(problems, as_json=False, empty="nothing is wrong")
    if problems:
        raise typer.Exit(int(ExitCode.FAILED))


def _verify_log(
    store: StoreFolder, problems: list[dict[str, Any]], ends: dict[tuple[bytes, int], int]
) -> int:
    """ends: filled with the next offset of each queue, as the records say it."""
    count = 0
    for found in with_progress(store.walk(), "records"):
        if isinstance(found, Damage):
            problems.append(
                {"where": f"commitlog at {found.position}", "bytes": found.size, "what": found.why}
            )
        else:
            count += 1
            if not found.sys_flag & _WITHOUT_ENTRY:
                key = (found.topic, found.queue_id)
                ends[key] = max(ends.get(key, 0), found.queue_offset + 1)
    return count


def _verify_queues(
    store: StoreFolder, problems: list[dict[str, Any]], ends: dict[tuple[bytes, int], int]
) -> int:
    count = 0
    for topic, queue_id in with_progress(store.queues(), "queues"):
        expected: int | None = None
        raw_topic = topic.encode("utf-8", "surrogateescape")
        for entry in store.entries(topic, queue_id):
            if entry.position < store.log_first:
                continue
            count += 1
            where = f"consumequeue/{topic}/{queue_id} offset {entry.queue_offset}"
            if expected is not None and entry.queue_offset != expected:
                problems.append(
                    {"where": where, "bytes": 20, "what": "entries before it are missing"}
                )
            expected = entry.queue_offset + 1
            record = store.record_at(entry.position, check_crc=False)
            if not isinstance(record, Entry):
                what = "nothing" if record is None else record
                problems.append(
                    {"where": where, "bytes": 20, "what": f"points to no record: {what}"}
                )
            elif (record.topic, record.queue_id, record.queue_offset, record.size) != (
                raw_topic,
                queue_id,
                entry.queue_offset,
                entry.size,
            ):
                problems.append(
                    {"where": where, "bytes": 20, "what": "points to a record of another place"}
                )
        missing = ends.pop((raw_topic, queue_id), 0) - (expected or 0)
        if missing > 0 and expected is not None:
            _missing(problems, topic, queue_id, missing)
    for (topic_bytes, queue_id), end in ends.items():
        topic = topic_bytes.decode("utf-8", "replace")
        # RocketMQ 5's batch queues are elsewhere and of another layout.
        if not (store.root / "batchconsumequeue" / topic).is_dir():
            _missing(problems, topic, queue_id, end)
    return count


def _missing(problems: list[dict[str, Any]], topic: str, queue_id: int, count: int) -> None:
    what = f"the last {count} records have no entry; the broker adds them when it starts"
    where = f"consumequeue/{topic}/{queue_id}"
    problems.append({"where": where, "bytes": 20 * count, "what": what})


def _verify_side_files(store: StoreFolder, problems: list[dict[str, Any]]) -> int:
    folder = store.root / "config"
    names = sorted(folder.glob("*.json")) if folder.is_dir() else []
    for path in names:
        try:
            fastjson.loads(path.read_bytes())
        except (OSError, fastjson.FastjsonError) as error:
            problems.append(
                {"where": f"config/{path.name}", "bytes": path.stat().st_size, "what": str(error)}
            )
    return len(names)


@app.command()
def repair(folder: Folder, as_json: Json = False) -> None:
    """Build queues and index again from the log. The old ones are kept beside; stop the broker first."""
    import asyncio

    store = StoreFolder(folder)
    damages = [
        found for found in with_progress(store.walk(), "records") if isinstance(found, Damage)
    ]
    ours = Checkpoint.load(str(store.root / "checkpoint")).ours
    if damages and not ours:
        raise CannotBegin(
            f"the log is damaged at {damages[0].position} ({damages[0].why}), and a RocketMQ broker "
            "wrote it last: what is behind could be stale. Take the messages out with `pocketmq store "
            "export`; nothing was changed"
        )
    kept = asyncio.run(_rebuild(store.root))
    result = {
        "queues": len(StoreFolder(folder).queues()),
        "damaged places": len(damages),
        "old files": str(kept),
    }
    print_fields(
        {name.replace(" ", "_"): v for name, v in result.items()} if as_json else result,
        as_json=as_json,
    )


async def _rebuild(root: Path) -> Path:
    """Move the derived files away and let recovery, the only builder of entries, make them again."""
    from pocketmq.remoting.clock import SystemClock
    from pocketmq.store import MessageStore, StoreConfig, StoreError
    from pocketmq.store.store_lock import StoreLock

    lock = StoreLock(str(root))
    try:
        lock.acquire()
    except StoreError as error:
        raise CannotBegin(str(error)) from error
    kept = root / time.strftime("before-repair-%Y%m%d-%H%M%S")
    try:
        kept.mkdir()
        for name in ("consumequeue", "consumequeue_ext", "index"):
            if (root / name).exists():
                (root / name).rename(kept / name)
    finally:
        lock.release()
    try:
        config = StoreConfig(store_path_root_dir=str(root))
        async with MessageStore(config, clock=SystemClock(), store_host=b"\x7f\0\0\1\0\0\x2a\x9f"):
            pass
    except StoreError as error:
        raise CannotBegin(f"{error}. The old files are in {kept}") from error
    return kept


class ExportForm(StrEnum):
    """What export writes."""

    JSONL = "jsonl"
    PARQUET = "parquet"


@app.command()
def export(
    folder: Folder,
    out: Annotated[
        str, typer.Option("--out", "-o", help="File to write; - is standard output.")
    ] = "-",
    form: Annotated[
        ExportForm, typer.Option("--format", help="One JSON line a message, or Parquet.")
    ] = (ExportForm.JSONL),
    topic: Topic = None,
    body: Annotated[
        BodyForm, typer.Option(help="How bodies are written in JSON.")
    ] = BodyForm.BASE64,
    as_json: Json = False,
) -> None:
    """Take messages out of a store, also of a damaged one: every intact record.

    With --json it says how many, in JSON.
    """
    if as_json and out == "-":
        raise CannotBegin("--json says how many were written: name a file for them with --out")
    if form is ExportForm.PARQUET:
        count = _export_parquet(folder, out, topic)
    else:
        store = StoreFolder(folder)
        with _opened(out) as file:
            count = _export_lines(store, file, topic, body)
    if as_json:
        print_json({"exported": count, "file": out})
    else:
        sys.stderr.write(f"{count} messages exported\n")


def _export_lines(store: StoreFolder, file: TextIO, topic: str | None, body: BodyForm) -> int:
    wanted = None if topic is None else topic.encode()
    count = 0
    for found in with_progress(store.walk(), "records"):
        if isinstance(found, Damage) or wanted not in (None, found.topic):
            continue
        file.write(json.dumps(message_fields(store, found, body), ensure_ascii=False) + "\n")
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


def _export_parquet(folder: str, out: str, topic: str | None) -> int:
    try:
        import pyarrow.parquet as pq

        from pocketmq import bulk
    except ImportError as error:
        raise CannotBegin(
            "Parquet needs pyarrow: pip install 'pocketmq[spark]', or export JSON lines"
        ) from error
    if out == "-":
        raise CannotBegin("Parquet goes to a file: name it with --out")
    reader = bulk.scan(
        folder, columns="all", topics=() if topic is None else (topic,), fail_on_data_loss=False
    )
    count = 0
    with pq.ParquetWriter(out, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            count += batch.num_rows
    return count
