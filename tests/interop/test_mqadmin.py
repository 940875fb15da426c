"""A working session with the official mqadmin, 4.9.7 and 5.5.0.

The commands are grouped as an operator uses them. test_mqadmin_compare.py holds the words of the
answers against those that the real broker gives.
"""

import json
import re
from pathlib import Path

import pytest

from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic, Shared
from tests.interop.driver import Queue, Session, message
from tests.interop.mqadmin import Mqadmin, Printed, mqadmin_process
from tests.kit.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}


@pytest.fixture
def admin(mqadmin: Mqadmin, broker: RunningBroker) -> Mqadmin:
    return mqadmin.at(broker.namesrv)


def five_at_the_real_one(admin: Mqadmin, broker: RunningBroker, code: int) -> None:
    """PocketMQ answers these 5.x codes so that both tools work; a real 4.9.7 does not know them."""
    if admin.version == "5.5.0" and broker.kind == "rocketmq":
        pytest.skip(f"mqadmin 5.5.0 asks code {code}, which RocketMQ 4.9.7 does not know")


def test_an_operator_creates_changes_shows_and_deletes_a_topic(
    admin: Mqadmin, broker: RunningBroker, java_498: Session, topic: str, group: str
) -> None:
    """updateTopic topicList topicRoute topicClusterList updateTopicPerm updateOrderConf deleteTopic"""
    made = admin("updateTopic", "-c", broker.cluster, "-t", topic, "-r", 3, "-w", 2)
    assert f"create topic to {broker.address} success" in made.out, made
    until(lambda: topic in admin("topicList").lines, "the topic in the list")
    listed = admin("topicList", "-c").rows
    assert [broker.cluster, topic] in [row[:2] for row in listed]
    route = _route(admin("topicRoute", "-t", topic).out)
    assert route["queueDatas"] == [
        {
            "brokerName": broker.broker_name,
            "perm": 6,
            "readQueueNums": 3,
            "topicSysFlag": 0,
            "writeQueueNums": 2,
        }
    ]
    [at] = route["brokerDatas"]
    assert at["brokerAddrs"] == {"0": broker.address}
    assert at["cluster"] == broker.cluster
    assert admin("topicClusterList", "-t", topic).lines == [broker.cluster]

    changed = admin("updateTopicPerm", "-b", broker.address, "-t", topic, "-p", 4)
    assert f"update topic perm from 6 to 4 in {broker.address} success" in changed.out, changed
    until(
        lambda: _route(admin("topicRoute", "-t", topic).out)["queueDatas"][0]["perm"] == 4,
        "the new permission in the route",
    )
    order = ("updateOrderConf", "-t", topic, "-m")
    assert "success" in admin(*order, "put", "-v", f"{broker.broker_name}:2").out
    assert f"orderConf=[{broker.broker_name}:2]" in admin(*order, "get").out
    assert "success" in admin(*order, "delete").out
    assert "CODE: 22" in admin(*order, "get").err

    gone = admin("deleteTopic", "-c", broker.cluster, "-t", topic)
    assert f"delete topic [{topic}] from cluster [{broker.cluster}] success" in gone.out, gone
    assert f"delete topic [{topic}] from NameServer success" in gone.out, gone
    assert topic not in admin("topicList").lines
    missing = admin("topicRoute", "-t", topic)
    assert missing.out.strip() == ""
    assert "CODE: 17" in missing.err


