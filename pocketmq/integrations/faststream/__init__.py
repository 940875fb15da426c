"""FastStream's broker.

    broker = PocketBroker("127.0.0.1:9876", group="billing")

    @broker.subscriber("orders")
    @broker.publisher("invoices")
    async def bill(order: Order) -> Invoice: ...

A subscriber is a member of a consumer group, which pops messages, renews their invisible time while its
function runs, and acknowledges them; what a function rejects is a dead letter of the group.
"""

from pocketmq.remoting.lazy_names import without_extra

try:
    from pocketmq.integrations.faststream.annotations import PocketMessage
    from pocketmq.integrations.faststream.broker import PocketBroker
    from pocketmq.integrations.faststream.response import PocketResponse
    from pocketmq.integrations.faststream.router import PocketPublisher, PocketRoute, PocketRouter
    from pocketmq.integrations.faststream.testing import TestPocketBroker
except ModuleNotFoundError as missing:
    raise without_extra("pocketmq.integrations.faststream", missing, "faststream") from None

__all__ = [
    "PocketBroker",
    "PocketMessage",
    "PocketPublisher",
    "PocketResponse",
    "PocketRoute",
    "PocketRouter",
    "TestPocketBroker",
]
