"""What a hostile or broken peer tells a controller: no set is lost by it, and memory stays bounded."""

import pytest

from pocketmq.controller import Controller, ControllerConfig
from pocketmq.controller.keeping import FileKeeper
from pocketmq.controller.processors import ControllerProcessors
from pocketmq.controller.sets import ControllerRefused, Replica
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode as C
from pocketmq.remoting.codes import ResponseCode as R
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.java_number import INT_MAX, LONG_MAX

NAMES = {"clusterName": "c", "brokerName": "b"}


class Site:
    """A controller that leads a set of one broker; `ask` hands it a request as a peer's."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        keeper = FileKeeper(None)
        keeper.leader = "127.0.0.1:1"
        config = ControllerConfig()
        self.controller = Controller(config, self.clock, keeper)
        now_ms = self.clock.monotonic_ms
        tables = self.controller.sets, self.controller.living
        self.handlers = ControllerProcessors(*tables, self.controller, now_ms, config).handlers()

    async def ask(self, code: C, **fields: object) -> RemotingCommand:
        ext = {name: str(value) for name, value in {**NAMES, **fields}.items()}
        answer = await self.handlers[code](RemotingCommand(code, ext), None)  # type: ignore[arg-type, misc]
        assert isinstance(answer, RemotingCommand)
        return answer

    def heartbeat(self, **fields: object) -> None:
        ext = {
            name: str(value)
            for name, value in {**NAMES, "brokerAddr": "127.0.0.1:2", **fields}.items()
        }
        self.handlers[C.BROKER_HEARTBEAT](RemotingCommand(C.BROKER_HEARTBEAT, ext), None)  # type: ignore[arg-type]

    async def begin(self) -> None:
        """Have broker 1 lead."""
        applied = await self.ask(
            C.CONTROLLER_APPLY_BROKER_ID, appliedBrokerId=1, registerCheckCode="127.0.0.1:2;7"
        )
        assert applied.code == R.SUCCESS
        self.heartbeat(brokerId=1)
        await self.controller.sets.elect("b", 1, self.controller.living.of("b"))


async def test_an_epoch_that_no_broker_can_have_does_not_count() -> None:
    """The next one would be no int of Java's: no broker could be told who leads."""
    site = Site()
    await site.begin()
    for epoch in (LONG_MAX, INT_MAX, INT_MAX - 1):
        site.heartbeat(brokerId=1, epoch=epoch)
    assert site.controller.living.of("b")[1].epoch == -1
    site.heartbeat(brokerId=1, epoch=41)
    sets, alive = site.controller.sets, site.controller.living.of("b")
    with pytest.raises(ControllerRefused):
        await sets.elect("b", -1, {})
    assert (await sets.elect("b", -1, alive)).master_epoch == 42


async def test_ids_beyond_those_of_brokers_are_refused() -> None:
    site = Site()
    for broker_id in (LONG_MAX, INT_MAX + 1):
        answer = await site.ask(
            C.CONTROLLER_REGISTER_BROKER, brokerId=broker_id, brokerAddress="127.0.0.1:2"
        )
        assert answer.code == R.BROKER_NEED_TO_BE_REGISTERED
    assert (await site.ask(C.CONTROLLER_GET_NEXT_BROKER_ID)).ext == {**NAMES, "nextBrokerId": "1"}


async def test_a_time_out_is_at_most_ten_minutes() -> None:
    """A broker that is dead does not live for as long as it once said."""
    site = Site()
    await site.begin()
    site.heartbeat(brokerId=1, heartbeatTimeoutMills=LONG_MAX)
    site.clock.advance_ms(600_001)
    [late] = site.controller.living.expire(site.clock.monotonic_ms())
    assert late.broker_id == 1


async def test_names_and_brokers_are_bounded() -> None:
    site = Site()
    await site.begin()
    for name in ("", "b\n", "b" * 256):
        answer = await site.ask(
            C.CONTROLLER_REGISTER_BROKER, brokerName=name, brokerId=1, brokerAddress="127.0.0.1:2"
        )
        assert answer.code == R.BROKER_NEED_TO_BE_REGISTERED
    members = site.controller.sets.get("b").replicas
    members.update({number: Replica("127.0.0.1:2") for number in range(2, 1_001)})
    one_more = await site.ask(
        C.CONTROLLER_REGISTER_BROKER, brokerId=1_001, brokerAddress="127.0.0.1:2"
    )
    assert one_more.code == R.BROKER_NEED_TO_BE_REGISTERED
    for number in range(20_000):
        site.heartbeat(brokerName=f"made-up-{number}", brokerId=1)
    assert site.controller.living.count == 10_000
    site.heartbeat(brokerId=1, epoch=3)
    assert site.controller.living.of("b")[1].epoch == 3
