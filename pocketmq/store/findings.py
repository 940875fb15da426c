"""Findings: everything that may be wrong with a store's files, one row each.

`store verify`, `store repair`, the start of a broker and its health use the same rows: a check names a code,
and its row has the severity, the mender and the advice. To add a row: CONTRIBUTING.md.
"""

from enum import StrEnum
from typing import NamedTuple

from pocketmq.model.track import Severity


class AtStart(StrEnum):
    """What a start of PocketMQ does about a finding.

    LEAVES: it serves the rest of the store. CUTS: it ends the log there, and keeps a copy of the bytes
    behind, at most 64 MiB a file, in `dropped`. REFUSES: it ends with StoreError, and changes nothing.
    """

    MENDS = "mends"
    LEAVES = "leaves"
    CUTS = "cuts"
    REFUSES = "refuses"


class AtRepair(StrEnum):
    """What `store repair` does about it. REFUSES: it ends with the row's advice, and changes nothing."""

    MENDS = "mends"
    LEAVES = "leaves"
    REFUSES = "refuses"


class Mender(StrEnum):
    """Who mends it: the first of them that can."""

    START = "start"
    REPAIR = "repair"
    OPERATOR = "operator"


class FindingCode(StrEnum):
    """The codes, for programs: they do not change."""

    FOREIGN = "FOREIGN"
    LOG_MISSING = "LOG_MISSING"
    LOG_FILES = "LOG_FILES"
    LOG_SHORT = "LOG_SHORT"
    LOG_DAMAGED = "LOG_DAMAGED"
    LOG_WOULD_END = "LOG_WOULD_END"
    LOG_UNFILLABLE = "LOG_UNFILLABLE"
    LOG_TORN_END = "LOG_TORN_END"
    QUEUE_FILES = "QUEUE_FILES"
    QUEUE_BEHIND = "QUEUE_BEHIND"
    QUEUE_LOST = "QUEUE_LOST"
    QUEUE_GAP = "QUEUE_GAP"
    QUEUE_AHEAD = "QUEUE_AHEAD"
    ENTRY_WRONG = "ENTRY_WRONG"
    INDEX_UNREADABLE = "INDEX_UNREADABLE"
    INDEX_WRONG = "INDEX_WRONG"
    INDEX_GAP = "INDEX_GAP"
    INDEX_LOST = "INDEX_LOST"
    INDEX_AHEAD = "INDEX_AHEAD"
    CHECKPOINT_SHORT = "CHECKPOINT_SHORT"
    CHECKPOINT_AHEAD = "CHECKPOINT_AHEAD"
    TIMER_FILES = "TIMER_FILES"
    TIMER_UNIT_WRONG = "TIMER_UNIT_WRONG"
    TIMER_AHEAD = "TIMER_AHEAD"
    TIMER_CHECK_WRONG = "TIMER_CHECK_WRONG"
    FILE_BROKEN = "FILE_BROKEN"
    FILE_LOST = "FILE_LOST"
    FILE_EMPTY = "FILE_EMPTY"
    OFFSET_AHEAD = "OFFSET_AHEAD"
    DELAY_AHEAD = "DELAY_AHEAD"
    LOST_FOUND = "LOST_FOUND"


class FindingRow(NamedTuple):
    """One row. what: what is wrong, and what it costs; advice: who mends it, and how."""

    code: FindingCode
    severity: Severity
    what: str
    start: AtStart
    repair: AtRepair
    advice: str

    @property
    def mender(self) -> Mender:
        if self.start is AtStart.MENDS:
            return Mender.START
        return Mender.REPAIR if self.repair is AtRepair.MENDS else Mender.OPERATOR


class Problem(NamedTuple):
    """One thing found. bytes: how much of the file it concerns; the rest is its row's, but for `what`."""

    code: FindingCode
    severity: Severity
    where: str
    bytes: int
    what: str
    mender: Mender
    advice: str


_REPAIR = "stop the broker and run `pocketmq store repair`"
_NEXT_START = "the next start of PocketMQ"
_BACKUP = "put the file back from a backup or a slave's folder"
_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO

