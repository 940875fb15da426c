"""Warnings of the overview: what of a sample somebody should look at, the gravest first."""

from typing import Any

from pocketmq.console.sampler import Sampler
from pocketmq.remoting.names import DLQ_PREFIX

DISK_WARNING_RATIO = 0.75
DISK_ERROR_RATIO = 0.9
LAG_WARNING = 10_000
_GRAVITY = ("error", "warning", "info")


def warnings_of(sampler: Sampler) -> list[dict[str, Any]]:
    """Warning rows of API.md."""
    found = [*_of_site(sampler), *_of_groups(sampler)]
    return sorted(found, key=lambda each: _GRAVITY.index(each["severity"]))


def _warning(
    kind: str, severity: str, subject: str, text: str, since: int | None = None, **parameters: Any
) -> dict[str, Any]:
    return {
        "kind": kind,
        "severity": severity,
        "subject": subject,
        "text": text,
        "since": since,
        "parameters": parameters,
    }


def _of_site(sampler: Sampler) -> list[dict[str, Any]]:
    sample = sampler.last
    found: list[dict[str, Any]] = []
    if sample.failure is not None:
        found.append(_warning("NAME_SERVER_UNREACHABLE", "error", "", sample.failure))
    for broker in sample.brokers:
        name, ratio = broker["name"], broker["diskRatio"]
        if not broker["reachable"]:
            found.append(
                _warning(
                    "BROKER_UNREACHABLE",
                    "error",
                    name,
                    f"broker {name} at {broker['address']} does not answer: {broker['error']}",
                    address=broker["address"],
                )
            )
        elif ratio is not None and ratio >= DISK_WARNING_RATIO:
            severity = "error" if ratio >= DISK_ERROR_RATIO else "warning"
            text = (
                f"the disk of broker {name} is {ratio:.0%} full: it deletes its oldest files early, and "
                "refuses messages when nothing is left. Free space, or shorten fileReservedTime"
            )
            found.append(_warning("DISK", severity, name, text, ratio=ratio))
    for topic, count in sorted(sampler.dead_letters.items()):
        if count:
            group = topic.removeprefix(DLQ_PREFIX)
            text = f"group {group} has {count} dead letters: it failed too often to consume them"
            found.append(_warning("DEAD_LETTERS", "info", group, text, count=count))
    return found


def _of_groups(sampler: Sampler) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    seen: set[tuple[str, str]] = set()
    for broker, groups in sorted(sampler.last.findings.items()):
        for group in groups:
            for finding in group["findings"]:
                # Members register at every broker, so each tells the same.
                if (finding["group"], finding["topic"]) in seen:
                    continue
                seen.add((finding["group"], finding["topic"]))
                found.append(
                    _warning(
                        "GROUP_DIFFERS",
                        "error" if finding["raised"] else "warning",
                        finding["group"],
                        finding["text"],
                        finding["since"],
                        topic=finding["topic"],
                        broker=broker,
                    )
                )
    for name, figures in sorted(sampler.groups.items()):
        if figures.lag and figures.members == 0:
            text = f"nobody of group {name} is online, and {figures.lag} messages wait for it"
            found.append(_warning("NOBODY_ONLINE", "warning", name, text, lag=figures.lag))
        elif figures.lag >= LAG_WARNING:
            text = f"group {name} is {figures.lag} messages behind"
            found.append(_warning("LAG", "warning", name, text, lag=figures.lag))
    return found
