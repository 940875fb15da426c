"""The event loop of a server where uvloop is not installed."""

import asyncio
import contextlib
import socket
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from pocketmq.cli.servers.event_loop import new_loop

Pairs = list[tuple[socket.socket, socket.socket]]

CROWD = 300
A_TURN_MAX = 128


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.AbstractEventLoop]:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with contextlib.closing(new_loop()) as loop:
        yield loop


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    """Connections, both ends of each."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(CROWD):
            near, far = socket.socketpair()
            made.append((stack.enter_context(near), stack.enter_context(far)))
        yield made


@pytest.mark.skipif(sys.platform != "linux", reason="other systems wait with another selector")
@pytest.mark.parametrize("stays", [False, True])
def test_a_crowd_that_hangs_up_shares_the_turns(
    loop: asyncio.AbstractEventLoop, pairs: Pairs, stays: bool
) -> None:
    """stays: a reader that ignores the event of an end gets it again."""
    turn = 0
    told: list[tuple[int, socket.socket]] = []

    def tell(near: socket.socket) -> None:
        told.append((turn, near))
        if not stays:
            loop.remove_reader(near)

    async def watch() -> None:
        nonlocal turn
        for near, _ in pairs:
            loop.add_reader(near, tell, near)
        for _, far in pairs[:-1]:
            far.close()
        asking, far = pairs[-1]
        far.send(b"?")
        while len({near for _, near in told}) < CROWD:
            turn += 1
            await asyncio.sleep(0)
            assert turn < CROWD
        assert told[0][1] is asking
        ends = Counter(turn for turn, near in told if near is not asking)
        assert max(ends.values()) <= A_TURN_MAX

    loop.run_until_complete(watch())
