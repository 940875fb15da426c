"""`pocketmq store backup`, `backups` and `restore`: a copy of a served store, and a store made of it."""

import os
import sys
import time
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from pocketmq.cli.exits import CannotBegin, ExitCode
from pocketmq.cli.options import Json
from pocketmq.cli.output import print_fields, print_json, print_line, print_rows
from pocketmq.remoting.errors import PocketMQError

_T = TypeVar("_T")

Backups = Annotated[
    str, typer.Argument(metavar="BACKUP", help="A folder, or a URI such as s3://bucket/broker-a.")
]


def _done(work: Callable[[], _T]) -> _T:
    """Return what `work` returns. Raises: CannotBegin."""
    from pocketmq.cli.servers.server_log import keep_readable

    keep_readable()
    try:
        return work()
    except (PocketMQError, OSError) as error:
        raise CannotBegin(str(error)) from error


def backup(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="The broker's --data directory; with --broker, a folder for a copy of it, which is kept.",
        ),
    ],
    dest: Backups,
    broker: Annotated[
        str | None,
        typer.Option(metavar="ADDR", help="First bring DATA up to the broker at this ip:port."),
    ] = None,
    keep: Annotated[
        int, typer.Option(min=0, help="Keep this many backups, and remove older ones; 0: keep all.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Back up a store, also while its broker runs: log, tables, offsets, timers, as of one position.

    Run it again for what is new: what an earlier backup has is not copied again. Queues and index are made
    by `store restore`. With --broker over the network, from PocketMQ or RocketMQ; where accounts are
    checked, an administrator's is needed.
    """
    from pocketmq.backup.place import opened_place
    from pocketmq.backup.take import Backup, BackupReport

    def work() -> BackupReport:
        place = opened_place(dest)
        if broker is not None:
            _follow(broker, folder)
        elif os.path.isfile(folder):
            raise CannotBegin(f"{folder} is a file: name the broker's --data directory")
        return Backup(folder, place, _now_ms).run(keep=keep)

    done = _done(work)
    cut = done.cut
    result = {
        "position": cut.position,
        "time": cut.ms,
        "bytes": cut.size,
        "written": done.written,
        "removed": done.removed,
        "backup": dest,
    }
    if as_json:
        print_json(result)
    else:
        sys.stderr.write(
            f"backed up to position {cut.position}: {cut.size} bytes of the log, {done.written} written\n"
        )


def _follow(address: str, folder: str) -> None:
    """Bring a folder up to a running broker."""
    import asyncio

    from pocketmq.backup.errors import BackupRefused
    from pocketmq.backup.follow import follow_until_level
    from pocketmq.cli.connecting import asking_options
    from pocketmq.remoting.codes import RequestCode
    from pocketmq.remoting.settings import parse_properties
    from pocketmq.remoting.transport.blocking import ask

    options = asking_options(timeout_ms=3_000)
    answer = ask(address, RequestCode.GET_BROKER_CONFIG, **options)
    if answer.code:
        raise BackupRefused(
            f"{address} refused: {answer.remark}. Pass an administrator's account in POCKETMQ_ACCESS_KEY and "
            "POCKETMQ_SECRET_KEY"
        )
    settings = parse_properties(bytes(answer.body).decode("utf-8"))

    def said(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    asyncio.run(follow_until_level(address, folder, settings, options["credentials"], said))


def backups(
    dest: Backups,
    check: Annotated[
        bool, typer.Option("--check", help="Read everything, and compare it with its checksums.")
    ] = False,
    as_json: Json = False,
) -> None:
    """The backups in a place, oldest first: to which position and time each one goes.

    Exit code 1 when --check finds damage.
    """
    from pocketmq.backup.cut import read_cuts
    from pocketmq.backup.place import opened_place
    from pocketmq.backup.restore import check_backup
    from pocketmq.cli.moments import show_moment

    place = _done(lambda: opened_place(dest))
    cuts = _done(lambda: list(read_cuts(place)))
    rows = [{"position": each.position, "time": each.ms, "bytes": each.size} for each in cuts]
    if not rows:
        raise CannotBegin(f"{dest} has no backup: see `pocketmq store backup`")
    problems = _done(lambda: list(check_backup(place))) if check else []
    if as_json:
        print_json({"backups": rows, "problems": problems})
    else:
        print_rows([{**row, "time": show_moment(row["time"])} for row in rows], as_json=False)
        for each in problems:
            print_line(each)
        if check and not problems:
            print_line("everything is as it was written")
    if problems:
        raise typer.Exit(int(ExitCode.FAILED))


def restore(
    source: Backups,
    folder: Annotated[
        str, typer.Argument(metavar="DATA", help="Folder of the new store: empty, or none yet.")
    ],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|POSITION",
            help="The last backup not after that: a time such as 2026-11-21T12:00 or 2h (ago), or a position "
            "of `store backups`. By default the last one.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a store of a backup; a broker, PocketMQ or RocketMQ, starts on it.

    Everything is compared with its checksums, and the folder gets its name when all is there.
    """
    import logging

    from pocketmq.backup.cut import chosen_cut
    from pocketmq.backup.place import opened_place
    from pocketmq.backup.restore import Restore, RestoreReport
    from pocketmq.remoting.clock import SystemClock

    ms, position = _moment(at)

    def work() -> RestoreReport:
        place = opened_place(source)
        cut = chosen_cut(place, ms=ms, position=position)
        log = logging.getLogger("pocketmq.store")
        level = log.level
        # Recovery warns of each queue that it makes, which is its work here.
        log.setLevel(logging.ERROR)
        try:
            return Restore(place, cut, folder, SystemClock()).run()
        finally:
            log.setLevel(level)

    done = _done(work)
    result = {
        "position": done.cut.position,
        "time": done.cut.ms,
        "records": done.records,
        "damages": done.damages,
        "data": folder,
    }
    if as_json:
        print_json(result)
    else:
        print_fields(result, as_json=False)


def _moment(at: str | None) -> tuple[int | None, int | None]:
    """Return (time, position); a number of less than 13 digits is a position, as one of more is."""
    if at is None:
        return None, None
    if at.isdecimal() and len(at) != _DIGITS_OF_MS:
        return None, int(at)
    from pocketmq.cli.moments import parse_moment

    return parse_moment(at, _now_ms()), None


_DIGITS_OF_MS = 13


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
