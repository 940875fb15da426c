"""Topics and groups are on the disk before anybody relies on them, and cost the event loop little."""

import errno
import json
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.store import ConfigFile
from pocketmq.store.config_journal import ConfigJournal
from tests.broker.serving import Peer, serving
from tests.kit.waiting import until_async


class Files:
    """What ConfigFile.write is asked for: how often, on which thread; and whether it can."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes: list[tuple[str, threading.Thread]] = []
        self.full = ""
        real = ConfigFile.write

        def write(file: ConfigFile, pieces: Iterable[bytes]) -> None:
            name = Path(file.path).name
            self.writes.append((name, threading.current_thread()))
            if self.full and name.startswith(self.full):
                raise OSError(errno.ENOSPC, "No space left on device")
            real(file, pieces)

        monkeypatch.setattr(ConfigFile, "write", write)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    return Files(monkeypatch)


def topic_names(folder: Path) -> set[str]:
    return set(json.loads((folder / "config" / "topics.json").read_bytes())["topicConfigTable"])


async def make_topic(peer: Peer, name: str, queues: int = 4) -> int:
    ext = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
    }
    return (await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)).code


async def test_a_send_to_a_topic_that_cannot_be_saved_is_refused(
    tmp_path: Path, files: Files
) -> None:
    """Else the next one would get SEND_OK, and after a crash no table would have the topic."""
    folder = tmp_path / "store"
    async with serving(folder) as broker, await Peer.at(broker) as peer:
        broker.parts.messages.store.side_tasks.retry_ms = 5
        files.full = "topics.json"
        for _ in range(3):
            answer = await peer.produce("New")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "No space left" in (answer.remark or "")
            assert broker.parts.tables.topics.get("New") is None
        files.full = ""
        await until_async(lambda: not broker.parts.messages.store.side_tasks.troubles)
        assert (await peer.produce("New")).code == ResponseCode.SUCCESS
        shutil.copytree(folder, tmp_path / "crashed")
    async with serving(tmp_path / "crashed") as broker, await Peer.at(broker) as peer:
        assert broker.parts.tables.topics.get("New") is not None
        assert await peer.bodies("g", "New") == [b"hello"]


async def test_all_sends_to_a_new_topic_wait_for_it(tmp_path: Path, files: Files) -> None:
    """Also those that come while the first one waits, by the short way too."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        files.full = "topics.json"
        ext = {
            "a": "pg",
            "b": "New",
            "c": "TBW102",
            "d": 4,
            "e": 0,
            "f": 0,
            "g": 1,
            "h": 0,
            "i": "",
        }
        ext |= {"j": 0, "k": False, "m": False}
        asked = [peer.send(RequestCode.SEND_MESSAGE_V2, ext, b"x") for _ in range(20)]
        codes = {(await peer.answer(opaque)).code for opaque in asked}
        assert codes == {ResponseCode.SYSTEM_ERROR}
        files.full = ""
        asked = [peer.send(RequestCode.SEND_MESSAGE_V2, ext, b"x") for _ in range(20)]
        codes = {(await peer.answer(opaque)).code for opaque in asked}
        assert codes == {ResponseCode.SUCCESS}
        assert "New" in topic_names(tmp_path)
        await until_async(lambda: not broker.parts.messages.store.side_tasks.troubles)


