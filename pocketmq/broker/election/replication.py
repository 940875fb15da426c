"""ElectedReplication: this broker as master, slave or undecided, as the controller says: here a verdict
becomes a role. Source: AutoSwitchHAService, ReplicasManager, RocketMQ 5.5.0.

1. A verdict counts when its epoch is not smaller than the last one; a larger one for this broker's present
   role changes the epoch only.
2. A master that is not the master any more first stops writing, and answers what waits with
   FLUSH_SLAVE_TIMEOUT (stored, not known to be safe); only then anything is cut or followed.
3. A broker leads after it has processed whatever whole records it received, and after the epoch is on its
   disk. One whose own epochs are larger than the verdict's refuses: the controller has lost its file.
4. Name servers get the epoch as the state version of the topic table: an old master cannot take the route
   back.
"""

import asyncio
import logging
from typing import Any

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.election.election import Election
from pocketmq.broker.election.epochs import Epochs
from pocketmq.broker.election.history import ElectionHistory
from pocketmq.broker.election.identity import ControllerIdentity
from pocketmq.broker.election.lapse import Lapse
from pocketmq.broker.election.switch_follower import ElectedMaster, SwitchFollower
from pocketmq.broker.election.switch_listener import SwitchListener
from pocketmq.broker.election.switch_slaves import SetReplicas, SwitchSlaves
from pocketmq.broker.election.switch_wire import Epoch
from pocketmq.broker.election.verdict import Elected
from pocketmq.broker.ha.config import SLAVE, SYNC_MASTER
from pocketmq.broker.ha.follower import Follower
from pocketmq.broker.ha.listener import Admission, HaListener
from pocketmq.broker.ha.outside import Outside
from pocketmq.broker.ha.replication import Replication
from pocketmq.broker.ha.table_sync import Master
from pocketmq.broker.refused import Refused
from pocketmq.model.names import MASTER_ID
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import IllegalArgument, PocketMQError
from pocketmq.store.errors import Diverged

log = logging.getLogger(__name__)

# How long a master that stops waits until another leads.
_HAND_OVER_S = 3.0
_LOOK_S = 0.01


