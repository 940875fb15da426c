"""SwitchListener: a master's HA port under a controller; sockets around switch_slaves.py.
Source: AutoSwitchHAService, AutoSwitchHAConnection, RocketMQ 5.5.0.

The port takes no tickets: with aclEnable a slave's address must be listed in globalWhiteRemoteAddresses.
"""

import logging

from pocketmq.broker.election.switch_slaves import SwitchSlave, SwitchSlaves
from pocketmq.broker.election.switch_wire import Epoch, FromSlave, Hello, head, welcome
from pocketmq.broker.events import Event
from pocketmq.broker.ha.listener import HaListener, SlaveConnection
from pocketmq.broker.ha.slaves import Slave
from pocketmq.broker.ha.wire import HaWireError

log = logging.getLogger(__name__)


class SwitchListener(HaListener):
    """Owner of the port. changed: emitted when the set in sync may have to change."""

    def __init__(self, *parts: object, members: SwitchSlaves) -> None:
        super().__init__(*parts)  # type: ignore[arg-type]
        self.members = members
        self.changed: Event[[]] = Event()

    def _make_connection(self) -> SlaveConnection:
        return SwitchConnection(self)

    def wake(self) -> None:
        super().wake()
        # A send may wait while no slave is connected, and then has to expire.
        self._there.set()

    async def round(self) -> None:
        await super().round()
        self.members.set.pass_time(self.store.commit_log_max_position, self.monotonic_ms())
        self.look()

    def look(self) -> None:
        """Answer what does not wait any more, and see whether the set has to change."""
        self.replicas.acked()
        if self.members.set.wanted(self.monotonic_ms()) is not None:
            self.changed()


class SwitchConnection(SlaveConnection):
    """The connection of one slave."""

    def __init__(self, listener: SwitchListener) -> None:
        super().__init__(listener)
        self._switch = listener
        self._frames = FromSlave()

    def data_received(self, data: bytes) -> None:
        listener, slave = self._switch, self.slave
        if slave is None:
            log.warning(
                "a slave is refused peer=%s: list it in globalWhiteRemoteAddresses", self.address
            )
            self.abort()
            return
        assert isinstance(slave, SwitchSlave)
        members, now_ms = listener.members, listener.monotonic_ms()
        slave.heard_ms = now_ms
        began = slave.next >= 0
        try:
            for frame in self._frames.feed(data):
                if isinstance(frame, Hello):
                    members.greeted(slave, frame)
                    self._welcome(slave, now_ms)
                else:
                    members.reported(slave, frame.end, now_ms)
        except HaWireError as error:
            log.error(
                "a slave is cut off address=%s id=%d: %s", self.address, slave.broker_id, error
            )
            self.abort()
            return
        listener.look()
        if not began:
            listener.wake()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._switch.look()

    def _welcome(self, slave: Slave, now_ms: int) -> None:
        epochs = self._switch.members.epochs
        entries = [] if epochs is None else epochs.entries
        self._write([welcome(self._switch.store.commit_log_max_position, entries)], slave, now_ms)

    def _epoch_of(self, position: int) -> tuple[Epoch, int]:
        """Return the epoch of what is sent next, and where it ends; -1: it is open."""
        epochs = self._switch.members.epochs
        found = None if epochs is None else epochs.at(position)
        # A whole log is sent from its beginning, which may lie before the first epoch that is known.
        return found or (Epoch(-1, 0) if epochs is None else epochs.entries[0], -1)

    def _head(self, slave: Slave, size: int) -> bytes:
        return head(slave.next, size, self._epoch_of(slave.next)[0], self._switch.members.confirmed)

    def _slice_size_max(self, slave: Slave) -> int:
        size_max = super()._slice_size_max(slave)
        end = self._epoch_of(slave.next)[1]
        return size_max if end < 0 else min(size_max, end - slave.next)
