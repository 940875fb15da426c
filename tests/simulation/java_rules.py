"""What RocketMQ 5.5.0 does in controller mode where PocketMQ does something else: one rule each, in the place
of ours while a run lasts. For stories that must end badly under them.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pocketmq.broker.election import switch_follower
from pocketmq.broker.election.election import Election
from pocketmq.broker.election.epochs import Epochs
from pocketmq.broker.election.in_sync import InSync
from pocketmq.broker.election.lapse import Lapse
from pocketmq.broker.election.replication import ElectedReplication
from pocketmq.broker.election.switch_follower import ElectedMaster, SwitchFollower
from pocketmq.broker.election.switch_slaves import SetReplicas
from pocketmq.broker.ha.table_sync import Master
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.controller.controller import Controller
from pocketmq.controller.living import LiveReplica, Living
from pocketmq.controller.processors import ControllerProcessors
from pocketmq.controller.sets import ReplicaSets
from pocketmq.remoting.admin_headers import NO_BROKER
from pocketmq.store import MessageStore
from pocketmq.store.following import Following
from pocketmq.store.log.mapped_file_queue import MappedFileQueue

Rule = AbstractContextManager[None]


@contextmanager
def _replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def its_own_set_shrinks_at_once() -> Rule:
    """A slave whose connection ends is out of the master's set before the controller agrees."""
    ours = InSync.left

    def left(self: InSync, broker_id: int) -> None:
        ours(self, broker_id)
        self.confirmed -= {broker_id}

    return _replaced(
        (InSync, "left", left),
        (InSync, "union", property(lambda self: self.confirmed)),
        (InSync, "is_alone", property(lambda self: len(self.confirmed) == 1)),
    )


def one_copy_is_enough() -> Rule:
    """allAckInSyncStateSet=false, its default."""
    return _replaced(
        (InSync, "acked", lambda self, end: end),
        (SetReplicas, "wanted", property(lambda self: False)),
    )


async def _common_end(store: Any, ends: Any, fetch: Any) -> int:
    """No bytes are compared."""
    return int(min(store.commit_log_max_position, ends.high))


def an_epoch_begins_behind_the_last_one() -> Rule:
    """An epoch that begins where the last one did is not noted; the bytes of two logs are not compared."""
    ours = Epochs.append

    def append(self: Epochs, epoch: Any) -> None:
        if self.last is None or epoch.start > self.last.start:
            ours(self, epoch)

    return _replaced((Epochs, "append", append), (switch_follower, "common_end", _common_end))


def a_closed_connection_is_a_death() -> Rule:
    """The controller elects when the connection of the heartbeats ends."""

    async def look_after(self: Controller, live: LiveReplica) -> None:
        self.living.declare_dead(live)
        await self._replace(live)

    return _replaced((Controller, "_look_after", look_after))


def a_new_controller_knows_who_is_dead() -> Rule:
    """One that was restarted takes a master for dead that it has not heard."""

    def may_be_alive(self: Living, name: str, broker_id: int, now_ms: int) -> bool:
        return self.get(name, broker_id) is not None

    return _replaced((Living, "may_be_alive", may_be_alive))


def sent_is_caught_up() -> Rule:
    """A slave that was sent everything stays in sync, whether it reports or not."""

    def stays(self: InSync, broker_id: int, now_ms: int) -> bool:
        known = self._reported.get(broker_id)
        return broker_id == self.own_id or (known is not None and known.connected)

    return _replaced((InSync, "_stays", stays))


def the_last_copy_of_topics_counts() -> Rule:
    """A slave that leads knows the topics that it has copied, whatever is in its log."""
    return _replaced((TopicConfigManager, "restore_young", lambda self, store, position: None))


def a_log_is_what_is_there() -> Rule:
    """A broker whose machine has lost power takes part again, as the master, too."""
    return _replaced((Lapse, "begin", lambda self, last_epoch, lost_memory: None))


def without_epochs_nothing_is_compared() -> Rule:
    """A log whose list of epochs is empty is continued where it ends."""
    return _replaced((switch_follower, "common_end", _common_end))


def half_a_record_stays() -> Rule:
    """One that leads appends behind whatever bytes it has received."""
    ours = MessageStore.lead

    def lead(self: MessageStore) -> None:
        following = self.following
        ours(self)
        if following is not None and following.received > self.commit_log.end:
            self.commit_log.at += following.received - self.commit_log.end

    return _replaced((MessageStore, "lead", lead), (Following, "drop_rest", lambda self: None))


def a_cut_moves_the_end_alone() -> Rule:
    """The bytes of a log that was cut stay on the disk; no bytes are compared afterwards."""

    def cut(self: MappedFileQueue, position: int) -> None:
        while self.files and self.files[-1].start >= position:
            self.files.pop().delete()

    return _replaced((MappedFileQueue, "cut", cut), (switch_follower, "common_end", _common_end))


def any_masters_port_is_right() -> Rule:
    """The port for slaves is that of any master that the name server names; it is asked each 30 s."""
    return _replaced(
        (ElectedMaster, "ha_address", property(lambda self: self._registration.master_ha_address)),
        (Master, "look_again", lambda self: None),
    )


def the_first_report_waits() -> Rule:
    """A slave reports 5 s after its handshake."""
    ours = SwitchFollower.agreed

    async def agreed(self: SwitchFollower, *parts: Any) -> Any:
        await asyncio.sleep(5.0)
        return await ours(self, *parts)

    return _replaced((SwitchFollower, "agreed", agreed))


def a_stop_takes_its_time() -> Rule:
    """A master that stops serves no client from then on, and sends heartbeats until its end, 6 s later."""

    async def hand_over(self: ElectedReplication) -> None:
        await self._node.role.follow()
        await asyncio.sleep(6.0)

    return _replaced((ElectedReplication, "hand_over", hand_over))


def a_lost_file_begins_anew() -> Rule:
    """A controller without its file gives the first broker that asks epoch 1, and that leads with its log."""

    def choose(known: Any, broker_id: int, alive: Any, *, designated: bool) -> int | None:
        if not known.master_epoch:
            return broker_id if broker_id != NO_BROKER else None
        return ours(known, broker_id, alive, designated=designated)

    def note_epoch(self: ElectedReplication, number: int) -> None:
        """The refusal of its own list is ignored."""

    ours = ReplicaSets.choose
    return _replaced(
        (ReplicaSets, "choose", staticmethod(choose)),
        (ElectedReplication, "last_epoch", property(lambda self: -1)),
        (ElectedReplication, "_note_epoch", note_epoch),
    )


def the_later_address_counts() -> Rule:
    """Two brokers of one id take turns."""

    async def nothing(*_: object) -> None: ...

    return _replaced(
        (Election, "_check_alone", nothing),
        (ControllerProcessors, "_check_alone", lambda *_: None),
    )
