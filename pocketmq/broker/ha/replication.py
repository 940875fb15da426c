"""Replication: the broker's part as master or slave, and changes of its role at run time.

    master    accepts slaves (listener.py), and nothing else
    slave     follows the master's log (follower.py) and tables (table_sync.py); role.py keeps the rest silent

1. A promotion first checks that the old master has stopped or become a slave: two masters of one name write
   two histories, which cannot be merged again.
2. Before it leads, a slave appends every whole record it received, and reloads what is kept in the log only:
   transactions, pops, timers.
3. Routes show the new master within a second: the broker registers its new id at once. The configuration
   file belongs to the operator, and applies unchanged at the next start.
Source: the steps by hand of RocketMQ 4.9.7, which restarts a broker for each change.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pocketmq.broker.ha.comparison import Comparison
from pocketmq.broker.ha.config import ASYNC_MASTER, SLAVE
from pocketmq.broker.ha.copied_state import CopiedState
from pocketmq.broker.ha.introduction import Introductions, OwnAddresses
from pocketmq.broker.ha.listener import Admission, HaListener
from pocketmq.broker.ha.outside import Outside
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages, Tables
from pocketmq.broker.refused import Refused
from pocketmq.model.names import MASTER_ID
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import PocketMQError
from pocketmq.store.errors import Diverged

if TYPE_CHECKING:
    from pocketmq.broker.ha.follower import Follower
    from pocketmq.broker.ha.handover import Handover
    from pocketmq.broker.ha.table_sync import Master, TableSync

log = logging.getLogger(__name__)

# How long a master that stops or steps down waits for its slaves to have the end of the log.
STOP_MS = 3_000
# How long a slave that is promoted waits for an answer of the old master, and then, if that has stepped
# down, until when for its tables: both end within a promotion's second.
_OLD_MASTER_S = 0.6
_LAST_ROUND_S = 0.8


class Replication:
    """Owner of the HA port (listener) and of following a master. follower, metadata: set while following.
    copied: what a slave copies besides the tables.
    """

    def __init__(
        self,
        node: Node,
        tables: Tables,
        messages: Messages,
        copied: CopiedState,
        load_anew: Callable[[], None],
    ) -> None:
        """load_anew: reloads the state kept in the log only (2)."""
        self._node = node
        self._tables = tables
        self._store = messages.store
        self.copied = copied
        self._load_anew = load_anew
        self.replicas = messages.durability.replicas
        self.introductions = Introductions(node.clock, node.accounts, self._own_addresses)
        self.listener = self._make_listener()
        self._outside: Outside | None = None
        self._following: list[asyncio.Task[None]] = []
        self._changing = asyncio.Lock()
        self.follower: Follower | None = None
        self.metadata: TableSync | None = None
        self._handover: Handover | None = None

    def _make_listener(self) -> HaListener:
        node = self._node
        admission = Admission(node.accounts, self.introductions)
        return HaListener(node.config, node.clock, self._store, self.replicas, admission)

    @property
    def is_elected(self) -> bool:
        """Whether a controller decides who leads."""
        return self._node.config.enable_controller_mode

    @property
    def handover(self) -> "Handover":
        """Return what replaces this master by another broker: loaded when that is first asked for."""
        from pocketmq.broker.ha.handover import Handover

        assert self._outside is not None
        if self._handover is None:
            self._handover = Handover(self._node, self, self._outside)
        return self._handover

    def election_figures(self) -> dict[str, int] | None:
        """Return figures of the elections; None: an operator decides the role."""
        return None

    @property
    def follows(self) -> bool:
        return self._node.config.broker_role == SLAVE

    # ------------------------------------------------------------ life

    async def run(self) -> None:
        """Send to slaves what they lack, until cancelled."""
        await self._store.side_tasks.repeat("replicas", self.listener.round)

    async def start(self, sock: socket.socket, outside: Outside) -> None:
        """Accept slaves, or begin to follow."""
        self._outside = outside
        comparison = Comparison(self._store, outside.registration, outside.client)
        await self.listener.listen(sock, comparison, outside.tasks)
        await self._begin(outside)

    async def _begin(self, outside: Outside) -> None:
        """Take part, now that the broker serves."""
        if self.follows:
            self._follow()

    async def hand_over(self) -> None:
        """Let another broker lead before this one stops: without a controller an operator does that."""

    async def stop(self) -> None:
        """Send the slaves the rest of the log, once nothing is appended any more, and close."""
        await self.listener.finish(STOP_MS)
        await self.listener.close()

    # ------------------------------------------------------------ asking

    def status(self) -> dict[str, Any]:
        """Return RocketMQ 5's HARuntimeInfo, with our additions: role, id, trouble, refused slaves, ages."""
        config, slaves, end = self._node.config, self.replicas.slaves, self._end
        now_ms = self._node.clock.monotonic_ms()
        found: dict[str, Any] = {
            "brokerId": config.broker_id,
            "role": config.broker_role,
            "master": not self.follows,
            "masterCommitLogMaxOffset": end,
            "inSyncSlaveNums": slaves.in_sync_count,
            "haConnectionInfo": [
                {
                    "addr": slave.address,
                    "slaveAckOffset": slave.acked,
                    "diff": max(0, end - slave.acked) if slave.served else 0,
                    "lagMs": slaves.lag_ms(slave, now_ms) if slave.served else -1,
                    "inSync": slaves.is_in_sync(slave),
                    "transferFromWhere": slave.next,
                    "transferredByteInSecond": slave.sent.per_second(now_ms),
                    "heardAgeMs": now_ms - slave.heard_ms,
                    "refused": slave.refused,
                }
                for slave in slaves.connected
            ],
            "trouble": self.trouble,
        }
        if self.follower is not None and self.metadata is not None:
            state = self.follower.state
            age_ms = now_ms - state.heard_ms if state.heard_ms else -1
            # A slave acknowledges bytes as soon as it reads them.
            heard_ms = self._node.clock.now_ms() - age_ms if state.heard_ms else 0
            found["haClientRuntimeInfo"] = {
                "masterAddr": state.master,
                "maxOffset": end,
                "isActivated": state.connected,
                "transferredByteInSecond": state.received.per_second(now_ms),
                "behind": self.behind,
                "cuts": state.cuts,
                "lastReadTimestamp": heard_ms,
                "lastWriteTimestamp": heard_ms,
                "heardAgeMs": age_ms,
                "metadataAgeMs": now_ms - self.metadata.round_ms if self.metadata.rounds else -1,
            }
        return found

    @property
    def behind(self) -> int:
        """Return how many bytes of the master's log a slave still lacks, as of the last answer."""
        return 0 if self.follower is None else max(0, self.follower.state.master_end - self._end)

    @property
    def trouble(self) -> str:
        """Return why this broker's replicas are not as they should be; empty if they are."""
        if self.follower is not None:
            return self.follower.state.trouble
        slaves, config = self.replicas.slaves, self._node.config
        for slave in slaves.refused:
            return f"the slave at {slave.address} is refused: {slave.refused}"
        if self.replicas.wanted and slaves.in_sync_count + 1 < config.in_sync_replicas:
            what = "stored and answered with SLAVE_NOT_AVAILABLE"
            if self.replicas.too_few:
                what = "refused, because minInSyncReplicas are not in sync"
            elif config.enable_auto_in_sync_replicas:
                what = "answered with success anyway (enableAutoInSyncReplicas)"
            count = slaves.in_sync_count
            return (
                f"SYNC_MASTER has {count} {'slave' if count == 1 else 'slaves'} in sync but needs "
                f"{config.in_sync_replicas - 1}: sends are {what}"
            )
        return ""

    def _own_addresses(self) -> OwnAddresses | None:
        if self._outside is None:
            return None
        identity = self._outside.registration.identity
        return OwnAddresses(identity.address, identity.ha_address)

    # ------------------------------------------------------------ following

    def _follow(self) -> None:
        """Begin to follow the present master."""
        # What only a slave needs is no part of a master's start.
        from pocketmq.broker.ha.table_sync import TableSync

        outside = self._outside
        assert outside is not None
        master = self._make_master(outside)
        self.metadata = metadata = TableSync(
            self._node, self._tables, self._store, self.copied, master
        )
        self.follower = follower = self._make_follower(master)
        create = outside.tasks.create_task
        self._following = [
            create(follower.run(), name="follow"),
            create(self._copy_tables(follower, metadata), name="metadata"),
        ]

    def _make_master(self, outside: Outside) -> "Master":
        from pocketmq.broker.ha.table_sync import Master

        return Master(self._node.config, outside.registration, outside.client)

    def _make_follower(self, master: "Master") -> "Follower":
        from pocketmq.broker.ha.follower import Follower

        node = self._node
        return Follower(node.config, node.clock, self._store, master, self._after_cut)

    def _after_cut(self) -> None:
        assert self.metadata is not None
        self.metadata.forget()
        self._load_anew()

    async def _copy_tables(self, follower: "Follower", metadata: "TableSync") -> None:
        """Copy the tables round by round until cancelled; they go with the log."""

        async def one() -> None:
            if follower.state.connected:
                await metadata.round()
            await asyncio.sleep(self._node.config.slave_sync_interval / 1000)

        await self._store.side_tasks.repeat("metadata", one)

    async def end_following(self) -> None:
        """Stop following the master."""
        running, self._following = self._following, []
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._store.side_tasks.went_well("metadata")
        self.follower = self.metadata = None

    # ------------------------------------------------------------ changing the role

    async def promote(self, role: str = ASYNC_MASTER, *, force: bool = False) -> None:
        """Become the master (1, 2, 3). force: skip the check of the old one. Raises: Refused."""
        async with self._changing:
            if not self.follows:
                raise Refused(ResponseCode.SYSTEM_ERROR, "this broker is already the master")
            last_round_s = asyncio.get_running_loop().time() + _LAST_ROUND_S
            if not force and await self._check_old_master():
                await self._copy_last(last_round_s)
            assert self.metadata is not None
            topics_as_of = self.metadata.topics_as_of
            await self.end_following()
            store = self._store
            try:
                while store.following is not None and store.following.step():
                    await asyncio.sleep(0)
            except Diverged as error:
                if not force:
                    self._follow()
                    raise Refused(
                        ResponseCode.SYSTEM_ERROR,
                        f"{error}. To lead with what comes before that, force the promotion",
                    ) from error
            store.lead()
            self._tables.topics.restore_young(store, topics_as_of)
            # Messages that only the old master had must not make groups skip the messages that replace them.
            self._tables.cut_offsets(store.next_offset)
            # A power cut here must not lose bytes that slaves will have.
            await store.on_disk()
            self._load_anew()
            self._node.config.broker_role = role
            # Should this broker follow again, it is another one that leads.
            self._node.config.master_address = ""
            self._node.role.lead()
            await self._become(MASTER_ID)
            log.warning("this broker is now the master role=%s end=%d", role, self._end)

    async def demote(self, broker_id: int) -> None:
        """Become a slave with this id, and follow the present master. Raises: Refused."""
        async with self._changing:
            if self.follows:
                raise Refused(ResponseCode.SYSTEM_ERROR, "this broker is already a slave")
            if broker_id == MASTER_ID:
                raise Refused(ResponseCode.SYSTEM_ERROR, "a slave's number is 1 or higher")
            await self._node.role.follow()
            # Before the rest is sent: what is appended meanwhile, by a request over gRPC or one that waited
            # for a new topic, would be here alone, and be cut off when the new master is followed.
            self._store.follow()
            await self.listener.finish(STOP_MS)
            self._node.config.broker_role = SLAVE
            self.replicas.release()
            await self._become(broker_id)
            self._follow()
            log.warning("this broker is now a slave id=%d end=%d", broker_id, self._end)

    async def stand_still(self) -> None:
        """Stop appending as a master, and send its slaves the rest (handover.py)."""
        async with self._changing:
            assert self._outside is not None
            await self._node.role.follow()
            self._store.follow()
            self._outside.registration.let_go()

    async def leave(self) -> None:
        """End a handover and following: the broker stops."""
        if self._handover is not None:
            self._handover.close()
        self.listener.end_comparisons()
        await self.end_following()

    async def go_on_leading(self) -> None:
        """Continue as the master after standing still."""
        async with self._changing:
            assert self._outside is not None
            self._store.lead()
            await self._node.role.stop()
            self._node.role.lead()
            await self._outside.registration.renumber(MASTER_ID)

    async def follow_successor(self, broker_id: int) -> None:
        """Follow the broker that leads and has registered, after standing still."""
        assert self._outside is not None
        registration = self._outside.registration
        async with self._changing:
            self._node.config.broker_role = SLAVE
            self._node.config.broker_id = broker_id
            self.replicas.release()
            self.listener.drop_all()
            # It takes no leave of its old number, which is the other broker's now.
            await registration.renumber(broker_id)
            self._follow()

    async def resync(self) -> None:
        """Slave: give up the end that only this log has, and follow. Master: accept refused slaves again."""
        if self.follower is not None:
            self.follower.may_cut_once = True
            self.follower.hurry()
        else:
            self.replicas.slaves.forget_refusals()
            self.listener.drop_all()

    async def _check_old_master(self) -> bool:
        """Check invariant 1. Returns: whether the old master answers, as a slave. Raises: Refused."""
        follower = self.follower
        assert follower is not None
        state = follower.state
        try:
            async with asyncio.timeout(_OLD_MASTER_S):
                role = (await follower.master.settings()).get("brokerRole", ASYNC_MASTER)
        except (OSError, PocketMQError):
            if not state.connected:
                return False
            interval_ms = self._node.config.ha_housekeeping_interval
            why = (
                "does not answer, but the connection to it is still open. If it has crashed, this slave "
                f"notices within {interval_ms} ms (haHousekeepingInterval): try again then, or force the "
                "promotion"
            )
        else:
            if role == SLAVE:
                return True
            why = f"is online and answers as {role}: stop or demote it first"
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the master {follower.master.address} {why}")

    async def _copy_last(self, until_s: float) -> None:
        """Copy the table changes that a demoted master took since the last round, if it answers in time."""
        assert self.metadata is not None
        try:
            async with asyncio.timeout_at(until_s):
                await self.metadata.round()
        except (OSError, PocketMQError) as error:
            log.warning("no tables from the broker that was the master reason=%s", error)

    async def _become(self, broker_id: int) -> None:
        """Apply invariant 3."""
        assert self._outside is not None
        registration = self._outside.registration
        self._node.config.broker_id = broker_id
        self._node.events.settings_changed({"brokerId", "brokerRole"})
        self.listener.drop_all()
        await registration.become(replace(registration.identity, broker_id=broker_id))

    @property
    def _end(self) -> int:
        return self._store.commit_log_max_position
