"""config/*.json: files of real brokers are taken over whole, broken entries cost only themselves."""

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.events import Events
from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.groups.subscription_group import SubscriptionGroupManager
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.model.names import BUILT_IN_GROUPS
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import ManualClock
from pocketmq.store import ConfigFile, OffsetFile
from tests.broker.serving import serving

STORES = Path(__file__).parents[1] / "golden" / "data" / "stores"
ARCHIVES = sorted(path.name for path in STORES.glob("*.tar.gz"))


def tables(archive: str) -> dict[str, bytes]:
    """The config files of a recorded store, by their name."""
    found: dict[str, bytes] = {}
    with tarfile.open(STORES / archive) as tar:
        for member in tar:
            path = Path(member.name)
            if path.parent.name == "config" and path.suffix == ".json":
                file = tar.extractfile(member)
                if file is not None:
                    found[path.name] = file.read()
    return found


def topics_of(path: Path, events: Events | None = None) -> TopicConfigManager:
    config = BrokerConfig(broker_name="b")
    return TopicConfigManager(ConfigFile(str(path)), config, ManualClock(), events)


def groups_of(path: Path, **settings: Any) -> SubscriptionGroupManager:
    config = BrokerConfig(broker_name="b", **settings)
    return SubscriptionGroupManager(ConfigFile(str(path)), config, ManualClock())


@pytest.mark.parametrize("archive", ARCHIVES)
def test_the_tables_of_a_real_broker_come_back_as_they_were(archive: str, tmp_path: Path) -> None:
    """Loaded, saved by us and loaded again: every topic, group and offset, and both versions."""
    files = tables(archive)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    compared = 0
    if "topics.json" in files:
        real = fastjson.loads(files["topics.json"])
        topics = topics_of(tmp_path / "topics.json")
        topics.load()
        topics.persist()
        again = topics_of(tmp_path / "topics.json")
        again.load()
        assert again.topics == topics.topics
        assert again.data_version.counter == real["dataVersion"]["counter"]
        assert again.data_version.timestamp == real["dataVersion"]["timestamp"]
        for topic, fields in real["topicConfigTable"].items():
            ours = again.topics[topic].to_json()
            assert {**ours, "attributes": ours.get("attributes", {})} == {
                "attributes": {},
                **fields,
            }
            compared += 1
    if "subscriptionGroup.json" in files:
        real = fastjson.loads(files["subscriptionGroup.json"])
        groups = groups_of(tmp_path / "subscriptionGroup.json")
        groups.load()
        groups.persist()
        kept = groups_of(tmp_path / "subscriptionGroup.json")
        kept.load()
        for group, fields in real["subscriptionGroupTable"].items():
            assert kept.groups[group].to_json() == fields
            compared += 1
    if "consumerOffset.json" in files:
        real = fastjson.loads(files["consumerOffset.json"])
        offsets = ConsumerOffsetManager(ConfigFile(str(tmp_path / "consumerOffset.json")))
        offsets.load()
        for key, queues in real["offsetTable"].items():
            assert offsets.offsets[key] == {int(queue): offset for queue, offset in queues.items()}
            compared += 1
    assert compared or not files


# As brokers 4.9.7 and 5.3.3 with enableLmq=true write it.
LMQ = """{
\t"lmqOffsetTable":{"%LMQ%a@%LMQ%a":3},
\t"offsetTable":{
\t\t"TA@GB-_|x":{3:0
\t\t},
\t\t"TA@GA":{0:5,1:7
\t\t}
\t}
}"""


def loaded_offsets(folder: Path) -> ConsumerOffsetManager:
    offsets = ConsumerOffsetManager(OffsetFile(str(folder)))
    offsets.load()
    return offsets


def test_a_broker_with_light_queues_keeps_the_offsets_of_all_groups_in_another_file(
    tmp_path: Path,
) -> None:
    """Without them, groups began as new ones do. Whichever file RocketMQ reads later is up to date."""
    (tmp_path / "lmqConsumerOffset.json").write_text(LMQ)
    offsets = loaded_offsets(tmp_path)
    assert offsets.offsets == {"TA@GB-_|x": {3: 0}, "TA@GA": {0: 5, 1: 7}}
    offsets.commit("GA", "TA", 0, 9, "here")
    offsets.begin_save()()
    for name in ("lmqConsumerOffset.json", "consumerOffset.json"):
        table = fastjson.loads((tmp_path / name).read_bytes())
        assert table["offsetTable"]["TA@GA"] == {"0": 9, "1": 7}
    assert fastjson.loads((tmp_path / "lmqConsumerOffset.json").read_bytes())["lmqOffsetTable"] == {
        "%LMQ%a@%LMQ%a": 3
    }
    assert loaded_offsets(tmp_path).query("GA", "TA", 0) == 9


