"""Groups: list, show, configure, set the mode."""

import asyncio
from dataclasses import replace
from typing import Any

from pocketmq.admin import GroupConfig
from pocketmq.admin.checkup import check_group
from pocketmq.admin.views.group import group_row, member_count, subscriptions_of, users_first
from pocketmq.admin.views.rows import GroupConfigRow, QueueProgressRow, QueueRow, SubscriptionRow
from pocketmq.broker.modes.mode import GroupMode
from pocketmq.client.errors import ConsumerNotOnline, NoPermission, Unauthorised
from pocketmq.console.api.request import ApiRequest, paged, total
from pocketmq.console.errors import ApiError, bad_request, not_found
from pocketmq.console.group_members import member_rows, verdict
from pocketmq.console.overview_warnings import symptom_row
from pocketmq.console.quiet import GRAVITY
from pocketmq.console.state import Console
from pocketmq.console.time.figures import GroupFigures
from pocketmq.model.as_json import as_object
from pocketmq.model.diagnosis import is_sick
from pocketmq.model.names import group_is_legal, is_system_group
from pocketmq.remoting.errors import PocketMQError


async def _configs(console: Console) -> dict[str, dict[str, GroupConfig]]:
    """Return configurations by group and broker; unreachable brokers are left out.

    Brokers give the whole table to those who may look at the cluster: for others the console reads it.
    """
    found: dict[str, dict[str, GroupConfig]] = {}
    reader = console.admin if console.sight.cluster else console.own
    for master in await reader.site.masters():
        try:
            tables = await reader.groups.configs(broker=master.name)
        except PocketMQError:
            continue
        for broker, table in tables.items():
            for name, config in table.items():
                if not console.sight.group(name):
                    continue
                found.setdefault(name, {})[broker] = config
    return found


def _type(name: str) -> str:
    return "SYSTEM" if is_system_group(name) else "NORMAL"


async def list_groups(console: Console, call: ApiRequest) -> dict[str, Any]:
    page, size = call.page()
    wanted = set(call.query.texts("type"))
    part = call.query.text("q", "").lower()
    sample = await console.figures.fresh()
    names = sorted(await _configs(console), key=lambda name: (_type(name), name))
    counts = {"NORMAL": 0, "SYSTEM": 0}
    for name in names:
        counts[_type(name)] += 1
    chosen = [
        name for name in names if (not wanted or _type(name) in wanted) and part in name.lower()
    ]
    figures = {
        each: lambda name, each=each: _figures(console, name)[each]
        for each in ("members", "lag", "out")
    }
    health = {"health": lambda name: _health(console, name)}
    content = paged(call.sorted(chosen, figures | health), page, size)
    content["totals"] = {each: total(map(figure, chosen)) for each, figure in figures.items()}
    differing = {each["group"] for groups in sample.findings.values() for each in groups}
    async with asyncio.TaskGroup() as tasks:
        rows = [
            tasks.create_task(_row(console, name, name in differing)) for name in content["items"]
        ]
    content["items"] = [row.result() for row in rows]
    return {**content, "counts": counts}


def _figures(console: Console, name: str) -> dict[str, float | None]:
    """Return the last sample's figures, used for sorting a list and for its totals."""
    found = console.figures.groups.get(name)
    if found is None:
        return dict.fromkeys(("members", "lag", "out"))
    return {"members": found.members, "lag": found.lag, "out": round(found.rate, 2)}


async def _row(console: Console, name: str, differs: bool) -> dict[str, Any]:
    found = await group_row(console.admin, name)
    sampled = console.figures.groups.get(name, GroupFigures())
    try:
        told = await console.admin.doctor.groups(name)
    except (NoPermission, Unauthorised):
        # Who consumes only sees what the console has looked at.
        told, found.members, found.lag = {}, sampled.members, sampled.lag
    row: dict[str, Any] = {
        "group": name,
        "type": _type(name),
        "mode": None,
        "members": found.members,
        "consumeType": found.consume_type,
        "messageModel": found.message_model,
        "lag": found.lag,
        "out": _figures(console, name)["out"],
        "differs": differs if console.figures.last.findings else None,
        "state": _state(console, name),
        "severity": _severity(console, name),
    }
    row["mode"] = next((groups[0]["mode"] for groups in told.values() if groups), None)
    return row


