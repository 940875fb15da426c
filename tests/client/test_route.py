"""What a route may say: anybody who reaches a name server may have registered it."""

from typing import Any

import pytest

from pocketmq.broker.pop.assignment import queues_of_route
from pocketmq.client.network.route import TopicRoute
from pocketmq.model.tables import QUEUE_COUNT_MAX, ROUTE_QUEUES_MAX, countable
from pocketmq.remoting import fastjson
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.flags import Perm
from pocketmq.spark.brokers.client import _queues_of

HUGE = 2**31 - 1


def queues(broker: str, count: Any) -> dict[str, Any]:
    return {"brokerName": broker, "perm": 6, "readQueueNums": count, "writeQueueNums": count}


def route(*rows: Any, **more: Any) -> dict[str, Any]:
    names = [row["brokerName"] for row in rows]
    brokers = [{"brokerName": name, "brokerAddrs": {"0": "127.0.0.1:1"}} for name in names]
    return {"queueDatas": list(rows), "brokerDatas": brokers, **more}


@pytest.mark.parametrize("huge", [HUGE, str(HUGE), float(HUGE)])
def test_nobody_counts_out_two_thousand_million_queues(huge: object) -> None:
    """A stranger's broker beside one's own: client, sink of Spark and the broker's own assignments."""
    found = route(queues("a", 2), queues("stranger", huge), queues("z", 1))
    parsed = TopicRoute.parse(fastjson.dumps(found))
    names = [("a", 0), ("a", 1), ("z", 0)]
    for taken in (parsed.subscribe_queues("T"), parsed.publish_queues("T")):
        assert [(each.broker_name, each.queue_id) for each in taken] == names
    assert [(each.broker_name, each.queue_id) for each in queues_of_route("T", found)] == names
    answer = RemotingCommand(0, body=fastjson.dumps(found))
    for perm in (Perm.READ, Perm.WRITE):
        assert [(e.broker_name, e.queue_id) for e in _queues_of("T", answer, perm)] == names


def test_a_route_has_a_bound_in_all() -> None:
    many = [queues(f"b{number}", QUEUE_COUNT_MAX) for number in range(2_000)]
    assert countable(many) == many[: ROUTE_QUEUES_MAX // QUEUE_COUNT_MAX]
    # Malformed rows are rejected by every reader.
    assert countable([1, queues("a", "4")]) == [1, queues("a", "4")]
    assert countable(None) == []


@pytest.mark.parametrize(
    ("text", "queues_of_a"),
    [
        (f"a:4;stranger:{HUGE}", 4),
        ("a:2;b", 2),
        ("b:;a:2;", 2),
        ("b:-1;a:2;:7", 2),
        # Not an entry is left: the queues are those that the brokers have registered.
        ("a:x", 3),
        ("a: 2", 3),
        ("a:65537", 3),
        (["a:4"], 3),
        (7, 3),
    ],
)
def test_a_malformed_order_entry_leaves_the_route_usable(text: object, queues_of_a: int) -> None:
    """A typo of an operator: producers have the other entries, consumers never look at it."""
    found = TopicRoute.parse(fastjson.dumps(route(queues("a", 3), orderTopicConf=text)))
    names = [(each.broker_name, each.queue_id) for each in found.publish_queues("T")]
    assert names == [("a", number) for number in range(queues_of_a)]
    assert len(found.subscribe_queues("T")) == 3


def test_an_order_configuration_names_the_queues() -> None:
    found = TopicRoute.parse(fastjson.dumps(route(queues("a", 9), orderTopicConf="a:2;b:1")))
    taken = found.publish_queues("T")
    assert [(each.broker_name, each.queue_id) for each in taken] == [("a", 0), ("a", 1), ("b", 0)]
