"""Election: how a broker gets its id, its role and its set in sync from the controller. Source:
ReplicasManager, RocketMQ 5.5.0.

    begin     the id, from the file or by 1012 and 1013; 1003
    beat      904 to every controller, each interval
    poll      1004 each interval, and at once after a notice; 1002 while no broker leads
    alter     1001 whenever the set in sync has to change

1. Before the controller has decided this broker is registered nowhere, and takes no messages.
2. A notice (1008) is a hint: any program can send one, so the controller is asked before it is believed.
3. While no controller answers it is asked each _RETRY_S, and roles stay.
4. A broker whose log may lack something sends no heartbeats and does not lead (lapse.py).
5. A copied store names the id of the broker that it was copied from. While that one is alive this broker
   takes no part; RocketMQ's controller takes the later address, and the two take turns.
"""

import asyncio
import contextlib
import logging
from typing import Protocol

from pocketmq.broker.election.controllers import Controllers, ControllerSaysNo, LogOfReplica
from pocketmq.broker.election.identity import Applied, ControllerIdentity
from pocketmq.broker.election.in_sync import InSync, WantedSet
from pocketmq.broker.election.lapse import Lapse
from pocketmq.broker.election.verdict import Elected
from pocketmq.broker.ha.outside import Outside
from pocketmq.broker.node import Node
from pocketmq.remoting.admin_headers import BrokerHeartbeatHeader
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

_RETRY_S = 1.0
_R = ResponseCode


