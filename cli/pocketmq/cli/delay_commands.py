"""`pocketmq delay`: messages that wait: by delay level, or for a time of their own."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.message_commands import body_text
from pocketmq.cli.moments import show_moment
from pocketmq.cli.options import Broker, Cluster, Json, NameServer, TopicName
from pocketmq.cli.output import print_fields, print_rows
from pocketmq.cli.site import answered, client_options, with_admin
from pocketmq.remoting.message import MessageQueue
from pocketmq.remoting.names import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from pocketmq.admin import Admin

app = typer.Typer()

_PREFIX = "scheduleMessageOffset_"


def parse_levels(text: str) -> list[int]:
    """`1s 5s 1m` -> ms of each level.

    >>> parse_levels("1s 2m")
    [1000, 120000]
    """
    units = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    return [int(word[:-1]) * units[word[-1]] for word in text.split()]


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
            names = (await _levels(admin, master.address)).split()
            for level, name in enumerate(names, 1):
                count = found.levels.get(level, 0)
                if count or as_json:
                    rows.append(_row(master.name, level, name, None, count))
            for topic, count in sorted((found.counts or {}).items()):
                rows.append(_row(master.name, None, "own time", topic, count))
        return rows

    print_rows(with_admin(namesrv, work), as_json=as_json, empty="nothing waits")


def _row(
    broker: str, level: int | None, delay: str, topic: str | None, waiting: int
) -> dict[str, Any]:
    return {"broker": broker, "level": level, "delay": delay, "topic": topic, "waiting": waiting}


async def _levels(admin: "Admin", address: str) -> str:
    settings = await admin.settings.broker(address)
    return settings.get(
        "messageDelayLevel", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    )


@app.command()
def show(
    level: Annotated[
        int | None,
        typer.Argument(
            min=1, max=18, help="Delay level; without one: those with a time of their own."
        ),
    ] = None,
    *,
    namesrv: NameServer,
    broker: Broker = None,
    cluster: Cluster = None,
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="At most so many.")] = 32,
    as_json: Json = False,
) -> None:
    """The messages that wait in a level, or for a time of their own, the next one first."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        if level is None:
            return await _timed(admin, cluster, broker, count)
        for master in await admin.site.masters(cluster, broker):
            numbers = await admin.settings.runtime(master.address)
            delay_ms = parse_levels(await _levels(admin, master.address))[level - 1]
            at = int(numbers.get(f"{_PREFIX}{level}", "0,0").partition(",")[0])
            queue = MessageQueue(SCHEDULE_TOPIC, master.name, level - 1)
            while len(rows) < count:
                found, following = await admin.messages.since(queue, at, address=master.address)
                if following <= at:
                    break
                rows += [
                    {
                        "due": show_moment(message.store_timestamp + delay_ms),
                        "broker": master.name,
                        "topic": message.properties.get("REAL_TOPIC"),
                        "keys": message.keys,
                        "id": message.msg_id,
                        "body": body_text(message.body),
                    }
                    for message in found[: count - len(rows)]
                ]
                at = following
        return rows

    print_rows(with_admin(namesrv, work), as_json=as_json, empty="nothing waits")


async def _timed(
    admin: "Admin", cluster: str | None, broker: str | None, count: int
) -> list[dict[str, Any]]:
    """Messages with a time of their own; an Apache broker cannot list them and has none here."""
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
            "due": show_moment(each.deliver_ms),
            "broker": each.broker,
            "topic": each.topic,
            "id": each.msg_id,
            "recall": each.recall_handle,
        }
        for each in found[:count]
    ]


@app.command()
def recall(
    topic: TopicName,
    handle: Annotated[
        str,
        typer.Argument(metavar="HANDLE", help="As `delay show` prints it, or the send's answer."),
    ],
    namesrv: NameServer,
    as_json: Json = False,
) -> None:
    """Take a message back that waits for a time of its own."""

    async def work() -> str:
        from pocketmq.client import Producer

        async with Producer("pocketmq-cli", **client_options(namesrv)) as producer:
            return await producer.recall(topic, handle)

    msg_id = answered(lambda: asyncio.run(work()))
    print_fields({"topic": topic, "recalled": msg_id}, as_json=as_json)
