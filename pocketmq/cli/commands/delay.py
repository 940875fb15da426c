"""`pocketmq delay`: messages that wait: by delay level, or for a time of their own."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import ClusterRefused, completed, with_admin
from pocketmq.cli.commands.message import body_text
from pocketmq.cli.connecting import client_options
from pocketmq.cli.options import Broker, Cluster, Json, NameServer, TopicName
from pocketmq.cli.output import print_fields, print_rows

if TYPE_CHECKING:
    from pocketmq.admin import Admin

app = typer.Typer()
# The broker lists no more at once.
_LISTED_MAX = 1_000


@app.command("list")
def list_waiting(
    namesrv: NameServer, broker: Broker = None, cluster: Cluster = None, as_json: Json = False
) -> None:
    """How many messages wait in each delay level, and of each topic for a time of their own."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        rows = []
        waiting = {each.broker: each for each in await admin.delays.list(cluster=cluster)}
        for master in await admin.site.masters(cluster, broker):
            found = waiting[master.name]
            rows += [
                _row(master.name, each.number, each.name, None, each.waiting)
                for each in await admin.delays.levels(master.address)
                if each.waiting or as_json
            ]
            for topic, count in sorted((found.counts or {}).items()):
                rows.append(_row(master.name, None, "own time", topic, count))
        return rows

    print_rows(with_admin(namesrv, work), as_json=as_json, empty="nothing waits")


def _row(
    broker: str, level: int | None, delay: str, topic: str | None, waiting: int
) -> dict[str, Any]:
    return {"broker": broker, "level": level, "name": delay, "topic": topic, "waiting": waiting}


@app.command()
def show(
    level: Annotated[
        int | None,
        typer.Argument(
            min=1, max=18, help="Delay level; without it: messages with their own delivery time."
        ),
    ] = None,
    *,
    namesrv: NameServer,
    broker: Broker = None,
    cluster: Cluster = None,
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="At most this many.")] = 32,
    as_json: Json = False,
) -> None:
    """The messages that wait in a level, or for a time of their own, the next one first."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        from pocketmq.admin.views.message import first_of, waiting_in

        if level is None:
            return await _timed(admin, cluster, broker, count)
        rows: list[dict[str, Any]] = []
        for master in await admin.site.masters(cluster, broker):
            wanted = (await admin.delays.levels(master.address))[level - 1]
            rows += [
                {
                    "due": message.store_timestamp + wanted.delay_ms,
                    "broker": master.name,
                    "topic": message.properties.get("REAL_TOPIC"),
                    "keys": message.keys,
                    "msgId": message.msg_id,
                    "body": body_text(message.body),
                }
                for message in await first_of(waiting_in(admin, master, wanted), count - len(rows))
            ]
        return rows

    print_rows(with_admin(namesrv, work), as_json=as_json, empty="nothing waits")


async def _timed(
    admin: "Admin", cluster: str | None, broker: str | None, count: int
) -> list[dict[str, Any]]:
    """Return messages with a delivery time; an Apache broker cannot list them, so it has none here."""
    names = {each.name for each in await admin.site.masters(cluster, broker)}
    found = [
        each
        for brokers in await admin.delays.list(count=min(count, 1000), cluster=cluster)
        if brokers.broker in names
        for each in brokers.messages or ()
    ]
    found.sort(key=lambda each: each.deliver_ms)
    return [
        {
            "due": each.deliver_ms,
            "broker": each.broker,
            "topic": each.topic,
            "msgId": each.msg_id,
            "recallHandle": each.recall_handle,
        }
        for each in found[:count]
    ]


async def _is_gone(admin: "Admin", topic: str, handle: str) -> bool:
    """Return True if the broker knows all that waits for the topic, and this message is not among it."""
    from pocketmq.model.recall_handle import RecallHandle
    from pocketmq.remoting.errors import IllegalArgument

    try:
        named = RecallHandle.decode(handle)
    except IllegalArgument:
        return False
    for each in await admin.delays.list(topic, count=_LISTED_MAX):
        if each.broker == named.broker and each.messages is not None and each.settled:
            # A list that is too short, and a count of an Apache broker, prove nothing.
            whole = len(each.messages) >= (each.counts or {}).get(topic, 0)
            return whole and all(one.msg_id != named.unique_key for one in each.messages)
    return False


@app.command()
def recall(
    topic: TopicName,
    handle: Annotated[
        str,
        typer.Argument(
            metavar="HANDLE", help="As printed by `delay show` or returned by the send."
        ),
    ],
    namesrv: NameServer,
    as_json: Json = False,
) -> None:
    """Take a message back that waits for a time of its own."""

    async def work() -> str | None:
        from pocketmq.admin import Admin
        from pocketmq.client import Producer

        options = client_options(namesrv)
        async with Admin(**options) as admin, Producer("pocketmq-cli", **options) as producer:
            if await _is_gone(admin, topic, handle):
                return None
            return await producer.recall(topic, handle)

    msg_id = completed(work)
    if msg_id is None:
        raise ClusterRefused(
            f"no message of topic {topic!r} with this handle waits any more: it was recalled or delivered "
            "before. See: pocketmq delay show"
        )
    print_fields({"topic": topic, "recalled": msg_id}, as_json=as_json)