def test_an_operator_looks_at_a_topic_and_its_consumers(
    admin: Mqadmin,
    broker: RunningBroker,
    java_498: Session,
    make_topic: MakeTopic,
    topic: str,
    group: str,
) -> None:
    """consumerConnection consumerStatus producerConnection producer getConsumerConfig, S85 to S87"""
    make_topic(broker, topic)
    producer = java_498.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, f"m{i}", tags="A") for i in range(8)))
    consumer = java_498.push_consumer(broker.namesrv, group, {topic: "A || B"}, settings=FIRST)
    consumer.wait(8)
    client = f"@{consumer.name}"

    connection = until(
        lambda: _with(admin("consumerConnection", "-g", group).out, client), "the connection"
    )
    assert re.search(rf"\S+{client}\s+127\.0\.0\.1:\d+\s+JAVA\s+V4_9_8", connection)
    assert re.search(rf"^{topic}\s+A \|\| B$", connection, re.MULTILINE)
    assert re.search(rf"^%RETRY%{group}\s+\*$", connection, re.MULTILINE)
    for line in (
        "ConsumeType: CONSUME_PASSIVELY",
        "MessageModel: CLUSTERING",
        "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET",
    ):
        assert line in connection
    status = admin("consumerStatus", "-g", group).out
    assert client in status
    assert "Same subscription in the same group of consumer" in status
    assert "Rebalance OK" in status
    until(
        lambda: _with(
            admin("producerConnection", "-g", group + "-p", "-t", topic).out, f"@{producer.name}"
        ),
        "the producer's connection",
    )
    producers = admin("producer", "-b", broker.address).out
    assert re.search(
        rf"producer group \({group}-p\) instance : clientId=\S+@{producer.name}", producers
    )
    config = admin("getConsumerConfig", "-g", group)
    assert config.value("groupName") == group
    assert (config.value("retryMaxTimes"), config.value("retryQueueNums")) == ("16", "1")
    assert config.value("consumeEnable") == "true"

    for words in (
        ("consumerConnection", "-g", "no-such-group"),
        ("producerConnection", "-g", "no-such-group", "-t", topic),
    ):
        assert "CODE: " in admin(*words).err


def test_an_operator_follows_moves_and_copies_offsets(
    admin: Mqadmin,
    broker: RunningBroker,
    java_498: Session,
    make_topic: MakeTopic,
    topic: str,
    group: str,
) -> None:
    """topicStatus consumerProgress brokerConsumeStats resetOffsetByTime skipAccumulatedMessage

    cloneGroupOffset
    """
    five_at_the_real_one(admin, broker, 351)
    make_topic(broker, topic, queues=2)
    producer = java_498.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, f"m{i}") for i in range(6)))
    consumer = java_498.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    consumer.wait(6)
    consumer.persist_offsets()

    status = admin("topicStatus", "-t", topic)
    assert [row[:4] for row in status.rows if row[0] == broker.broker_name] == [
        [broker.broker_name, str(queue), "0", "3"] for queue in range(2)
    ]

    def progress(of: str = group) -> list[tuple[str, int, int]]:
        """Queue id, broker offset and consumer offset of each queue of the topic."""
        rows = [row for row in admin("consumerProgress", "-g", of).rows if row[0] == topic]
        return [(row[2], int(row[3]), int(row[4])) for row in rows]

    until(lambda: progress() == [("0", 3, 3), ("1", 3, 3)], "offsets at the end")
    summary = next(row for row in admin("consumerProgress").rows if row[0] == group)
    assert summary[1:5] == ["1", "V4_9_8", "PUSH", "CLUSTERING"]
    stats = admin("brokerConsumeStats", "-b", broker.address)
    mine = [row for row in stats.rows if row[:2] == [topic, group]]
    assert [row[2:7] for row in mine] == [
        [broker.broker_name, str(queue), "3", "3", "0"] for queue in range(2)
    ]

    # Online: the broker tells the consumers, and they begin again.
    admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", 0)
    java_498.driver.wait(lambda: len(consumer.consumed) >= 12, "everything once more", 60)
    consumer.close()

    # Offline: the tool writes the offsets itself.
    admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", 0)
    until(lambda: progress() == [("0", 3, 0), ("1", 3, 0)], "offsets at the start")
    admin("skipAccumulatedMessage", "-g", group, "-t", topic)
    until(lambda: progress() == [("0", 3, 3), ("1", 3, 3)], "offsets at the end again")
    copy = group + "-copy"
    admin("updateSubGroup", "-b", broker.address, "-g", copy)
    cloned = admin("cloneGroupOffset", "-s", group, "-d", copy, "-t", topic)
    assert f"clone group offset success. srcGroup[{group}], destGroup=[{copy}]" in cloned.out, (
        cloned
    )
    reader = java_498.pull_consumer(broker.namesrv, copy)
    assert reader.offset(Queue(topic, broker.broker_name, 0)) == 3


