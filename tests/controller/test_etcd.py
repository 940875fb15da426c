"""Several controllers with a real etcd: which one leads, and that one that was replaced changes nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import Message, Producer, SendStatus
from pocketmq.controller import Controller, ControllerConfig
from pocketmq.controller.etcd_gateway import EtcdError, EtcdGateway, put
from pocketmq.controller.etcd_keeper import PREFIX, EtcdKeeper
from pocketmq.controller.sets import ControllerRefused
from pocketmq.remoting import admin_headers as ah
from pocketmq.remoting.admin_headers import BrokerHeartbeatHeader
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.client import RemotingClient
from tests.broker.election_sets import Set, leads
from tests.broker.pairs import name_server
from tests.kit.etcd import Etcd, etcd_of
from tests.kit.waiting import until_async as until

_TTL_S = 2
_numbers = iter(range(1_000_000))


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with etcd_of(tmp_path_factory.mktemp("etcd")) as found:
        yield found


class Member(Controller):
    """A controller whose process can be frozen, as far as it notices, and killed."""

    def __init__(self, etcd: Etcd, group: str, number: int) -> None:
        self.etcd = EtcdGateway(etcd.urls)
        self.frozen_ms = 0
        self.clock = SystemClock()
        keeper = EtcdKeeper(self.etcd, group, f"c{number}", self.now_ms, ttl_s=_TTL_S)
        config = ControllerConfig(listen_port=0, group=group, heartbeat_timeout=2_000)
        super().__init__(config, self.clock, keeper)

    def now_ms(self) -> int:
        return self.frozen_ms or self.clock.monotonic_ms()

    def freeze(self) -> None:
        """Let no time pass by its own clock."""
        self.frozen_ms = self.clock.monotonic_ms()

    async def stop(self) -> None:
        await self.__aexit__()

    async def kill(self) -> None:
        """End without giving the lease back."""

        async def nothing(lease: int) -> None:
            pass

        self.etcd.revoke = nothing  # type: ignore[method-assign]
        await self.__aexit__()


@asynccontextmanager
async def controllers(
    etcd: Etcd, count: int = 1, *, group: str | None = None
) -> AsyncIterator[list[Member]]:
    """Start controllers of one group, the first of which leads."""
    group = group or f"g{next(_numbers)}"
    async with AsyncExitStack() as stack:
        found = []
        for number in range(count):
            controller = await stack.enter_async_context(Member(etcd, group, number))
            await controller.listen()
            found.append(controller)
            if not number:
                await until(lambda: found[0].keeper.leads, "the first controller leads")
        yield found


def beat(controller: Controller, broker_id: int, epoch: int = 0) -> None:
    """A heartbeat of a broker of the set `b` whose time-out is long."""
    header = BrokerHeartbeatHeader(
        "c", f"127.0.0.1:{broker_id}", "b", broker_id, epoch, 100, 100, 60_000, 7
    )
    controller.living.heard(header, None, SystemClock().monotonic_ms())


async def set_of_two(found: list[Member]) -> None:
    """Broker 1 leads, 2 is in sync."""
    first = found[0]
    for broker_id in (1, 2):
        await first.sets.apply_id("c", "b", broker_id, f"127.0.0.1:{broker_id};7")
        for controller in found:
            beat(controller, broker_id)
    await first.elect("b", 1, designated=False)
    await first.sets.alter("b", 1, 1, {1, 2}, 1, lambda n: True)


async def test_any_controller_says_who_leads_and_only_that_one_answers(etcd: Etcd) -> None:
    async with controllers(etcd, 2) as found, RemotingClient({}, SystemClock()) as client:
        first, second = found
        await until(lambda: second.keeper.leader == first.address, "the second knows the first")
        await until(lambda: len(first.keeper.members) == 2, "both are members")

        async def ask(controller: Controller, code: RequestCode, **fields: str) -> Any:
            return await client.invoke(
                controller.address, RemotingCommand(code, dict(fields)), 3_000
            )

        for each in found:
            answer = await ask(each, RequestCode.CONTROLLER_GET_METADATA_INFO)
            header = ah.ControllerMetadataHeader.parse(answer.ext)
            assert header.controller_leader_address == first.address
            assert header.controller_leader_id == "c0"
            assert header.is_leader == (each is first)
            assert header.peers == f"c0:{first.address};c1:{second.address};"
        names = {"clusterName": "c", "brokerName": "b"}
        codes = [
            (await ask(each, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, **names)).code
            for each in found
        ]
        assert codes == [ResponseCode.SUCCESS, ResponseCode.NOT_LEADER]


async def test_one_that_stops_hands_over_what_it_knew_at_once(etcd: Etcd) -> None:
    async with controllers(etcd, 2) as found:
        await set_of_two(found)
        first, second = found
        await first.stop()
        await until(lambda: second.keeper.leads, "the second leads", _TTL_S / 2)
        assert second.sets.sets == first.sets.sets
        assert second.sets.get("b").in_sync == {1, 2}


async def test_after_kill_9_another_leads_when_the_lease_has_ended(etcd: Etcd) -> None:
    async with controllers(etcd, 2) as found:
        await set_of_two(found)
        first, second = found
        await first.kill()
        await until(lambda: second.keeper.leads, "the second leads")
        # It saw the master's connection end before it led, and knows that the broker is dead.
        [live] = [each for each in second.living.of("b").values() if each.broker_id == 1]
        second.living.declare_dead(live)
        await until(lambda: second.sets.get("b").master == 2, "the slave was elected")
        assert second.sets.get("b").master_epoch == 2


async def test_silence_before_it_led_replaces_no_master(etcd: Etcd) -> None:
    async with controllers(etcd, 2) as found:
        await set_of_two(found)
        first, second = found
        now_ms = SystemClock().monotonic_ms()
        assert len(second.living.expire(now_ms + 100_000)) == 2
        beat(second, 2)
        await first.stop()
        await until(lambda: second.keeper.leads, "the second leads")
        with pytest.raises(ControllerRefused) as refused:
            await second.elect("b", 2, designated=False)
        assert refused.value.code == ResponseCode.ELECT_MASTER_FAILED
        await until(lambda: second.sets.get("b").master == 2, "its silence has lasted here, too")


async def test_one_that_was_frozen_too_long_changes_nothing(etcd: Etcd) -> None:
    async with controllers(etcd, 2) as found:
        await set_of_two(found)
        first, second = found
        first.freeze()
        await until(lambda: second.keeper.leads, "the second leads")
        await second.sets.alter("b", 1, 1, {1}, 2, lambda n: True)
        assert first.keeper.leads
        with pytest.raises(ControllerRefused) as refused:
            await first.sets.alter("b", 1, 1, {1}, 2, lambda n: True)
        assert refused.value.code == ResponseCode.NOT_LEADER
        await until(lambda: first.keeper.leader == second.address, "it finds the other")
        assert second.sets.get("b").in_sync_epoch == 3


async def test_a_change_whose_answer_is_lost_is_read_again(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with controllers(etcd) as [only]:
        await set_of_two([only])
        change = only.etcd.change

        async def unanswered(*args: Any) -> Any:
            await change(*args)
            raise EtcdError("the answer is lost")

        with monkeypatch.context() as lost:
            lost.setattr(only.etcd, "change", unanswered)
            with pytest.raises(EtcdError):
                await only.sets.alter("b", 1, 1, {1}, 2, lambda n: True)
            assert not only.keeper.leads
        await until(lambda: only.keeper.leads, "it leads again")
        assert only.sets.get("b").in_sync == {1}
        assert only.sets.get("b").in_sync_epoch == 3
        await only.sets.alter("b", 1, 1, {1, 2}, 3, lambda n: True)


async def test_a_set_that_another_program_changed_is_read_again(etcd: Etcd) -> None:
    async with controllers(etcd) as [only]:
        await set_of_two([only])
        [key] = await only.etcd.under(f"{PREFIX}/{only.group}/sets/")
        await only.etcd.change([], put(key.key, key.value), key.key)
        with pytest.raises(EtcdError, match="another program"):
            await only.sets.alter("b", 1, 1, {1}, 2, lambda n: True)
        await until(lambda: only.keeper.leads, "it leads again")
        await only.sets.clean("b", [], lambda n: False, living=False)
        assert only.sets.sets == {}
    async with controllers(etcd, group=only.group) as [again]:
        assert again.sets.sets == {}


async def test_etcd_dies_and_returns_and_loses_everything(tmp_path: Path) -> None:
    with etcd_of(tmp_path) as etcd:
        async with controllers(etcd) as [only]:
            await set_of_two([only])
            kept = only.sets.sets
            etcd.kill()
            await until(lambda: not only.keeper.leads, "it does not lead without etcd")
            with pytest.raises(ControllerRefused):
                await only.sets.alter("b", 1, 1, {1}, 2, lambda n: True)
            await asyncio.to_thread(etcd.start)
            await until(lambda: only.keeper.leads, "it leads again")
            assert only.sets.sets == kept
            etcd.kill()
            etcd.lose_data()
            await until(lambda: not only.keeper.leads, "it does not lead without etcd")
            await asyncio.to_thread(etcd.start)
            await until(lambda: only.keeper.leads, "it leads again")
            assert only.sets.sets == {}
            await only.sets.register("c", "b", 2, "127.0.0.1:2")
            with pytest.raises(ControllerRefused):
                await only.elect("b", 2, designated=False)
            beat(only, 2, epoch=1)
            found = await only.elect("b", 2, designated=True)
            assert found.master_epoch == 2, "larger than the epoch of the broker's log"


async def test_three_members_of_etcd_bear_the_loss_of_one(tmp_path: Path) -> None:
    with etcd_of(tmp_path, 3) as etcd:
        async with controllers(etcd, 2) as found:
            await set_of_two(found)
            etcd.kill(0)

            def leader() -> Member:
                [one] = [each for each in found if each.keeper.leads]
                return one

            async def changed() -> bool:
                # While members elect among themselves, a change may fail, or be made without an answer.
                one = leader()
                known = one.sets.get("b")
                try:
                    other = frozenset({1, 2} if known.in_sync == {1} else {1})
                    await one.sets.alter("b", 1, 1, other, known.in_sync_epoch, lambda n: True)
                except (EtcdError, ControllerRefused):
                    return False
                return True

            await until(changed, "a change is made", ignoring=ValueError)
            etcd.kill(1)
            await until(lambda: not any(each.keeper.leads for each in found), "none leads")


async def test_brokers_follow_the_controller_that_leads(etcd: Etcd, tmp_path: Path) -> None:
    """The controller that led has died before the master dies."""
    async with controllers(etcd, 3) as found, name_server() as namesrv:
        set_ = Set(tmp_path, namesrv, ";".join(each.address for each in found))
        brokers = await set_.of(2)
        async with Producer("p", name_server=namesrv) as producer:
            await producer.send(Message("T", b"first"))
            await found[0].kill()
            await until(lambda: any(each.keeper.leads for each in found[1:]), "another leads")
            await set_.stop("b0")
            await until(lambda: leads(brokers[1]), "the slave was elected")
            result = await producer.send(Message("T", b"second"), timeout_ms=20_000)
            assert result.status == SendStatus.SEND_OK
        await set_.stop_all()
