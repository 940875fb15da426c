"""`pocketmq store` on the recorded stores of real brokers."""

import json
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli.app import run
from pocketmq.cli.commands.store import repair
from pocketmq.cli.exits import CannotBegin
from pocketmq.files.records import Entry
from pocketmq.store.repair.reader import StoreReader
from pocketmq.store.repair.repairs import FILLER_TOPIC, sure_end
from pocketmq.testing import InProcess
from tests.cli.machine_keys import checked
from tests.store.bulk_stores import Message, WrittenStore
from tests.store.stores import open_store, send

STORES = Path(__file__).parents[1] / "golden" / "data" / "stores"
Unpack = Callable[[str], Path]
Ask = Callable[..., Any]


@pytest.fixture
def unpack(tmp_path: Path) -> Unpack:
    def unpacked(name: str) -> Path:
        with tarfile.open(STORES / f"{name}.tar.gz") as archive:
            archive.extractall(tmp_path, filter="data")
        return tmp_path / "store"

    return unpacked


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(*words: str, code: int = 0) -> Any:
        """The JSON that a command prints."""
        assert run(["store", *words, "--json"]) == code
        return checked(["store", *words], json.loads(capsys.readouterr().out))

    return asked


def test_ls_shows_the_log_and_each_queue(unpack: Unpack, ask: Ask) -> None:
    found = ask("ls", str(unpack("v497-main.clean")))
    assert (found["lastWrittenBy"], found["stoppedCleanly"]) == ("RocketMQ", True)
    assert (found["logFrom"], found["logTo"]) == (0, 4249110)
    queues = {
        (row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"])
        for row in found["queues"]
    }
    assert queues["GdBatch", 0] == (0, 38)
    assert queues["%DLQ%GdGidRetry", 0] == (0, 2)


@pytest.mark.parametrize("how", ["running", "killed", "stopped", "only its log"])
def test_ls_of_a_young_store_knows_who_wrote_it(tmp_path: Path, ask: Ask, how: str) -> None:
    """A copy of a broker's folder before its first checkpoint."""
    folder, copy = tmp_path / "store", tmp_path / "copy"
    with InProcess(store=str(folder)) as server:
        server.create_topic("T", queues=1)
        server.send("T", "one")
        if how != "stopped":
            shutil.copytree(folder, copy)
    if how == "stopped":
        shutil.copytree(folder, copy)
    elif how == "only its log":
        for name in ("abort", "checkpoint"):
            (copy / name).unlink(missing_ok=True)
    else:
        (copy / "checkpoint").unlink(missing_ok=True)
    found = ask("ls", str(copy))
    assert found["lastWrittenBy"] == (None if how == "only its log" else "PocketMQ")
    assert found["stoppedCleanly"] == (how in ("stopped", "only its log"))


def test_ls_shows_where_a_trimmed_queue_begins(unpack: Unpack, ask: Ask) -> None:
    found = ask("ls", str(unpack("v497-retain.expired")))
    assert found["logFrom"] > 0
    assert any(
        row["minOffset"] > 0 and row["maxOffset"] > row["minOffset"] for row in found["queues"]
    )


def test_dump_finds_a_message_by_its_place_and_by_its_queue(unpack: Unpack, ask: Ask) -> None:
    store = str(unpack("v497-main.clean"))
    (first,) = ask("dump", store, "--position", "0")
    assert (first["topic"], first["body"]) == ("TopicTest", "Hello RocketMQ 0")
    assert first["properties"]["TAGS"] == "TagB"
    rows = ask("dump", store, "--topic", "GdBatch", "--queue", "1", "--from", "20", "-n", "3")
    assert [row["queueOffset"] for row in rows] == [20, 21, 22]
    assert ask("dump", store, "-n", "2", "--body", "none")[0].keys() >= {"offsetMsgId"}
    with pytest.raises(CannotBegin, match="no record at 5"):
        run(["store", "dump", store, "--position", "5"])
    with pytest.raises(CannotBegin, match="no queue of topic"):
        run(["store", "dump", store, "--topic", "none"])


def test_dump_shows_packed_bodies_unpacked(unpack: Unpack, ask: Ask) -> None:
    rows = ask("dump", str(unpack("v497-main.clean")), "-n", "1000", "--body", "hex")
    packed = [row for row in rows if row["sysFlag"] & 1]
    assert packed
    assert all(not row["body"].startswith("78") for row in packed)


@pytest.mark.parametrize(
    "name", ["v497-main.clean", "v497-v6.clean", "v497-ext.clean", "v550-main.clean"]
)
def test_verify_finds_nothing_wrong_in_a_good_store(unpack: Unpack, ask: Ask, name: str) -> None:
    found = ask("verify", str(unpack(name)))
    assert found["problems"] == []
    assert found["records"] >= found["entries"] > 0


@pytest.mark.parametrize(
    ("name", "where", "what"),
    [
        ("v497-main.crash-badcrc", "commitlog at 4235834", "does not match its CRC"),
        ("v497-main.crash-torn", "commitlog at", ""),
        ("v497-main.crash-cq-behind", "consumequeue/", "have no entry"),
    ],
)
def test_verify_names_what_is_wrong_and_where(
    unpack: Unpack, ask: Ask, name: str, where: str, what: str
) -> None:
    problems = ask("verify", str(unpack(name)), code=1)["problems"]
    assert any(where in row["where"] and what in row["what"] for row in problems)


def test_verify_says_that_queues_in_rocksdb_were_not_checked(
    unpack: Unpack, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    store = unpack("v497-main.clean")
    assert not ask("verify", str(store))["queuesUnseen"]
    (store / "consumequeue" / "CURRENT").write_bytes(b"MANIFEST-000005\n")
    assert ask("verify", str(store))["queuesUnseen"]
    assert run(["store", "verify", str(store)]) == 0
    assert "the queues are in RocksDB, which is not read: they were not checked" in (
        capsys.readouterr().out
    )


def test_verify_notices_a_changed_byte_in_each_kind_of_file(unpack: Unpack, ask: Ask) -> None:
    store = unpack("v497-main.clean")
    for path, at in (
        (store / "commitlog" / f"{0:020d}", 95),
        (store / "consumequeue" / "GdBatch" / "0" / f"{0:020d}", 27),
        (store / "config" / "topics.json", 0),
    ):
        before = path.read_bytes()
        path.write_bytes(before[:at] + bytes([before[at] ^ 0xFF]) + before[at + 1 :])
        assert ask("verify", str(store), code=1)["problems"], path
        path.write_bytes(before)
    assert ask("verify", str(store))["problems"] == []


def test_verify_finds_zeros_before_messages_without_entries(unpack: Unpack, ask: Ask) -> None:
    """In a log of RocketMQ they look like its end; the other queues show that it continues."""
    store = unpack("v497-main.clean")
    first = next(each for each in StoreReader(str(store)).walk() if isinstance(each, Entry))
    with (store / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.write(bytes(first.size))
    queue = store / "consumequeue" / first.topic.decode() / str(first.queue_id) / f"{0:020d}"
    queue.write_bytes(bytes(queue.stat().st_size))
    places = [row["where"] for row in ask("verify", str(store), code=1)["problems"]]
    assert any("commitlog" in place for place in places), places


def test_repair_builds_the_queues_again_from_the_log(unpack: Unpack, ask: Ask) -> None:
    store = unpack("v497-main.clean")
    before = ask("ls", str(store))["queues"]
    shutil.rmtree(store / "consumequeue" / "GdBatch")
    entry = store / "consumequeue" / "GdOrder" / "0" / f"{0:020d}"
    entry.write_bytes(b"\xff" * 40 + entry.read_bytes()[40:])
    result = ask("repair", str(store), "--yes")
    assert result["damagedPlaces"] == 0
    assert Path(result["oldFiles"], "consumequeue").is_dir()
    assert ask("ls", str(store))["queues"] == before
    assert ask("verify", str(store))["problems"] == []


def test_multi_dispatch_queues_verify_and_survive_a_repair(tmp_path: Path, ask: Ask) -> None:
    """RocketMQ 4.9.7 with enableLmq writes such records, and one more entry into each queue named."""
    named = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "1,0"}
    with InProcess(store=str(tmp_path)) as server:
        server.create_topic("T", queues=1)
        server.send("T", b"first", properties=named | {"INNER_MULTI_QUEUE_OFFSET": "0,7"})
        server.send("T", b"second", properties=named)
    queues = tmp_path / "consumequeue"
    entries = next((queues / "T" / "0").iterdir()).read_bytes()
    for name, held in (("%LMQ%a", entries), ("%LMQ%b", entries[20:40] + bytes(20))):
        (queues / name / "0").mkdir(parents=True)
        (queues / name / "0" / f"{0:020d}").write_bytes(held)
    assert ask("verify", str(tmp_path))["problems"] == []
    ask("repair", str(tmp_path), "--yes")
    assert (queues / "%LMQ%a" / "0" / f"{0:020d}").read_bytes() == entries
    assert ask("verify", str(tmp_path))["problems"] == []
    (queues / "%LMQ%b" / "0" / f"{0:020d}").write_bytes(entries)
    rows = ask("verify", str(tmp_path), code=1)["problems"]
    assert [row["where"] for row in rows] == [f"consumequeue/%LMQ%b/0 offset {n}" for n in (0, 1)]


def test_repair_sets_damaged_records_aside_and_serves_others(tmp_path: Path, ask: Ask) -> None:
    store = tmp_path / "store"
    with InProcess(store=str(store)) as server:
        server.create_topic("T", queues=1)
        for body in (b"first", b"second", b"third"):
            server.send("T", body)
        with pytest.raises(CannotBegin, match=r"in use by a broker; nothing was changed\. Stop"):
            repair(str(store))
    [log] = (store / "commitlog").iterdir()
    whole = log.read_bytes()
    log.write_bytes(whole.replace(b"second", b"sXcond"))
    result = ask("repair", str(store), "--yes")
    assert result["damagedPlaces"] == 1
    aside = Path(result["oldFiles"], "damaged")
    [row] = map(json.loads, (aside / "damaged.jsonl").read_text().splitlines())
    assert "CRC" in row["why"]
    record = (aside / row["file"]).read_bytes()
    assert b"sXcond" in record
    assert len(record) == row["size"]
    assert record in whole.replace(b"second", b"sXcond")
    with InProcess(store=str(store)) as server:
        assert [each.body for each in server.messages("T")] == [b"first", b"third"]
    # What the repair gave up is counted; what is wrong since then is wrong.
    assert ask("verify", str(store))["givenUp"] == 1
    log.write_bytes(log.read_bytes().replace(b"third", b"tXird"))
    torn, *others = ask("verify", str(store), code=1)["problems"]
    assert "CRC" in torn["what"]
    assert {row["code"] for row in others} == {"CHECKPOINT_AHEAD"}


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("golden", ["v497-main.clean", "v497-main.crash-badcrc"])
def test_repair_loses_nothing_behind_damage_in_a_rocketmq_log(
    unpack: Unpack, ask: Ask, golden: str, zeros: bool
) -> None:
    """RocketMQ's own recovery cuts such a log off; the damaged record alone is missing afterwards."""
    store = unpack(golden)
    reader = StoreReader(str(store))
    end = sure_end(reader)
    intact = [each for each in reader.walk(sure_end=end) if isinstance(each, Entry)]
    victim = intact[len(intact) // 3]
    file = reader.log_file_of(victim.position)
    assert file is not None
    with open(file.path, "r+b") as log:
        log.seek(victim.position - file.first)
        log.write(bytes(victim.size) if zeros else b"\xff" * 20)
    result = ask("repair", str(store), "--yes")
    assert result["damagedPlaces"] >= 1
    after = [each for each in StoreReader(str(store)).walk() if isinstance(each, Entry)]
    kept = [each for each in after if each.topic != FILLER_TOPIC.encode()]
    assert [each.position for each in kept] == [
        each.position for each in intact if each is not victim
    ]
    shown = ask("verify", str(store))
    assert (shown["problems"], shown["givenUp"] > 0) == ([], True)


def test_export_takes_every_intact_message_of_a_damaged_store(
    unpack: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = unpack("v497-main.crash-badcrc")
    out = tmp_path / "out.jsonl"
    assert run(["store", "export", str(store), "--out", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert f"{len(rows)} messages exported" in capsys.readouterr().err
    assert len(rows) == 636
    assert run(["store", "export", str(store), "-o", str(out), "--topic", "GdOrder"]) == 0
    assert {json.loads(line)["topic"] for line in out.read_text().splitlines()} == {"GdOrder"}


def test_archive_copies_what_is_finished_and_then_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = WrittenStore(tmp_path / "broker-a" / "store", log_file_size=1 << 16)
    store.add(Message(body=bytes(5000)) for _ in range(30))
    dest = str(tmp_path / "archive" / "broker-a")
    assert run(["store", "archive", str(store.root), dest, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["files"], found["records"]) == (2, 24)
    assert run(["store", "archive", str(store.root), dest]) == 0
    assert "0 files with 0 records" in capsys.readouterr().err
    with pytest.raises(CannotBegin, match="must be in a different folder"):
        run(["store", "archive", str(store.root), str(store.root.parent / "." / "store")])


def test_export_to_parquet_has_the_same_messages(unpack: Unpack, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    store = unpack("v497-main.clean")
    out = tmp_path / "out.parquet"
    words = ["store", "export", str(store), "--format", "parquet", "--topic", "GdOrder"]
    assert run([*words, "--out", str(out)]) == 0
    assert pq.read_table(out).num_rows == 20
    assert run([*words, "--out", f"{tmp_path}/topics/"]) == 0
    assert pq.read_table(tmp_path / "topics" / "GdOrder-00000.parquet").num_rows == 20


def test_batch_queues_are_listed_and_dumped(unpack: Unpack, ask: Ask) -> None:
    """RocketMQ 5.x keeps them in a folder of their own, with larger entries for several messages each."""
    store = unpack("v550-main.clean")
    (topic,) = {path.name for path in (store / "batchconsumequeue").iterdir()}
    rows = [row for row in ask("ls", str(store))["queues"] if row["topic"] == topic]
    assert rows
    for row in rows:
        words = ["--topic", topic, "--queue", str(row["queueId"]), "--from", str(row["minOffset"])]
        (first, *_) = ask("dump", str(store), *words)
        assert (first["topic"], first["queueId"], first["queueOffset"]) == (
            topic,
            row["queueId"],
            row["minOffset"],
        )


def test_dump_follows_what_a_broker_stores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it has come to the end of the log, two more are stored; the fourth is in the next file."""
    broker = open_store(tmp_path)
    send(broker, "Wanted", body=b"before")
    sent = iter(range(100))

    def store_two(_: float) -> None:
        send(broker, "Other", body=b"?")
        send(broker, "Wanted", body=b"%d" % next(sent) * 20_000)

    monkeypatch.setattr(time, "sleep", store_two)
    words = ["dump", str(tmp_path), "--follow", "--topic", "Wanted", "-n", "4", "--json"]
    try:
        assert run(["store", *words]) == 0
    finally:
        broker.close()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["body"] for row in rows] == [str(n) * 20_000 for n in range(4)]
    assert rows[-1]["position"] >= 64 << 10


def test_the_log_ends_behind_its_last_record(unpack: Unpack, ask: Ask) -> None:
    """A RocketMQ broker that runs, or was killed, has made the next file of the log, too."""
    store = unpack("v497-main.crash")
    last = ask("dump", str(store), "-n", "1000")[-1]
    assert ask("ls", str(store))["logTo"] == last["position"] + last["storeSize"]


def test_dump_follows_a_log_with_a_file_that_was_made_ahead(
    unpack: Unpack, ask: Ask, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As beside a RocketMQ broker: the end of its log is not the beginning of the last file."""
    store = unpack("v497-main.crash")
    last = ask("dump", str(store), "-n", "1000")[-1]
    file = max(f for f in (store / "commitlog").iterdir() if int(f.name) <= last["position"])
    place = last["position"] - int(file.name)
    with file.open("r+b") as log:
        log.seek(place)
        record = log.read(last["storeSize"])
        log.seek(place)
        log.write(bytes(last["storeSize"]))

    looks = [1, 2, 3]

    def store_it(_: float) -> None:
        looks.pop()
        with file.open("r+b") as log:
            log.seek(place)
            log.write(record)

    monkeypatch.setattr(time, "sleep", store_it)
    assert run(["store", "dump", str(store), "--follow", "-n", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["position"] == last["position"]


def test_people_get_tables_and_a_wrong_directory_a_sentence(
    unpack: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(unpack("v497-main.clean"))
    assert run(["store", "ls", store]) == 0
    shown = capsys.readouterr().out
    assert "GdBatch" in shown
    assert "stopped cleanly" in shown
    with pytest.raises(CannotBegin, match="cannot be opened as a store"):
        run(["store", "ls", str(tmp_path / "none")])


@pytest.mark.parametrize("name", ["v497-main.clean", "v550-main.clean"])
def test_du_says_which_topic_fills_the_log_of_a_java_store(
    unpack: Unpack, ask: Ask, name: str
) -> None:
    """Every record is counted once: together they are what verify has looked at."""
    store = str(unpack(name))
    found = ask("du", store)
    assert found["folders"].keys() >= {"commitlog", "consumequeue", "config"}
    assert sum(row["messages"] for row in found["topics"]) == ask("verify", store)["records"]
    sizes = [row["bytes"] for row in found["topics"]]
    assert sizes == sorted(sizes, reverse=True)
    assert all(row["oldest"] <= row["newest"] for row in found["topics"])


def test_diff_reads_java_stores(unpack: Unpack, ask: Ask, tmp_path: Path) -> None:
    """One after a crash, and the same one with a byte of a body changed."""
    for name in ("crash", "crash-badcrc"):
        unpack(f"v497-main.{name}").rename(tmp_path / name)
    whole, damaged = (str(tmp_path / name) for name in ("crash", "crash-badcrc"))
    assert ask("diff", whole, whole) == []
    [row] = ask("diff", whole, damaged, code=1)
    assert row["what"] == "1 only in the first"


def test_diff_names_what_one_store_lacks_and_what_differs(tmp_path: Path, ask: Ask) -> None:
    """Messages count, not their places: the same ones in another order of the log are the same."""

    def stored(name: str, *messages: tuple[str, bytes]) -> str:
        store = open_store(tmp_path / name)
        for topic, body in messages:
            send(store, topic, body=body)
        store.close()
        return str(tmp_path / name)

    first = stored("a", ("T", b"t"), ("U", b"u"))
    second = stored("b", ("U", b"u"), ("T", b"t"))
    assert ask("diff", first, second) == []
    stored("a", ("T", b"only here"), ("U", b"one"))
    stored("b", ("U", b"other"))
    assert ask("diff", first, second, code=1) == [
        {"topic": "T", "queueId": 0, "queueOffset": 1, "what": "1 only in the first"},
        {"topic": "U", "queueId": 0, "queueOffset": 1, "what": "differs"},
    ]
