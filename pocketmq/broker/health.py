"""Health: the checks of a broker, and the reasons of those that fail, in words."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pocketmq.model.track import Severity

if TYPE_CHECKING:
    from pocketmq.store import MessageStore


@dataclass(slots=True)
class Health:
    """reasons: what is wrong; empty if ok. findings: damage to the store that no restart mends."""

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
        reason="; ".join(
            f"{name} fails and is tried again: {trouble.reason}"
            for name, trouble in sorted(troubles.items())
        ),
    )
    # A broker with a damaged store serves the rest of it: no orchestrator should restart it for that.
    found.findings += [
        f"{each.code} {each.where}: {each.what}. To mend it: {each.advice}"
        for each in store.recovery.findings
        if each.severity is Severity.ERROR
    ]
