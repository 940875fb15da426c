"""guard: puts the access checks before the handlers of a broker, and the audit trail behind them."""

from typing import TYPE_CHECKING

from pocketmq.broker.access.audit import AuditTrail
from pocketmq.broker.services import Parts
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import REQUESTS, Right
from pocketmq.remoting.transport.connection import Handler

if TYPE_CHECKING:
    from pocketmq.broker.assembly import AccessChecks


def guard(acl: "AccessChecks", parts: Parts, handlers: dict[int, Handler]) -> Handler:
    """Wrap the handlers; return the one for codes that are not served."""
    trail = AuditTrail(parts.node, parts.tables.topics, parts.messages.put)
    acl.denials.logged.to(trail.refused)
    message_at = parts.messages.store.message_at
    for code, handler in handlers.items():
        row = REQUESTS[code]
        if row.access is not None and row.access.unsigned:
            continue
        kept = trail.recorded(handler, row) if row.is_act else handler
        handlers[code] = acl.guarded(kept, row.access, message_at)
    # A client that signs learns which requests are not served.
    return acl.guarded(RemotingCommand.not_supported, Right(), message_at)
