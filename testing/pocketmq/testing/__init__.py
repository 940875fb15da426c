"""Testing with PocketMQ: a broker in the test process, a broker as a process, or a running one.

    def test_an_order_is_announced(pocketmq):            # the fixture of the pytest plug-in
        announce(order, name_server=pocketmq.namesrv)
        [message] = pocketmq.wait_for_messages("orders", 1)
        assert message.keys == order.number

Without pytest: `with InProcess() as server: ...`. Names are loaded on first use, so that the plug-in costs
nothing in test runs that do not use it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pocketmq.testing.clock import AdvancingClock
    from pocketmq.testing.external import External
    from pocketmq.testing.in_process import InProcess
    from pocketmq.testing.process import ServerProcess
    from pocketmq.testing.server import PocketMQ

_HOME = {
    "AdvancingClock": "pocketmq.testing.clock",
    "External": "pocketmq.testing.external",
    "InProcess": "pocketmq.testing.in_process",
    "PocketMQ": "pocketmq.testing.server",
    "ServerProcess": "pocketmq.testing.process",
}

__all__ = ["AdvancingClock", "External", "InProcess", "PocketMQ", "ServerProcess"]


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
