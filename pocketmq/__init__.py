"""PocketMQ: the RocketMQ that fits in a pocket.

`from pocketmq import Producer, PushConsumer, Message` gives the names of `pocketmq.client`. The client
library is loaded when the first of them is asked for, so importing this package costs nothing.
"""

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pocketmq.client import *  # noqa: F403
else:
    # Type checkers would take any name from a module that has this function.
    def __getattr__(name: str) -> Any:
        names: list[str] = []
        if not name.startswith("_") or name == "__all__":
            # Spark's executors have this package without the client.
            with suppress(ModuleNotFoundError):
                names = import_module("pocketmq.client").__all__
        if name == "__all__" and names:
            return names
        if name not in names:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("pocketmq.client"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *import_module("pocketmq.client").__all__])
