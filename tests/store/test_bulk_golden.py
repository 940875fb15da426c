"""Stores that real brokers wrote, read in bulk: every row as the broker's manifest has it.

Golden stores of the real brokers read to exactly their manifests; whole rows are compared.
"""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from pocketmq import bulk
from pocketmq.model.names import SCHEDULE_TOPIC
from tests.store.bulk_stores import (
    GOLDEN_NAMES,
    index_entries,
    manifest,
    moment,
    reference_rows,
    table_rows,
    unpack,
)

TORN = {n for n in GOLDEN_NAMES if "torn" in n}
# Their manifests show a log that recovery cut behind a bad checksum; a reader shows what lies behind it too.
RECOVERED = {n for n in GOLDEN_NAMES if "badcrc" in n}
WALKED = {"v497-main.clean-rebuild", "v497-main.crash-rebuild", "v497-retain.noqueues"}
Place = tuple[str, int, int]


def read(root: Path, **options: Any) -> dict[Place, dict[str, Any]]:
    table = bulk.scan(
        str(root), columns="all", system_topics=True, broker_name="golden-a", **options
    ).read_all()
    rows = table_rows(table)
    by_place = {(r["topic"], r["queueId"], r["queueOffset"]): r for r in rows}
    assert len(by_place) == len(rows)
    return by_place


def expected(name: str) -> dict[Place, dict[str, Any]]:
    """Rows by the manifest; bodies as (length, sha256)."""
    rows: dict[Place, dict[str, Any]] = {}
    # QUERY_CONSUME_QUEUE counts the entries of a batch queue wrongly; their positions are right.
    batch_codes = {
        int(line.split()[1]): int(line.split()[3])
        for queue in manifest(name)["view"]["queues"]
        if queue["topic"] == "GdBcq"
        for line in queue["consumeQueue"]
    }
    for m in manifest(name)["messages"]:
        for part in m.get("inner", [m]):
            tags = part.get("tags")
            row = {
                "topic": m["topic"],
                "brokerName": "golden-a",
                "queueId": m["queueId"],
                "queueOffset": part["queueOffset"],
                "body": (part["bodyLength"], part["bodySha256"]),
                "tags": tags,
                "keys": part.get("keys"),
                "properties": part["properties"],
                "flag": part["flag"],
                "bornTimestamp": moment(m["bornTimestamp"]),
                "storeTimestamp": moment(m["storeTimestamp"]),
                "commitLogOffset": m["commitLogOffset"],
                "storeSize": m["storeSize"],
                "sysFlag": m["sysFlag"],
                "reconsumeTimes": m["reconsumeTimes"],
                "bodyCrc": m["bodyCRC"],
                "preparedTransactionOffset": m["preparedTransactionOffset"],
                "bornHost": m["bornHost"],
                "storeHost": m["storeHost"],
                "msgId": m["offsetMsgId"],
                "uniqKey": part["properties"].get("UNIQ_KEY"),
                "tagsCode": batch_codes.get(m["commitLogOffset"], int(m["tagsCode"])),
            }
            if int(m["tagsCode"]) <= -2147483649:  # an address in consumequeue_ext
                row["tagsCode"] = m["tagsHash"] or 0
            rows[m["topic"], m["queueId"], part["queueOffset"]] = row
    return rows


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    raw = row.pop("propertiesRaw")
    assert isinstance(raw, str)
    body = row["body"]
    return row | {"body": (len(body), hashlib.sha256(body).hexdigest())}


