"""Any mix of requests and any bytes: the broker and its other clients survive them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pocketmq.broker.broker import Broker
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.bad_frames import PULL, SEND, frame
from tests.broker.serving import Peer, serving

CODE = RequestCode


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path / "store") as running:
        yield running


_VALUE = st.one_of(
    st.text(max_size=40),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["../x", "T", "g", "%RETRY%g", "true", "", "\0", "*", "A || B", "8", "12"]),
)


_FIELDS = st.sampled_from(
    sorted(
        {*SEND, *PULL, "group", "offset", "delayLevel", "timestamp", "key", "maxNum", "statsName"}
        | {
            "producerGroup",
            "consumerGroup",
            "commitOrRollback",
            "commitLogOffset",
            "msgId",
            "isForce",
        }
        | {
            "tranStateTableOffset",
            "beginTimestamp",
            "endTimestamp",
            "clientID",
            "statsKey",
            "index",
        }
    )
)


_REQUEST = st.tuples(
    st.sampled_from(sorted(int(code) for code in RequestCode if code < 0x8000)),
    st.one_of(st.none(), st.dictionaries(_FIELDS, _VALUE, max_size=14)),
    st.one_of(
        st.binary(max_size=60),
        st.sampled_from([b"{}", b"[]", b"null", b'{"clientID":"c"}', b"a=b\nc", b'{"a":{1:2}}']),
    ),
    st.sampled_from([0, 1]),
)


# What changes the broker on purpose, or hangs up: not for a mix that expects it to serve as before.
_EXCLUDED = {CODE.UPDATE_BROKER_CONFIG, CODE.UPDATE_NAMESRV_CONFIG, CODE.DELETE_TOPIC_IN_BROKER}


async def test_any_mix_of_requests_is_survived(
    broker: Broker, good: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """Hypothesis: fields of any kind in requests of any kind, in both encodings, over one connection;
    each is answered, and what was stored before is still there."""
    caplog.set_level(logging.CRITICAL)
    loop = asyncio.get_running_loop()

    async def run(requests: list[tuple[int, dict[str, str] | None, bytes, int]]) -> None:
        async with await Peer.at(broker) as bad:
            opaques = []
            for code, ext, body, encoding in requests:
                if code in _EXCLUDED:
                    continue
                opaque = bad.send(code, ext, body, encoding=encoding)
                if code not in (CODE.END_TRANSACTION, CODE.PULL_MESSAGE, CODE.LITE_PULL_MESSAGE):
                    opaques.append(opaque)
            for opaque in opaques:
                await bad.answer(opaque)
        assert (await good.produce("T")).code == ResponseCode.SUCCESS

    @settings(
        max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(st.lists(_REQUEST, max_size=12))
    def examples(requests: Any) -> None:
        asyncio.run_coroutine_threadsafe(run(requests), loop).result(60)

    await loop.run_in_executor(None, examples)


async def test_any_bytes_are_survived(broker: Broker, good: Peer) -> None:
    """Hypothesis: whatever comes over the socket; frames whose head is right and the rest is not."""
    loop = asyncio.get_running_loop()

    async def run(raw: bytes) -> None:
        async with await Peer.at(broker) as bad:
            bad.writer.write(raw)
            bad.writer.write_eof()
            assert await bad.ended()
        assert (await good.produce("T")).code == ResponseCode.SUCCESS

    whole = st.binary(max_size=200)
    framed = st.builds(
        lambda kind, header, body: frame(header, body, kind),
        st.sampled_from([0, 1, 77, 3]),
        st.one_of(whole, st.text(max_size=80).map(str.encode), st.just(b'{"code":11,"opaque":1}')),
        whole,
    )

    @settings(
        max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(st.one_of(whole, framed, st.lists(framed, max_size=4).map(b"".join)))
    def examples(raw: bytes) -> None:
        asyncio.run_coroutine_threadsafe(run(raw), loop).result(60)

    await loop.run_in_executor(None, examples)
