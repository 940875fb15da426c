"""What mqadmin asked real brokers is asked ours: same code, same remark, same shape of the answer.

The recordings bring the questions and the real answers; the topics, groups and offsets that they speak of
are put into a broker of ours first.
"""

import re
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode, Version
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.store import StoreConfig
from tests.namesrv.recordings import Exchange, exchanges, recordings

BORN = b"\x7f\0\0\1\0\0\0\1"
# Sending, pulling and membership are judged elsewhere.
NOT_ADMIN = {10, 11, 14, 15, 34, 35, 36, 38, 310}
# Tables whose keys are data: topics, groups, queues.
_DATA_KEYS = {"offsetTable", "topicConfigTable", "subscriptionGroupTable", "consumeStatsList"}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    config = BrokerConfig(
        broker_name="golden-a", broker_cluster_name="GoldenCluster", listen_port=0
    )
    store = StoreConfig(store_path_root_dir=str(tmp_path))
    async with Broker(config, store, clock=SystemClock()) as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    async with RemotingClient({}, SystemClock()) as connected:
        yield connected


def recorded_topics(name: str) -> Iterator[TopicConfig]:
    """The topics that the recorded broker told its name server."""
    for exchange in exchanges(name):
        if exchange.request.code == RequestCode.REGISTER_BROKER and exchange.request.body:
            table = fastjson.loads(exchange.request.body)["topicConfigSerializeWrapper"]
            for row in table["topicConfigTable"].values():
                yield TopicConfig.from_json(row)


def prepare(broker: Broker, name: str) -> None:
    """Topics, groups, offsets and a few messages of the recording."""
    for topic in recorded_topics(name):
        if broker.parts.tables.topics.get(topic.topic) is None:
            broker.parts.tables.topics.update(topic)
    for queue_id in range(4):
        for place in range(20):
            broker.parts.messages.store.append(
                "WtTopic",
                queue_id,
                b"hello %d" % place,
                b"KEYS\x01k1 k2\x02UNIQ_KEY\x01%032d\x02TAGS\x01TagA" % place,
                0,
                0,
                1,
                BORN,
            )
    broker.parts.messages.stats.put_counter("WtTopic", 0).nums += 20
    for exchange in exchanges(name, "broker"):
        answer = exchange.answer
        if answer is None or answer.code or not answer.body:
            continue
        if exchange.request.code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
            for row in fastjson.loads(answer.body)["subscriptionGroupTable"].values():
                broker.parts.tables.groups.update(GroupConfig.from_json(row))
        if exchange.request.code == RequestCode.GET_CONSUME_STATS:
            group = (exchange.request.ext or {})["consumerGroup"]
            for queue, row in fastjson.loads(answer.body)["offsetTable"].items():
                broker.parts.tables.offsets.commit(
                    group, queue.get("topic"), queue.get("queueId"), row["consumerOffset"], "test"
                )
        if exchange.request.code == RequestCode.GET_BROKER_CONSUME_STATS:
            for row in fastjson.loads(answer.body)["consumeStatsList"]:
                for group, tables in row.items():
                    broker.parts.tables.groups.update(GroupConfig(group))
                    for queue in (queue for table in tables for queue in table["offsetTable"]):
                        broker.parts.tables.offsets.commit(
                            group, queue.get("topic"), queue.get("queueId"), 1, "test"
                        )
        if exchange.request.code == RequestCode.QUERY_TOPIC_CONSUME_BY_WHO:
            consumed = (exchange.request.ext or {})["topic"]
            for group in fastjson.loads(answer.body)["groupList"]:
                broker.parts.tables.offsets.commit(group, consumed, 0, 1, "test")
                broker.parts.messages.stats.get_counter(group, consumed, 0).nums += 1


