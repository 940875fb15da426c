"""Alarms: the rules, the active alarms, and the notices sent."""

from typing import Any
from urllib.parse import urlsplit

from pocketmq.console.api.request import ApiRequest
from pocketmq.console.state import Console
from pocketmq.console.time.alarms import Rule


async def show(console: Console, call: ApiRequest) -> dict[str, Any]:
    watch = console.watch
    await console.figures.fresh()
    return {
        "file": watch.path or None,
        "fault": watch.fault,
        "rules": [_rule(each) for each in watch.alarms.rules],
        "alarms": [
            {
                "alarm": each.rule.name,
                "group": each.group,
                "status": "pending" if each.told_ms is None else "raised",
                "since": each.since_ms,
                "reasons": each.reasons,
            }
            for each in watch.alarms.held
        ],
        "deliveries": [
            {
                **{key: each.notice[key] for key in ("alarm", "group", "status", "at")},
                "state": each.state,
                "tries": each.tries,
                "error": each.error,
            }
            for each in reversed(watch.deliveries)
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    """Return a rule; of its hook only the host, since the rest is often a secret."""
    address = urlsplit(rule.url)
    return {
        "name": rule.name,
        "group": rule.group,
        "lag": rule.lag,
        "waitingS": rule.waiting_s,
        "members": rule.members,
        "symptoms": list(rule.symptoms),
        "forS": rule.for_s,
        "againS": rule.again_s,
        "hook": f"{address.scheme}://{address.hostname}",
    }
