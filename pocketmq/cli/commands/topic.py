"""`pocketmq topic`: create, delete, list, show."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import ClusterRefused, confirm, with_admin
from pocketmq.cli.exits import CannotBegin, in_line
from pocketmq.cli.options import All, Broker, Cluster, Json, NameServer, TopicName, Yes
from pocketmq.cli.output import print_fields, print_json, print_line, print_rows
from pocketmq.remoting.errors import did_you_mean

if TYPE_CHECKING:
    from pocketmq.admin import Admin

app = typer.Typer()

# Queues for reading, for writing, permission.
_NEW_TOPIC = (8, 8, 6)
_PERM_LETTERS = {"r": 4, "w": 2, "x": 1}


def parse_perm(text: str) -> int:
    """Parse `rw`, `r`, `w` or RocketMQ's number. Raises: CannotBegin.

    >>> parse_perm("rw"), parse_perm("4")
    (6, 4)
    """
    if text.isdecimal() and int(text) <= 7:
        return int(text)
    letters = set(text.lower())
    if not letters or not letters <= _PERM_LETTERS.keys():
        raise CannotBegin(f"{text!r} is not a permission: give rw, r or w, or a number from 0 to 7")
    return sum(_PERM_LETTERS[letter] for letter in letters)


def show_perm(perm: int) -> str:
    """Format as `rw-`."""
    return "".join(letter if perm & bit else "-" for letter, bit in _PERM_LETTERS.items())


@app.command("list")
def list_topics(
    namesrv: NameServer,
    cluster: Cluster = None,
    everything: All = False,
    as_json: Json = False,
) -> None:
    """Names of the topics; those of the system, of retries and of dead letters with --all."""

    async def work(admin: "Admin") -> list[str]:
        from pocketmq.admin.views.topic import users_topics

        return await (admin.topics.names(cluster) if everything else users_topics(admin, cluster))

    names = with_admin(namesrv, work)
    if as_json:
        print_json(names)
    else:
        for name in names:
            print_line(name)


@app.command()
def create(
    topic: TopicName,
    namesrv: NameServer,
    queues: Annotated[
        int | None, typer.Option(min=1, help="Queues for reading and writing (default: 8).")
    ] = None,
    read_queues: Annotated[int | None, typer.Option(min=0, help="Queues for reading.")] = None,
    write_queues: Annotated[int | None, typer.Option(min=0, help="Queues for writing.")] = None,
    perm: Annotated[
        str | None, typer.Option(help="rw, r, w, or the number that RocketMQ uses (default: rw).")
    ] = None,
    cluster: Cluster = None,
    broker: Broker = None,
    order: Annotated[bool, typer.Option("--order", help="Make it an ordered topic.")] = False,
    attributes: Annotated[
        str | None, typer.Option(help="Attributes of 5.x, '+message.type=FIFO'.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a topic, or change the given options of an existing one."""
    number = None if perm is None else parse_perm(perm)
    given = (queues if read_queues is None else read_queues,
             queues if write_queues is None else write_queues,
             number)  # fmt: skip

    async def work(admin: "Admin") -> list[str]:
        reads, writes, wanted = await _completed(admin, topic, given, cluster, broker)
        return await admin.topics.create(
            topic,
            read_queues=reads,
            write_queues=writes,
            perm=wanted,
            cluster=cluster,
            broker=broker,
            order=order,
            attributes=attributes,
        )

    names = with_admin(namesrv, work)
    print_fields({"topic": topic, "brokers": names}, as_json=as_json)


async def _completed(
    admin: "Admin",
    topic: str,
    given: tuple[int | None, int | None, int | None],
    cluster: str | None,
    broker: str | None,
) -> tuple[int, int, int]:
    """Return queues for reading, for writing, and the permission: what is not given stays as it is.

    Raises: CannotBegin if the brokers differ in what is not given.
    """
    from pocketmq.client.errors import NoRoute

    if None not in given:
        known = []
    else:
        chosen = {each.name for each in await admin.site.masters(cluster, broker)}
        try:
            configs = await admin.topics.configs(topic)
        except NoRoute:
            configs = {}
        known = [configs[name] for name in sorted(chosen & configs.keys())] or [*configs.values()]
    found = {(each.read_queues, each.write_queues, each.perm) for each in known} or {_NEW_TOPIC}
    complete = {
        tuple(was if want is None else want for want, was in zip(given, each, strict=True))
        for each in found
    }
    if len(complete) > 1:
        raise CannotBegin(
            f"the brokers have topic {topic!r} with different queues or permissions: give --queues and "
            "--perm for all of them, or choose one with --broker"
        )
    [(reads, writes, perm)] = complete
    return reads, writes, perm


@app.command()
def delete(
    topic: TopicName,
    namesrv: NameServer,
    cluster: Cluster = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a topic with its queues and all groups' offsets of it."""

    async def work(admin: "Admin") -> list[str]:
        known = await admin.topics.names()
        if topic not in known:
            near = did_you_mean(topic, known)
            raise ClusterRefused(f"there is no topic {topic!r}{near}. See: pocketmq topic list")
        confirm(
            f"topic {topic!r} will be deleted, with its messages and all groups' offsets in it", yes
        )
        return await admin.topics.delete(topic, cluster=cluster)

    names = with_admin(namesrv, work)
    print_fields({"topic": topic, "deletedOn": names}, as_json=as_json)


@app.command()
def show(topic: TopicName, namesrv: NameServer, as_json: Json = False) -> None:
    """Configuration, route, what each queue holds, and the consumers."""

    async def work(admin: "Admin") -> dict[str, Any]:
        from pocketmq.admin.views.rows import QueueStatusRow
        from pocketmq.admin.views.topic import topic_view
        from pocketmq.model.as_json import as_object

        view = await topic_view(admin, topic)
        brokers = [
            {
                "broker": broker.broker_name,
                "addresses": sorted(broker.addresses.values()),
                "readQueues": queues.read_queue_nums,
                "writeQueues": queues.write_queue_nums,
                "perm": show_perm(queues.perm),
            }
            for broker, queues in view.places
        ]
        queues = [as_object(QueueStatusRow.of(row)) for row in view.status]
        return {"topic": topic, "brokers": brokers, "queues": queues, "groups": view.groups}

    found = with_admin(namesrv, work)
    if as_json:
        print_json(found)
        return
    print_rows(found["brokers"], as_json=False)
    print_rows(found["queues"], as_json=False, empty="no queues")
    print_line(f"groups: {in_line(', '.join(found['groups'])) or 'none'}")
