"""Archives: finished files of a log elsewhere, read alone and as one table with the live store."""

import json
import random
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pocketmq import bulk
from pocketmq.bulk.archive import Archiver
from pocketmq.bulk.catalog import CatalogPart
from pocketmq.bulk.offsets import LossRule, Positions
from pocketmq.bulk.planning.archived import JoinedBounds
from pocketmq.bulk.planning.planner import Planner
from pocketmq.remoting.errors import IllegalArgument
from tests.store.bulk_stores import Message, WrittenStore, reference_rows, table_rows

START_MS = 1_700_000_000_000


def add(store: WrittenStore, first: int, count: int) -> None:
    store.add(
        Message(
            topic="Orders" if i % 3 else "Bills", queue_id=i % 4, body=b"%06d" % i * 20,
            properties=b"TAGS\x01t%d\x02" % (i % 5), store_ms=START_MS + i * 1000,
        )
        for i in range(first, first + count)
    )  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> WrittenStore:
    """Four files of the log and the beginning of a fifth."""
    made = WrittenStore(tmp_path / "broker-a" / "store", log_file_size=1 << 16)
    add(made, 0, 1200)
    return made


@pytest.fixture
def archive(store: WrittenStore, tmp_path: Path) -> Path:
    folder = tmp_path / "archive" / "broker-a"
    list(Archiver(str(store.root), str(folder)).run())
    return folder


def read(*paths: Path, **selection: Any) -> list[dict[str, Any]]:
    wanted = {"columns": "all", **selection}
    rows = table_rows(bulk.scan([str(p) for p in paths], **wanted).read_all())
    return sorted(rows, key=lambda row: row["commitLogOffset"])


def stored(store: WrittenStore) -> list[dict[str, Any]]:
    return reference_rows(store.root, "broker-a")


def retain(store: WrittenStore, files: int) -> None:
    """Deletes all but the newest files of the log, as retention does."""
    for path in sorted((store.root / "commitlog").iterdir())[:-files]:
        path.unlink()


def test_an_archive_holds_what_is_finished(store: WrittenStore, archive: Path) -> None:
    rows = stored(store)
    end = store.position - store.position % store.log_file_size
    assert end >= 3 * store.log_file_size
    finished = [row for row in rows if row["commitLogOffset"] < end]
    assert read(archive) == finished
    bills = read(archive, topics=["Bills"], tags=["t2"])
    assert bills == [r for r in finished if r["topic"] == "Bills" and r["tags"] == "t2"]


def test_archive_and_store_are_one_table_whatever_retention_took(
    store: WrittenStore, archive: Path
) -> None:
    rows = stored(store)
    assert read(archive, store.root) == rows
    retain(store, 2)
    assert read(store.root) != rows
    assert read(store.root, archive) == rows
    offsets = {"Orders": {"broker-a": {1: 5, 2: 150}}}
    late = read(archive, store.root, topics=["Orders"], starting_offsets=offsets)
    assert late == [
        r
        for r in rows
        if r["topic"] == "Orders"
        and r["queueOffset"] >= offsets["Orders"]["broker-a"].get(r["queueId"], 0)
    ]


@pytest.mark.parametrize("second", [0, 1, 333, 599, 600, 1150, 1199])
def test_a_time_is_found_on_either_side(store: WrittenStore, archive: Path, second: int) -> None:
    rows = stored(store)
    retain(store, 2)
    moment = START_MS + second * 1000
    expected = [r for r in rows if r["storeTimestamp"].timestamp() * 1000 >= moment]
    assert read(archive, store.root, starting_ms=moment) == expected
    before = [r for r in rows if r["storeTimestamp"].timestamp() * 1000 < moment]
    assert read(archive, store.root, ending_ms=moment) == before


def test_running_it_again_copies_the_rest(store: WrittenStore, archive: Path) -> None:
    assert Archiver(str(store.root), str(archive)).waiting == []
    add(store, 1200, 600)
    copied = list(Archiver(str(store.root), str(archive)).run())
    assert len(copied) >= 1
    assert all(one.topics == 2 for one in copied)
    retain(store, 1)
    assert read(archive, store.root) == read(archive) + read(store.root)
    assert len(read(archive, store.root)) == 1800


def test_a_disk_that_is_full_leaves_whole_files_only_and_the_next_run_goes_on(
    store: WrittenStore, tmp_path: Path
) -> None:
    folder = tmp_path / "archive" / "broker-a"
    archiver = Archiver(str(store.root), str(folder))
    run = archiver.run()
    next(run)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    was = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, hard))
    try:
        with pytest.raises(
            OSError, match="cannot write to the archive: File too large; run it again"
        ):
            next(run)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, was)
    assert not list(folder.rglob("*.part"))
    assert len(read(folder)) > 100
    list(Archiver(str(store.root), str(folder)).run())
    assert len(list((folder / "commitlog").iterdir())) == 4
    assert read(folder, store.root) == stored(store)


