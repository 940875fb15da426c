"""Cluster: name servers, brokers, their figures and settings; changes of settings and write permission."""

import functools
from typing import Any

from pocketmq.admin import ClusterBroker
from pocketmq.broker.config import BrokerConfig
from pocketmq.console.api.request import ApiRequest
from pocketmq.console.errors import ApiError, bad_request, not_found
from pocketmq.console.languages import meanings
from pocketmq.console.state import Console
from pocketmq.remoting.errors import IllegalArgument, PocketMQError
from pocketmq.remoting.settings import Key, nearest
from pocketmq.store import StoreConfig


async def cluster(console: Console, call: ApiRequest) -> dict[str, Any]:
    sample = await console.figures.fresh()
    clusters: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for summary in sample.brokers:
        brokers = clusters.setdefault(summary["cluster"], {})
        brokers.setdefault(summary["broker"], []).append(summary)
    return {
        "nameServers": await name_server_rows(console),
        "clusters": [
            {
                "cluster": name,
                "brokers": [each for same in brokers.values() for each in same],
            }
            for name, brokers in sorted(clusters.items())
        ],
    }


async def name_server_rows(console: Console) -> list[dict[str, Any]]:
    """Return each name server with its settings, or why it does not answer."""
    rows: list[dict[str, Any]] = []
    for address in console.admin.name_servers:
        row: dict[str, Any] = {"address": address, "reachable": True, "error": None, "settings": {}}
        try:
            row["settings"] = await console.admin.settings.name_server(address)
        except PocketMQError as error:
            row.update(reachable=False, error=str(error))
        rows.append(row)
    return rows


async def name_servers(console: Console, call: ApiRequest) -> dict[str, Any]:
    return {"items": await name_server_rows(console)}


async def find_broker(console: Console, name: str, broker_id: int = 0) -> ClusterBroker:
    """Return a broker. Raises: ApiError 404."""
    for broker in await console.admin.brokers():
        if (broker.name, broker.broker_id) == (name, broker_id):
            return broker
    raise not_found(
        f"the name servers know no broker {name!r} with id {broker_id}",
        "see the cluster page for those that are registered",
    )


async def broker(console: Console, call: ApiRequest) -> dict[str, Any]:
    found = await find_broker(console, call.path["broker"], call.query.number("brokerId", 0))
    sample = await console.figures.fresh()
    summary = next((each for each in sample.brokers if each["address"] == found.address), None)
    if summary is None:
        await console.figures.sample()
        sample = console.figures.last
        summary = next((each for each in sample.brokers if each["address"] == found.address), {})
    runtime = await console.admin.settings.runtime(found.address)
    settings = await console.admin.settings.broker(found.address)
    ours = await _is_pocketmq(console, found)
    return {
        "summary": summary,
        "runtime": dict(sorted(runtime.items())),
        "settings": [
            _setting(name, value, call.query.text("language", "en"), ours=ours)
            for name, value in sorted(settings.items())
        ],
    }


async def _is_pocketmq(console: Console, broker: ClusterBroker) -> bool:
    return await console.admin.doctor.is_pocketmq(broker.address)


@functools.cache
def _keys() -> dict[str, Key]:
    return {**StoreConfig.keys(), **BrokerConfig.keys()}


def _setting(name: str, value: str, language: str, *, ours: bool) -> dict[str, Any]:
    key = _keys().get(name)
    told = meanings(language).get(name)
    if not ours or key is None:
        return {
            "name": name,
            "value": value,
            "changeable": False if ours else None,
            **dict.fromkeys(("default", "help", "helpLanguage", "unit", "min", "max", "choices")),
        }
    return {
        "name": name,
        "value": value,
        "changeable": key.runtime,
        "default": key.format(key.default),
        "help": told or key.help,
        "helpLanguage": language if told else "en",
        "unit": key.unit or None,
        "min": key.min,
        "max": key.max,
        "choices": list(key.choices) or (["true", "false"] if key.type is bool else None),
    }


async def change_settings(console: Console, call: ApiRequest) -> dict[str, Any]:
    wanted = call.body.table("settings")
    if not wanted:
        raise bad_request("'settings' names none", 'send {"settings": {"name": "value"}}')
    found = await find_broker(console, call.path["broker"])
    if await _is_pocketmq(console, found):
        _check_settings(wanted)
    old = await console.admin.settings.broker(found.address)
    steps = [
        {"name": name, "from": old.get(name), "to": value} for name, value in sorted(wanted.items())
    ]
    changes = ", ".join(f"{each['name']} from {each['from']} to {each['to']}" for each in steps)
    call.confirm(
        "broker.settings",
        {"broker": found.name, "settings": wanted},
        f"Broker {found.name} will change {changes}, at once and until it is restarted: its "
        "configuration file is not written.",
        steps,
    )
    await console.admin.settings.update_broker(found.address, **wanted)
    return {"changed": wanted}


def _check_settings(wanted: dict[str, str]) -> None:
    """Check changes. Raises: ApiError 400 for an unknown name or value, 403 for a fixed setting."""
    for name, value in wanted.items():
        key = _keys().get(name)
        if key is None:
            raise bad_request(f"there is no setting {name!r}{nearest(name, _keys())}")
        if not key.runtime:
            raise ApiError(
                403,
                "FORBIDDEN",
                f"{name} cannot be changed while the broker runs",
                "set it in broker.conf, and restart the broker",
            )
        try:
            key.parse(value)
        except IllegalArgument as error:
            raise bad_request(str(error)) from error


async def change_writable(console: Console, call: ApiRequest) -> dict[str, Any]:
    if "writable" not in call.body:
        raise bad_request("'writable' is missing in the body", "send true or false")
    writable = call.body.flag("writable")
    found = await find_broker(console, call.path["broker"])
    text = (
        f"Producers will be sent to broker {found.name} again, within half a minute."
        if writable
        else (
            f"Producers will no longer be sent to broker {found.name}, within half a minute; "
            "consumers continue. Clients that ask it directly are not refused."
        )
    )
    call.confirm("broker.writable", {"broker": found.name, "writable": writable}, text)
    return {"topics": await console.admin.settings.set_writable(found.name, writable)}
