"""Whether a broker is healthy, and whether it is ready.

Healthy: the store accepts messages and the background tasks run; otherwise it may need disk space, a new
disk or a restart. Ready: clients find it and may use it. A broker that is starting or stopping is healthy
but not ready, and so is one whose replicas are not as they should be: a restart would not help.
"""

from typing import TYPE_CHECKING

from pocketmq.broker.health import Health, check_store

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker

_READ_OR_WRITE = 6


def health(broker: "Broker") -> Health:
    """Return the broker's health."""
    found = Health(broker.config.broker_name, broker.address)
    check_store(found, broker.parts.messages.store)
    found.findings += broker.parts.services.schedules.findings()
    return found


def readiness(broker: "Broker") -> Health:
    """Return whether it serves clients."""
    found = health(broker)
    found.check(
        "permitted",
        ok=bool(broker.config.broker_permission & _READ_OR_WRITE),
        reason="brokerPermission forbids reading and writing: set it to 6",
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