def test_an_operator_manages_groups(
    admin: Mqadmin, broker: RunningBroker, java_498: Session, topic: str, group: str
) -> None:
    """updateSubGroup getConsumerConfig deleteSubGroup"""
    made = admin("updateSubGroup", "-c", broker.cluster, "-g", group, "-r", 3, "-q", 2)
    assert f"create subscription group to {broker.address} success" in made.out, made
    config = until(
        lambda: _with_value(admin, group), "the group's configuration", ignoring=KeyError
    )
    assert (config.value("retryMaxTimes"), config.value("retryQueueNums")) == ("3", "2")
    gone = admin("deleteSubGroup", "-c", broker.cluster, "-g", group)
    assert f"delete subscription group [{group}]" in gone.out, gone
    assert "success" in gone.out
    with pytest.raises(KeyError):
        admin("getConsumerConfig", "-g", group).value("groupName")


def test_an_operator_finds_a_message_in_every_way(
    admin: Mqadmin,
    broker: RunningBroker,
    java_498: Session,
    make_topic: MakeTopic,
    topic: str,
    group: str,
) -> None:
    """queryMsgById queryMsgByKey queryMsgByUniqueKey queryMsgByOffset queryCq

    printMsg printMsgByQueue consumeMessage
    """
    make_topic(broker, topic)
    producer = java_498.producer(broker.namesrv, group)
    sent = producer.send(
        *(message(topic, f"body {i}", tags="AB"[i % 2], keys=f"k{i}") for i in range(4))
    )
    one = sent[2]
    ways = [
        ("queryMsgByUniqueKey", "-i", one.msg_id, "-t", topic),
        ("queryMsgByOffset", "-t", topic, "-b", one.broker, "-i", one.queue, "-o", one.offset),
        ("queryMsgById", "-i", one.offset_msg_id)
        + (("-t", topic) if admin.version.startswith("5") else ()),
    ]
    for words in ways:
        shown = until(lambda words=words: _shown(admin, words), f"{words}", ignoring=KeyError)  # type: ignore[misc]
        assert shown.value("Topic") == topic
        assert shown.value("Tags") == "[A]"
        assert shown.value("Keys") == "[k2]"
        assert shown.value("Queue ID") == str(one.queue)
        assert shown.value("Queue Offset") == str(one.offset)
        assert shown.value("Store Host") == broker.address
    by_key = admin("queryMsgByKey", "-t", topic, "-k", "k2")
    assert [row[:3] for row in by_key.rows] == [[one.msg_id, str(one.queue), str(one.offset)]]

    queue_data = admin("queryCq", "-t", topic, "-q", one.queue, "-i", 0, "-c", 3).out
    assert "max: 1, min: 0" in queue_data
    assert f"physicOffset={int(one.offset_msg_id[16:], 16)}" in queue_data
    assert "tagsCode=65" in queue_data
    printed = admin("printMsg", "-t", topic, "-d", "true").out
    assert sorted(re.findall(r"BODY: (.*)", printed)) == [f"body {i}" for i in range(4)]
    tagged = admin("printMsg", "-t", topic, "-s", "B").out
    assert sorted(re.findall(r"BODY: (.*)", tagged)) == ["body 1", "body 3"]
    of_queue = admin(
        "printMsgByQueue",
        "-t",
        topic,
        "-a",
        one.broker,
        "-i",
        one.queue,
        "-p",
        "true",
        "-d",
        "true",
    ).out
    assert re.findall(r"BODY: (.*)", of_queue) == ["body 2"]
    eaten = admin(
        "consumeMessage", "-t", topic, "-b", one.broker, "-i", one.queue, "-o", 0, "-c", 1
    ).out
    assert "Consume ok" in eaten
    assert re.findall(r"BODY: (.*)", eaten) == ["body 2"]