class Electable(Protocol):
    """This broker's log and role: replication.ElectedReplication."""

    @property
    def in_sync(self) -> InSync: ...
    @property
    def lapse(self) -> Lapse: ...
    @property
    def last_epoch(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def confirmed(self) -> int: ...
    @property
    def follows(self) -> bool: ...

    async def apply(self, verdict: Elected) -> None: ...


class Election:
    """See the head of the file. trouble: why this broker's role is not known; empty if it is."""

    def __init__(
        self, node: Node, replication: Electable, identity: ControllerIdentity, outside: Outside
    ) -> None:
        self._node = node
        self._replication = replication
        self._identity = identity
        self._registration = outside.registration
        self.controllers = Controllers(node.config, node.clock, outside.client)
        self.trouble = "the controller has not been asked yet"
        self._hurry = asyncio.Event()
        self._set_changed = asyncio.Event()

    def hurry(self) -> None:
        """Ask who leads, at once."""
        self._hurry.set()

    def set_changed(self) -> None:
        """Look whether another set in sync has to be asked for."""
        self._set_changed.set()

    async def run(self) -> None:
        """Take part until cancelled."""
        await self._repeat(self._begin, once=True)
        async with asyncio.TaskGroup() as tasks:
            for address in self.controllers.addresses:
                tasks.create_task(self._beat_at(address), name=f"heartbeats {address}")
            tasks.create_task(self._repeat(self._poll), name="who leads")
            tasks.create_task(self._repeat(self._alter), name="in sync")

    async def _repeat(self, act: "Act", *, once: bool = False) -> None:
        """Do it again and again, also after failures."""
        while True:
            try:
                await act()
            except (PocketMQError, OSError) as error:
                if str(error) != self.trouble:
                    log.warning("the controller decides nothing now, next try follows: %s", error)
                self.trouble = str(error)
                await asyncio.sleep(_RETRY_S)
            else:
                if once:
                    return

    # ------------------------------------------------------------ beginning

    async def _begin(self) -> None:
        """Get an id, and register it."""
        broker_id = self._identity.load()
        if broker_id is None:
            broker_id = await self._apply()
        else:
            await self._check_alone(broker_id)
        self._replication.in_sync.own_id = broker_id
        self._node.config.broker_id = broker_id
        await self.controllers.register(broker_id, self._node.address)

    async def _check_alone(self, broker_id: int) -> None:
        """Look whether another broker lives by this id (invariant 5). Raises: PocketMQError."""
        row = (await self.controllers.replicas()).get(broker_id)
        if row is not None and row.alive and row.address != self._node.address:
            raise ControllerSaysNo(
                f"broker id {broker_id} is alive at {row.address}, and this store names it as its own. If it "
                f"is a copy, remove {self._identity.path}: this broker applies for another id then"
            )

    async def _apply(self) -> int:
        """Apply for an id until there is one. Returns: the id."""
        while True:
            applied = self._identity.applied()
            if applied is None:
                check = f"{self._node.address};{self._node.clock.now_ms()}"
                applied = Applied(await self.controllers.next_id(), check)
                self._identity.apply(applied)
            if await self.controllers.apply_id(applied.broker_id, applied.check_code):
                self._identity.keep(applied.broker_id)
                return applied.broker_id
            self._identity.drop_applied()

    async def _beat_at(self, address: str) -> None:
        """Send heartbeats to one controller."""
        while True:
            await self._replication.lapse.over.wait()
            await self._beat(address)
            await asyncio.sleep(self._node.config.broker_heartbeat_interval / 1000)

    async def _beat(self, address: str) -> None:
        config, replication = self._node.config, self._replication
        header = BrokerHeartbeatHeader(
            cluster_name=config.broker_cluster_name,
            broker_addr=self._node.address,
            broker_name=config.broker_name,
            broker_id=replication.in_sync.own_id,
            epoch=replication.last_epoch,
            max_offset=replication.end,
            confirm_offset=replication.confirmed,
            heartbeat_timeout_mills=config.controller_heart_beat_timeout_mills,
            election_priority=config.broker_election_priority,
        )
        try:
            await self.controllers.beat(address, header)
        except (PocketMQError, OSError) as error:
            log.info("no heartbeat to the controller %s: %s", address, error)

    # ------------------------------------------------------------ who leads

    async def _poll(self) -> None:
        self._hurry.clear()
        verdict = await self.controllers.who_leads()
        own_id = self._replication.in_sync.own_id
        if verdict is None:
            await self.controllers.register(own_id, self._node.address)
            verdict = await self.controllers.who_leads()
        if verdict is not None and verdict.master_id in (None, own_id):
            await self._may_lead(verdict)
        if verdict is not None and verdict.master_id is None:
            if not self._replication.follows:
                await self._replication.apply(verdict)
            with contextlib.suppress(ControllerSaysNo):
                verdict = await self.controllers.elect(own_id, designated=False)
        if verdict is not None:
            await self._replication.apply(verdict)
        if verdict is None or verdict.master_id is None:
            raise ControllerSaysNo(
                "no broker of this name that is alive was in sync: none may lead"
            )
        self.trouble = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._node.config.sync_broker_metadata_period / 1000):
                await self._hurry.wait()

    async def _may_lead(self, verdict: Elected) -> None:
        """Apply invariant 4. Raises: ControllerSaysNo while another broker may have what this one lacks."""
        lapse, own_id = self._replication.lapse, self._replication.in_sync.own_id
        if not lapse.may_lack:
            return
        rows = await self.controllers.replicas()
        if rows.pop(own_id, None) is None:
            raise ControllerSaysNo(
                "the controller does not tell this broker among those of its name"
            )
        if lapse.has_led(verdict):
            rows = {n: row for n, row in rows.items() if n in verdict.in_sync}
        logs: dict[int, LogOfReplica] = {}
        for broker_id, row in rows.items():
            found = await self.controllers.log_of(row.address)
            if found is None:
                raise _waits_for(f"broker {broker_id} ({row.address})")
            logs[broker_id] = found
        whole = [each for each, found in logs.items() if not found.may_lack]
        # Either those that lack nothing, or, if all may lack something, those that have more than this one.
        own = self._replication.last_epoch, self._replication.end
        better = whole or [each for each, found in logs.items() if found.extent > own]
        if not better:
            lapse.end()
        elif whole and verdict.master_id == own_id and not lapse.has_led(verdict):
            await self._yield(verdict, max(whole, key=lambda each: logs[each].extent))
        else:
            raise _waits_for(f"one of the brokers {sorted(better)}")

    async def _yield(self, verdict: Elected, better: int) -> None:
        """Let another broker lead: this one was elected while it was down, and may lack something.

        The controller elects one in sync only, and only the master may add it. Raises: PocketMQError.
        """
        own_id = self._replication.in_sync.own_id
        for address in self.controllers.addresses:
            await self._beat(address)
        members = frozenset((own_id, better))
        await self.controllers.alter(own_id, verdict.master_epoch, members, verdict.in_sync_epoch)
        await self.designate(better)
        raise ControllerSaysNo(f"broker {better} is to lead: this one may lack messages")

    async def designate_this(self) -> None:
        """Have this broker elected, or none, whatever its log may lack. Raises: PocketMQError."""
        self._replication.lapse.end()
        for address in self.controllers.addresses:
            await self._beat(address)
        await self.designate(self._replication.in_sync.own_id)

    async def designate(self, broker_id: int) -> None:
        """Have a broker elected, or none. Raises: PocketMQError."""
        await self._replication.apply(await self.controllers.elect(broker_id, designated=True))

    async def designate_another(self) -> None:
        """Have another broker in sync elected. Raises: PocketMQError."""
        in_sync = self._replication.in_sync
        error: PocketMQError = ControllerSaysNo("no other broker is in sync")
        for each in sorted(in_sync.confirmed - {in_sync.own_id}):
            try:
                await self.designate(each)
            except ControllerSaysNo as refusal:
                error = refusal
            else:
                return
        raise error

    # ------------------------------------------------------------ who is in sync

    async def _alter(self) -> None:
        in_sync, clock = self._replication.in_sync, self._node.clock
        wanted = None if self._replication.follows else in_sync.wanted(clock.monotonic_ms())
        if wanted is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_S):
                    await self._set_changed.wait()
            self._set_changed.clear()
            return
        in_sync.ask(wanted)
        code, members, epoch = await self.controllers.alter(
            in_sync.own_id, wanted.master_epoch, wanted.members, wanted.epoch
        )
        if code == _R.SUCCESS:
            await self._take_set(wanted, members, epoch)
        else:
            log.warning("the set in sync stays: code=%s wanted=%s", code, sorted(wanted.members))
            in_sync.refused(wanted, code, clock.monotonic_ms())
            self.hurry()
            await asyncio.sleep(_RETRY_S / 5)

    async def _take_set(self, wanted: WantedSet, members: frozenset[int], epoch: int) -> None:
        in_sync = self._replication.in_sync
        verdict = Elected(in_sync.own_id, self._node.address, wanted.master_epoch, members, epoch)
        await self._replication.apply(verdict)
        log.info("in sync are %s epoch=%d", sorted(members), epoch)


def _waits_for(who: str) -> ControllerSaysNo:
    return ControllerSaysNo(
        "this machine lost power, and the end of the log may be missing: it does not lead before it is sure "
        f"that {who} has no more. If that never returns, designate this one (pocketmq ha promote)"
    )


class Act(Protocol):
    """One step, which may wait."""

    async def __call__(self) -> None: ...
