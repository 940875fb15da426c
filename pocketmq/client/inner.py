"""What a client instance needs of its producers and consumers, and its helpers of the instance."""

from collections.abc import Iterable
from typing import Protocol

from pocketmq.client.network.api import MQClientApi
from pocketmq.client.network.heartbeat import ConsumerData
from pocketmq.client.network.route import BrokerAddresses, TopicRoute
from pocketmq.client.network.runner import Runner
from pocketmq.client.pull.pull_service import PullRequest
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.remoting.clock import Clock


class InnerProducer(Protocol):
    """What the instance needs of a producer."""

    @property
    def group(self) -> str: ...

    def publish_topics(self) -> Iterable[str]: ...

    def start_check(self, address: str, message: MessageExt, fields: dict[str, str], /) -> None:
        """Check how the transaction of `message` ended, for a broker; answered by END_TRANSACTION."""
        ...


class InnerConsumer(Protocol):
    """What the instance needs of a consumer."""

    @property
    def group(self) -> str: ...

    def consumer_data(self) -> ConsumerData: ...

    def subscribed_topics(self) -> Iterable[str]: ...

    def update_subscribe_info(self, topic: str, queues: list[MessageQueue]) -> None: ...

    async def do_rebalance(self) -> None: ...

    async def persist_offsets(self) -> None: ...

    async def pull(self, request: PullRequest) -> bool: ...

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None: ...

    def consumer_status(self, topic: str) -> dict[MessageQueue, int]: ...

    def running_info(self, *, stacks: bool) -> dict[str, object]: ...

    async def consume_directly(
        self, message: MessageExt, broker_name: str | None
    ) -> dict[str, object]: ...


class SharedInstance(Protocol):
    """What its helpers need of the instance: instance.MQClientInstance."""

    client_id: str
    clock: Clock
    runner: Runner
    addresses: BrokerAddresses
    routes: dict[str, TopicRoute]
    producers: dict[str, InnerProducer]
    consumers: dict[str, InnerConsumer]
    api: MQClientApi

    def rebalance_now(self) -> None: ...

    async def look_for(self, topics: Iterable[str]) -> None: ...
