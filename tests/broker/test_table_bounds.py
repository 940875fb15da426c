"""Tables that clients fill by using new names: bounded, with a clear refusal, and no loss for others."""

from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.groups.unused_groups import delete_unused_groups, unused_groups
from pocketmq.model.names import retry_topic
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.store import ConfigFile
from tests.broker.serving import Peer, serving

UPDATE = RequestCode.UPDATE_CONSUMER_OFFSET


def table(folder: Path, size: int) -> ConsumerOffsetManager:
    return ConsumerOffsetManager(ConfigFile(str(folder / "offsets.json")), None, lambda: size)


def test_a_full_offset_table_updates_rows_but_adds_none(tmp_path: Path) -> None:
    """1,500 bytes for a group and topic, and 150 for each queue."""
    offsets = table(tmp_path, 1_650 + 1_950)
    offsets.commit("a", "T", 0, 1, "test")
    for queue_id in range(3):
        offsets.commit("b", "T", queue_id, 1, "test")
    for group, queue_id in (("b", 3), ("c", 0), ("a", 1)):
        with pytest.raises(IllegalArgument, match="raise consumerOffsetTableSize"):
            offsets.commit(group, "T", queue_id, 1, "test")
    offsets.commit("a", "T", 0, 7, "test")
    assert (offsets.query("a", "T", 0), offsets.groups()) == (7, {"a", "b"})
    offsets.remove_group("a")
    offsets.commit("c", "T", 0, 1, "test")
    assert offsets.groups() == {"b", "c"}


def test_members_have_room_where_other_clients_have_none(tmp_path: Path) -> None:
    offsets = table(tmp_path, 10_000)
    for number in range(3):
        offsets.set_by_hand(f"g{number}", "T", 0, 1, "stranger")
    with pytest.raises(IllegalArgument):
        offsets.set_by_hand("g3", "T", 0, 1, "stranger")
    offsets.commit("member", "T", 0, 1, "member")
    # What a master has told is counted, too.
    offsets.offsets.update({f"T@h{number}": {0: 1} for number in range(5)})
    offsets.to_json()
    with pytest.raises(IllegalArgument):
        offsets.commit("late", "T", 0, 1, "member")


async def test_strangers_fill_no_table_for_ever(tmp_path: Path) -> None:
    """A pull of a member is served although its own new offset has no room."""
    how: dict[str, Any] = {
        "auto_create_subscription_group_max": 30,
        "consumer_offset_table_size": 1 << 20,
    }
    async with serving(tmp_path, **how) as broker:
        tables, store = broker.parts.tables, broker.parts.messages.store
        consumers = broker.parts.members.consumers
        tables.groups.update(GroupConfig("configured", retry_max_times=3))
        tables.topics.update(TopicConfig("T", 4, 4))
        async with await Peer.at(broker) as peer:
            await peer.produce("T", b"kept")
            for number in range(2_000):
                peer.send(
                    UPDATE,
                    {"consumerGroup": f"s{number}", "topic": "T", "queueId": 0, "commitOffset": 1},
                )
            codes = [(await peer.next()).code for _ in range(2_000)]
            assert codes.count(0) == (1 << 19) // 1_650
            async with await Peer.at(broker) as other:
                for number in range(50):
                    await other.heartbeat(f"g{number}", {"T": "*"}, client_id=f"c{number}")
            assert len(tables.groups.groups) == 30
            answer = await peer.pull("not-there", "T", 0)
            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            # By hand there is room.
            tables.groups.update(GroupConfig("by-hand"))
            tables.offsets.commit("g1", "T", 0, 1, "test")
            await peer.heartbeat("g2", {"T": "*"})
        unused = set(unused_groups(tables, consumers, store))
        assert "g0" in unused
        assert not {"g1", "configured"} & unused
        assert retry_topic("g0") in tables.topics.topics
        count = delete_unused_groups(tables, consumers, store)
        assert count == len(unused)
        assert retry_topic("g0") not in tables.topics.topics
        assert retry_topic("g1") in tables.topics.topics
        assert "g1" in tables.groups.groups


async def test_sends_create_no_more_topics_than_are_allowed(tmp_path: Path) -> None:
    """Nor retry topics, which are created even where topics are not."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        topics = broker.parts.tables.topics
        broker.config.auto_create_topic_max = len(topics.topics) + 2
        names = [f"T{number}" for number in range(4)] + ["%RETRY%g"]
        answers = [await peer.produce(name) for name in names]
        assert [each.code for each in answers] == [0, 0, *[ResponseCode.TOPIC_NOT_EXIST] * 3]
        assert "autoCreateTopicMax" in (answers[-1].remark or "")
        topics.update(TopicConfig("T3", 4, 4))
        assert [(await peer.produce(name)).code for name in ("T0", "T3")] == [0, 0]
