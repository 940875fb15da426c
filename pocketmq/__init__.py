"""PocketMQ: the RocketMQ that fits in a pocket.

`from pocketmq import Producer, PushConsumer, Message` gives the names of `pocketmq.client`. The client
library is loaded when the first of them is asked for, so importing this package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pocketmq.client import *  # noqa: F403


def __getattr__(name: str) -> Any:
    # Spark's executors have this package without the client, and servers start without it.
    if not name.startswith("_"):
        client = import_module("pocketmq.client")
        if name in client.__all__:
            return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *import_module("pocketmq.client").__all__])