def _state(console: Console, name: str) -> str | None:
    """Return `sick` or `well` as of the last sample; None before the first."""
    found = console.figures.symptoms.get(name)
    return None if found is None else "sick" if is_sick(found) else "well"


def _severity(console: Console, name: str) -> str | None:
    """Return the gravest symptom's severity; None without one, or before the first sample."""
    found = console.figures.symptoms.get(name)
    return found[0].severity.value if found else None


def _health(console: Console, name: str) -> float | None:
    """Return a figure to sort by: the sicker, the higher; None before the first sample."""
    if name not in console.figures.symptoms:
        return None
    severity = _severity(console, name)
    return 0 if severity is None else len(GRAVITY) - GRAVITY.index(severity)


async def show(console: Console, call: ApiRequest) -> dict[str, Any]:
    name = call.path["group"]
    admin = console.admin
    await console.figures.fresh()
    configs = (await _configs(console)).get(name, {})
    checkup = await check_group(admin, name)
    if name in console.figures.symptoms:
        console.figures.saw(name, checkup.symptoms)
    view = checkup.view
    connection = view.connection
    rows = sorted(view.progress, key=lambda row: users_first(row.queue))
    if not configs and connection is None and not rows:
        if view.failure is not None:
            raise view.failure
        raise not_found(
            f"no broker knows a group {name!r}", "a group appears when its first consumer starts"
        )
    return {
        "group": name,
        "exists": bool(configs),
        "online": connection is not None,
        "mode": view.mode,
        "consumeType": connection.consume_type if connection else None,
        "messageModel": connection.message_model if connection else None,
        "consumeFromWhere": connection.consume_from_where if connection else None,
        "configs": [
            as_object(GroupConfigRow.of(broker, each)) for broker, each in sorted(configs.items())
        ],
        "stored": as_object(SubscriptionRow.of_all(view.stored.values())),
        "members": member_rows(view),
        "verdict": verdict(view),
        "queues": [as_object(QueueProgressRow.of(row)) for row in rows],
        "lag": view.lag,
        "out": _figures(console, name)["out"],
        "subGroups": [
            {
                "broker": broker,
                "id": each["id"],
                "state": each["state"],
                "clientIds": each["clientIds"],
                "subscriptions": as_object(
                    SubscriptionRow.of_all(subscriptions_of(each["subscriptions"]).values())
                ),
            }
            for broker, told in view.told.items()
            for each in told["subGroups"]
        ],
        "warnings": [symptom_row(each) for each in checkup.symptoms],
    }


