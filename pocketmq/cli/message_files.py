"""Messages in files, as export writes and import reads them: JSON lines, or one JSON list.

The body is stored as base64, and also as text, for people and for files written by hand (`body` is used if
there is no `bodyBase64`).
"""

import json
import sys
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketmq.cli.cluster import ClusterRefused, one_line
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.output import with_progress
from pocketmq.remoting.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.admin import Admin


def read_messages(path: str) -> list[dict[str, Any]]:
    """Read the messages of a file; - is standard input. Raises: CannotBegin, naming the bad line."""
    try:
        # JSON is UTF-8, whatever the terminal's encoding is.
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CannotBegin(f"cannot read {path}: {error}") from error
    return [_checked(each, number, path) for number, each in _objects(text, path)]


def _objects(text: str, path: str) -> Iterator[tuple[int, Any]]:
    try:
        if text.lstrip().startswith("["):
            yield from enumerate(json.loads(text), 1)
            return
        # A body may hold what else splitlines() takes for the end of a line, such as U+2028.
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield number, json.loads(line)
    # Too many digits are a plain ValueError; brackets in brackets are limited by the stack.
    except (RecursionError, ValueError) as error:
        raise CannotBegin(f"{path} contains neither JSON lines nor a JSON list: {error}") from error


def _checked(row: Any, number: int, path: str) -> dict[str, Any]:
    wrong = f"message {number} of {path} is not a message: it needs topic, properties, and bodyBase64 or body"
    if not isinstance(row, dict) or not {"bodyBase64", "body"} & row.keys():
        raise CannotBegin(wrong)
    try:
        body = row.get("bodyBase64")
        raw = str(row["body"]).encode() if body is None else b64decode(str(body), validate=True)
        properties = {
            str(key): str(value) for key, value in dict(row.get("properties") or {}).items()
        }
        topic = str(row.get("topic") or "")
        _check_text(topic, *properties, *properties.values())
    except (Base64Error, TypeError, ValueError) as error:
        raise CannotBegin(f"{wrong} ({error})") from error
    return {"topic": topic, "body": raw, "properties": properties}


def _check_text(*texts: str) -> None:
    """Raises: ValueError for what a record cannot hold: half of a surrogate pair, or the end of a property,
    behind which others would stand that are not restored.
    """
    for text in texts:
        text.encode()
        if "\x01" in text or "\x02" in text:
            raise ValueError(f"{text[:50]!r} has a separator of properties in it")


async def restore(
    admin: "Admin", rows: Sequence[Mapping[str, Any]], topic: str | None, skip: int = 0
) -> int:
    """Store the messages again, round robin over the queues of their or the given topic; return how many.

    None is stored unless all of their topics take messages. skip: so many at the beginning are left out.
    Raises: ClusterRefused, which says how many are stored.
    """
    from pocketmq.admin.copies import own_properties

    rows = rows[skip:]
    names = [str(topic or row["topic"]) for row in rows]
    queues: dict[str, list[Any]] = {}
    for name in dict.fromkeys(names):
        queues[name] = (await admin.topics.route(name)).publish_queues(name)
        if not queues[name]:
            raise CannotBegin(f"topic {name!r} takes no messages: see pocketmq topic show {name}")
    for number, row in enumerate(with_progress(rows, "messages", len(rows))):
        properties = own_properties(row["properties"])
        chosen = queues[names[number]]
        queue = chosen[number % len(chosen)]
        try:
            await admin.messages.send(queue, row["body"], properties)
        except PocketMQError as error:
            if not skip + number:
                raise
            raise ClusterRefused(
                f"{one_line(error)}. Messages before number {skip + number + 1} "
                f"of the file are stored; resume with --skip {skip + number}"
            ) from error
    return len(rows)
