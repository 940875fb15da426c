"""What a slave copies of its master besides tables, and where it is kept; table_sync.py copies it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pocketmq.books.record_file import RecordFiles
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.groups.rebalance_lock import RebalanceLock
from pocketmq.broker.groups.starts import Starts
from pocketmq.broker.modes.isolate import IsolatedGroups
from pocketmq.broker.pop.order_info import ConsumerOrderInfo
from pocketmq.broker.schedules.table import ScheduleTable
from pocketmq.remoting.java_number import number
from pocketmq.store import DelayService, MessageStore
from pocketmq.store.timer.service import TimerService

if TYPE_CHECKING:
    from pocketmq.broker.access.users.table import UserTable


@dataclass(frozen=True, slots=True)
class PocketState:
    """State that only PocketMQ copies: isolated groups' sub-groups and offsets, orderly pops in flight, queue
    locks, where new groups began, which queues were deleted, schedules, and users.
    """

    isolated: IsolatedGroups
    order_info: ConsumerOrderInfo
    locks: RebalanceLock
    consumers: ConsumerManager
    starts: Starts
    store: MessageStore
    schedules: ScheduleTable
    users: "UserTable | None" = None

    def to_json(self) -> dict[str, Any]:
        return {
            "isolated": self.isolated.to_json(),
            "orderInfo": self.order_info.to_json(),
            "locks": self.locks.to_json(),
            "starts": self.starts.to_json(),
            "deleted": self.store.deleted.rows(),
            "schedules": self.schedules.to_json(),
            **({} if self.users is None else {"users": self.users.state.to_json()}),
        }

    def take_locks(self, data: Mapping[str, Any]) -> None:
        """Replace the locks by the master's. Raises: KeyError, TypeError, ValueError."""
        self.locks.take(data["locks"])

    def take_progress(self, data: Mapping[str, Any]) -> None:
        """Replace the progress by the master's. Raises: as `readable` says."""
        deleted = list(data.get("deleted", ()))
        end = self.store.commit_log_max_position
        # Else what is stored in a queue of that name from now on would be taken for deleted.
        if any(not 0 <= number(row[2]) <= end for row in deleted):
            raise ValueError(f"queues are deleted beyond the end of the log, {end}")
        self.isolated.take(data["isolated"], self.consumers.groups)
        self.order_info.take(data["orderInfo"])
        self.store.take_deleted(deleted)
        if "schedules" in data:
            self.schedules.from_json(data["schedules"])
        if self.users is not None and "users" in data:
            self.users.take(data["users"])


@dataclass(frozen=True, slots=True)
class CopiedState:
    """State copied besides the tables; delay and timer keep the master's progress themselves."""

    delay: DelayService
    timer: TimerService
    ours: PocketState
    deliveries: RecordFiles