def test_a_hole_between_archive_and_store_is_a_loss(store: WrittenStore, archive: Path) -> None:
    add(store, 1200, 600)
    retain(store, 1)
    with pytest.raises(bulk.DataLoss, match="the archive ends at offset"):
        read(archive, store.root)
    left = read(archive, store.root, fail_on_data_loss=False)
    assert left == read(archive) + read(store.root)


def test_a_topic_made_again_is_the_new_one_only(store: WrittenStore, tmp_path: Path) -> None:
    shutil.rmtree(store.root / "consumequeue" / "Bills")
    for queue_id in range(4):
        store.offsets.pop(("Bills", queue_id), None)
    add(store, 1200, 600)
    rows = [r for r in stored(store) if r["topic"] == "Bills"]
    folder = tmp_path / "archive" / "broker-a"
    list(Archiver(str(store.root), str(folder)).run())
    assert read(folder, store.root, topics=["Bills"]) == rows
    retain(store, 1)
    assert read(folder, store.root, topics=["Bills"]) == rows


def test_an_archive_of_an_earlier_topic_is_not_mixed_in(store: WrittenStore, archive: Path) -> None:
    """The topic was made again since, and has come as far as the archived one."""
    shutil.rmtree(store.root / "consumequeue" / "Bills")
    for queue_id in range(4):
        store.offsets.pop(("Bills", queue_id), None)
    add(store, 1200, 1500)
    rows = [r for r in stored(store) if r["topic"] == "Bills"]
    assert len(rows) == 500
    assert read(archive, store.root, topics=["Bills"]) == rows


def test_a_plan_of_an_archive_is_cut_and_reads_no_log(store: WrittenStore, archive: Path) -> None:
    roots = bulk.find_roots([str(archive), str(store.root)])
    planner = Planner(roots, bulk.Topics(("Orders",)), LossRule())
    assert all(isinstance(b, JoinedBounds) for b in planner.bounds.values())
    starts, ends = planner.starts(Positions()), planner.ends(Positions("latest"))
    partitions = planner.partitions(starts, ends, bulk.Sizes(50_000))
    rows = [
        b.num_rows
        for p in partitions
        for b in bulk.read_partition(p, bulk.Read(("body",)), LossRule())
    ]
    assert sum(rows) == 800
    assert len(partitions) >= 4