@pytest.mark.parametrize("name", [n for n in GOLDEN_NAMES if n not in RECOVERED | WALKED])
def test_a_recorded_store_is_read_to_exactly_its_manifest(name: str, tmp_path: Path) -> None:
    """Torn tails are left out when asked, as recovery leaves them out; what the broker had not indexed
    when it was killed is read from the log."""
    rows = read(unpack(name, tmp_path), fail_on_data_loss=name not in TORN)
    wanted = expected(name)
    indexed = {p for p, _, _ in index_entries(tmp_path / "store")}
    assert rows.keys() == wanted.keys()
    for place, row in rows.items():
        if row["commitLogOffset"] not in indexed:
            assert ".crash" in name
            if row["topic"] == SCHEDULE_TOPIC:
                # Its code is a delivery time, which only the index has.
                assert row["tagsCode"] is None
                row["tagsCode"] = wanted[place]["tagsCode"]
        assert comparable(row) == wanted[place]


@pytest.mark.parametrize("name", sorted(TORN))
def test_a_torn_tail_is_an_error_that_says_where_unless_it_may_be_skipped(
    name: str, tmp_path: Path
) -> None:
    """File and position in the message."""
    root = unpack(name, tmp_path)
    position = manifest(name)["damage"]["recordOffset"]
    with pytest.raises(bulk.DataLoss, match="failOnDataLoss") as caught:
        read(root)
    assert caught.value.position >= position
    assert str(caught.value.position) in str(caught.value)
    assert Path(caught.value.file).is_file()


@pytest.mark.parametrize("name", sorted(n for n in RECOVERED if "badcrc" in n))
def test_a_flipped_byte_is_found_when_checksums_are_verified(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    damage = manifest(name)["damage"]
    with pytest.raises(bulk.DataLoss, match="checksum") as caught:
        read(root, verify_crc=True)
    assert caught.value.position == damage["recordOffset"]

    kept = read(root, verify_crc=True, fail_on_data_loss=False)
    everything = read(root)
    assert len(kept) == len(everything) - 1
    lost = everything.keys() - kept.keys()
    assert {everything[place]["commitLogOffset"] for place in lost} == {damage["recordOffset"]}
    wanted = expected(name)
    # Recovery cuts the log there; what lies behind is whole and is still read here.
    behind = [r for p, r in kept.items() if p not in wanted]
    assert all(r["commitLogOffset"] > damage["recordOffset"] for r in behind)
    for place in wanted:
        assert comparable(kept[place]) == wanted[place]


@pytest.mark.parametrize("name", sorted(WALKED))
def test_a_log_without_index_files_is_walked(name: str, tmp_path: Path) -> None:
    """Only the log files were copied. The broker builds its index from the same walk."""
    rows = read(unpack(name, tmp_path))
    source = name.replace(".clean-rebuild", ".clean").replace(".crash-rebuild", ".crash")
    source = source.replace(".noqueues", ".clean")
    wanted = expected(source if source in GOLDEN_NAMES else name)
    end = max(r["commitLogOffset"] for r in rows.values())
    wanted = {k: v for k, v in wanted.items() if v["commitLogOffset"] <= end}
    assert rows.keys() == wanted.keys()
    for place, row in rows.items():
        if row["topic"] == SCHEDULE_TOPIC:
            assert row["tagsCode"] is None
            row["tagsCode"] = wanted[place]["tagsCode"]
        assert comparable(row) == wanted[place]


@pytest.mark.parametrize("name", [n for n in GOLDEN_NAMES if n.endswith(".clean")])
def test_the_vectorised_decoder_equals_one_record_at_a_time(name: str, tmp_path: Path) -> None:
    """All 23 columns, against message_codec."""
    root = unpack(name, tmp_path)
    rows = sorted(read(root).values(), key=lambda r: (r["commitLogOffset"], r["queueOffset"]))
    slow = reference_rows(root, "golden-a")
    assert len(rows) == len(slow)
    for row, judge in zip(rows, slow, strict=True):
        if judge["tagsCode"] <= -2147483649:
            judge["tagsCode"] = row["tagsCode"]
        if judge["propertiesRaw"] is None:  # inner batch: the reference keeps no raw text
            judge["propertiesRaw"] = row["propertiesRaw"]
        assert row == judge