_ROWS = (
    FindingRow(
        FindingCode.FOREIGN,
        _ERROR,
        "RocketMQ keeps topics, offsets, pops or queues in a form that PocketMQ does not read",
        AtStart.REFUSES,
        AtRepair.REFUSES,
        "do what the finding says: it names the form and the way out of it",
    ),
    FindingRow(
        FindingCode.LOG_MISSING,
        _ERROR,
        "there are queues and no commit log",
        AtStart.REFUSES,
        AtRepair.REFUSES,
        "mount the disk of the commit log, or set storePathCommitLog; if the log is lost, remove "
        "`consumequeue`, too",
    ),
    FindingRow(
        FindingCode.LOG_FILES,
        _ERROR,
        "a file of the commit log is missing, or has another size than the others: records are lost",
        AtStart.REFUSES,
        AtRepair.REFUSES,
        f"{_BACKUP}, or move the files before the gap away to do without them",
    ),
    FindingRow(
        FindingCode.LOG_SHORT,
        _INFO,
        "the last file of the commit log is shorter than the others",
        AtStart.MENDS,
        AtRepair.MENDS,
        f"{_NEXT_START} extends it with zeros",
    ),
    FindingRow(
        FindingCode.LOG_DAMAGED,
        _ERROR,
        "bytes of the commit log are no record: the messages in them are lost, those behind are served",
        AtStart.LEAVES,
        AtRepair.MENDS,
        f"{_REPAIR}: it overwrites them with records that every broker skips, and keeps a copy",
    ),
    FindingRow(
        FindingCode.LOG_WOULD_END,
        _ERROR,
        "as LOG_DAMAGED, in a log that RocketMQ wrote last: a start, of RocketMQ or PocketMQ, would end the "
        "log there and cut off the messages behind",
        AtStart.CUTS,
        AtRepair.MENDS,
        "run `pocketmq store repair` before a broker is started on this folder",
    ),
    FindingRow(
        FindingCode.LOG_UNFILLABLE,
        _ERROR,
        "as LOG_WOULD_END, in too few bytes for a record: they cannot be overwritten with one",
        AtStart.CUTS,
        AtRepair.REFUSES,
        "take the messages out with `pocketmq store export` before a broker is started on this folder",
    ),
    FindingRow(
        FindingCode.LOG_TORN_END,
        _WARNING,
        "the commit log ends in bytes that are no whole record, as after a power cut",
        AtStart.MENDS,
        AtRepair.MENDS,
        f"{_NEXT_START} cuts them off, and keeps a copy in `dropped`",
    ),
    FindingRow(
        FindingCode.QUEUE_FILES,
        _ERROR,
        "a file of a queue is missing, or has another size than the others: its messages are not served",
        AtStart.REFUSES,
        AtRepair.MENDS,
        f"{_REPAIR}: it builds the queues from the log",
    ),
    FindingRow(
        FindingCode.QUEUE_BEHIND,
        _WARNING,
        "the last records of a queue have no entry",
        AtStart.MENDS,
        AtRepair.MENDS,
        f"{_NEXT_START} adds them",
    ),
    FindingRow(
        FindingCode.QUEUE_LOST,
        _ERROR,
        "records of a queue have no entry, farther back than a start looks: they are not served",
        AtStart.LEAVES,
        AtRepair.MENDS,
        f"{_REPAIR}: it builds the queues from the log",
    ),
    FindingRow(
        FindingCode.QUEUE_GAP,
        _ERROR,
        "entries are missing between others of their queue: their messages are not served",
        AtStart.LEAVES,
        AtRepair.MENDS,
        f"{_REPAIR}: it builds the queues from the log",
    ),
    FindingRow(
        FindingCode.QUEUE_AHEAD,
        _WARNING,
        "the last entries of a queue point behind the end of the log: their records are lost",
        AtStart.MENDS,
        AtRepair.MENDS,
        f"{_NEXT_START} drops them",
    ),
    FindingRow(
        FindingCode.ENTRY_WRONG,
        _ERROR,
        "an entry points to no record, or to one that belongs elsewhere",
        AtStart.LEAVES,
        AtRepair.MENDS,
        f"{_REPAIR}. A broker searches the record between its neighbours when a client reads it",
    ),
    FindingRow(
        FindingCode.INDEX_UNREADABLE,
        _WARNING,
        "an index file has a size that fits no number of slots: messages are not found by its keys",
        AtStart.LEAVES,
        AtRepair.MENDS,
        f"{_REPAIR}: it builds the index from the log",
    ),
    FindingRow(
        FindingCode.INDEX_WRONG,
        _WARNING,
        "entries of the index point to records without that key: searches read them in vain",
        AtStart.LEAVES,
        AtRepair.MENDS,
        f"{_REPAIR}: it builds the index from the log",
    ),
    FindingRow(
        FindingCode.INDEX_GAP,
        _WARNING,
        "keys of records are missing in the index: a search by them does not find these messages",
        AtStart.LEAVES,
        AtRepair.MENDS,
        f"{_REPAIR}: it builds the index from the log",
    ),
    FindingRow(
        FindingCode.INDEX_LOST,
        _WARNING,
        "the newest index files, which the checkpoint knows of, are missing",
        AtStart.MENDS,
        AtRepair.MENDS,
        f"{_NEXT_START} builds them again from the log, in the background",
    ),
    FindingRow(
        FindingCode.INDEX_AHEAD,
        _WARNING,
        "entries of the index point behind the end of the log: their records are lost",
        AtStart.MENDS,
        AtRepair.MENDS,
        f"{_NEXT_START} drops the files that have such entries, and builds them again",
    ),
    FindingRow(
        FindingCode.CHECKPOINT_SHORT,
        _WARNING,
        "the checkpoint is missing or too short: a start takes the log for RocketMQ's, and checks all of it",
        AtStart.MENDS,
        AtRepair.MENDS,
        f"{_NEXT_START} writes it anew",
    ),
    FindingRow(
        FindingCode.CHECKPOINT_AHEAD,
        _ERROR,
        "the log ends before the place up to which the checkpoint knows it on the disk: its end is lost",
        AtStart.MENDS,
        AtRepair.MENDS,
        f"{_NEXT_START} continues where the log ends; for the messages behind, use a newer copy of the log "
        "before that",
    ),
    FindingRow(
        FindingCode.TIMER_FILES,
        _ERROR,
        "the timer wheel or a file of the timer log is missing, or has a wrong size",
        AtStart.REFUSES,
        AtRepair.LEAVES,
        f"{_BACKUP}. To go without the messages that wait, remove timerwheel, timerlog and config/timercheck",
    ),
    FindingRow(
        FindingCode.TIMER_UNIT_WRONG,
        _WARNING,
        "a unit of the timer log is damaged: its message is delivered late, or is lost",
        AtStart.LEAVES,
        AtRepair.LEAVES,
        "nothing has to be done: the broker passes over it, and finds the other units of its second",
    ),
    FindingRow(
        FindingCode.TIMER_AHEAD,
        _WARNING,
        "units or slots of the timers point behind the end of the log: their messages are lost",
        AtStart.MENDS,
        AtRepair.LEAVES,
        f"{_NEXT_START} drops them, and reads the queue of waiting messages again from there",
    ),
    FindingRow(
        FindingCode.TIMER_CHECK_WRONG,
        _WARNING,
        "config/timercheck names no second, or a place that timer log or queue do not have",
        AtStart.MENDS,
        AtRepair.LEAVES,
        f"{_NEXT_START} continues with the wheel's first second: timers of the last days may come once more",
    ),
    FindingRow(
        FindingCode.FILE_BROKEN,
        _WARNING,
        "a file of `config` cannot be read; its previous version, .bak, can",
        AtStart.LEAVES,
        AtRepair.LEAVES,
        "nothing has to be done: a broker takes the previous version. The last change of the file is lost",
    ),
    FindingRow(
        FindingCode.FILE_LOST,
        _ERROR,
        "neither a file of `config` nor its previous version can be read",
        AtStart.REFUSES,
        AtRepair.REFUSES,
        f"{_BACKUP}, or move it away to start without it",
    ),
    FindingRow(
        FindingCode.FILE_EMPTY,
        _ERROR,
        "a file of `config` is empty and has no previous version: what it held is lost",
        AtStart.LEAVES,
        AtRepair.LEAVES,
        f"{_BACKUP} before a broker is started on this folder",
    ),
    FindingRow(
        FindingCode.OFFSET_AHEAD,
        _WARNING,
        "a group's offset is beyond the end of its queue: it skips messages that are stored up to there",
        AtStart.LEAVES,
        AtRepair.MENDS,
        f"{_REPAIR}: it moves the offset to the queue's end. Of a running broker: `pocketmq offset reset`",
    ),
    FindingRow(
        FindingCode.DELAY_AHEAD,
        _WARNING,
        "the offset of a delay level is beyond the end of its queue",
        AtStart.MENDS,
        AtRepair.LEAVES,
        f"{_NEXT_START} moves it to the end",
    ),
    FindingRow(
        FindingCode.LOST_FOUND,
        _INFO,
        "a file system's check has put pieces of files into `lost+found`",
        AtStart.LEAVES,
        AtRepair.LEAVES,
        "brokers ignore the folder. See whether another finding names what is missing, and remove it then",
    ),
)
FINDINGS = {row.code: row for row in _ROWS}


def problem(code: FindingCode, where: str, size: int, what: str = "") -> Problem:
    """Return what was found; what: in this place, if more is known than the row says."""
    row = FINDINGS[code]
    return Problem(code, row.severity, where, size, what or row.what, row.mender, row.advice)
