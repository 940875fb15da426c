"""Reads config/NAME.json, or else NAME.json.bak, in fastjson's dialect.

If the file is missing, empty or not JSON, its .bak is read. Source: ConfigManager.load, RocketMQ 4.9.7.
A broker with enableLmq keeps the offsets of all groups in another file. Source: LmqConsumerOffsetManager.
"""

import os
from collections.abc import Callable, Collection
from typing import Any

from pocketmq.remoting import fastjson

OFFSETS = "consumerOffset.json"
LMQ_OFFSETS = "lmqConsumerOffset.json"


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


def file_of_offsets(folder: str, names: Collection[str]) -> str:
    """Return which of the two files has the groups' offsets: the newer one where both are.

    names: of all files in `folder`, which is a store's `config`.
    """
    there = [name for name in (OFFSETS, LMQ_OFFSETS) if {name, f"{name}.bak"} & {*names}]
    if len(there) < 2:
        return there[0] if there else OFFSETS
    return max(there, key=lambda name: _written_ns(os.path.join(folder, name)))


def _written_ns(path: str) -> int:
    """Return when a file, or else its .bak, was written; 0 if neither exists."""
    for candidate in (path, f"{path}.bak"):
        try:
            return os.stat(candidate).st_mtime_ns
        except OSError:
            continue
    return 0
