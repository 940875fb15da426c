"""config/NAME.json: the content, or that of NAME.json.bak. fastjson's dialect.

A file that is missing, empty or no JSON falls back to its .bak. Source: ConfigManager.load, RocketMQ 4.9.7.
"""

from collections.abc import Callable
from typing import Any

from pocketmq.remoting import fastjson


class SideFileBroken(ValueError):
    """There is content, and none of it can be read."""


def read_or_backup(path: str, read: Callable[[str], bytes]) -> tuple[Any, str | None]:
    """(the value, integer keys as str; the path that it came from); (None, None) when there is none.

    read: raises FileNotFoundError. Raises: SideFileBroken.
    """
    problems: list[str] = []
    for candidate in (path, f"{path}.bak"):
        try:
            data = read(candidate)
        except FileNotFoundError:
            continue
        if not data.strip():
            continue
        try:
            return fastjson.loads(data), candidate
        except fastjson.FastjsonError as error:
            problems.append(f"{candidate}: {error}")
    if problems:
        raise SideFileBroken("; ".join(problems))
    return None, None
