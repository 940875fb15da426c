"""HPACK, judged by another implementation: whatever it writes is read, as it was meant."""

import hpack as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.grpc.http2 import huffman
from pocketmq.grpc.http2.hpack import HeadersTooLarge, HpackDecoder, HpackError, encode

texts = st.binary(max_size=60)
headers = st.tuples(
    st.one_of(st.sampled_from([b":path", b"content-type", b"x-mq-client-id"]), texts), texts
)
blocks = st.lists(headers, max_size=12)


@settings(deadline=None)
@given(st.lists(st.tuples(blocks, st.booleans()), max_size=8))
def test_blocks_of_one_connection_are_read_in_their_order(
    sent: list[tuple[list[tuple[bytes, bytes]], bool]],
) -> None:
    encoder, decoder = oracle.Encoder(), HpackDecoder(list_size_max=1 << 20)
    for block, with_huffman in sent:
        assert decoder.decode(encoder.encode(block, huffman=with_huffman)) == block


@settings(deadline=None)
@given(blocks)
def test_what_we_write_is_read_by_others(block: list[tuple[bytes, bytes]]) -> None:
    assert [tuple(each) for each in oracle.Decoder().decode(encode(block), raw=True)] == block


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(block: bytes) -> None:
    decoder = HpackDecoder(list_size_max=1 << 10)
    try:
        decoder.decode(block)
    except (HpackError, HeadersTooLarge):
        pass


def test_the_table_shrinks_and_grows_as_the_peer_says() -> None:
    encoder, decoder = oracle.Encoder(), HpackDecoder(list_size_max=1 << 20)
    block = [(b"x-%d" % number, b"v" * 50) for number in range(60)]
    for size in (4096, 0, 100, 4096, 300):
        encoder.header_table_size = size
        assert decoder.decode(encoder.encode(block)) == block


def test_a_table_larger_than_ours_is_refused() -> None:
    with pytest.raises(HpackError, match="at most 4096"):
        HpackDecoder(list_size_max=100).decode(bytes.fromhex("3fe23f"))


def test_headers_beyond_the_limit_still_move_the_table() -> None:
    encoder, decoder = oracle.Encoder(), HpackDecoder(list_size_max=200)
    with pytest.raises(HeadersTooLarge):
        decoder.decode(encoder.encode([(b"x-long", b"v" * 300), (b"x-next", b"1")]))
    assert decoder.decode(encoder.encode([(b"x-next", b"1")])) == [(b"x-next", b"1")]


@pytest.mark.parametrize("text", ["ff", "1fff", "18", "ffffffff"])
def test_a_huffman_text_ends_with_ones_of_less_than_a_byte(text: str) -> None:
    with pytest.raises(ValueError, match="Huffman"):
        huffman.decode(bytes.fromhex(text))