async def test_a_change_that_cannot_be_saved_is_rolled_back(tmp_path: Path, files: Files) -> None:
    """Topics and groups made, changed and deleted by an administrator, and modes of groups."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        tables = broker.parts.tables
        broker.parts.messages.store.side_tasks.retry_ms = 5
        group = {"groupName": "g", "retryMaxTimes": 3}
        update = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert await make_topic(peer, "T") == 0
        assert (await peer.ask(update, {}, json.dumps(group).encode())).code == 0
        assert (await peer.produce("T")).code == 0
        files.full = "topics.json"
        assert await make_topic(peer, "T", 8) == ResponseCode.SYSTEM_ERROR
        assert await make_topic(peer, "U") == ResponseCode.SYSTEM_ERROR
        delete = await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        assert delete.code == ResponseCode.SYSTEM_ERROR
        found = tables.topics.get("T")
        assert found is not None
        assert found.read_queues == 4
        assert tables.topics.get("U") is None
        assert await peer.bodies("reader", "T") == [b"hello"]
        files.full = "subscriptionGroup.json"
        body = json.dumps(group | {"retryMaxTimes": 9}).encode()
        assert (await peer.ask(update, {}, body)).code == ResponseCode.SYSTEM_ERROR
        known = tables.groups.get("g")
        assert known is not None
        assert known.retry_max_times == 3
        gone = await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"})
        assert gone.code == ResponseCode.SYSTEM_ERROR
        assert tables.groups.get("g") is known
        files.full = "messageRequestMode.json"
        body = json.dumps({"topic": "T", "consumerGroup": "g", "mode": "POP"}).encode()
        answer = await peer.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert tables.request_modes.get("T", "g").mode == "PULL"
        files.full = ""
        await until_async(lambda: not broker.parts.messages.store.side_tasks.troubles)


async def test_a_heartbeat_of_many_new_groups_costs_few_writes(
    tmp_path: Path, files: Files
) -> None:
    """Groups and their retry topics: one write a turn of the heartbeat, off the loop, before the answer."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        files.writes.clear()
        groups = [f"group{number}" for number in range(500)]
        body = {
            "clientID": "c1",
            "producerDataSet": [],
            "consumerDataSet": [
                {
                    "groupName": name,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [],
                }
                for name in groups
            ],
        }
        answer = await peer.ask(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())
        assert answer.code == ResponseCode.SUCCESS
        assert {f"%RETRY%{name}" for name in groups} <= topic_names(tmp_path)
        saved = json.loads((tmp_path / "config" / "subscriptionGroup.json").read_bytes())
        assert set(groups) <= saved["subscriptionGroupTable"].keys()
        written = [name for name, _ in files.writes]
        # As many as saves end while a heartbeat is taken in steps; on a slow machine there are more steps.
        assert 1 <= written.count("topics.json") <= 25
        assert 1 <= written.count("subscriptionGroup.json") <= 25
        assert threading.main_thread() not in {thread for _, thread in files.writes}
        assert broker.parts.tables.topics.stored() is None


async def test_members_go_on_when_their_group_cannot_be_saved(tmp_path: Path, files: Files) -> None:
    """Rows that the broker makes by itself stay, and are saved when there is room."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        broker.parts.messages.store.side_tasks.retry_ms = 5
        await make_topic(peer, "T")
        await peer.produce("T")
        files.full = "topics.json"
        assert (await peer.heartbeat("g", {"T": "*"})).code == ResponseCode.SUCCESS
        assert await peer.bodies("g", "T") == [b"hello"]
        assert "topics.json" in broker.parts.messages.store.side_tasks.troubles
        files.full = ""
        await until_async(lambda: "%RETRY%g" in topic_names(tmp_path))


async def test_internal_topics_come_back_with_their_queues(tmp_path: Path) -> None:
    """A crash before topics.json had them: dead letters and retries are reachable all the same."""
    async with serving(tmp_path / "a") as broker:
        store = broker.parts.messages.store
        for topic in ("%DLQ%g", "%RETRY%g", "Deleted"):
            store.append(topic, 0, b"x", b"", 0, 0, 1, bytes(8))
        shutil.copytree(tmp_path / "a", tmp_path / "b")
    async with serving(tmp_path / "b") as broker:
        topics = broker.parts.tables.topics
        assert topics.get("%DLQ%g") == TopicConfig("%DLQ%g", 1, 1)
        assert topics.get("%RETRY%g") is not None
        assert topics.get("Deleted") is None


# ------------------------------------------------------------ the journal


def table(folder: Path, count: int) -> TopicConfigManager:
    """A table of many topics, saved."""
    manager = TopicConfigManager(
        ConfigFile(str(folder / "topics.json")), BrokerConfig(broker_name="b"), ManualClock()
    )
    for number in range(count):
        manager.topics[f"old{number}"] = TopicConfig(f"old{number}")
    manager.persist()
    return manager


def loaded(folder: Path) -> TopicConfigManager:
    manager = TopicConfigManager(
        ConfigFile(str(folder / "topics.json")), BrokerConfig(broker_name="b"), ManualClock()
    )
    manager.load()
    return manager


@pytest.mark.parametrize("count", [1, 1_500])
def test_what_is_saved_at_once_and_cannot_be_is_taken_back(
    tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Before the broker runs, and with the journal of a large table: made, changed and removed."""
    manager = table(tmp_path, count)
    before = dict(manager.topics)
    files.full = "topics.json"

    def append(_journal: ConfigJournal, _rows: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(ConfigJournal, "append", append)
        for change in (
            lambda: manager.update(TopicConfig("new")),
            lambda: manager.update(TopicConfig("old0", 1, 1)),
            lambda: manager.delete("old0"),
        ):
            with pytest.raises(OSError, match="No space"):
                change()
            assert manager.topics == before
    files.full = ""
    manager.update(TopicConfig("new"))
    assert loaded(tmp_path).topics == {**before, "new": TopicConfig("new")}


def test_a_large_table_is_not_written_anew_for_each_topic(tmp_path: Path, files: Files) -> None:
    """What a creation writes does not grow with the table; a whole write leaves no journal."""
    sizes = {}
    for count in (2_000, 20_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        manager = table(folder, count)
        files.writes.clear()
        for number in range(100):
            manager.update(TopicConfig(f"new{number}", 8, 8))
        manager.delete("new0")
        assert files.writes == []
        sizes[count] = (folder / "topics.json.changes").stat().st_size
        again = loaded(folder)
        assert again.topics == manager.topics
        assert again.data_version == manager.data_version
        assert again.dirty
        again.persist()
        assert not (folder / "topics.json.changes").exists()
        assert loaded(folder).topics == manager.topics
    assert sizes[2_000] == sizes[20_000]


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 1_000])
def test_a_table_is_written_in_pieces_that_are_one_file(tmp_path: Path, count: int) -> None:
    file = ConfigFile(str(tmp_path / "topics.json"))
    unread = {"broken": {"topicName": "é"}, "T0": {"perm": "?"}}
    file.save({"dataVersion": {}, "topicConfigTable": unread})
    table = TopicConfigManager(file, BrokerConfig(), ManualClock())
    table.load()
    for number in range(count):
        table.rows[f"T{number}"] = TopicConfig(f"T{number}")
    table.persist()
    wanted = ConfigFile.encode(table.to_json())
    found = Path(file.path).read_bytes()
    assert json.loads(found) == json.loads(wanted)
    assert len(found) == len(wanted)


