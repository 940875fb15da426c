"""The timers' files against the log: wheel, timer log and config/timercheck."""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pocketmq.files.layout import FileSpan, is_file_name
from pocketmq.files.records import Entry
from pocketmq.store.doctor.listing import break_in
from pocketmq.store.errors import StoreError
from pocketmq.store.findings import FindingCode, Problem, problem
from pocketmq.store.repair.reader import StoreReader
from pocketmq.store.timer.check import TimerCheckFile, names_second
from pocketmq.store.timer.log import UNIT_SIZE, TimerUnit, units_of
from pocketmq.store.timer.wheel import TimerWheel


@dataclass
class _Units:
    """What the timer log holds: where it ends, units without a record, and damaged ones, by position."""

    end: int = 0
    ahead: int = 0
    damaged: list[int] | None = None


def check_timers(
    store: StoreReader, records_end: int, queue_end: int, now_ms: int
) -> Iterator[Problem]:
    """Find what is wrong with the timers' files.

    records_end: of the commit log, bytes; queue_end: the next offset of the queue of waiting messages.
    """
    wheel = TimerWheel(str(store.root / "timerwheel"))
    try:
        wheel.load(read_only=True)
    except StoreError as error:
        yield problem(FindingCode.TIMER_FILES, "timerwheel", 0, str(error))
        return
    try:
        files = _files(store.root / "timerlog")
        if broken := break_in(files):
            yield problem(FindingCode.TIMER_FILES, "timerlog", 0, broken)
            return
        units = _units(store, files, records_end)
        slots = sum(slot.last >= units.end for slot in wheel.written())
    finally:
        wheel.close()
    for position in units.damaged or ():
        what = "it is no unit, or its record is another one"
        yield problem(FindingCode.TIMER_UNIT_WRONG, f"timerlog at {position}", UNIT_SIZE, what)
    if units.ahead or slots:
        what = f"{units.ahead} units and {slots} slots point to what is not there"
        yield problem(FindingCode.TIMER_AHEAD, "timerlog", UNIT_SIZE * units.ahead, what)
    yield from _check_progress(store, units, queue_end, now_ms)


def _check_progress(
    store: StoreReader, units: _Units, queue_end: int, now_ms: int
) -> Iterator[Problem]:
    where = "config/timercheck"
    check = TimerCheckFile(str(store.root / where)).load()
    what = ""
    if not names_second(check, now_ms):
        what = f"it names no second: {check.read_ms} ms"
    elif check.log_position > units.end:
        what = f"it is at {check.log_position} of a timer log that ends at {units.end}"
    elif check.queue_offset > queue_end:
        what = f"it is at offset {check.queue_offset} of a queue that ends at {queue_end}"
    if what:
        yield problem(FindingCode.TIMER_CHECK_WRONG, where, 0, what)


def _files(folder: Path) -> list[FileSpan]:
    try:
        paths = sorted(path for path in folder.iterdir() if is_file_name(path.name))
    except FileNotFoundError:
        return []
    sized = [FileSpan(int(path.name), path.stat().st_size, str(path)) for path in paths]
    return [file for file in sized if file.size]


def _units(store: StoreReader, files: list[FileSpan], records_end: int) -> _Units:
    found = _Units(end=files[0].first if files else 0, damaged=[])
    suspects: list[int] = []
    assert found.damaged is not None
    for file in files:
        with open(file.path, "rb") as opened:
            data = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        for at, unit in units_of(data):
            position = file.first + at
            if unit is not None:
                found.end = position + UNIT_SIZE
            if unit is None or (unit.position < records_end and not _has_record(store, unit)):
                suspects.append(position)
            elif unit.position + unit.size > records_end:
                found.ahead += 1
    # Behind the last unit are bytes of one that was being written.
    found.damaged += [position for position in suspects if position < found.end]
    return found


def _has_record(store: StoreReader, unit: TimerUnit) -> bool:
    """Return True if the record is there, or was deleted with its file."""
    if unit.position < store.log_start:
        return True
    record = store.record_at(unit.position, check_crc=False)
    return isinstance(record, Entry) and record.size == unit.size
