"""Codec: frames, headers in all encodings, records, batches. Run: python -m benchmarks.bench_codec"""

import sys

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.raw_load import Frames
from pocketmq.model.message_codec import get_property, properties_to_dict
from pocketmq.model.record import decode_batch, encode_batch
from pocketmq.remoting.command import RemotingCommand, SerializeType, decode, encode
from pocketmq.remoting.frames import FrameDecoder

BODY = b"x" * 128
PROPERTIES = b"UNIQ_KEY\x01" + b"7" * 32 + b"\x02TAGS\x01TagA\x02CLUSTER\x01DefaultCluster"
ENCODINGS = pytest.mark.parametrize("encoding", list(SerializeType), ids=lambda each: each.name)


@pytest.fixture(scope="module")
def frames() -> list[bytes]:
    return Frames("Topic", 4, 128).frames[:64]


def test_cut_64_frames_of_one_read(benchmark: BenchmarkFixture, frames: list[bytes]) -> None:
    data, decoder = b"".join(frames), FrameDecoder()
    assert len(benchmark(decoder.feed, data)) == 64


@ENCODINGS
def test_decode_a_send(
    benchmark: BenchmarkFixture, frames: list[bytes], encoding: SerializeType
) -> None:
    command = decode(frames[0][4:])
    command.encoding = encoding
    frame = encode(command)[4:]
    assert benchmark(decode, frame) == command


@ENCODINGS
def test_encode_an_answer(benchmark: BenchmarkFixture, encoding: SerializeType) -> None:
    ext = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "3", "queueOffset": "12345"}
    assert benchmark(encode, RemotingCommand(0, ext, flag=1, encoding=encoding))


def test_decode_a_batch_of_16(benchmark: BenchmarkFixture) -> None:
    batch = encode_batch([(0, BODY, PROPERTIES)] * 16)
    assert len(benchmark(decode_batch, batch)) == 16


def test_split_properties(benchmark: BenchmarkFixture) -> None:
    assert len(benchmark(properties_to_dict, PROPERTIES)) == 3


def test_find_one_property(benchmark: BenchmarkFixture) -> None:
    assert benchmark(get_property, PROPERTIES, b"TAGS") == b"TagA"


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
