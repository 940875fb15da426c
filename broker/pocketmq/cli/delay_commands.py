"""`pocketmq delay`: messages that wait for their time, by delay level."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.message_commands import body_text
from pocketmq.cli.moments import show_moment
from pocketmq.cli.options import Broker, Cluster, Json, NameServer
from pocketmq.cli.output import print_rows
from pocketmq.cli.site import with_admin
from pocketmq.remoting.message import MessageQueue

if TYPE_CHECKING:
    from pocketmq.admin import Admin

app = typer.Typer(help="Messages that wait for their time.", no_args_is_help=True)

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_PREFIX = "scheduleMessageOffset_"


def parse_levels(text: str) -> list[int]:
    """`1s 5s 1m` -> ms of each level.

    >>> parse_levels("1s 2m")
    [1000, 120000]
    """
    units = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    return [int(word[:-1]) * units[word[-1]] for word in text.split()]


@app.command("list")
def list_levels(
    namesrv: NameServer, broker: Broker = None, cluster: Cluster = None, as_json: Json = False
) -> None:
    """How many messages wait in each level."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        rows = []
        for master in await admin.site.masters(cluster, broker):
            numbers = await admin.settings.runtime(master.address)
            names = (await _levels(admin, master.address)).split()
            for level, name in enumerate(names, 1):
                delivered, _, end = numbers.get(f"{_PREFIX}{level}", "0,0").partition(",")
                waiting = int(end) - int(delivered)
                if waiting or as_json:
                    rows.append(
                        {"broker": master.name, "level": level, "delay": name, "waiting": waiting}
                    )
        return rows

    print_rows(with_admin(namesrv, work), as_json=as_json, empty="nothing waits")


async def _levels(admin: "Admin", address: str) -> str:
    settings = await admin.settings.broker(address)
    return settings.get(
        "messageDelayLevel", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    )


@app.command()
def show(
    level: Annotated[int, typer.Argument(min=1, max=18, help="Delay level.")],
    namesrv: NameServer,
    broker: Broker = None,
    cluster: Cluster = None,
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="At most so many.")] = 32,
    as_json: Json = False,
) -> None:
    """The messages that wait in a level, the next one first."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
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
