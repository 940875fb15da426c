"""Answers to sends from templates, against the codec; wire.md 3.2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.wire.sends.send_answer import send_answers
from pocketmq.remoting.command import RemotingCommand, SerializeType, decode

HOST = "7F00000100002A9F"
HOST_V6 = "20010DB8000000000000000000000001" + "00002A9F"
texts = st.text(st.characters(codec="utf-8"), max_size=8)
positions = st.integers(0, (1 << 63) - 1)


@given(
    st.sampled_from(list(SerializeType)),
    st.sampled_from([HOST, HOST_V6]),
    texts,
    st.lists(positions, min_size=1, max_size=20),
    st.integers(0, 100_000),
    st.integers(0, (1 << 63) - 1),
    st.integers(-0x8000_0000, 0x7FFF_FFFF),
)
def test_a_template_says_what_the_codec_would_say(
    encoding: SerializeType,
    host: str,
    region: str,
    where: list[int],
    queue_id: int,
    queue_offset: int,
    opaque: int,
) -> None:
    """Invariant 1: any region name, any offsets, both host lengths, both encodings."""
    ext = {"MSG_REGION": region, "TRACE_ON": "true"}
    answers = send_answers(host, ext)[encoding]
    request = RemotingCommand(310, {}, opaque=opaque, encoding=encoding)
    for made, msg_id in (
        (answers.one(opaque, where[0], queue_id, queue_offset), f"{host}{where[0]:016X}"),
        (
            answers.batch(opaque, where, queue_id, queue_offset),
            ",".join(f"{host}{position:016X}" for position in where),
        ),
    ):
        assert int.from_bytes(made[:4], "big") == len(made) - 4
        told = {"msgId": msg_id, "queueId": str(queue_id), "queueOffset": str(queue_offset)}
        assert decode(made[4:]) == request.answer(0, None, ext | told)


@pytest.mark.parametrize("count", [1, 2, 400])
def test_a_batch_names_all_its_records(count: int) -> None:
    """Invariant 2, also for more sizes than are remembered."""
    answers = send_answers(HOST, {})[SerializeType.ROCKETMQ]
    for size in range(count, count + 300):
        ext = decode(answers.batch(1, range(size), 0, 0)[4:]).ext or {}
        assert ext["msgId"].count(",") == size - 1
