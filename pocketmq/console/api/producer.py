"""Connected producers."""

from typing import Any

from pocketmq.client.errors import NoRoute
from pocketmq.console.api.request import ApiRequest
from pocketmq.console.state import Console
from pocketmq.remoting.codes import version_name


async def producers(console: Console, call: ApiRequest) -> dict[str, Any]:
    group = call.query.text_or_none("group")
    everybody = await console.admin.groups.all_producers()
    if everybody is None:
        return await _producers_of_4_9(console, group)
    return {
        "items": [
            {
                "group": name,
                "clientId": str(each.get("clientId")),
                "address": str(each.get("remoteIP") or "").lstrip("/"),
                "language": str(each.get("language")),
                "version": _version(each.get("version")),
                "lastUpdate": each.get("lastUpdateTimestamp"),
            }
            for name, members in everybody.items()
            for each in members
            if group in (None, name)
        ]
    }


async def _producers_of_4_9(console: Console, group: str | None) -> dict[str, Any]:
    if group is None:
        return {
            "items": None,
            "whatToDo": "the brokers cannot list producers (Apache RocketMQ 4.9): name a producer group",
        }
    try:
        members = await console.admin.groups.producers(group)
    except NoRoute:
        members = []
    return {
        "items": [
            {
                "group": group,
                "clientId": each.client_id,
                "address": each.address,
                "language": each.language,
                "version": _version(each.version),
                "lastUpdate": None,
            }
            for each in members
        ]
    }


def _version(ordinal: Any) -> str | None:
    return version_name(ordinal) if isinstance(ordinal, int) else None
