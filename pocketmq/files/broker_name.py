"""The name of a store's broker, in the store: RocketMQ's files do not hold it.

    broker.json    ours, beside `commitlog`: {"name": "broker-a"}

A broker that is given no name has the one that its store knows, so it keeps it on another machine, and
readers of the files call it as the name server does. A file that is missing or broken tells nothing.
"""

import json
import os
from contextlib import suppress

BROKER = "broker.json"


def name_in(data: bytes) -> str:
    """Return the name in the content of the file; an empty text if it holds no name."""
    try:
        name = json.loads(data)["name"]
    except (ValueError, KeyError, TypeError):
        return ""
    return name if isinstance(name, str) else ""


def kept_name(folder: str) -> str:
    """Return the name of the broker of a store here; an empty text if the store does not tell it."""
    try:
        with open(os.path.join(folder, BROKER), "rb") as file:
            return name_in(file.read())
    except OSError:
        return ""


def keep_name(folder: str, name: str) -> None:
    """Let the store know its broker's name. A full disk is no reason not to start."""
    if kept_name(folder) == name:
        return
    path = os.path.join(folder, BROKER)
    with suppress(OSError):
        with open(f"{path}.part", "w", encoding="utf-8") as file:
            json.dump({"name": name}, file)
        os.replace(f"{path}.part", path)