def test_a_table_that_is_rewritten_for_each_row_encodes_that_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that a send makes costs the same beside 900 others; changed and removed rows are right."""
    manager = table(tmp_path, 900)
    encode, encoded = ConfigFile.encode, []

    def counted(value: Any) -> bytes:
        encoded.append(encode(value))
        return encoded[-1]

    with monkeypatch.context() as patch:
        patch.setattr(ConfigFile, "encode", staticmethod(counted))
        manager.update(TopicConfig("new"))
        manager.update(TopicConfig("old7", 1, 1))
        manager.delete("old8")
        manager.update(TopicConfig("old8", 2, 2))
        manager.delete("old9")
    assert sum(map(len, encoded)) < 3_000
    assert loaded(tmp_path).topics == manager.topics
    assert json.loads((tmp_path / "topics.json").read_bytes()) == json.loads(
        encode(manager.to_json())
    )


def test_a_large_journal_is_replaced_by_the_whole_file(tmp_path: Path, files: Files) -> None:
    manager = table(tmp_path, 1_100)
    files.writes.clear()
    for number in range(1_500):
        manager.update(TopicConfig(f"new{number}"))
    assert 1 <= len(files.writes) <= 5
    assert loaded(tmp_path).topics == manager.topics


@pytest.mark.parametrize("lost", [1, 5, 40])
def test_a_torn_line_ends_the_journal_and_is_written_over(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "t.changes"
    journal = ConfigJournal(str(path))
    rows: list[Any] = [{"key": "é", "n": number} for number in range(3)]
    for row in rows:
        journal.append([row])
    path.write_bytes(path.read_bytes()[:-lost])
    again = ConfigJournal(str(path))
    kept = list(again.load())
    assert kept == rows[: len(kept)]
    assert len(kept) < 3
    again.append([{"key": "after"}])
    assert list(ConfigJournal(str(path)).load()) == [*kept, {"key": "after"}]


async def test_rows_of_a_large_table_survive_a_crash(tmp_path: Path) -> None:
    """In a broker: the journal is read with the table."""
    folder = tmp_path / "store"
    (folder / "config").mkdir(parents=True)
    table(folder / "config", 1_500)
    async with serving(folder) as broker, await Peer.at(broker) as peer:
        assert await make_topic(peer, "New", 8) == 0
        assert (folder / "config" / "topics.json.changes").exists()
        shutil.copytree(folder, tmp_path / "crashed")
    assert not (folder / "config" / "topics.json.changes").exists()
    assert "New" in topic_names(folder)
    async with serving(tmp_path / "crashed") as again:
        assert again.parts.tables.topics.get("New") == TopicConfig("New", 8, 8)