@pytest.mark.parametrize(("lmq_is_older", "offset"), [(True, 1), (False, 5)])
def test_of_two_files_of_offsets_the_newer_one_counts(
    tmp_path: Path, lmq_is_older: bool, offset: int
) -> None:
    """The setting was changed: RocketMQ leaves the other file as it was."""
    (tmp_path / "consumerOffset.json").write_text('{"offsetTable":{"TA@GA":{0:1}}}')
    lmq = tmp_path / "lmqConsumerOffset.json"
    lmq.write_text(LMQ)
    written = (tmp_path / "consumerOffset.json").stat().st_mtime
    os.utime(lmq, (written, written - 60 if lmq_is_older else written + 60))
    assert loaded_offsets(tmp_path).query("GA", "TA", 0) == offset


def test_without_light_queues_there_is_one_file_of_offsets(tmp_path: Path) -> None:
    offsets = loaded_offsets(tmp_path / "new")
    offsets.commit("GA", "TA", 0, 9, "here")
    offsets.persist()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["consumerOffset.json"]


async def test_a_broker_takes_the_offsets_of_a_store_with_light_queues(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "lmqConsumerOffset.json").write_text(LMQ)
    async with serving(tmp_path) as broker:
        assert broker.parts.tables.offsets.groups_of("TA") == {"GA", "GB-_|x"}


def test_a_broken_entry_is_left_out_and_the_rest_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names it; nothing else is lost."""
    good = TopicConfig("Good", 2, 2).to_json()
    broken = {"Good": good, "A": [], "B": 7, "C": {"topicName": "C", "perm": "x"}}
    path = tmp_path / "topics.json"
    path.write_text(json.dumps({"topicConfigTable": broken, "dataVersion": {"counter": "x"}}))
    topics = topics_of(path)
    topics.load()
    assert topics.get("Good") == TopicConfig("Good", 2, 2)
    assert topics.get("A") is topics.get("B") is topics.get("C") is None
    topics.update(TopicConfig("B", 3, 3))
    stored = fastjson.loads(path.read_bytes())["topicConfigTable"]
    assert (stored["A"], stored["B"]["perm"], stored["C"]) == ([], 6, broken["C"])
    path = tmp_path / "subscriptionGroup.json"
    table = {"g": {"groupName": "g", "retryMaxTimes": 3}, "h": [], "i": {"consumeEnable": "never"}}
    path.write_text(json.dumps({"subscriptionGroupTable": table}))
    groups = groups_of(path)
    groups.load()
    assert groups.groups["g"] == GroupConfig("g", retry_max_times=3)
    assert set(groups.groups) == {*BUILT_IN_GROUPS, "g"}
    path = tmp_path / "consumerOffset.json"
    path.write_text('{"offsetTable":{"T@g":{0:7,1:8},"T@h":7,"T@i":{"x":1},"T@j":{0:null,1:2}}}')
    offsets = ConsumerOffsetManager(ConfigFile(str(path)))
    offsets.load()
    assert offsets.offsets == {"T@g": {0: 7, 1: 8}, "T@j": {1: 2}}
    for name in ("A", "B", "C"):
        assert f"topics.json: skipped a row that cannot be read row={name}" in caplog.text


def test_a_table_that_a_power_cut_emptied_is_missed_aloud(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """RocketMQ starts in silence; groups then begin where new ones do."""
    file = ConfigFile(str(tmp_path / "consumerOffset.json"))
    assert file.load() is None
    assert not caplog.records
    (tmp_path / "consumerOffset.json").touch()
    assert file.load() is None
    assert "starting without what it held path=" in caplog.text


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_table_that_was_edited_by_hand_is_read_as_rocketmq_reads_it(
    tmp_path: Path, mark: str
) -> None:
    """fastjson takes comments, a byte order mark, zeros behind the text, and values of another type; the
    name inside a row is not needed."""
    path = tmp_path / "topics.json"
    text = """{ // by hand
        "topicConfigTable": {"A": {"readQueueNums": "3", "writeQueueNums": null, "perm": "", "order": 1},
        /* copied * from A */ "B": {"topicName": "A", "order": "true", "topicSysFlag": null}}}"""
    path.write_bytes((mark + text).encode() + bytes(20))
    topics = topics_of(path)
    topics.load()
    assert topics.get("A") == TopicConfig("A", 3, 16, order=True)
    assert topics.get("B") == TopicConfig("B", order=True)
    path = tmp_path / "subscriptionGroup.json"
    rows = {
        "g": {"consumeEnable": "false", "retryMaxTimes": None},
        "h": {"consumeBroadcastEnable": 0},
    }
    path.write_text(mark + json.dumps({"subscriptionGroupTable": rows}), encoding="utf-8")
    groups = groups_of(path)
    groups.load()
    assert groups.groups["g"] == GroupConfig("g", consume_enable=False)
    assert groups.groups["h"] == GroupConfig("h", consume_broadcast_enable=False)


@pytest.mark.parametrize(
    "text", ['{"a":1}/', '{"a":1/*', '/*{"a":1}', '{"a"://}\n', "\ufeff", "//"]
)
def test_half_a_comment_is_no_json(text: str) -> None:
    with pytest.raises(fastjson.FastjsonError):
        fastjson.loads(text)


def test_a_group_is_made_once_and_only_when_it_may_be(tmp_path: Path) -> None:
    """autoCreateSubscriptionGroup; a legal name; the system's groups always."""
    path = tmp_path / "subscriptionGroup.json"
    groups = groups_of(path)
    assert groups.get("g") is None
    made = groups.find("g")
    assert made == GroupConfig("g")
    assert groups.find("g") is made
    assert groups.data_version.counter == 1
    assert groups.find("a/b") is groups.find("") is groups.find("g" * 256) is None
    closed = groups_of(path, auto_create_subscription_group=False)
    assert closed.find("g") is None
    assert closed.find("CID_RMQ_SYS_X") is not None


