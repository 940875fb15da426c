"""Tags by the codes of the index: what one look finds is what splitting the properties says."""

import random
from pathlib import Path

import pytest

from benchmarks import bulk_store
from pocketmq import bulk
from pocketmq.bulk.api import plan
from pocketmq.bulk.columns import coded_tags
from pocketmq.bulk.offsets import LossRule, Positions
from pocketmq.bulk.rows import Read
from pocketmq.bulk.scanner import read_partition
from tests.store.bulk_stores import Message, WrittenStore


def rows(
    root: Path, columns: tuple[str, ...], *, loss: LossRule | None = None, ordered: bool = False
) -> list[tuple[object, ...]]:
    """Rows in the order of queues and offsets."""
    loss = LossRule() if loss is None else loss
    everything = Positions(), Positions("latest")
    found = plan([bulk.Root(str(root), "b")], bulk.Topics(), *everything, bulk.Sizes(), loss)
    batches = [b for p in found for b in read_partition(p, Read(columns, ordered=ordered), loss)]
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def decoded_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each call had to decode, from now on."""
    counts: list[int] = []
    decode = coded_tags.decode  # type: ignore[attr-defined]

    def counted(data: object, starts: list[int], *rest: object, **more: object) -> object:
        counts.append(len(starts))
        return decode(data, starts, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(coded_tags, "decode", counted)
    return counts


def test_a_few_records_are_decoded_and_all_have_their_tags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bulk_store.write_store(tmp_path / "s", 40_000, body_size=16, tags=50, log_file_size=1 << 24)
    counts = decoded_rows(monkeypatch)
    for ordered in (True, False):
        counts.clear()
        batches = rows(tmp_path / "s", ("queueId", "queueOffset", "tags"), ordered=ordered)
        # The columns of the index are "decoded" too, without a byte of the log.
        assert sum(counts) < 41_000
        assert batches == sorted((i % 8, i // 8, f"tag{i % 50:03d}") for i in range(40_000))


def test_entries_in_another_order_than_the_log_are_each_read_once(tmp_path: Path) -> None:
    bulk_store.write_store(tmp_path / "s", 40_000, body_size=16, tags=50, log_file_size=1 << 24)
    queue = next((tmp_path / "s" / "consumequeue" / "bench" / "3").iterdir())
    raw = queue.read_bytes()
    entries = [raw[at : at + 20] for at in range(0, 5_000 * 20, 20)]
    entries[100:4_900] = entries[4_899:99:-1]
    queue.write_bytes(b"".join(entries) + raw[5_000 * 20 :])
    found = rows(tmp_path / "s", ("queueId", "queueOffset", "tags"))
    sent = {
        (queue_id, offset): 8 * offset + queue_id
        for queue_id in range(8)
        for offset in range(5_000)
    }
    sent |= {(3, offset): 8 * (4_999 - offset) + 3 for offset in range(100, 4_900)}
    assert found == [(*place, f"tag{sent[place] % 50:03d}") for place in sorted(sent)]


def _pairs(random_: random.Random, i: int) -> bytes:
    # "Aa" and "BB", "AaAa" and "BBBB" have one hash code each.
    tag = random_.choice(["Aa", "BB", "AaAa", "BBBB", "AaBB", "x", "名", "", "t" * 200, "\0"])
    pairs = [(b"KEYS", b"k%d" % i), (b"UNIQ_KEY", b"0" * 32), (b"MYTAGS", b"Aa")]
    if tag:
        pairs.insert(random_.randrange(4), (b"TAGS", tag.encode()))
    if random_.random() < 0.02:
        pairs.append((b"TAGS", random_.choice([b"Aa", b"BB"])))
    text = b"".join(name + b"\x01" + value + b"\x02" for name, value in pairs)
    return text if random_.random() < 0.5 else text[:-1]


@pytest.mark.parametrize("seed", range(3))
def test_any_tags_in_any_place_are_what_the_properties_say(seed: int, tmp_path: Path) -> None:
    random_ = random.Random(seed)
    store = WrittenStore(tmp_path / "s")
    store.add(
        Message(
            topic="T", queue_id=i % 3, body=b"\x02TAGS\x01BB\x02", properties=_pairs(random_, i)
        )
        for i in range(400)
    )
    found = rows(tmp_path / "s", ("queueId", "queueOffset", "tags"))
    split = rows(tmp_path / "s", ("queueId", "queueOffset", "tags", "properties"))
    assert found == [row[:3] for row in split]
    assert {"Aa", "BB", "AaBB", "名", None} <= {tag for _, _, tag in found}


def test_a_record_whose_tag_is_damaged_is_looked_at_as_any_other(tmp_path: Path) -> None:
    bulk_store.write_store(tmp_path / "s", 2_000, body_size=16, tags=5, log_file_size=1 << 20)
    log = next((tmp_path / "s" / "commitlog").iterdir())
    raw = bytearray(log.read_bytes())
    first, second = (raw.index(b"TAGS\x01tag003", at) for at in (0, 100_000))
    raw[first + 5 : first + 11] = b"other!"
    size = int.from_bytes(raw[:4], "big")
    # Lengths that do not add up, and another text: the record cannot be read at all.
    begin = second // size * size
    raw[begin + 84 : begin + 88] = (1 << 20).to_bytes(4, "big")
    raw[second + 5 : second + 11] = b"other!"
    log.write_bytes(raw)
    with pytest.raises(bulk.DataLoss):
        rows(tmp_path / "s", ("tags",))
    loss = LossRule(fail=False)
    tags = [tag for (tag,) in rows(tmp_path / "s", ("tags",), loss=loss)]
    assert len(loss.losses) == 1
    assert len(tags) == 1999
    assert tags.count("other!") == 1
