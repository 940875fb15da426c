"""The commands' output: tables for people, JSON for programs, errors that say what to do.

Both show the same rows. Their keys are camelCase, for programs; people see the keys as words, times as local
times, or headings that a command gives with `columns`, so a heading can change without breaking a script.

`--json` prints one JSON value on standard output and nothing else there. Progress goes to standard error, and
only if that is a terminal.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pocketmq.cli.encoding import can_write
from pocketmq.cli.exits import STEERING, in_line, one_line
from pocketmq.cli.moments import show_moment

_T = TypeVar("_T")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return one value as JSON that steers no terminal: those of its characters are escaped."""
    return _escaped(json.dumps(value, ensure_ascii=False, indent=indent))


# JSON itself escapes what is below a blank.
_STEERING = re.compile(f"[{''.join(chr(code) for code in STEERING if code >= 32)}]")


def yaml_text(value: Any) -> str:
    """Return one value as YAML, as `json_text` does."""
    import yaml

    # Texts in which something is to be escaped are quoted: only there YAML reads escapes.
    dumper_class: Any = type("Dumper", (yaml.SafeDumper,), {})

    def quoted(dumper: Any, text: str) -> Any:
        style = '"' if _STEERING.search(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    dumper_class.add_representer(str, quoted)
    text: str = yaml.dump(value, Dumper=dumper_class, sort_keys=False, allow_unicode=True)
    if not can_write(text):
        # Its own escapes: a text in which standard output would put some is not always quoted.
        text = yaml.dump(value, Dumper=dumper_class, sort_keys=False, allow_unicode=False)
    return _escaped(text)


def _escaped(text: str) -> str:
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_json(value: Any) -> None:
    """Print one value, indented, on standard output."""
    sys.stdout.write(json_text(value, indent=2) + "\n")


def print_line(text: str) -> None:
    """Print one line on standard output; control characters and ends of lines of peers are escaped."""
    sys.stdout.write(one_line(text) + "\n")


def print_rows(
    rows: Sequence[Mapping[str, Any]],
    *,
    as_json: bool,
    empty: str = "nothing",
    columns: Mapping[str, str] | None = None,
) -> None:
    """Print rows with the same keys: a table, or a JSON list.

    empty: printed if there are no rows. columns: the keys that people see, each with its heading; None: all,
    each as words. Programs get all keys.
    """
    if as_json:
        print_json(list(rows))
        return
    if not rows:
        print_line(empty)
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = columns or {key: title(key) for key in rows[0]}
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for key, heading in shown.items():
        right = isinstance(rows[0][key], (int, float))
        # A truncated id is of no use: it continues in the next line.
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row[key], key)) for key in shown))
    if sys.stdout.isatty():
        Console().print(table)
        return
    # A pipe gets whole lines, whatever the width of the terminal, and no padding behind the last column.
    console = Console(width=500)
    with console.capture() as drawn:
        console.print(table)
    for line in drawn.get().splitlines():
        print_line(line.rstrip())


def print_fields(values: Mapping[str, Any], *, as_json: bool) -> None:
    """Print one object: a line for each of its fields, its key as words, or a JSON object."""
    if as_json:
        print_json(dict(values))
    else:
        print_map({title(key): value for key, value in values.items()}, as_json=False)


def print_map(values: Mapping[str, Any], *, as_json: bool) -> None:
    """Print an object whose keys are names, of settings for one: people see them as they are, too."""
    if as_json:
        print_json(dict(values))
        return
    width = max((len(name) for name in values), default=0)
    for name, value in values.items():
        print_line(f"{in_line(name):<{width}}  {_cell(value)}")


def title(key: str) -> str:
    """Format a key as words.

    >>> title("inSync"), title("p99Ms"), title("queueId")
    ('in sync', 'p99 ms', 'queue')
    """
    return _HEADINGS.get(key) or re.sub(
        r"(?<=[a-z0-9])[A-Z]", lambda found: f" {found[0].lower()}", key
    )


# RocketMQ's word for programs, a short one for people.
_HEADINGS = {
    "accessKey": "account",
    "brokerId": "id",
    "brokerOffset": "end",
    "clientId": "client",
    "consumerOffset": "offset",
    "diskRatio": "disk",
    "lastTimestamp": "last",
    "maxOffset": "max",
    "minOffset": "min",
    "msgId": "id",
    "offsetMsgId": "offset id",
    "queueId": "queue",
    "queueOffset": "offset",
    "readQueues": "read",
    "recallHandle": "recall",
    "trackType": "track",
    "whiteAddress": "addresses",
    "whiteAddresses": "addresses",
    "writeQueues": "write",
}
_TIMES = frozenset({"due", "newest", "oldest", "lastTimestamp"})


def _cell(value: Any, key: str = "") -> str:
    if key in _TIMES:
        return show_moment(value or 0)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple, set)):
        return ", ".join(_cell(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{in_line(str(name))}={_cell(item)}" for name, item in value.items())
    # What a peer named something must not steer the terminal.
    return in_line(str(value))


def with_progress(items: Iterable[_T], what: str, total: int | None = None) -> Iterator[_T]:
    """Yield the items, with a bar on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, what, total=total, console=Console(stderr=True), transient=True)