class ElectedReplication(Replication):
    """See the head of the file. epochs: of this log; in_sync: this broker's set while it leads."""

    def _prepare(self) -> None:
        members = self.replicas.slaves
        assert isinstance(members, SwitchSlaves)
        self.members = members
        self.in_sync = members.set
        folder = self._store.config.store_path_root_dir
        self.epochs = members.epochs = Epochs(folder)
        self.lapse = Lapse(folder)
        self._verdict: Elected | None = None
        self._confirmed = 0
        self.election: Election | None = None
        self.history = ElectionHistory()

    def _make_listener(self) -> HaListener:
        self._prepare()
        node = self._node
        admission = Admission(node.accounts, self.introductions)
        return SwitchListener(
            node.config, node.clock, self._store, self.replicas, admission, members=self.members
        )

    async def _begin(self, outside: Outside) -> None:
        """Ask the controller, from now on."""
        self.epochs.load()
        self.lapse.begin(self.last_epoch, lost_memory=self._store.recovery.is_other_memory)
        self.epochs.settle(self._end)
        self._limit_readers()
        config = self._node.config
        identity = ControllerIdentity(
            self._store.config.store_path_root_dir, config.broker_cluster_name, config.broker_name
        )
        self.election = Election(self._node, self, identity, outside)
        assert isinstance(self.listener, SwitchListener)
        self.listener.changed.to(self.election.set_changed)
        self._electing = outside.tasks.create_task(self.election.run(), name="election")

    def _limit_readers(self) -> None:
        """Show readers what no election takes away (reading_limit.py)."""
        store, arrivals, replicas = self._store, self._node.events.arrivals, self.replicas
        store.reads.limit.set(lambda: self.confirmed)
        arrivals.hold(lambda: store.commit_log_max_position, lambda: self.confirmed)
        assert isinstance(replicas, SetReplicas)
        replicas.advanced.to(arrivals.release)

    async def leave(self) -> None:
        if self.election is not None:
            self._electing.cancel()
            await asyncio.gather(self._electing, return_exceptions=True)
        await super().leave()

    async def hand_over(self) -> None:
        """Have another broker in sync elected before this master stops; if none is, stop all the same."""
        if self.follows or self.election is None or self.in_sync.is_alone:
            return
        try:
            async with asyncio.timeout(_HAND_OVER_S):
                await self.election.designate_another()
                # It leads once it accepts this broker as its slave.
                while self.follower is None or not self.follower.state.connected:
                    await asyncio.sleep(_LOOK_S)
        except (PocketMQError, OSError, TimeoutError) as error:
            log.warning("no other broker leads before this one stops: %s", error)

    # ------------------------------------------------------------ asking

    @property
    def last_epoch(self) -> int:
        """Return the last epoch of this log; -1: none."""
        last = self.epochs.last
        return -1 if last is None else last.number

    @property
    def confirmed(self) -> int:
        """Return the position up to which every broker in sync has the log, as far as it is known here."""
        if isinstance(self.follower, SwitchFollower):
            return self.follower.confirmed
        return self._confirmed if self.follows else self.members.confirmed

    @property
    def end(self) -> int:
        return self._end

    @property
    def trouble(self) -> str:
        if self.election is not None and self.election.trouble:
            return self.election.trouble
        if self.follows:
            if self.follower is None:
                return "the controller has not decided who leads"
            return self.follower.state.trouble
        if self.replicas.too_few:
            count, least = len(self.in_sync.confirmed), self._node.config.min_in_sync_replicas
            return f"{count} brokers are in sync, {least} are needed (minInSyncReplicas): sends are refused"
        return ""

    def status(self) -> dict[str, Any]:
        """See Replication.status; ours: controller, epoch, the set in sync."""
        found = super().status()
        verdict, election = self._verdict, self.election
        found["election"] = {
            "controller": "" if election is None else election.controllers.leader,
            "ownId": self.in_sync.own_id,
            "masterId": None if verdict is None else verdict.master_id,
            "masterAddress": "" if verdict is None else verdict.master_address,
            "masterEpoch": 0 if verdict is None else verdict.master_epoch,
            "inSync": sorted(self._known_in_sync(verdict)),
            "confirmed": self.confirmed,
            "mayLack": self.lapse.may_lack,
            "elections": self.history.count,
            "history": self.history.newest_first(),
        }
        return found

    def election_figures(self) -> dict[str, int] | None:
        verdict = self._verdict
        return {
            "epoch": 0 if verdict is None else verdict.master_epoch,
            "elections": self.history.count,
            "in_sync": len(self._known_in_sync(verdict)),
            "unconfirmed": max(0, self._end - self.confirmed),
            "reachable": int(self.election is not None and not self.election.trouble),
        }

    def _known_in_sync(self, verdict: Elected | None) -> frozenset[int]:
        if not self.follows:
            return self.in_sync.confirmed
        return frozenset() if verdict is None else verdict.in_sync

    def epoch_cache(self) -> dict[str, Any]:
        """Return what GET_BROKER_EPOCH_CACHE answers. Source: EpochEntryCache, RocketMQ 5.5.0."""
        config, entries = self._node.config, self.epochs.entries
        ends = [each.start for each in entries[1:]] + [(1 << 63) - 1]
        return {
            "brokerId": config.broker_id,
            "brokerName": config.broker_name,
            "clusterName": config.broker_cluster_name,
            "epochList": [
                {"endOffset": end, "epoch": each.number, "startOffset": each.start}
                for each, end in zip(entries, ends, strict=False)
            ],
            "maxOffset": self._end,
        }

    # ------------------------------------------------------------ by hand

    async def promote(self, role: str = SYNC_MASTER, *, force: bool = False) -> None:
        """Have the controller elect this broker. Raises: Refused."""
        if not self.follows:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker is already the master")
        assert self.election is not None
        try:
            await self.election.designate_this()
        except (PocketMQError, OSError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"not elected: {error}") from error

    async def demote(self, broker_id: int) -> None:
        """Refuse: the controller decides. Raises: Refused."""
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            "a controller decides who leads: promote another broker of this name instead",
        )

    def notified(self) -> None:
        """Ask the controller at once: a notice says that roles have changed. Any program can send one."""
        if self.election is not None:
            self.election.hurry()

    # ------------------------------------------------------------ verdicts

    async def apply(self, verdict: Elected) -> None:
        """Become what the controller says (invariants 1 and 2). Raises: PocketMQError, OSError."""
        async with self._changing:
            known = self._verdict
            if known is not None and verdict.master_epoch < known.master_epoch:
                return
            leads = verdict.master_id == self.in_sync.own_id
            if known is None or verdict.master_epoch > known.master_epoch:
                heard_ms = 0 if self.follower is None else self.follower.state.heard_ms
                await (self._lead(verdict) if leads else self._obey(verdict))
                self._verdict = verdict
                clock = self._node.clock
                gap_ms = clock.monotonic_ms() - heard_ms if leads and heard_ms else -1
                self.history.add(verdict, clock.now_ms(), gap_ms)
            elif leads and not self.follows:
                self.in_sync.answered(verdict.master_epoch, verdict.in_sync, verdict.in_sync_epoch)
                self.replicas.acked()
            elif verdict.master_address != known.master_address:
                # The same master under another address.
                await self._obey(verdict)
                self._verdict = verdict
            else:
                self._verdict = verdict

    async def _obey(self, verdict: Elected) -> None:
        """Stop leading, and follow the master, if there is one."""
        own_id = self.in_sync.own_id
        config, registration = self._node.config, self._registration
        self._confirmed = self.confirmed
        if not self.follows:
            # Invariant 2: the gate, then the store, then those that wait.
            await self._node.role.follow()
            self._store.follow()
            config.broker_role = SLAVE
            self.replicas.release()
            self.listener.drop_all()
            self._node.events.settings_changed({"brokerId", "brokerRole"})
        await self.end_following()
        config.broker_id = own_id
        registration.state_version = verdict.master_epoch
        if verdict.master_id is not None:
            self._elected = verdict.master_address
            self._follow()
        log.warning(
            "this broker is a slave id=%d master=%s epoch=%d end=%d",
            own_id,
            verdict.master_address or None,
            verdict.master_epoch,
            self._end,
        )
        await registration.renumber(own_id)

    async def _lead(self, verdict: Elected) -> None:
        """Apply invariants 3 and 4. Raises: PocketMQError, OSError."""
        store, config = self._store, self._node.config
        if self.last_epoch > verdict.master_epoch:
            raise RefusesToLead(
                f"the controller has elected this broker with epoch {verdict.master_epoch}, but its log "
                f"knows {self.last_epoch}: the controller has lost its file. Restore it"
            )
        follows = self.follows
        topics_as_of = None if self.metadata is None else self.metadata.topics_as_of
        if follows:
            self._confirmed = self.confirmed
            await self.end_following()
            try:
                while store.following is not None and store.following.step():
                    await asyncio.sleep(0)
            except Diverged as error:
                log.error("leading with what comes before a damaged record: %s", error)
            store.lead()
            # Nothing is elected in this broker's place that lacks any of it, before another is in sync.
            self._confirmed = self._end
            if topics_as_of is not None:
                self._tables.topics.restore_young(store, topics_as_of)
            self._tables.cut_offsets(store.next_offset)
            await store.on_disk()
            self._load_anew()
        self._note_epoch(verdict.master_epoch)
        self.in_sync.lead(verdict.master_epoch, verdict.in_sync, verdict.in_sync_epoch)
        config.broker_role, config.broker_id = SYNC_MASTER, MASTER_ID
        registration = self._registration
        registration.state_version = verdict.master_epoch
        if follows:
            self.listener.drop_all()
            self._node.role.lead()
            self._node.events.settings_changed({"brokerId", "brokerRole"})
        log.warning(
            "this broker is the master epoch=%d end=%d in_sync=%s",
            verdict.master_epoch,
            self._end,
            sorted(verdict.in_sync),
        )
        await registration.renumber(MASTER_ID)

    def _note_epoch(self, number: int) -> None:
        """Note the epoch that begins; a log without any belongs to it as a whole. Raises: OSError."""
        last = self.epochs.last
        if last is None:
            self.epochs.append(Epoch(number, self._store.commit_log_min_position))
        elif last.number != number:
            self.epochs.append(Epoch(number, self._end))

    @property
    def _registration(self) -> Any:
        assert self._outside is not None
        return self._outside.registration

    def _make_follower(self, master: Master) -> Follower:
        assert isinstance(master, ElectedMaster)
        follower = SwitchFollower(
            self._node.config,
            self._node.clock,
            self._store,
            master,
            self._after_cut,
            self.epochs,
        )
        follower.advanced.to(self._node.events.arrivals.release)
        follower.caught_up.to(self.lapse.end)
        follower.confirmed = min(self._confirmed, self._end)
        return follower

    def _make_master(self, outside: Outside) -> Master:
        return ElectedMaster(self._node.config, outside.registration, outside.client, self._elected)


class RefusesToLead(PocketMQError):
    """Why a broker that was elected does not lead."""


def begin_undecided(config: BrokerConfig) -> None:
    """Make a broker a slave without a master until the controller decides. Raises: IllegalArgument."""
    if not config.controller_addr:
        raise IllegalArgument(
            "enableControllerMode=true needs controllerAddr, the addresses of the controllers"
        )
    config.broker_role = SLAVE
    config.broker_id = max(1, config.broker_id)
