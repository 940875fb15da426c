"""Reads config/NAME.json, or else NAME.json.bak, in fastjson's dialect.

If the file is missing, empty or not JSON, its .bak is read. Source: ConfigManager.load, RocketMQ 4.9.7.
"""

from collections.abc import Callable
from typing import Any

from pocketmq.remoting import fastjson


class SideFileBroken(ValueError):
    """There is content, and none of it can be read."""


def read_or_backup(path: str, read: Callable[[str], bytes]) -> tuple[Any, str | None]:
    """Return (the value, integer keys as str; the path it came from), or (None, None) if absent.

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
