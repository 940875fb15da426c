"""Warnings of the overview: what in a sample needs attention, the gravest first."""

from typing import Any

from pocketmq.console.quiet import GRAVITY
from pocketmq.console.time.figures import Figures
from pocketmq.model.diagnosis import Symptom

DISK_WARNING_RATIO = 0.75
DISK_ERROR_RATIO = 0.9
# Of equal gravity, what stops everything comes first, and a cause before what follows from it.
OF_SITE = ("BROKER_FAILS", "NAME_SERVER_UNREACHABLE", "BROKER_UNREACHABLE", "DISK")


_ORDER = (
    *OF_SITE,
    "GROUP_DISABLED",
    "TOPIC_NOT_READABLE",
    "GROUP_DIFFERS",
    "MEMBER_STUCK",
    "NOBODY_ONLINE",
    "QUEUES_UNREAD",
    "ONE_MEMBER_HAS_ALL",
    "FAILING",
    "DEAD_LETTERS",
    "LAG",
)
ADVICE = {
    "BROKER_FAILS": "see its log; if its disk is full, free space or shorten fileReservedTime: it then "
    "continues by itself",
    "BROKER_UNREACHABLE": "start it, or see why it hangs; what a client sees of it: pocketmq doctor net",
    "NAME_SERVER_UNREACHABLE": "start it: until it answers, new clients find no broker",
    "DISK": "it deletes its oldest files early, and refuses messages when nothing is left: free space, or "
    "shorten fileReservedTime",
}


def warnings_of(sampler: Figures) -> list[dict[str, Any]]:
    """Return Warning rows of API.md."""
    groups = [symptom_row(each) for _, found in sorted(sampler.symptoms.items()) for each in found]
    found = [*_of_site(sampler), *groups]
    return sorted(found, key=_place)


def _place(warning: dict[str, Any]) -> tuple[int, int]:
    kind = warning["kind"]
    rank = _ORDER.index(kind) if kind in _ORDER else len(_ORDER)
    return GRAVITY.index(warning["severity"]), rank


def _warning(
    kind: str, severity: str, subject: str, text: str, **parameters: Any
) -> dict[str, Any]:
    return {
        "kind": kind,
        "severity": severity,
        "subject": subject,
        "text": text,
        "advice": ADVICE[kind],
        "topic": None,
        "since": None,
        "parameters": parameters,
    }


def _of_site(sampler: Figures) -> list[dict[str, Any]]:
    sample = sampler.last
    found: list[dict[str, Any]] = []
    if sample.failure is not None:
        found.append(
            _warning("NAME_SERVER_UNREACHABLE", "error", "", sample.failure, error=sample.failure)
        )
    for broker in sample.brokers:
        name, ratio = broker["broker"], broker["diskRatio"]
        if not broker["reachable"]:
            found.append(
                _warning(
                    "BROKER_UNREACHABLE",
                    "error",
                    name,
                    f"broker {name} at {broker['address']} does not answer: {broker['error']}",
                    address=broker["address"],
                    error=broker["error"],
                )
            )
        elif broker["trouble"] is not None:
            # As /health words it. A disk that fills is the reason, and not another finding.
            text = f"broker {name} fails: {broker['trouble']}"
            found.append(_warning("BROKER_FAILS", "error", name, text, reason=broker["trouble"]))
        elif ratio is not None and ratio >= DISK_WARNING_RATIO:
            severity = "error" if ratio >= DISK_ERROR_RATIO else "warning"
            text = f"the disk of broker {name} is {ratio:.0%} full"
            found.append(_warning("DISK", severity, name, text, ratio=ratio))
    return found


def symptom_row(symptom: Symptom) -> dict[str, Any]:
    """Return a Warning about a group."""
    return {**symptom.to_json(), "subject": symptom.group}
