"""A push consumer of the played cluster, whose clock jumps."""

from collections.abc import Sequence
from typing import Any

from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    MessageExt,
    PushConsumer,
)
from pocketmq.client.consume.push_member import PushMember
from tests.client.fake_cluster import Asked, FakeCluster
from tests.client.virtual_time import LoopClock

NS = "10.0.0.1:9876"


class Listener:
    """Notes what it gets; `results` are given one after the other, then SUCCESS."""

    def __init__(self, *results: ConsumeResult) -> None:
        self.messages: list[MessageExt] = []
        self.at_ms: list[int] = []
        self.results = list(results)

    async def __call__(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        self.messages += messages
        self.at_ms.append(LoopClock().monotonic_ms())
        return self.results.pop(0) if self.results else ConsumeResult.SUCCESS

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


def options(cluster: FakeCluster, **more: object) -> dict[str, Any]:
    return {
        "name_server": NS,
        "clock": cluster.clock,
        "transport": cluster.transport,
        "client_ip": "10.9.9.9",
        "consume_from_where": ConsumeFromWhere.FIRST_OFFSET,
        **more,
    }


def consumer(
    cluster: FakeCluster,
    listener: Listener,
    topic: str = "T",
    expression: str = "*",
    **more: object,
) -> PushConsumer:
    group = str(more.pop("group", "g"))
    made = PushConsumer(group, listener=listener, **options(cluster, **more))
    if topic:
        made.subscribe(topic, expression)
    return made


def member(made: PushConsumer) -> PushMember:
    assert made._member is not None
    return made._member


def times(asked: Sequence[Asked]) -> list[int]:
    return [each.at_ms for each in asked]
