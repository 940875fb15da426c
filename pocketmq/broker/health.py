"""Health: whether a broker is healthy, and whether it is ready, each with its reasons in words.

Healthy: the store accepts messages and the background tasks run; otherwise it may need disk space, a new
disk or a restart. Ready: clients find it and may use it. A broker that is starting or stopping is healthy
but not ready, and so is one whose replicas are not as they should be: a restart would not help.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker
    from pocketmq.store import MessageStore

_READ_OR_WRITE = 6


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


def health(broker: "Broker") -> Health:
    """Return the broker's health."""
    found = Health(broker.config.broker_name, broker.address)
    check_store(found, broker.parts.messages.store)
    return found


def readiness(broker: "Broker") -> Health:
    """Return whether it serves clients."""
    found = health(broker)
    found.check(
        "permitted",
        ok=bool(broker.config.broker_permission & _READ_OR_WRITE),
        reason="brokerPermission lets nobody read or write: set it to 6",
    )
    found.check(
        "serving",
        ok=not broker.parts.services.long_polling.closing,
        reason="the broker is stopping",
    )
    trouble = broker.parts.services.replication.trouble
    found.check("replicas", ok=not trouble, reason=f"replicas: {trouble}")
    registration = broker.registration
    found.check(
        "registered",
        ok=registration.is_registered,
        reason="the broker is registered with no name server, so clients cannot find it. Check namesrvAddr "
        f"({broker.config.namesrv_addr or 'not set'})",
    )
    return found
