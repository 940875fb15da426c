"""A decision about a half message is carried out once: whatever it names, after restarts and checks."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import offset_msg_id
from pocketmq.model.names import TRANS_CHECK_MAX_TIME_TOPIC
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.hosts import pack_host
from tests.broker.serving import Peer, serving
from tests.broker.transactions import BORN, COMMIT, ROLLBACK, asked, check, end, found, prepare


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BORN)


@pytest.fixture
async def site(tmp_path: Path, clock: ManualClock) -> AsyncIterator["Site"]:
    site = Site(tmp_path, clock)
    yield site
    await site.stop()


class Site:
    """A broker that starts again on the same folder, with its producer."""

    def __init__(self, folder: Path, clock: ManualClock) -> None:
        self._folder = folder
        self.clock = clock
        self._serving = serving(folder, clock=clock)
        self.broker: Broker
        self.peer: Peer

    async def start(self) -> None:
        self._serving = serving(self._folder, clock=self.clock)
        self.broker = await self._serving.__aenter__()
        self.peer = await Peer.at(self.broker)
        await self.peer.__aenter__()
        await self.peer.heartbeat("", {}, producer="pg")

    async def stop(self) -> None:
        await self.peer.__aexit__(None, None, None)
        await self._serving.__aexit__(None, None, None)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def check(self) -> None:
        self.clock.advance_ms(10_000)
        await check(self.broker)

    async def commit(self, header: dict[str, object]) -> None:
        assert (await self.peer.ask(RequestCode.END_TRANSACTION, header)).code == 0


async def test_a_repeated_commit_is_found_behind_1100_open_halves(
    site: Site,
) -> None:
    """1,100 others wait: which of them stands for the one that is named is not read off them."""
    await site.start()
    others = [await prepare(site.peer, b"%d" % number) for number in range(1_100)]
    answer = await prepare(site.peer)
    assert (await end(site.peer, answer, COMMIT)).code == ResponseCode.SUCCESS
    await site.check()
    for again in range(2):
        assert (await end(site.peer, answer, COMMIT)).code == ResponseCode.SUCCESS, again
        assert await found(site.peer) == [b"half"]
        await site.restart()
    # The same for one that is open, behind as many: it counts for the half message that stands for it.
    last = others[-1]
    assert (await end(site.peer, last, COMMIT)).code == ResponseCode.SUCCESS
    assert (await end(site.peer, last, COMMIT)).code == ResponseCode.SUCCESS
    assert site.broker.parts.services.half.waiting_count == 1_099
    assert await found(site.peer) == [b"half", b"1099"]


@pytest.mark.parametrize("first", ["sent", "asked"])
@pytest.mark.parametrize("between", [False, True])
async def test_a_given_up_message_is_committed_once_by_either_name(
    site: Site, first: str, between: bool
) -> None:
    """As it was sent, and as it was asked about; `between`: the broker starts again between the two."""
    await site.start()
    site.broker.config.transaction_check_max = 1
    answer = await prepare(site.peer)
    await site.check()
    _, header = await asked(site.peer)
    await site.check()
    assert await site.peer.bodies("x", TRANS_CHECK_MAX_TIME_TOPIC) == [b"half"]
    await site.restart()
    for name in (first, "asked" if first == "sent" else "sent", first):
        if name == "sent":
            assert (await end(site.peer, answer, COMMIT)).code == ResponseCode.SUCCESS
        else:
            await site.commit(header)
        if between:
            await site.restart()
    assert await found(site.peer) == [b"half"]


async def test_a_rolled_back_message_is_not_committed_after_a_restart(
    site: Site,
) -> None:
    await site.start()
    site.broker.config.transaction_check_max = 0
    answer = await prepare(site.peer)
    await site.check()
    assert (await end(site.peer, answer, ROLLBACK)).code == ResponseCode.SUCCESS
    await site.restart()
    assert (await end(site.peer, answer, COMMIT)).code == ResponseCode.SUCCESS
    assert site.broker.parts.messages.store.max_offset("T", 1) == 0


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_half_message_without_a_unique_key_is_committed_once(
    site: Site, restarts: bool
) -> None:
    """No client of RocketMQ leaves it out."""
    await site.start()
    answer = await site.peer.produce(
        "T", b"half", queue_id=1, sys_flag=4, TRAN_MSG="true", PGROUP="pg"
    )
    assert (await end(site.peer, answer, COMMIT)).code == ResponseCode.SUCCESS
    await site.check()
    for _ in range(2):
        if restarts:
            await site.restart()
        assert (await end(site.peer, answer, COMMIT)).code == ResponseCode.SUCCESS
    assert await found(site.peer) == [b"half"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_late_decision_counts_after_the_check_was_resumed(
    site: Site, restarts: bool
) -> None:
    """An operator has resumed the check of what was given up; then its producer decides by the first name."""
    await site.start()
    site.broker.config.transaction_check_max = 0
    answer = await prepare(site.peer)
    await site.check()
    store = site.broker.parts.messages.store
    [(position, *_)] = store.entries(TRANS_CHECK_MAX_TIME_TOPIC, 0, 0, 1)
    msg_id = offset_msg_id(pack_host(site.broker.address), position)
    resume = {"msgId": msg_id}
    site.broker.config.transaction_check_max = 15
    assert (await site.peer.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume)).code == 0
    again = await site.peer.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume)
    assert "is being checked" in (again.remark or "")
    if restarts:
        await site.restart()
    assert (await end(site.peer, answer, COMMIT)).code == ResponseCode.SUCCESS
    await site.check()
    assert site.broker.parts.services.half.waiting_count == 0
    if restarts:
        await site.restart()
    assert (await end(site.peer, answer, COMMIT)).code == ResponseCode.SUCCESS
    assert await found(site.peer) == [b"half"]
    ended = await site.peer.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume)
    assert "has been decided" in (ended.remark or "")
