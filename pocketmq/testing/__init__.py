"""Testing with PocketMQ: a broker in the test process, a broker as a process, or a running one.

    def test_an_order_is_announced(pocketmq):            # the fixture of the pytest plug-in
        announce(order, name_server=pocketmq.namesrv)
        [message] = pocketmq.wait_for_messages("orders", 1)
        assert message.keys == order.number

Without pytest: `with InProcess() as server: ...`. Names are loaded on first use, so that the plug-in costs
nothing in test runs that do not use it.
"""

from typing import TYPE_CHECKING

from pocketmq.remoting.lazy_names import lazy_names

if TYPE_CHECKING:
    from pocketmq.testing.clock import AdvancingClock
    from pocketmq.testing.external import External
    from pocketmq.testing.failures import ListenerFailed
    from pocketmq.testing.in_process import InProcess
    from pocketmq.testing.process import ServerProcess
    from pocketmq.testing.server import PocketMQ

__all__ = ["AdvancingClock", "External", "InProcess", "ListenerFailed", "PocketMQ", "ServerProcess"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "pocketmq.testing.clock": ("AdvancingClock",),
        "pocketmq.testing.external": ("External",),
        "pocketmq.testing.failures": ("ListenerFailed",),
        "pocketmq.testing.in_process": ("InProcess",),
        "pocketmq.testing.process": ("ServerProcess",),
        "pocketmq.testing.server": ("PocketMQ",),
    },
    extra="test",
)
