"""SwitchFollower: a slave's connection to its master under a controller. Source: AutoSwitchHAClient, RocketMQ
5.5.0.

1. The controller says who leads; the address of its port for slaves comes from the name server, and counts
   only when that names the same master (RocketMQ takes any, and may connect to the one that led before).
2. Handshake first: the log is cut where the two lists of epochs part, and what is cut off is kept in a file.
   A log that would lose what was confirmed is not cut: that master lacks acknowledged messages.
3. Then the ends are compared byte for byte (tail.py): lists of epochs miss one that began where the next one
   did, and a log may have none at all. Whatever differs is cut like 2.
4. The first report follows at once (RocketMQ's slave waits for 5 s). An epoch is noted before its first byte.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.election.epochs import Epochs
from pocketmq.broker.election.switch_wire import FromMaster, LogPiece, Welcome, hello, report
from pocketmq.broker.events import Event
from pocketmq.broker.ha.follower import Follower, MasterAsked
from pocketmq.broker.ha.table_sync import Master
from pocketmq.broker.ha.tail import Ends, common_end
from pocketmq.broker.ha.taking import (
    CONNECT_S,
    CannotFollow,
    FollowState,
    Taking,
    fetched,
    host_and_port,
)
from pocketmq.broker.ha.wire import HaWireError, Slice
from pocketmq.broker.nameservers.registration import Registration
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.store import MessageStore
from pocketmq.store.following import Following

log = logging.getLogger(__name__)


class ElectedMaster(Master):
    """The master that the controller named (invariant 1)."""

    def __init__(
        self,
        config: BrokerConfig,
        registration: Registration,
        client: RemotingClient,
        elected: str,
    ) -> None:
        super().__init__(config, registration, client)
        self.elected = elected

    @property
    def address(self) -> str:
        return self.elected

    @property
    def ha_address(self) -> str:
        if self._config.ha_master_address:
            return self._config.ha_master_address
        registration = self._registration
        return registration.master_ha_address if registration.master_address == self.elected else ""


class SwitchFollower(Follower):
    """Owner of the connection. confirmed: up to where every broker in sync has the log, as last heard;
    advanced: emitted when that may have changed. caught_up: when this log has all that the master's had at
    the handshake.
    """

    retry_ms = 200

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        store: MessageStore,
        master: MasterAsked,
        after_cut: Callable[[], None],
        epochs: Epochs,
    ) -> None:
        super().__init__(config, clock, store, master, after_cut)
        self._switch = config
        self._epochs = epochs
        self.confirmed = 0
        self.advanced: Event[[]] = Event()
        self.caught_up: Event[[]] = Event()
        self._lacks_until = -1

    def _check_mode(self, settings: Mapping[str, str]) -> None:
        if settings.get("enableControllerMode") != "true":
            raise CannotFollow("the master has no controller, and speaks another protocol")

    async def _once(self) -> None:
        ends = await self._check_master()
        address = self.master.ha_address
        if not address:
            raise CannotFollow(
                f"the name server does not know {self.master.address}, which the controller has named, as "
                "the master yet"
            )
        self.state.master, self.state.master_end = address, ends.high
        following = self._store.following
        assert following is not None
        following.drop_rest()
        if following.diverged is not None:
            following = self._store.follow()
        host, port = host_and_port(address)
        async with asyncio.timeout(CONNECT_S):
            transport, taking = await asyncio.get_running_loop().create_connection(
                lambda: SwitchTaking(self, following, self.state, self._clock), host, port
            )
        try:
            transport.write(hello(self._switch.broker_id, learner=self._switch.async_learner))
            async with asyncio.timeout(CONNECT_S):
                welcomed = await taking.welcomed
            taking.following = await self.agreed(following, welcomed, address, ends)
            self._lacks_until = welcomed.end
            self._look(taking.following.received)
        except BaseException:
            taking.abort()
            raise
        await self._stay(taking, taking.following.received)

    # ------------------------------------------------------------ before it

    async def agreed(
        self, following: Following, welcomed: Welcome, address: str, ends: Ends
    ) -> Following:
        """Apply invariants 2 and 3. Returns: what receives the bytes. Raises: CannotFollow."""
        store = self._store
        if store.log_is_empty:
            return following
        own = store.commit_log_max_position
        common: int | None = own
        if self._epochs.entries:
            common = self._epochs.common_end(own, welcomed.epochs, welcomed.end)
            if common is None:
                raise CannotFollow(
                    f"this log and the master's share no epoch: {self._epochs.entries} here, "
                    f"{list(welcomed.epochs)} there. If the master's is the right one, empty this store"
                )
            following = self._cut(following, common)
        if welcomed.end > ends.low:
            low, high = ends.low, welcomed.end

            async def fetch(position: int, size: int) -> bytes:
                return await fetched_log(address, position, size, self._switch.broker_id)

            same = await common_end(store, Ends(low, high), fetch)
            if same is None and store.commit_log_max_position > low:
                raise CannotFollow(
                    "this log and the master's have no record in common: empty this store"
                )
            if same is not None:
                following = self._cut(following, same)
        elif not self._epochs.entries:
            raise CannotFollow(
                "this log has no epochs, and the master's is empty: nothing shows who is right"
            )
        return following

    def _cut(self, following: Following, common: int) -> Following:
        """Cut the log back to what both have. Raises: CannotFollow, OSError."""
        store = self._store
        own = store.commit_log_max_position
        if common < self.confirmed:
            raise CannotFollow(
                f"the master agrees with this log up to {common} only, but everything up to "
                f"{self.confirmed} is confirmed: it lacks acknowledged messages, so nothing is cut"
            )
        if common < own:
            to = store.boundary_before(common) if common else common
            following = self._cut_back(common, to)
        # The order of invariant 3 of epochs.py: the log first.
        self._epochs.cut(store.commit_log_max_position)
        if common < own:
            self._after_cut()
        return following

    # ------------------------------------------------------------ the connection

    @property
    def is_empty(self) -> bool:
        """Return True if there is not a byte of a log."""
        return self._store.log_is_empty

    def heard(self, piece: LogPiece, received: int) -> None:
        """Note the epoch and the confirmed position of what has come. Raises: HaWireError, OSError."""
        if piece.epoch.number >= 0:
            self._epochs.append(piece.epoch)
        self.confirmed = max(self.confirmed, min(piece.confirmed, received))
        self.advanced()
        self._look(received)

    def _look(self, received: int) -> None:
        if 0 <= self._lacks_until <= received:
            self._lacks_until = -1
            self.caught_up()


class SwitchTaking(Taking):
    """The protocol of the followed connection; it takes nothing before `begin`."""

    def __init__(
        self, follower: SwitchFollower, following: Following, state: FollowState, clock: Clock
    ) -> None:
        super().__init__(following, state, clock)
        self._follower = follower
        self._frames = FromMaster()
        self.welcomed: asyncio.Future[Welcome] = self._loop.create_future()

    def take(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            if isinstance(frame, Welcome):
                if not self.welcomed.done():
                    self.welcomed.set_result(frame)
            elif self._has_begun:
                self._take_piece(frame)
            else:
                # Before `begin` this log may have an end that the master does not have.
                raise HaWireError("the master sends before it was asked")

    def _take_piece(self, piece: LogPiece) -> None:
        following = self.following
        size = len(piece.data)
        if size and following.received == 0 and self._follower.is_empty:
            following.begin_at(piece.offset)
        if size and piece.offset != following.received:
            raise HaWireError(
                f"the master sends {piece.offset}, but {following.received} comes next"
            )
        self._follower.heard(piece, following.received + size)
        if size:
            self.receive(piece.offset, piece.data)

    def report_of(self, position: int) -> bytes:
        return report(position)

    def end(self, error: Exception) -> None:
        super().end(error)
        if not self.welcomed.done():
            self.welcomed.set_exception(error)
            # Seen by its waiter, if there is one still.
            self.welcomed.exception()


async def fetched_log(address: str, position: int, size: int, broker_id: int) -> bytes:
    """Return bytes of a master's log, as a learner. Raises: OSError, EOFError, HaWireError."""
    frames = FromMaster()

    def pieces(data: bytes) -> list[Slice]:
        found = (frame for frame in frames.feed(data) if isinstance(frame, LogPiece))
        return [Slice(frame.offset, memoryview(frame.data)) for frame in found if frame.data]

    # Nothing is sent for a report of 0 but the whole log from its beginning.
    asked = hello(broker_id, learner=True) + report(position)
    return await fetched(address, asked, pieces, position, size)
