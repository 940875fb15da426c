"""`pocketmq message`: send, tail, consume, find, track."""

import json
import sys
import time
from base64 import b64encode
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import ClusterRefused, completed, with_admin
from pocketmq.cli.connecting import client_options
from pocketmq.cli.exits import CannotBegin, ExitCode, in_line, visible
from pocketmq.cli.message_files import read_messages, restore
from pocketmq.cli.moments import parse_coming, parse_moment, show_moment
from pocketmq.cli.options import Json, NameServer, TopicName
from pocketmq.cli.output import json_text, print_fields, print_json, print_line, print_rows
from pocketmq.remoting.lazy_names import needs

if TYPE_CHECKING:
    from pocketmq.admin import Admin
    from pocketmq.admin.views.message import WaitingRoom
    from pocketmq.client import Producer
    from pocketmq.model.message import MessageExt, MessageQueue
    from pocketmq.remoting.errors import RemotingError

app = typer.Typer()

_POLL_MS = 500
# Empty polls after which a member that has had nothing yet says that it waits.
_PATIENCE = 3
Limit = Annotated[int, typer.Option("--count", "-c", min=1, help="At most this many.")]
Skip = Annotated[int, typer.Option(min=0, help="Leave out so many at the beginning of the file.")]


def message_row(message: "MessageExt") -> dict[str, Any]:
    """Return a message as a table row."""
    return {
        "stored": show_moment(message.store_timestamp),
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "tag": message.tags,
        "keys": message.keys,
        "id": message.msg_id,
        "body": body_text(message.body),
    }


def message_fields(message: "MessageExt") -> dict[str, Any]:
    """Return all of a message, for programs; times in ms since 1970."""
    return {
        "topic": message.topic,
        "broker": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "bornTimestamp": message.born_timestamp,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_timestamp,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "properties": dict(message.properties),
        "body": message.body.decode("utf-8", "backslashreplace"),
        "bodyBase64": b64encode(message.body).decode("ascii"),
    }


def body_text(body: bytes, size_max: int = 80) -> str:
    """Return the beginning of a body, printable."""
    text = body[: size_max * 4].decode("utf-8", "backslashreplace")
    return text if len(text) <= size_max else text[: size_max - 1] + "…"


@app.command()
def send(
    topic: TopicName,
    body: Annotated[str, typer.Argument(help="The body; - reads it from standard input.")],
    namesrv: NameServer,
    tag: Annotated[str | None, typer.Option(help="Its tag.")] = None,
    keys: Annotated[
        str | None,
        typer.Option("--keys", "--key", help="Keys to find it by, separated by spaces."),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated."),
    ] = None,
    delay_level: Annotated[
        int, typer.Option(min=0, max=18, help="Deliver later: 1 is 1 s, 3 is 10 s, 18 is 2 h.")
    ] = 0,
    deliver_at: Annotated[
        str | None,
        typer.Option(
            "--deliver-at",
            metavar="TIME",
            help="Deliver at this time: 2026-11-21T12:00, or +90s.",
        ),
    ] = None,
    queue: Annotated[int | None, typer.Option(help="Into this queue.")] = None,
    count: Limit = 1,
    as_json: Json = False,
) -> None:
    """Send a message."""

    raw = sys.stdin.buffer.read() if body == "-" else body.encode("utf-8")
    pairs = dict(property_pair(text) for text in properties or ())
    if delay_level and deliver_at is not None:
        raise CannotBegin("give --delay-level or --deliver-at, not both")
    deliver_at_ms = None if deliver_at is None else parse_coming(deliver_at)

    async def work() -> list[dict[str, Any]]:
        from pocketmq.client import Message, Producer

        rows = []
        async with Producer("pocketmq-cli", **client_options(namesrv)) as producer:
            chosen = None if queue is None else await _queue(producer, topic, queue)
            for _ in range(count):
                result = await producer.send(
                    Message(topic, raw, tags=tag, keys=keys, properties=dict(pairs)),
                    queue=chosen,
                    delay_level=delay_level or None,
                    deliver_at_ms=deliver_at_ms,
                )
                rows.append(
                    {
                        "status": str(result.status),
                        "broker": result.message_queue.broker_name,
                        "queueId": result.message_queue.queue_id,
                        "queueOffset": result.queue_offset,
                        "msgId": result.msg_id,
                        "offsetMsgId": result.offset_msg_id,
                        **({"recallHandle": result.recall_handle} if result.recall_handle else {}),
                    }
                )
        return rows

    print_rows(completed(work), as_json=as_json)


