"""Replicas: masters and slaves, their lag, and changes of role."""

from typing import Any

from pocketmq.admin.views.elections import elections_of
from pocketmq.console.api.cluster import find_broker
from pocketmq.console.api.request import ApiRequest
from pocketmq.console.errors import bad_request
from pocketmq.console.state import Console
from pocketmq.remoting.errors import PocketMQError

_WILL_DO = {
    "promote": "Broker {} will be the master of its name, at once and until its process ends. It is refused "
    "while the old master answers. Set brokerRole and brokerId in its configuration, too.",
    "demote": (
        "Broker {} will be a slave and follow the new master: it takes no more messages. "
        "Until another broker of its name is promoted, no broker does."
    ),
    "resync": (
        "Broker {} will resync. A slave cuts the end of its log that its master does not "
        "have, keeps it in a file, and follows; a master listens again to the slaves that "
        "it has refused."
    ),
}


async def replicas(console: Console, call: ApiRequest) -> dict[str, Any]:
    rows = []
    for each in sorted(
        await console.admin.brokers(), key=lambda found: (found.name, found.broker_id)
    ):
        row: dict[str, Any] = {
            "broker": each.name,
            "brokerId": each.broker_id,
            "address": each.address,
            "error": None,
            "status": None,
        }
        try:
            row["status"] = await console.admin.replicas.status(each.address)
        except PocketMQError as error:
            # RocketMQ 4.9 does not know the question.
            row["error"] = str(error)
        rows.append(row)
    told = [(row["broker"], row["status"]) for row in rows if row["status"] is not None]
    return {"items": rows, "elections": elections_of(told)}


async def change_role(console: Console, call: ApiRequest) -> dict[str, Any]:
    act = call.body.text("act")
    if act not in _WILL_DO:
        raise bad_request(f"there is no act {act!r}", f"send one of {', '.join(_WILL_DO)}")
    role = call.body.text("role", "ASYNC_MASTER") if act == "promote" else None
    broker_id = call.body.number_or_none("newBrokerId", low=1) if act == "demote" else None
    found = await find_broker(console, call.path["broker"], call.body.number("brokerId", 0))
    call.confirm(
        "broker.role",
        {"broker": found.address, "act": act},
        _WILL_DO[act].format(f"{found.name} at {found.address}"),
    )
    await console.admin.replicas.change(found.address, act, role=role, broker_id=broker_id)
    return {"address": found.address, "act": act}
