"""What RocketMQ 5.5.0 does in controller mode where PocketMQ does something else: one rule each, in the place
of ours while a run lasts. For stories that must end badly under them.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pocketmq.broker.election import switch_follower
from pocketmq.broker.election.epochs import Epochs
from pocketmq.broker.election.in_sync import InSync
from pocketmq.broker.election.lapse import Lapse
from pocketmq.broker.election.switch_slaves import SetReplicas
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.controller.controller import Controller
from pocketmq.controller.living import LiveReplica, Living

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


def an_epoch_begins_behind_the_last_one() -> Rule:
    """An epoch that begins where the last one did is not noted; the bytes of two logs are not compared."""
    ours = Epochs.append

    def append(self: Epochs, epoch: Any) -> None:
        if self.last is None or epoch.start > self.last.start:
            ours(self, epoch)

    async def common_end(store: Any, ends: Any, fetch: Any) -> int:
        return int(min(store.commit_log_max_position, ends.high))

    return _replaced((Epochs, "append", append), (switch_follower, "common_end", common_end))


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