async def _queue(producer: "Producer", topic: str, queue_id: int) -> "MessageQueue":
    for each in await producer.queues(topic):
        if each.queue_id == queue_id:
            return each
    raise CannotBegin(
        f"topic {topic!r} has no queue {queue_id} to send to: see `pocketmq topic show {topic}`"
    )


def property_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CannotBegin(f"--property takes NAME=VALUE, not {text!r}")
    return name, value


@app.command()
def tail(
    topic: TopicName,
    namesrv: NameServer,
    count: Limit = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing messages as they arrive.")
    ] = False,
    tag: Annotated[str, typer.Option(help="Only these tags: 'A || B'.")] = "*",
    as_json: Json = False,
) -> None:
    """The newest messages of a topic; nothing is committed, no group is touched.

    With --json each message is one line.
    """

    async def work(admin: "Admin") -> None:
        import asyncio

        ends: dict[Any, int] = {}
        newest: list[MessageExt] = []
        for queue in (await admin.topics.route(topic)).subscribe_queues(topic):
            found, ends[queue] = await admin.messages.last(queue, count, tag)
            newest += found
        for message in sorted(newest, key=_age)[-count:]:
            _print_message(message, as_json)
        while follow:
            fresh: list[MessageExt] = []
            for queue, end in ends.items():
                found, ends[queue] = await admin.messages.since(queue, end, tag)
                fresh += found
            for message in sorted(fresh, key=_age):
                _print_message(message, as_json)
            if not fresh:
                await asyncio.sleep(_POLL_MS / 1000)

    try:
        with_admin(namesrv, work)
    except KeyboardInterrupt:
        raise typer.Exit(int(ExitCode.OK)) from None


