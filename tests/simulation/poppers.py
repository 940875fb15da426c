"""The members of groups that pop: all at once, in order, and by gRPC. They are what a careful SDK is.

`popper-*` changes the time of a message as soon as it has it; `sorted-*` asks again with the same attempt id
until it has an answer, and acknowledges until it has one; `receiver-*` cancels some of its receives.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from h2.exceptions import ProtocolError

from pocketmq.grpc.messages import classes
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.transport.client import RemotingClient
from tests.broker.popping import Popped, Popper, popped
from tests.broker.serving import Peer
from tests.grpc.asking import Asking, asking
from tests.simulation.clients import Member
from tests.simulation.ledger import Queue
from tests.simulation.machine import START_MS
from tests.simulation.network import Host
from tests.simulation.nodes import ADDRESSES, BROKER_PORT, GRPC_PORT

INVISIBLE_MS = 4_000
"""How long a popped message is kept from other members."""
_ASKED_AGAIN_S = 0.3
# The least that the product takes.
_RECEIVED_MS = 10_000
_SAME_TIME_EVERY, _FAILS_EVERY, _CANCELS_EVERY = 4, 12, 3


class PoppingMember(Member):
    """One that has a task for each broker."""

    # Set by the run.
    broker_names: tuple[str, ...] = ()
    invisible_ms = INVISIBLE_MS

    async def _process(self, host: Host, ending: asyncio.Event) -> None:
        chance = self._machine.chance(f"{self.name} {self._generation}")
        async with RemotingClient({}, self.clock) as client, asyncio.TaskGroup() as tasks:
            for name in self.broker_names:
                peer = cast(Peer, _Peer(client, f"{ADDRESSES[name]}:{BROKER_PORT}"))
                popper = Popper(peer, self.clock.now_ms, self.topic, self.group)
                tasks.create_task(self._pop(host, name, popper, chance, ending))
            self.ready = True

    async def _pop(
        self, host: Host, broker: str, popper: Popper, chance: random.Random, ending: asyncio.Event
    ) -> None:
        raise NotImplementedError

    async def _worked(self, host: Host, key: str, where: str, chance: random.Random) -> bool | None:
        """Work on a message; returns whether it succeeded, None if this process has died by then."""
        handled = self.ledger.group(self.group)
        if host.up and key in handled.acked:
            handled.again.add(key)
        await asyncio.sleep(chance.uniform(0.0, 0.06))
        if not host.up:
            return None
        failed = chance.randrange(_FAILS_EVERY) == 0
        self.ledger.say(self.now_s, f"{self.name} {'failed' if failed else 'did'} {key} {where}")
        if failed:
            handled.failed.add(key)
        else:
            handled.keys.add(key)
        return not failed

    def _acked(self, host: Host, key: str, asked_s: float, end_s: float) -> None:
        """Note an acknowledgement that the broker took, if it was asked for in time."""
        in_time = self.now_s < end_s and self.ledger.lost_power_s < asked_s
        if in_time and host.up and not self.ledger.wrong_clocks:
            self.ledger.group(self.group).acked.add(key)


class PopperNode(PoppingMember):
    """Pops, and now and then fails to do the work."""

    async def _pop(
        self, host: Host, broker: str, popper: Popper, chance: random.Random, ending: asyncio.Event
    ) -> None:
        how = {"maxMsgNums": 4, "invisibleTime": self.invisible_ms, "pollTime": 1_000}
        while not ending.is_set():
            try:
                answer = await popper.answer(**how)
                if answer.code != 0:
                    await asyncio.sleep(_ASKED_AGAIN_S)
                    continue
                found = popped(answer, self.topic, self.group, broker)
                if chance.randrange(_SAME_TIME_EVERY) == 0:
                    # It has no time for the first one now: within the pop's own millisecond, if need be.
                    await self._change(popper, found.pop(0))
                for message in found:
                    await self._work(host, popper, message, chance)
            except PocketMQError:
                await asyncio.sleep(0.5)

    async def _change(self, popper: Popper, message: Popped) -> None:
        handled, key = self.ledger.group(self.group), message.body.decode()
        handled.failed.add(key)
        handled.changing.add(key)
        answer = await popper.change(message, self.invisible_ms)
        if answer.code == 0:
            handled.changing.discard(key)

    async def _work(
        self, host: Host, popper: Popper, message: Popped, chance: random.Random
    ) -> None:
        key = message.body.decode()
        if not await self._worked(host, key, message.topic, chance):
            return
        asked_s = self.now_s
        answer = await popper.ack(message)
        if answer.code == 0:
            pop_ms = int(message.receipt.split(" ")[1])
            self._acked(host, key, asked_s, (pop_ms - START_MS + self.invisible_ms) / 1000)


class SortedNode(PoppingMember):
    """Pops in order."""

    async def _pop(
        self, host: Host, broker: str, popper: Popper, chance: random.Random, ending: asyncio.Event
    ) -> None:
        how = {"maxMsgNums": 4, "invisibleTime": self.invisible_ms, "order": True, "initMode": 0}
        attempt = 0
        while not ending.is_set():
            attempt += 1
            name = f"{self.name} {self._generation} {broker} {attempt}"
            answer = await self._asked(
                ending, partial(popper.answer, **how, pollTime=1_000, attemptId=name)
            )
            if answer is None:
                return
            if answer.code != 0:
                await asyncio.sleep(_ASKED_AGAIN_S)
                continue
            found = popped(answer, self.topic, self.group, broker)
            while found and await self._work(host, broker, popper, found[0], chance, ending):
                del found[0]
            for message in found if host.up else ():
                # In a moment, the one that failed and those behind it.
                await self._asked(ending, partial(popper.change, message, 0))

    async def _asked(
        self, ending: asyncio.Event, ask: Callable[[], Awaitable[RemotingCommand]]
    ) -> RemotingCommand | None:
        """Ask until there is an answer; None if it has to end before."""
        while not ending.is_set():
            try:
                return await ask()
            except PocketMQError:
                await asyncio.sleep(_ASKED_AGAIN_S)
        return None

    async def _work(
        self,
        host: Host,
        broker: str,
        popper: Popper,
        message: Popped,
        chance: random.Random,
        ending: asyncio.Event,
    ) -> bool:
        """Work on a message; returns whether it is done, so that the next one may be."""
        key = message.body.decode()
        queue: Queue = self.topic, broker, message.queue_id
        handled = self.ledger.group(self.group)
        if host.up:
            self._in_order(queue, message.offset)
        done = await self._worked(host, key, f"{queue} {message.offset}", chance)
        if done is None:
            return False
        handled.returned.setdefault((queue, message.offset), set()).add(key)
        if not done:
            return False
        handled.done.setdefault(queue, set()).add(message.offset)
        await self._asked(ending, lambda: popper.ack(message))
        return True

    def _in_order(self, queue: Queue, offset: int) -> None:
        done = self.ledger.group(self.group).done.get(queue, set())
        missing = next((each for each in range(offset) if each not in done), None)
        if missing is not None:
            self.ledger.overtaken.append((queue, offset, missing))


class ReceiverNode(PoppingMember):
    """Receives by gRPC."""

    async def _process(self, host: Host, ending: asyncio.Event) -> None:
        chance = self._machine.chance(f"{self.name} {self._generation}")
        async with asyncio.TaskGroup() as tasks:
            for name in self.broker_names:
                tasks.create_task(self._connected(host, name, chance, ending))
            self.ready = True

    async def _connected(
        self, host: Host, broker: str, chance: random.Random, ending: asyncio.Event
    ) -> None:
        while not ending.is_set():
            try:
                at = f"{ADDRESSES[broker]}:{GRPC_PORT}"
                async with asking(at, f"{self.name}@{self._generation}") as client:
                    while not (ending.is_set() or client.closed):
                        await self._receive(host, client, chance)
            except* (OSError, TimeoutError, ProtocolError):
                # ProtocolError: the broker has said goodbye.
                await asyncio.sleep(0.5)

    async def _receive(self, host: Host, client: Asking, chance: random.Random) -> None:
        asked = classes["ReceiveMessageRequest"](
            group={"name": self.group},
            message_queue={"topic": {"name": self.topic}},
            batch_size=8,
            invisible_duration={"seconds": _RECEIVED_MS // 1000},
            long_polling_timeout={"seconds": 1},
        )
        if chance.randrange(_CANCELS_EVERY) == 0:
            with client.in_one_write():
                client.narrow(0)
                client.cancel(client.begin("ReceiveMessage", asked))
                client.narrow(65_535)
        answers = await self._ask(client, "ReceiveMessage", asked)
        for answer in answers:
            if answer.WhichOneof("content") == "message":
                await self._work(host, client, answer.message, chance)
        if len(answers) < 3:
            await asyncio.sleep(_ASKED_AGAIN_S)

    async def _ask(self, client: Asking, name: str, message: Any) -> list[Any]:
        stream = client.begin(name, message)
        answer = client.answers[stream]
        await client.until(lambda: answer.ended or client.closed)
        if client.closed or answer.status != 0:
            raise ConnectionResetError(answer.text)
        return [classes[f"{name}Response"].FromString(each) for each in answer.messages]

    async def _work(self, host: Host, client: Asking, message: Any, chance: random.Random) -> None:
        key = bytes(message.body).decode()
        system = message.system_properties
        if not await self._worked(host, key, self.topic, chance):
            return
        entry = {"message_id": system.message_id, "receipt_handle": system.receipt_handle}
        asked = classes["AckMessageRequest"](
            group={"name": self.group}, topic={"name": self.topic}, entries=[entry]
        )
        asked_s = self.now_s
        (answer,) = await self._ask(client, "AckMessage", asked)
        if [entry.status.code for entry in answer.entries] == [20_000]:
            pop_ms = int(system.receipt_handle.split(" ")[1])
            self._acked(host, key, asked_s, (pop_ms - START_MS + _RECEIVED_MS) / 1000)


class _Peer:
    """What Popper asks by."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self._address = address

    async def ask(self, code: int, ext: dict[str, object], *, version: int) -> RemotingCommand:
        text = {
            name: str(value).lower() if value in (True, False) else str(value)
            for name, value in ext.items()
        }
        return await self._client.invoke(
            self._address, RemotingCommand(code, text, version=version), 5_000
        )
