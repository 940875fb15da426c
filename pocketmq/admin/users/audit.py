"""The audit trail of brokers, read back: pages of it, newest first; what it holds: docs/protocol/acl.md."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pocketmq.admin.admin import Admin
from pocketmq.admin.views.message_window import MessageWindow
from pocketmq.client.errors import NoRoute
from pocketmq.model.message import MessageExt
from pocketmq.model.names import AUDIT_TOPIC
from pocketmq.remoting import json_codec

#: Entries that one page is looked for in, at most: with a filter it may end before it is full.
SCAN_MAX = 5_000
_CHUNK = 250
_COLUMNS = ("time", "user", "address", "act", "resources", "outcome", "reason", "times")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries are wanted; None: all. user is a whole name; act and resource are parts of them, in any
    case. begin_ms and end_ms bound the times, end exclusive.
    """

    user: str | None = None
    act: str | None = None
    resource: str | None = None
    outcome: str | None = None
    begin_ms: int = 0
    end_ms: int | None = None

    def wants(self, row: Mapping[str, Any]) -> bool:
        """Return True for an entry that is wanted, as far as its message's time does not say so."""
        names = [each for found in row["resources"].values() for each in found]
        return (
            self.user in (None, row["user"])
            and self.outcome in (None, row["outcome"])
            and (self.act is None or self.act.lower() in row["act"].lower())
            and (
                self.resource is None
                or any(self.resource.lower() in name.lower() for name in names)
            )
        )


@dataclass(frozen=True, slots=True)
class AuditPage:
    """rows: with the broker's name; cursor: of the next page, None at the end; left_out: silent brokers."""

    rows: list[dict[str, Any]]
    cursor: str | None
    scanned: int
    left_out: dict[str, str]


async def audit_page(
    admin: Admin, wanted: AuditFilter, size: int, cursor: str | None = None
) -> AuditPage:
    """Return the next `size` wanted entries, or fewer (SCAN_MAX); none of a cluster without a trail.

    Raises: IllegalArgument for a bad cursor; Unauthorised; RemotingError if no broker answers.
    """
    window = MessageWindow(admin, AUDIT_TOPIC, wanted.begin_ms, wanted.end_ms)
    try:
        await window.open(cursor)
    except NoRoute:
        return AuditPage([], None, 0, {})
    rows: list[dict[str, Any]] = []
    scanned = 0
    while len(rows) < size and scanned < SCAN_MAX:
        found = await window.page(size - len(rows), _CHUNK)
        if not found:
            break
        scanned += len(found)
        rows += [row for each in found if wanted.wants(row := _row(each))]
    left_out = {name: str(error) for name, error in window.left_out.items()}
    return AuditPage(rows, window.cursor, scanned, left_out)


def _row(message: MessageExt) -> dict[str, Any]:
    row = json_codec.loads(message.body)
    return {"broker": message.broker_name, **{name: row[name] for name in _COLUMNS}}