def test_an_operator_sends(
    admin: Mqadmin,
    broker: RunningBroker,
    java_498: Session,
    make_topic: MakeTopic,
    topic: str,
    group: str,
) -> None:
    """sendMessage sendMsgStatus checkMsgSendRT"""
    make_topic(broker, topic, queues=2)
    sent = admin("sendMessage", "-t", topic, "-p", "by the operator", "-k", "kk", "-c", "TT")
    [[broker_name, queue, result, msg_id]] = sent.rows
    assert (broker_name, result) == (broker.broker_name, "SEND_OK")
    puller = java_498.pull_consumer(broker.namesrv, group)
    [got] = puller.pull(Queue(topic, broker_name, int(queue)), 0).messages
    assert (got.text, got.keys, got.tags, got.msg_id) == ("by the operator", "kk", "TT", msg_id)
    status = admin("sendMsgStatus", "-b", broker.broker_name, "-s", 64, "-c", 2)
    assert status.out.count("sendStatus=SEND_OK") == 2
    times = admin("checkMsgSendRT", "-t", topic, "-a", 2, "-s", 16)
    assert [row[2] for row in times.rows if row[0] == broker.broker_name] == ["true", "true"]


def test_an_operator_looks_at_the_cluster(
    admin: Mqadmin, broker: RunningBroker, tmp_path: Path
) -> None:
    """clusterList brokerStatus getBrokerConfig getNamesrvConfig allocateMQ exportConfigs exportMetadata"""
    [row] = admin("clusterList").rows
    assert row[:4] == [broker.cluster, broker.broker_name, "0", broker.address]
    assert re.fullmatch(r"V\d+_\d+_\d+", row[4])
    more = admin("clusterList", "-m").rows
    assert row[:2] in [each[:2] for each in more]

    status = admin("brokerStatus", "-b", broker.address)
    assert status.value("brokerVersionDesc") == row[4]
    assert int(status.value("commitLogMaxOffset")) > 0
    assert re.fullmatch(r"(\d+\.\d+( |$)){0,3}", status.value("putTps"))
    assert int(status.value("bootTimestamp")) > 1_600_000_000_000
    assert status.value("runtime").startswith("[ 0 days,")
    by_cluster = admin("brokerStatus", "-c", broker.cluster).out
    assert f"{broker.address} " in by_cluster

    config = admin("getBrokerConfig", "-b", broker.address)
    assert config.value("brokerName") == broker.broker_name
    assert config.value("listenPort") == str(broker.port)
    assert config.value("mappedFileSizeCommitLog") == str(broker.config["mappedFileSizeCommitLog"])
    assert config.value("flushDiskType") == "ASYNC_FLUSH"
    for command in ("exportConfigs", "exportMetadata"):
        admin(command, "-c", broker.cluster, "-f", tmp_path)
    exported = json.loads((tmp_path / "configs.json").read_text(encoding="utf-8"))
    assert exported["brokerConfigs"][broker.broker_name]["brokerId"] == "0"
    assert json.loads((tmp_path / "metadata.json").read_text(encoding="utf-8"))["topicConfigTable"]
    names = admin("getNamesrvConfig")
    assert names.value("listenPort") == str(broker.namesrv_port)
    allocated = admin("allocateMQ", "-t", broker.cluster, "-i", "10.0.0.1@A,10.0.0.2@B").out
    result = json.loads(allocated)["result"]
    assert {each: len(queues) for each, queues in result.items()} == {
        "10.0.0.1@A": 8,
        "10.0.0.2@B": 8,
    }


