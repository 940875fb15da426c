"""What a start has found in a store, with the codes of `store verify`: logged, and shown by health."""

import logging
from collections.abc import Iterator, Sequence

from pocketmq.files.records import Damage
from pocketmq.model.track import Severity
from pocketmq.store.findings import FindingCode, Problem, problem

log = logging.getLogger(__name__)

# Of one code; a log that is damaged all over would fill the memory.
FOUND_MAX = 100


def found_at_start(
    damages: Sequence[Damage], end: int, *, added: int, repaired: int, dropped: int
) -> list[Problem]:
    """Return what a recovery has found, and log it.

    end: of the log, in bytes; added, repaired, dropped: entries of queues.
    """
    found = [*_problems(damages, end, added, repaired, dropped)]
    for each in found:
        level = logging.ERROR if each.severity is Severity.ERROR else logging.WARNING
        log.log(
            level,
            "%s where=%s size=%d what=%s: %s",
            each.code,
            each.where,
            each.bytes,
            each.what,
            each.advice,
        )
    return found


def damaged_record(
    position: int, damage: Damage, code: FindingCode = FindingCode.LOG_DAMAGED
) -> Problem:
    """Return the finding about a place of the log."""
    return problem(code, f"commitlog at {position}", damage.size, damage.why)


def _problems(
    damages: Sequence[Damage], end: int, added: int, repaired: int, dropped: int
) -> Iterator[Problem]:
    for damage in damages[:FOUND_MAX]:
        code = FindingCode.LOG_DAMAGED if damage.position < end else FindingCode.LOG_TORN_END
        yield damaged_record(damage.position, damage, code)
    if added:
        yield problem(FindingCode.QUEUE_BEHIND, "consumequeue", 0, f"{added} records had no entry")
    if repaired:
        yield problem(FindingCode.ENTRY_WRONG, "consumequeue", 0, f"{repaired} entries were mended")
    if dropped:
        what = f"{dropped} entries pointed behind the end of the log"
        yield problem(FindingCode.QUEUE_AHEAD, "consumequeue", 0, what)