def offsets_in(tmp_path: Path) -> ConsumerOffsetManager:
    offsets = ConsumerOffsetManager(ConfigFile(str(tmp_path / "consumerOffset.json")))
    for group, topic, queue_id, offset in (
        ("g", "T", 0, 5),
        ("g", "T", 1, 9),
        ("g", "U", 0, 1),
        ("h", "T", 0, 3),
    ):
        offsets.commit(group, topic, queue_id, offset, "test")
    return offsets


def test_offsets_are_asked_by_group_and_by_topic(tmp_path: Path) -> None:
    offsets = offsets_in(tmp_path)
    assert offsets.topics_of("g") == {"T", "U"}
    assert offsets.groups_of("T") == {"g", "h"}
    assert offsets.of_topic("g", "T") == {0: 5, 1: 9}
    assert offsets.query("g", "T", 7) == offsets.query("x", "T", 0) == -1
    offsets.clone("g", "new", "T")
    assert offsets.of_topic("new", "T") == {0: 5, 1: 9}
    offsets.commit("new", "T", 0, 6, "test")
    assert offsets.query("g", "T", 0) == 5
    offsets.remove_topic("T")
    assert set(offsets.offsets) == {"U@g"}
    offsets.remove_group("g")
    assert offsets.offsets == {}


def test_the_lowest_offset_of_all_groups_leaves_out_what_was_asked(tmp_path: Path) -> None:
    """QUERY_CORRECTION_OFFSET; RocketMQ deletes the offsets of the groups it should only skip."""
    offsets = offsets_in(tmp_path)
    low = {"T": 0}
    assert offsets.min_in_all_groups("T", lambda topic, queue: low[topic], None) == {0: 3, 1: 9}
    assert offsets.min_in_all_groups("T", lambda topic, queue: low[topic], "h") == {0: 5, 1: 9}
    low["T"] = 4
    assert offsets.min_in_all_groups("T", lambda topic, queue: low[topic], None) == {0: 5, 1: 9}
    assert offsets.query("h", "T", 0) == 3


def test_order_topics_are_set_and_cleared_without_telling_anybody(tmp_path: Path) -> None:
    """It is the name server that said so; the change is kept."""
    told: list[object] = []
    events = Events()
    events.topics_changed.to(told.append)
    topics = topics_of(tmp_path / "topics.json", events)
    topics.update_order_topics(["TBW102"])
    assert topics.is_order("TBW102")
    topics.update_order_topics([])
    assert not topics.is_order("TBW102")
    assert told == []
    again = topics_of(tmp_path / "topics.json")
    again.load()
    assert again.data_version == topics.data_version
    assert topics.is_system("TBW102")
    assert topics.is_system("rmq_sys_x")
    assert not topics.is_system("T")
