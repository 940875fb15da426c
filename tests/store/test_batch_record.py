"""batch_record: the records of a batch are those that its messages would be one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.files.layout import ENTRY, ENTRY_SIZE
from pocketmq.model.record import MAGIC_V1, encode_batch, middle_struct, read_record
from pocketmq.store import RecordIllegal, RecordTooLarge
from pocketmq.store.index.record_keys import keys_of
from pocketmq.store.log.alike_batch import AlikeBatches
from pocketmq.store.log.batch_record import BatchToIndex, RecordFrame, batch_records
from pocketmq.store.queue.tags_code import tags_code

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
FRAME = RecordFrame(
    MAGIC_V1, 3, middle_struct(8, 8).pack(0, 5, HOST, 6, HOST, 0, 0), b"\x05Topic", 96
)
EARLIER = FRAME._replace(middle=middle_struct(8, 8).pack(4, 2, HOST[::-1], 3, HOST, 1, 2))
OTHER_QUEUE = FRAME._replace(queue_id=4, topic=b"\x05Other")
_OWN = (
    rb"|a|TAGS=x;|UNIQ_KEY=k1;TAGS=x;|UNIQ_KEY=k2;TAGS=x;|UNIQ_KEY=k2;TAGS=y;|K=v;TAGS=x|K=v;TAGS=y;|K=v;XTAGS=;"
    rb"|TAGS=y;K=v;|K=v;TAGS=x;TAGS=y;|K=v;TAGS=;|UNIQ_KEY=;;TAGS=x;|UNIQ_KEY=k1;KEYS=x;|UNIQ_KEY=k1;UNIQ_KEY="
    rb"|TAGS=x;UNIQ_KEY=k1;|TAGS=x;UNIQ_KEY=k2|TAGS=;;UNIQ_KEY=k1;|UNIQ_KEY=k1;TAGS=xx|UNIQ_KEY=k=;TAGS=z;"
)
PROPERTIES = st.sampled_from(_OWN.replace(b"=", b"\x01").replace(b";", b"\x02").split(b"|"))
# What one producer gives its messages, all of one size.
LIKE_ONE = st.sampled_from(
    [b"UNIQ_KEY\x01%b\x02TAGS\x01%b\x02", b"A\x01a\x02UNIQ_KEY\x01%b\x02TAGS\x01%b"]
).flatmap(
    lambda text: st.lists(
        st.tuples(
            st.sampled_from([b"k1", b"k2", b"k\x02", b"\xff\x01"]),
            st.sampled_from([b"x", b"y", b"\x02"]),
        ).map(lambda drawn: text % drawn),
        min_size=2,
        max_size=6,
    )
)
BODIES = st.sampled_from([b"", b"one", b"two", b"longer"])
MEMBERS = st.lists(st.tuples(st.integers(-5, 5), BODIES, PROPERTIES), min_size=1, max_size=6) | (
    # Often all alike, as a producer's batches are.
    st.tuples(st.lists(st.integers(-5, 5), min_size=1, max_size=6), BODIES, PROPERTIES).map(
        lambda drawn: [(flag, drawn[1], drawn[2]) for flag in drawn[0]]
    )
    | st.tuples(st.sampled_from([b"one", b"two"]), LIKE_ONE).map(
        lambda drawn: [(0, drawn[0], own) for own in drawn[1]]
    )
)
OUTERS = st.sampled_from(
    [b"", b"CLUSTER\x01c", b"CLUSTER\x01c\x02", b"KEYS\x01all\x02", b"TAGS\x01z\x02"]
)


@given(MEMBERS, OUTERS, st.booleans())
def test_each_record_holds_its_message_and_the_outer_properties(
    members: list[tuple[int, bytes, bytes]], outer: bytes, quick: bool
) -> None:
    """Alike or not; the queue and the index are told what the records say."""
    data = encode_batch(members)
    other = encode_batch([(flag, body[::-1], own) for flag, body, own in reversed(members)])
    alike = AlikeBatches()
    # Of another queue, and of other moments: nothing of theirs is left. From the second on it is known
    # how such batches are cut.
    for position, frame in ((5, FRAME), (1 << 40, EARLIER), (77, FRAME), (5, OTHER_QUEUE)):
        batch_records(other, frame, outer, position, 1 << 33, alike)
        batch_records(data, frame, outer, position, 1 << 33, alike)
    made = batch_records(data, FRAME, outer, 1000, 7, alike if quick else None)
    at = 0
    to_index = BatchToIndex(11, made, 22).one_by_one()
    for place, (flag, body, own) in enumerate(members):
        size = int.from_bytes(made.records[at : at + 4], "big")
        record = read_record(made.records[at : at + size])
        whole = own + (b"\x02" + outer if outer and own and own[-1:] != b"\x02" else outer)
        assert (record.flag, bytes(record.body), bytes(record.properties)) == (flag, body, whole)
        assert (record.queue_offset, record.position) == (7 + place, 1000 + at)
        assert made.positions[place] == 1000 + at
        assert made.properties(place) == whole
        entry = ENTRY.unpack_from(made.entries, place * ENTRY_SIZE)
        assert entry == (1000 + at, size, tags_code(whole))
        assert made.codes[place] == tags_code(whole)
        assert to_index[place][:3] == (11, 1000 + at, 22)
        assert to_index[place][3] == whole
        if made.keys is not None:
            size_of_key = len(made.keys) // len(members)
            key = made.keys[place * size_of_key : (place + 1) * size_of_key]
            assert keys_of(whole, tags=False) == [key]
        at += size
    assert at == len(made.records)


@given(MEMBERS, st.data())
def test_lengths_that_do_not_add_up_refuse_the_batch(
    members: list[tuple[int, bytes, bytes]], data: st.DataObject
) -> None:
    """A byte less, a byte more, a length changed: refused, or the same number of bytes is understood."""
    whole = encode_batch(members)
    for broken in (whole[:-1], whole + b"\0", whole[1:]):
        with pytest.raises(RecordIllegal):
            batch_records(broken, FRAME, b"", 0, 0)
    place = data.draw(st.sampled_from([0, 1, 2, 16, 17, 18]))
    changed = bytearray(whole)
    changed[place] ^= 0x81
    with pytest.raises(RecordIllegal):
        batch_records(bytes(changed), FRAME, b"", 0, 0)


@pytest.mark.parametrize("count", [1, 3])
def test_properties_that_are_too_long_with_the_outer_ones(count: int) -> None:
    batch = encode_batch([(0, b"", b"k\x01" + b"v" * 32_760)] * count)
    with pytest.raises(RecordTooLarge):
        batch_records(batch, FRAME, b"CLUSTER\x01c", 0, 0)