def test_an_operator_changes_the_brokers_configuration(
    admin: Mqadmin, broker: RunningBroker
) -> None:
    """updateBrokerConfig takes effect at once; an unknown key changes nothing."""
    for value in ("321", "500"):
        changed = admin(
            "updateBrokerConfig", "-b", broker.address, "-k", "flushIntervalCommitLog", "-v", value
        )
        assert f"update broker config success, {broker.address}" in changed.out, changed
        shown = admin("getBrokerConfig", "-b", broker.address)
        assert shown.value("flushIntervalCommitLog") == value


def test_an_operator_takes_a_broker_out_of_service_and_back(
    admin: Mqadmin, broker: RunningBroker, make_topic: MakeTopic, topic: str
) -> None:
    """wipeWritePerm addWritePerm: every topic of the broker, in the name server only."""
    make_topic(broker, topic)
    wiped = admin("wipeWritePerm", "-b", broker.broker_name)
    count = _count(wiped.out)
    assert count > 5, wiped
    assert _route(admin("topicRoute", "-t", topic).out)["queueDatas"][0]["perm"] == 4
    added = admin("addWritePerm", "-b", broker.broker_name)
    assert _count(added.out) == count, added
    assert _route(admin("topicRoute", "-t", topic).out)["queueDatas"][0]["perm"] == 6


def test_an_operator_keeps_house(admin: Mqadmin, broker: RunningBroker) -> None:
    """updateKvConfig deleteKvConfig cleanExpiredCQ cleanUnusedTopic deleteExpiredCommitLog"""
    words = ("-s", "OUR_NAMESPACE", "-k", "a key")
    assert (
        "create or update kv config to namespace success."
        in admin("updateKvConfig", *words, "-v", "v").out
    )
    assert "delete kv config from namespace success." in admin("deleteKvConfig", *words).out
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        for where in (("-b", broker.address), ("-c", broker.cluster)):
            assert admin(command, *where).lines == ["success"], command


def test_statistics_count_what_was_sent_and_consumed(
    admin: Mqadmin,
    broker: RunningBroker,
    java_498: Session,
    make_topic: MakeTopic,
    topic: str,
    group: str,
) -> None:
    """statsAll: messages in and out of a topic and group, sampled every 10 s."""
    if admin.version != "4.9.7":
        pytest.skip("both versions ask the same codes; one waits for the sampling")
    make_topic(broker, topic)
    producer = java_498.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, f"m{i}") for i in range(8)))
    consumer = java_498.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    consumer.wait(8)

    def counted() -> bool:
        rows = [row for row in admin("statsAll", "-t", topic).rows if row[:2] == [topic, group]]
        return bool(rows) and rows[0][5:7] == ["8", "8"]

    until(counted, "8 messages in and 8 out", within_s=90)


def test_the_send_time_of_a_cluster_is_printed_again_and_again(
    broker: RunningBroker, shared: Shared
) -> None:
    """clusterRT never ends, hence in a process of its own: mqadmin as it is started by hand."""
    words = ["clusterRT", "-a", "3", "-s", "16", "-i", "1", "-n", broker.namesrv]
    process = mqadmin_process("4.9.7", shared.folder / f"rt-{broker.kind}", words)
    try:
        line = process.wait_for_line(broker.cluster)
    finally:
        process.kill()
    assert line.split()[1] == broker.broker_name
    assert line.split()[3:] == ["3", "0"]


def _route(printed: str) -> dict[str, list[dict[str, object]]]:
    """The JSON that topicRoute prints; its map keys are bare numbers."""
    quoted = re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', printed)
    found: dict[str, list[dict[str, object]]] = json.loads(quoted)
    return found


def _with(text: str, part: str) -> str:
    assert part in text, text
    return text


def _with_value(admin: Mqadmin, group: str) -> Printed:
    printed = admin("getConsumerConfig", "-g", group)
    printed.value("groupName")
    return printed


def _shown(admin: Mqadmin, words: tuple[object, ...]) -> Printed:
    printed = admin(str(words[0]), *words[1:])
    printed.value("Topic")
    return printed


def _count(printed: str) -> int:
    found = re.search(r"OK, (\d+)", printed)
    assert found, printed
    return int(found.group(1))
