"""Health: the checks of a broker, and the reasons of those that fail, in words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pocketmq.model.track import Severity

if TYPE_CHECKING:
    from pocketmq.store import MessageStore


@dataclass(slots=True)
class Health:
    """reasons: what is wrong; empty if ok. findings: what an operator has to mend, and no restart does."""

    name: str
    address: str
    checks: dict[str, bool] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.reasons

    def check(self, name: str, *, ok: bool, reason: str) -> None:
        """Record one check; the reason is kept if it is not ok."""
        self.checks[name] = ok
        if not ok:
            self.reasons.append(reason)

    def to_json(self) -> dict[str, Any]:
        return {
            "broker": self.name,
            "address": self.address,
            "ok": self.ok,
            "checks": self.checks,
            "reasons": self.reasons,
            "findings": self.findings,
        }


def check_store(found: Health, store: "MessageStore") -> None:
    """Check what the disk, or the lack of one, does to a store."""
    found.check(
        "storeWritable",
        ok=store.writable,
        reason=f"the store takes no messages: {store.refusal or 'it is closed'}",
    )
    troubles = store.side_tasks.troubles
    found.check(
        "sideTasks",
        ok=not troubles,
        reason=_in_words({name: each.reason for name, each in sorted(troubles.items())}),
    )
    # A broker with a damaged store serves the rest of it: no orchestrator should restart it for that.
    found.findings += [
        f"{each.code} {each.where}: {each.what}. To mend it: {each.advice}"
        for each in store.recovery.findings
        if each.severity is Severity.ERROR
    ]


def _in_words(troubles: Mapping[str, str]) -> str:
    """Say which side tasks fail, and why; advice that several reasons share stands once.

    >>> _in_words({"index": "a is full: free some", "timer": "b is full: free some"})
    'index fails and is tried again: a is full; timer fails and is tried again: b is full: free some'
    """
    said: list[str] = []
    for name, reason in troubles.items():
        fact, colon, advice = reason.partition(": ")
        if colon and said and said[-1].endswith(colon + advice):
            said[-1] = said[-1].removesuffix(colon + advice)
        said.append(f"{name} fails and is tried again: {fact}{colon}{advice}")
    return "; ".join(said)