@app.command()
def consume(
    topic: TopicName,
    namesrv: NameServer,
    group: Annotated[str, typer.Option(help="The consumer group to join.")],
    count: Annotated[
        int | None, typer.Option("--count", "-c", min=1, help="Stop after this many.")
    ] = None,
    tag: Annotated[str, typer.Option(help="Only these tags: 'A || B'.")] = "*",
    from_first: Annotated[
        bool, typer.Option("--from-first", help="A new group starts with the oldest message.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Consume as a member of a group: what is printed is committed. Ends with --count or Ctrl-C.

    With --json each message is one line.
    """

    async def work() -> None:
        from pocketmq.client import ConsumeFromWhere, LitePullConsumer

        begin = ConsumeFromWhere.FIRST_OFFSET if from_first else ConsumeFromWhere.LAST_OFFSET
        consumer = LitePullConsumer(
            group,
            auto_commit=False,
            consume_from_where=begin,
            pull_batch_size=32 if count is None else min(count, 32),
            **client_options(namesrv),
        )
        consumer.subscribe(topic, tag)
        printed = empty = 0
        ends: dict[Any, int] = {}
        async with consumer:
            while count is None or printed < count:
                found = await consumer.poll(_POLL_MS)
                empty += not found
                if empty == _PATIENCE and not printed and not found and sys.stderr.isatty():
                    sys.stderr.write(_waiting(topic, group, bool(consumer.assignment())))
                for message in found:
                    if printed == count:
                        break
                    _print_message(message, as_json)
                    printed += 1
                    ends[message.message_queue] = message.queue_offset + 1
                sys.stdout.flush()
                await consumer.commit(ends)

    try:
        completed(work)
    except KeyboardInterrupt:
        raise typer.Exit(int(ExitCode.OK)) from None


def _waiting(topic: str, group: str, has_queues: bool) -> str:
    if has_queues:
        return f"waiting for messages of {topic!r} as a member of {group!r}; press Ctrl-C to stop\n"
    return (
        f"waiting: {group!r} has no queue of {topic!r} here, because the topic does not exist yet "
        f"(pocketmq topic list), or because other members have all its queues; press Ctrl-C to stop"
        "\n"
    )


def _age(message: "MessageExt") -> tuple[int, str, int, int]:
    return (
        message.store_timestamp,
        message.broker_name,
        message.queue_id,
        message.queue_offset,
    )


def _print_message(message: "MessageExt", as_json: bool) -> None:
    if as_json:
        print_line(json_text(message_fields(message)))
    else:
        row = message_row(message)
        print_line(
            f"{row['stored']}  {row['broker']}/{row['queue']}@{row['offset']}  "
            f"{in_line(row['tag'] or '-')}  {in_line(row['keys'] or '-')}  {row['body']!r}"
        )
    sys.stdout.flush()


@app.command()
def find(
    topic: TopicName,
    namesrv: NameServer,
    msg_id: Annotated[
        str | None, typer.Option("--id", help="By its id, the offset id or the client's id.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "--keys", help="By one of its keys.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Stored from this time on: 2h (ago), ...")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Stored before this time.")] = None,
    tag: Annotated[str, typer.Option(help="Only these tags: 'A || B'.")] = "*",
    count: Limit = 64,
    body_schema: Annotated[
        str | None,
        typer.Option(
            help="Show fields of bodies: 'id BIGINT, name STRING', infer, a schema's file or URL."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find messages by id, by key, or by the time when they were stored."""
    if sum(given is not None for given in (msg_id, key, since)) != 1:
        raise CannotBegin("give one of --id, --key or --since (with --until)")
    begin_ms = parse_moment(since) if since is not None else 0
    end_ms = parse_moment(until) if until is not None else None

    left_out: dict[str, RemotingError] = {}

    async def work(admin: "Admin") -> list["MessageExt"]:
        from pocketmq.admin.views.message import first_of, found_by_id

        if msg_id is not None:
            return [await found_by_id(admin, msg_id, topic)]
        if key is not None:
            return await admin.messages.by_key(topic, key, count_max=count, left_out=left_out)
        stored = admin.messages.between(
            topic, begin_ms=begin_ms, end_ms=end_ms, expression=tag, left_out=left_out
        )
        return await first_of(stored, count)

    found = with_admin(namesrv, work)
    for broker, error in left_out.items():
        sys.stderr.write(visible(f"messages of broker {broker} are missing here: {error}\n"))
    fields = None if body_schema is None else _body_fields(found, body_schema)
    _print_found(found, as_json, fields)
    if left_out:
        raise typer.Exit(int(ExitCode.FAILED))


def _body_fields(found: list["MessageExt"], text: str) -> list[dict[str, Any]]:
    """Return the fields of each message's body. Raises: CannotBegin, IllegalArgument."""
    try:
        import pyarrow as pa

        from pocketmq.bulk.bodies.columns import BodyColumns
    except ImportError as error:
        raise CannotBegin(needs("--body-schema", "pyarrow", "spark")) from error
    bodies = pa.array([message.body for message in found], pa.binary())
    columns = BodyColumns.of(text, sample=lambda: bodies)
    names = columns.schema.names
    rows = pa.RecordBatch.from_arrays(columns.decode(bodies, names), names).to_pylist()
    # Times, decimals and bytes as texts.
    plain: list[dict[str, Any]] = json.loads(json.dumps(rows, default=str))
    return plain


def _with_body(row: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Return a row and the fields of its body, which hide none of the row's own.

    >>> _with_body({"id": "7F00"}, {"id": 17, "sum": 2})
    {'id': '7F00', 'body_id': 17, 'sum': 2}
    """
    return row | {f"body_{name}" if name in row else name: v for name, v in fields.items()}


def _print_found(
    found: list["MessageExt"], as_json: bool, bodies: list[dict[str, Any]] | None
) -> None:
    if as_json:
        rows = [message_fields(message) for message in found]
        for row, fields in zip(rows, bodies or [], strict=False):
            row["bodyFields"] = fields
        print_json(rows)
    elif len(found) == 1:
        fields = message_fields(found[0])
        del fields["bodyBase64"]
        print_fields(_with_body(fields, bodies[0]) if bodies else fields, as_json=False)
    else:
        rows = [message_row(message) for message in found]
        for row, fields in zip(rows, bodies or [], strict=False):
            del row["body"]
            row.update(_with_body(row, fields))
        print_rows(rows, as_json=False, empty="no messages")
    if not found:
        raise typer.Exit(int(ExitCode.FAILED))


@app.command("import")
def import_messages(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON lines or a list; - is standard input.")
    ],
    namesrv: NameServer,
    topic: Annotated[
        str | None, typer.Option(help="Send to this topic instead of each message's own.")
    ] = None,
    skip: Skip = 0,
    as_json: Json = False,
) -> None:
    """Store messages again that --json or `dlq export` wrote: ids, bodies, tags, keys, properties."""
    rows = read_messages(file)
    if topic is None and not all(row["topic"] for row in rows):
        raise CannotBegin(f"{file} does not name a topic: give --topic")
    count = with_admin(namesrv, lambda admin: restore(admin, rows, topic, skip))
    print_fields({"imported": count, "file": file}, as_json=as_json)


@app.command()
def track(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[TOPIC] ID",
            help="Id of the message, the offset id or the client's id. Without a topic, a "
            "client's id is looked for in all topics.",
        ),
    ],
    namesrv: NameServer,
    group: Annotated[str | None, typer.Option(help="Only for this group.")] = None,
    as_json: Json = False,
) -> None:
    """What became of a message in each group of its topic.

    PocketMQ's verdict comes from its record of deliveries; beside it stands RocketMQ's track type, which is
    computed from offsets and may be CONSUMED for messages that no member got. Apache brokers have only that.
    """
    if len(words) > 2:
        raise CannotBegin("name the message by its id, or by its topic and id")

    empty = "no group consumes this topic"

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        from pocketmq.admin.views.message import tracks_view, waiting_room

        nonlocal empty
        message = await find_message(admin, words[-1], words[0] if len(words) == 2 else None)
        if (room := await waiting_room(admin, message)) is not None:
            empty = _why_it_waits(room)
        return [
            {
                "group": each.group,
                "verdict": each.verdict,
                "trackType": each.track_type,
                "text": each.text,
                "deliveries": each.deliveries,
            }
            for each in (await tracks_view(admin, message, group)).tracks
        ]

    rows = with_admin(namesrv, work)
    columns = {"group": "group", "verdict": "verdict", "trackType": "track", "text": "detail"}
    print_rows(rows, as_json=as_json, empty=empty, columns=columns)


def _why_it_waits(room: "WaitingRoom") -> str:
    """Return why no group has the message yet."""
    topic = f"topic {room.topic!r}"
    if room.kind == "TRANSACTION":
        return (
            "a half message: no group gets it before its producer commits; once committed it is in "
            f"{topic} under the same id"
        )
    if room.due_ms is None:
        return f"it waits for its time, which is not known; then it goes to {topic}"
    at = show_moment(room.due_ms)
    if room.due_ms > time.time() * 1000:
        return f"it waits until {at}; then it goes to {topic}"
    return (
        f"its time came at {at}, and unless it was taken back it went to {topic}: look for it there"
    )


async def find_message(admin: "Admin", msg_id: str, topic: str | None) -> "MessageExt":
    """Return the message of an id of either kind; without a topic all topics are searched. Raises:
    ClusterRefused.
    """
    from pocketmq.admin.views.message import found_anywhere, found_by_id

    if topic is not None:
        return await found_by_id(admin, msg_id, topic)
    found = await found_anywhere(admin, msg_id)
    if found is not None:
        return found
    raise ClusterRefused(
        f"no topic here has a message with the id {msg_id!r}: it has expired, belongs to another "
        f"site, or is incomplete. Try:"
        " pocketmq message find TOPIC --key KEY, or --since 1h"
    )
