"""Tasks that a schedule of the broker sends: what differs each time is filled in by the receiver."""

import uuid
from datetime import UTC, datetime
from typing import Any

from pocketmq.client import MessageExt

EXPIRES = "pocketmq_expires_s"
_TIME = "SCHEDULE_TIME"


def fill_in(payload: dict[str, Any], message: MessageExt) -> None:
    """Give a task of a schedule its id, the same however often it is delivered, and the time it expires."""
    text = message.properties.get(_TIME, "")
    headers = payload.get("headers")
    if not text.isdigit() or len(text) > 15 or not isinstance(headers, dict):
        return
    task_id = str(uuid.uuid5(uuid.NAMESPACE_OID, message.msg_id))
    headers["id"] = headers["root_id"] = payload["properties"]["correlation_id"] = task_id
    expires_s = headers.pop(EXPIRES, None)
    if isinstance(expires_s, int | float):
        headers["expires"] = datetime.fromtimestamp(int(text) / 1000 + expires_s, UTC).isoformat()
