"""Create, list, pause, resume and delete schedules. PocketMQ only; what they are: broker/schedules/.

1. One name has one schedule at a broker, whatever its topic: each request names both, and rights are of the
   topic, so a client changes no schedule of a topic that it may not publish to.
2. A schedule that is created again as it is stays as it is, so that any number of programs may create it.
"""

from dataclasses import replace
from typing import Any

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages, Tables
from pocketmq.broker.refused import Refused, store_refusal
from pocketmq.broker.schedules.schedule import (
    NAME_LENGTH_MAX,
    Plan,
    ScheduleRow,
)
from pocketmq.broker.schedules.service import ScheduleService
from pocketmq.model.names import is_broker_only
from pocketmq.model.schedule import Schedule, ScheduleIllegal
from pocketmq.remoting.codes import ResponseCode
from pocketmq.store import StoreError

# Of all messages: slaves get the whole table in one answer.
_SIZE_MAX = 4 << 20
_ACTS = ("pause", "resume", "delete")


class ScheduleActs:
    """Acts on the schedules of this broker; each returns where the log must be safe before the answer."""

    def __init__(
        self, node: Node, tables: Tables, messages: Messages, service: ScheduleService
    ) -> None:
        self._config: BrokerConfig = node.config
        self._now_ms = node.clock.now_ms
        self._topics = tables.topics
        self._rows = tables.schedules.rows
        self._store = messages.store
        self._service = service

    def create(
        self, topic: str, name: str, data: Any, *, replaces: bool
    ) -> tuple[ScheduleRow, int]:
        """Create a schedule, or with `replaces` change the one of this name (2). Raises: Refused."""
        self._check_topic(topic)
        if (
            not name
            or len(name) > NAME_LENGTH_MAX
            or not name.isprintable()
            or name != name.strip()
        ):
            raise _illegal(
                f"a schedule's name has 1 to {NAME_LENGTH_MAX} printable characters, and no blanks around it"
            )
        try:
            plan = Plan.checked(Schedule.from_json(name, topic, data))
        except ScheduleIllegal as error:
            raise _illegal(f"schedule {name}: {error}") from error
        known = self._rows.get(name)
        if known is not None:
            self._check_same(known, topic)
            if known.plan == plan:
                return known, 0
            if not replaces:
                raise _illegal(
                    f"there is another schedule {name} already: delete it, or replace it (--replace; in "
                    "Python replace=True)"
                )
        now_ms = self._now_ms()
        next_ms = plan.next_after(now_ms)
        if next_ms is None:
            raise _illegal(f"schedule {name} never comes: {_why_never(plan.schedule, now_ms)}")
        row = ScheduleRow(plan, now_ms, next_ms)
        if known is not None:
            paused = None if known.is_paused else next_ms
            row = replace(row, last_ms=known.last_ms, fired=known.fired, next_ms=paused)
        self._check_room(row, known)
        return row, self._change(name, row)

    def change(self, topic: str, name: str, act: str) -> int:
        """Pause, resume or delete a schedule. Raises: Refused."""
        row = self._rows.get(name)
        if row is None:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, f"there is no schedule {name}")
        self._check_same(row, topic)
        if act == "delete":
            return self._change(name, None)
        if act not in _ACTS:
            raise _illegal(f"{act!r} is not one of {', '.join(_ACTS)}")
        if row.is_paused == (act == "pause"):
            return 0
        if act == "pause":
            return self._change(name, replace(row, next_ms=None))
        next_ms = row.plan.next_after(self._now_ms())
        if next_ms is None:
            raise _illegal(f"schedule {name} does not come any more: delete it")
        return self._change(name, replace(row, next_ms=next_ms))

    def list(self, topic: str | None, name: str | None, owner: str | None) -> list[dict[str, Any]]:
        """Return schedules by name, each without its body, but a single one that is asked for."""
        found = []
        for row in sorted(self._rows.values(), key=lambda each: each.name):
            if topic not in (None, row.schedule.topic) or name not in (None, row.name):
                continue
            if owner not in (None, row.schedule.owner):
                continue
            data = row.to_json()
            if name is None:
                del data["body"]
            found.append(
                {
                    **data,
                    "bodySize": len(row.schedule.body),
                    "fails": self._service.fails(row.name),
                }
            )
        return found

    def _change(self, name: str, row: ScheduleRow | None) -> int:
        try:
            return self._service.change(name, row)
        except StoreError as error:
            raise store_refusal(error, self._store) from error

    def _check_topic(self, topic: str) -> None:
        if is_broker_only(topic):
            raise Refused(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
            )
        if self._topics.get(topic) is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist: create it, then its schedules",
            )

    def _check_same(self, row: ScheduleRow, topic: str) -> None:
        if row.schedule.topic != topic:
            raise _illegal(f"the schedule {row.name} is not of topic {topic}: use another name")

    def _check_room(self, row: ScheduleRow, known: ScheduleRow | None) -> None:
        """Check the bounds of the table and of one schedule."""
        config = self._config
        if known is None and len(self._rows) >= config.schedules_max:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"there are {len(self._rows)} schedules, more are not kept (schedulesMax)",
            )
        size = row.schedule.size
        others = sum(each.schedule.size for each in self._rows.values() if each is not known)
        if others + size > _SIZE_MAX:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the messages of all schedules take {others} bytes, together they may take {_SIZE_MAX}: "
                "delete some, or send references",
            )
        if size > config.schedule_max_size:
            raise _illegal(
                f"the message of schedule {row.name} has {size} bytes, more than {config.schedule_max_size} "
                "(scheduleMaxSize): send a reference to what is large"
            )


def _why_never(schedule: Schedule, now_ms: int) -> str:
    if schedule.at_ms is not None and schedule.at_ms <= now_ms:
        return "its time is over"
    if schedule.until_ms is not None and schedule.until_ms <= now_ms:
        return "its end is over"
    return "no time is like that" if schedule.until_ms is None else "no time before its end"


def _illegal(why: str) -> Refused:
    return Refused(ResponseCode.ILLEGAL_OPERATION, why)