def shape(value: Any, name: str = "") -> Any:
    """What an answer looks like: names of fields and kinds of values, not how many and which."""
    if isinstance(value, fastjson.ObjectKey):
        return shape(dict(value))
    if isinstance(value, dict):
        if name in _DATA_KEYS or any(not isinstance(key, str) for key in value):
            return {
                "<key>": merged(shape(key) for key in value),
                "<value>": merged(shape(item) for item in value.values()),
            }
        return {key: shape(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return {"<item>": merged(shape(item, name) for item in value)}
    return type(value).__name__


def merged(shapes: Iterable[Any]) -> Any:
    """One shape that has every field of these; None of nothing."""
    found: Any = None
    for each in shapes:
        if isinstance(found, dict) and isinstance(each, dict):
            keys = found.keys() | each.keys()
            found = {k: merged(s[k] for s in (found, each) if k in s) for k in keys}
        elif found is None:
            found = each
    return found


def covers(ours: Any, theirs: Any) -> bool:
    """Whether every field of theirs is in ours with the same kind of value."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return all(key in ours and covers(ours[key], item) for key, item in theirs.items())
    return bool(ours == theirs or theirs is None)


def admin_exchanges(name: str) -> list[Exchange]:
    return [
        exchange
        for exchange in exchanges(name, "broker")
        if exchange.request.code not in NOT_ADMIN and exchange.answer is not None
    ]


def is_json(exchange: Exchange) -> bool:
    assert exchange.answer is not None
    return bytes(exchange.answer.body[:1]) == b"{"


@pytest.mark.parametrize("name", [n for n in recordings("b497-mqadmin") if admin_exchanges(n)])
async def test_recorded_questions_of_mqadmin_4_9_7_get_answers_of_the_same_shape(
    broker: Broker, client: RemotingClient, name: str
) -> None:
    """With RocketMQ's response codes and remarks."""
    prepare(broker, name)
    compared = set()
    for exchange in admin_exchanges(name):
        theirs = exchange.answer
        assert theirs is not None
        request = copy(exchange.request)
        ours = await client.invoke(broker.address, request, 30_000)
        assert ours.code == theirs.code, exchange
        assert ours.remark == theirs.remark, exchange
        assert (ours.ext or {}).keys() == (theirs.ext or {}).keys(), exchange
        assert bool(ours.body) == bool(theirs.body), exchange
        if is_json(exchange):
            assert covers(shape(fastjson.loads(ours.body)), shape(fastjson.loads(theirs.body))), (
                exchange
            )
        compared.add(exchange.request.code)
    assert compared


def copy(request: RemotingCommand) -> RemotingCommand:
    """The recorded request, to be sent over a connection of ours."""
    return RemotingCommand(
        request.code,
        None if request.ext is None else dict(request.ext),
        bytes(request.body),
        language=request.language,
        version=request.version,
        encoding=request.encoding,
    )


@pytest.mark.parametrize("name", [n for n in recordings("b550-mqadmin") if admin_exchanges(n)])
async def test_recorded_questions_of_mqadmin_5_5_0_are_answered_or_refused_in_words(
    broker: Broker, client: RemotingClient, name: str
) -> None:
    """The 4.9 face: what 4.9 has is answered with what 5.5 shows, the rest is code 3."""
    prepare(broker, name)
    for exchange in admin_exchanges(name):
        theirs = exchange.answer
        assert theirs is not None
        ours = await client.invoke(broker.address, copy(exchange.request), 30_000)
        if ours.code == 3:
            assert ours.remark == f" request type {exchange.request.code} not supported"
            continue
        assert ours.code == theirs.code, exchange
        if is_json(exchange) and ours.body and exchange.request.version >= Version.V5_0_0:
            missing = {
                field
                for field in fastjson.loads(theirs.body)
                if field not in fastjson.loads(ours.body)
            }
            # Static topics are 5.x's.
            assert all("apping" in field for field in missing), exchange


async def test_every_key_of_the_runtime_information_is_there_and_parses(
    broker: Broker, client: RemotingClient
) -> None:
    """wire.md 2.9: clusterList and the dashboard read these texts as numbers from the first second."""
    answer = await client.invoke(
        broker.address, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO), 30_000
    )
    table = fastjson.loads(answer.body)["table"]
    rates = [name for name in table if name.endswith("Tps") and not name.startswith("timer")]
    assert len(rates) == 6
    for name in rates:
        assert len([float(word) for word in table[name].split(" ")]) == 3
    for name in ("bootTimestamp", "msgPutTotalTodayNow", "commitLogMaxOffset", "brokerVersion"):
        assert int(table[name]) >= 0
    assert re.fullmatch(r"\[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds \]", table["runtime"])
    assert re.fullmatch(r"Total : [\d.]+ [KMGT]iB, Free : .*\.", table["commitLogDirCapacity"])
    assert 0 <= float(table["commitLogDiskRatio"]) <= 1
    assert table["brokerVersionDesc"] == "V4_9_7"
    levels = [name for name in table if name.startswith("scheduleMessageOffset_")]
    assert all(re.fullmatch(r"\d+,\d+", table[name]) for name in levels)