def test_two_stores_or_two_archives_of_one_name_are_a_mistake(
    store: WrittenStore, archive: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "broker-a"
    shutil.copytree(archive, other)
    with pytest.raises(IllegalArgument, match="would both be broker"):
        bulk.find_roots([str(archive), str(other)])


def test_one_store_under_two_names_is_not_read_twice(
    store: WrittenStore, archive: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An archive keeps the broker's name, which a store in /data does not tell; copies have any name."""
    data = store.root = store.root.rename(tmp_path / "data")
    with pytest.raises(IllegalArgument, match="read twice") as refused:
        read(archive, data)
    names = {str(data): "broker-a"}
    assert json.dumps(names) in str(refused.value)
    assert len(read(archive, data, broker_name=names)) == 1200

    copy, link = tmp_path / "copy", tmp_path / "link"
    shutil.copytree(data, copy)
    link.symlink_to(data)
    add(store, 1200, 500)
    for other in (copy, link):
        with pytest.raises(IllegalArgument, match="give only one"):
            read(data, other)
    both = {str(data): "a", str(copy): "b"}
    assert len(read(data, copy, broker_name=both)) == 1700 + 1200
    assert "same_messages" in caplog.text


def test_a_store_without_the_files_of_its_archive_may_have_another_name(
    store: WrittenStore, archive: Path, tmp_path: Path
) -> None:
    retain(store, 1)
    assert len(read(archive, store.root.rename(tmp_path / "data"))) == 1200


def test_a_damaged_file_stays_out_and_is_named(store: WrittenStore, tmp_path: Path) -> None:
    place = stored(store)[400]["commitLogOffset"]
    store.patch(place, b"\0\0\0\1")
    folder = tmp_path / "archive" / "broker-a"
    with pytest.raises(bulk.DataLoss) as caught:
        list(Archiver(str(store.root), str(folder)).run())
    assert caught.value.position == place
    first = place - place % store.log_file_size
    assert all(row["commitLogOffset"] < first for row in read(folder))


def test_an_archive_takes_no_log_that_shares_no_file_with_it(
    store: WrittenStore, archive: Path, tmp_path: Path
) -> None:
    """Of a store without its first file, whose others begin elsewhere: only that shows another log."""
    other = WrittenStore(tmp_path / "broker-b" / "store", log_file_size=3 << 14)
    add(other, 7, 1200)
    other.log_path(0).unlink()
    with pytest.raises(IllegalArgument, match="the archive of a different store"):
        Archiver(str(other.root), str(archive))


def test_an_archive_goes_neither_into_a_store_nor_into_that_of_another(
    store: WrittenStore, archive: Path, tmp_path: Path
) -> None:
    other = WrittenStore(tmp_path / "broker-b" / "store", log_file_size=1 << 16)
    add(other, 7, 1200)
    with pytest.raises(IllegalArgument, match="is the store of a broker"):
        Archiver(str(store.root), str(other.root))
    with pytest.raises(IllegalArgument, match="the archive of a different store"):
        Archiver(str(other.root), str(archive))


def part_of(archive: Path) -> tuple[Path, bytes]:
    (path,) = (archive / "catalog").iterdir()
    return path, path.read_bytes()


def test_a_damaged_catalog_is_named_and_neither_ends_the_process_nor_loses_a_row(
    store: WrittenStore, archive: Path
) -> None:
    """Cuts, and single bits: Arrow followed a changed one out of its memory (a segmentation fault)."""
    path, whole = part_of(archive)
    good, chance = read(archive), random.Random(1)
    damaged = [whole[:size] for size in range(0, len(whole), len(whole) // 20)]
    for _ in range(150):
        changed = bytearray(whole)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        damaged.append(bytes(changed))
    refused = 0
    for data in damaged:
        path.write_bytes(data)
        try:
            rows = read(archive)
        except bulk.NotAStore:
            refused += 1
            with pytest.raises(bulk.NotAStore, match=r"00000000\.arrow .* Bring back this file"):
                Archiver(str(store.root), str(archive))
        else:
            assert rows == good
    assert refused > 100


def edited(whole: bytes, file: dict[str, Any], row: dict[str, Any]) -> bytes:
    """Return the part with other values for its second file or row, and no checksum, as of before."""
    table = pa.ipc.open_file(pa.py_buffer(whole)).read_all()
    metadata = dict(table.schema.metadata)
    files = json.loads(metadata[b"files"])
    files[1].update(file)
    columns = table.to_pydict()
    for name, value in row.items():
        columns[name][1] = value
    fields = {"version": metadata[b"version"], "files": json.dumps(files)}
    table = pa.table(columns, schema=table.schema).replace_schema_metadata(fields)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("file", "row"),
    [
        *(({"first": value}, {}) for value in ("../../x", -5, 1 << 70, 0, None, True)),
        *(({"size": value}, {}) for value in (1 << 60, 0, -1)),
        *(({"marks": value}, {}) for value in ([5, 3, -1], [1 << 70], None, ["0"])),
        *(({}, {"queueId": value}) for value in (-1, None)),
        *(
            ({}, {name: value})
            for name in (
                "file",
                "startOffset",
                "endOffset",
                "firstPosition",
                "endPosition",
                "bytes",
            )
            for value in (-1, 1 << 62)
        ),
        ({}, {"topic": None}),
        ({}, {"startOffset": 1}),
        ({}, {"firstStoreMs": 1 << 62}),
    ],
)
def test_a_catalog_that_lies_is_refused(
    archive: Path, file: dict[str, Any], row: dict[str, Any]
) -> None:
    path, whole = part_of(archive)
    path.write_bytes(edited(whole, file, row))
    with pytest.raises(bulk.NotAStore, match="catalog cannot be read"):
        read(archive)


def test_a_catalog_of_before_it_had_a_checksum_is_read_and_of_a_later_version_is_not(
    archive: Path,
) -> None:
    path, whole = part_of(archive)
    good = read(archive)
    path.write_bytes(edited(whole, {}, {}))
    assert read(archive) == good
    part = CatalogPart.of_bytes(pa.py_buffer(whole))
    later = part.rows.replace_schema_metadata({"version": "2", "files": "[]"})
    with pa.ipc.new_file(path, later.schema) as writer:
        writer.write_table(later)
    with pytest.raises(bulk.NotAStore, match="version"):
        read(archive)
    # A copy of a part beside it would read its rows twice.
    path.write_bytes(whole)
    (path.parent / "00000007.arrow").write_bytes(whole)
    with pytest.raises(bulk.NotAStore, match="another part"):
        read(archive)