async def member(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Return what one member reports of itself; with its threads if requested (`stack`)."""
    group, client = call.path["group"], call.path["clientId"]
    try:
        connection = await console.admin.groups.connection(group)
    except ConsumerNotOnline:
        raise not_found(f"no member of group {group!r} is online") from None
    if client not in {each.client_id for each in connection.members}:
        raise not_found(
            f"group {group!r} has no member {client!r} online",
            "see the group for those that it has",
        )
    info = await console.admin.groups.running_info(group, client, stack=call.query.flag("stack"))
    return {
        "clientId": info.client_id,
        "properties": dict(info.properties),
        "subscriptions": as_object(SubscriptionRow.of_all(info.subscriptions.values())),
        "queues": [
            {**as_object(QueueRow.of(queue)), "fields": dict(info.queues[queue])}
            for queue in sorted(info.queues, key=users_first)
        ],
        "statuses": {topic: dict(each) for topic, each in info.statuses.items()},
        "stack": info.stack,
    }


# ------------------------------------------------------------ configuration


async def put(console: Console, call: ApiRequest) -> dict[str, Any]:
    name = call.path["group"]
    _refuse_system(name)
    if not group_is_legal(name):
        raise bad_request(
            f"{name[:300]!r} cannot be a group's name", "a name has letters, digits, %, |, - and _"
        )
    body = call.body
    before = (await _configs(console)).get(name, {})
    known = {each.name for each in await console.admin.site.masters()}
    chosen = body.texts("brokers")
    if set(chosen) - known:
        raise not_found(f"no master is called {min(set(chosen) - known)!r}")
    brokers = sorted(chosen or known)
    old = next((before[each] for each in brokers if each in before), GroupConfig(name))
    new = replace(
        old,
        consume_enable=body.flag("consumeEnable", old.consume_enable),
        consume_from_min_enable=body.flag("consumeFromMinEnable", old.consume_from_min_enable),
        consume_broadcast_enable=body.flag("consumeBroadcastEnable", old.consume_broadcast_enable),
        retry_queues=body.number("retryQueues", old.retry_queues, high=65_535),
        retry_max_times=body.number("retryMaxTimes", old.retry_max_times, low=-1),
        broker_id=body.number("brokerId", old.broker_id),
        which_broker_when_consume_slowly=body.number(
            "whichBrokerWhenConsumeSlowly", old.which_broker_when_consume_slowly
        ),
        notify_consumer_ids_changed_enable=body.flag(
            "notifyConsumerIdsChangedEnable", old.notify_consumer_ids_changed_enable
        ),
    )
    row = as_object(GroupConfigRow.of("", new))
    parameters = {"group": name, "brokers": brokers, **{k: row[k] for k in row if k != "broker"}}
    if before:
        was = as_object(GroupConfigRow.of("", old))
        changes = [f"{key} from {was[key]} to {row[key]}" for key in row if was[key] != row[key]]
        call.confirm(
            "group.change",
            parameters,
            f"Group {name!r} will change {', '.join(changes) or 'nothing'} on {', '.join(brokers)}."
            + ("" if new.consume_enable else " Its members will get no messages."),
        )
    else:
        call.did("group.create", parameters)
    for broker in brokers:
        await console.admin.groups.create(new, broker=broker)
    return {"brokers": brokers, "created": not before}


def _refuse_system(name: str) -> None:
    if is_system_group(name):
        raise ApiError(
            403, "FORBIDDEN", f"group {name!r} belongs to the system", "leave it as it is"
        )


async def delete(console: Console, call: ApiRequest) -> dict[str, Any]:
    name = call.path["group"]
    _refuse_system(name)
    keep = call.query.flag("keepOffsets")
    if name not in await _configs(console):
        raise not_found(f"no broker has a group {name!r} configured")
    online = await member_count(console.admin, name)
    call.confirm(
        "group.delete",
        {"group": name, "keepOffsets": keep, "members": online},
        f"Group {name!r} will be deleted"
        + (", its offsets are kept" if keep else " with its offsets: it will begin anew")
        + (f". {online} members are online: the group comes back with them." if online else "."),
    )
    return {"brokers": await console.admin.groups.delete(name, with_offsets=not keep)}


async def set_mode(console: Console, call: ApiRequest) -> dict[str, Any]:
    name = call.path["group"]
    mode = call.body.text_or_none("mode")
    if mode is not None and mode not in set(GroupMode):
        raise bad_request(f"mode is one of {', '.join(GroupMode)} or null, not {mode!r}")
    told = await console.admin.doctor.groups(name)
    if not told:
        raise ApiError(
            501,
            "NOT_SUPPORTED",
            "no broker of this cluster supports group modes",
            "PocketMQ has them",
        )
    old = next((groups[0]["mode"] for groups in told.values() if groups), None)
    call.confirm(
        "group.mode",
        {"group": name, "mode": mode, "from": old},
        f"Group {name!r} is {old} now. {_MODE_TEXTS[mode]}",
    )
    return {"mode": mode, "brokers": await console.admin.doctor.set_mode(name, mode)}


_MODE_TEXTS: dict[str | None, str] = {
    None: "The broker's groupMode will apply to it.",
    "compatible": (
        "It will behave as in RocketMQ: members that subscribe differently lose messages."
    ),
    "strict": "From now on, a member that subscribes differently from the others is refused.",
    "isolate": (
        "Members that subscribe differently will form sub-groups with offsets of their "
        "own, and lose nothing."
    ),
}
