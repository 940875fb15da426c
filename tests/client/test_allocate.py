"""The six allocation strategies against the official Java classes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.client.consume.allocate import (
    AllocateStrategy,
    averagely,
    averagely_by_circle,
    by_config,
    by_machine_room,
    consistent_hash,
    machine_room_nearby,
    sort_key,
)
from pocketmq.model.message import MessageQueue
from pocketmq.remoting.errors import IllegalArgument
from tests.client.java_allocate import recorded, run_java
from tests.interop.conftest import or_missing


def queues(count: int) -> list[MessageQueue]:
    """The queues of java/Allocate.java."""
    return sorted(MessageQueue("TopicTest", f"room{i % 3}@broker{i % 2}", i) for i in range(count))


def consumers(count: int) -> list[str]:
    return sorted((f"room{i % 4}-10.0.0.{i}@{40000 + i}" for i in range(count)), key=sort_key)


def nearby(inner: AllocateStrategy) -> AllocateStrategy:
    return machine_room_nearby(
        inner,
        lambda queue: queue.broker_name.split("@")[0],
        lambda client_id: client_id.split("-")[0],
    )


def strategies(own: list[MessageQueue]) -> list[AllocateStrategy]:
    return [
        averagely,
        averagely_by_circle,
        by_config(own[: (len(own) + 1) // 2]),
        by_machine_room({"room0", "room2"}),
        nearby(averagely),
        nearby(averagely_by_circle),
        consistent_hash(),
    ]


def table() -> str:
    """What our strategies give, in the form of the Java program."""
    lines = []
    for n in range(1, 13):
        own = queues(n)
        for m in range(1, 13):
            members = consumers(m)
            for strategy in strategies(own):
                shares = [strategy(own, members, member) for member in members]
                texts = [
                    ",".join(str(own.index(queue)) for queue in share) or "-" for share in shares
                ]
                lines.append(f"{strategy.name} {n} {m} {' '.join(texts)}\n")
    return "".join(lines)


def test_every_strategy_gives_what_the_java_classes_gave() -> None:
    """S14, S16 to S20: 1..12 queues by 1..12 consumers, all strategies, against the recorded table."""
    assert table().splitlines() == recorded().splitlines()


@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
def test_the_recorded_table_is_what_the_java_classes_give_today(version: str) -> None:
    """S14 to S20: the table is made anew by the classes of Maven Central, where they can be had."""
    assert or_missing(lambda: run_java(version)) == recorded()


def test_six_queues_and_four_consumers_are_shared_as_the_article_says() -> None:
    """E1: index 0 gets Q0 Q1, 1 gets Q2 Q3, 2 gets Q4, 3 gets Q5."""
    own = [MessageQueue("T", "b", i) for i in range(6)]
    members = ["C1", "C2", "C3", "C4"]
    shares = [[queue.queue_id for queue in averagely(own, members, member)] for member in members]
    assert shares == [[0, 1], [2, 3], [4], [5]]


SHARING = [
    averagely,
    averagely_by_circle,
    consistent_hash(),
    nearby(averagely),
    by_machine_room({"room0", "room1", "room2"}),
]


@pytest.mark.parametrize("strategy", SHARING, ids=lambda strategy: strategy.name)
@settings(deadline=None)
@given(n=st.integers(1, 40), m=st.integers(1, 60))
def test_every_queue_has_exactly_one_owner(strategy: AllocateStrategy, n: int, m: int) -> None:
    """S15: disjoint and complete; more consumers than queues: one each at most, the surplus none."""
    own, members = queues(n), consumers(m)
    shares = [strategy(own, members, member) for member in members]
    assert sorted(queue for share in shares for queue in share) == own
    if strategy.name == "AVG" and m >= n:
        assert all(len(share) <= 1 for share in shares)


def test_known_answers_of_eight_queues_and_three_consumers() -> None:
    """S14, S16, S20: the example of wire.md 9, the same with 4.9.7 and 5.5.0."""
    own = [MessageQueue("TopicTest", f"broker-{b}", i) for b in "ab" for i in range(4)]
    members = ["10.0.0.1@A", "10.0.0.2@B", "10.0.0.3@C"]

    def shares(strategy: AllocateStrategy) -> list[str]:
        return [
            " ".join(
                f"{queue.broker_name[-1]}{queue.queue_id}"
                for queue in strategy(own, members, member)
            )
            for member in members
        ]

    assert shares(averagely) == ["a0 a1 a2", "a3 b0 b1", "b2 b3"]
    assert shares(averagely_by_circle) == ["a0 a3 b2", "a1 b0 b3", "a2 b1"]
    assert shares(consistent_hash()) == ["a0 b0", "a2 b1", "a1 a3 b2 b3"]


def test_a_member_that_the_broker_does_not_list_gets_nothing() -> None:
    """S13: Java logs it as a bug and allocates nothing; only a configured list is given all the same."""
    own = queues(4)
    for strategy in strategies(own):
        expected = own[:2] if strategy.name == "CONFIG" else []
        assert strategy(own, ["other"], "me") == expected


def test_client_ids_are_ordered_as_java_orders_them() -> None:
    """S11: by UTF-16 units, so that a Python and a Java member compute from the same list."""
    members = ["\U0001f600", "￰", "b10", "b2"]
    assert sorted(members, key=sort_key) == ["b10", "b2", "\U0001f600", "￰"]


def test_a_room_that_cannot_be_named_is_the_resolvers_fault() -> None:
    """S19: as in Java, an empty room is refused, and the rebalance leaves everything as it is (S13)."""
    strategy = machine_room_nearby(averagely, lambda queue: "", lambda client_id: "r")
    with pytest.raises(IllegalArgument, match="machine room"):
        strategy(queues(2), ["me"], "me")
