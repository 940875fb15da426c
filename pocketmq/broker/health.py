"""Health: the checks of a broker, and the reasons of those that fail, in words."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pocketmq.store import MessageStore


@dataclass(slots=True)
class Health:
    """reasons: what is wrong; empty if ok."""

    name: str
    address: str
    checks: dict[str, bool] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

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
