"""Taskiq's schedules, kept and sent by the broker: no scheduler process is needed.

    source = PocketSchedules(broker)                     # of `broker = PocketBroker(...)`
    await task.schedule_by_cron(source, "0 3 * * *")     # or the label `schedule` of a task

1. Workers write the labels when they start; a schedule that is no more in a label is deleted.
2. A task's message has no id: it is made of the message's when it is taken (`PocketBroker.listen`).
3. A scheduler process that has this source lists its schedules and sends none of them (`pre_send`).
"""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pocketmq.remoting.lazy_names import without_extra

try:
    from taskiq import ScheduledTask, ScheduleSource, TaskiqEvents
    from taskiq.exceptions import ScheduledTaskCancelledError
    from taskiq.kicker import AsyncKicker
except ModuleNotFoundError as missing:
    raise without_extra("pocketmq.integrations.taskiq_schedules", missing, "taskiq") from None

from pocketmq.admin import Admin
from pocketmq.admin.schedules import KeptSchedule, Schedule, UnknownSchedule
from pocketmq.integrations.queue_names import topic_of
from pocketmq.integrations.taskiq import PocketBroker
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)


class PocketSchedules(ScheduleSource):
    """The schedules of one topic of tasks. A worker starts it; other programs call `startup`."""

    def __init__(self, broker: PocketBroker) -> None:
        self._broker = broker
        self._admin = Admin(**broker.client_options)
        self._topic = broker.topic
        self._prefix = f"taskiq.{self._topic}."
        broker.add_event_handler(TaskiqEvents.WORKER_STARTUP, self._worker_started)
        broker.add_event_handler(TaskiqEvents.WORKER_SHUTDOWN, self._worker_stopped)

    async def startup(self) -> None:
        """Connect. Raises: PocketMQError."""
        await self._admin.__aenter__()

    async def shutdown(self) -> None:
        """Disconnect; the broker sends what is scheduled all the same."""
        await self._admin.__aexit__(None, None, None)

    async def _worker_started(self, state: Any) -> None:
        await self.startup()
        await self.write_labels()

    async def _worker_stopped(self, state: Any) -> None:
        await self.shutdown()

    # ------------------------------------------------------------ Taskiq's interface

    async def get_schedules(self) -> list[ScheduledTask]:
        """Return the schedules at the brokers. Raises: PocketMQError."""
        admin = self._admin.schedules
        return [
            self._task(await admin.get(each.name, self._topic))
            for each in await admin.list(self._topic)
            if each.name.startswith(self._prefix)
        ]

    async def add_schedule(self, schedule: ScheduledTask) -> None:
        """Have a schedule kept; one of its id is replaced. Raises: PocketMQError, ValueError."""
        await self._add(schedule, "taskiq")

    async def delete_schedule(self, schedule_id: str) -> None:
        """Delete a schedule, if there is one. Raises: PocketMQError."""
        try:
            await self._admin.schedules.delete(self._prefix + schedule_id, self._topic)
        except UnknownSchedule:
            log.debug("there is no schedule id=%s", schedule_id)

    def pre_send(self, task: ScheduledTask) -> None:
        """Refuse: the broker sends it (3)."""
        raise ScheduledTaskCancelledError

    # ------------------------------------------------------------ labels

    async def write_labels(self) -> None:
        """Make the brokers' schedules those of the tasks' labels (1). Raises: PocketMQError."""
        owner = f"taskiq labels {self._topic}"
        names = set()
        for task_name, task in self._broker.get_all_tasks().items():
            for number, row in enumerate(task.labels.get("schedule", ())):
                made = _of_label(task_name, task.labels, f"{task_name}:{number}", row)
                names.add(self._prefix + made.schedule_id)
                try:
                    await self._add(made, owner)
                except (PocketMQError, ValueError) as error:
                    log.error("the schedule of task %s is not kept: %s", task_name, error)
        for each in await self._admin.schedules.list(self._topic, owner=owner):
            if each.name not in names:
                await self._admin.schedules.delete(each.name, self._topic)

    async def _add(self, task: ScheduledTask, owner: str) -> None:
        labels = {name: value for name, value in task.labels.items() if name != "schedule"}
        kicker: AsyncKicker[Any, Any] = AsyncKicker(task.task_name, self._broker, labels)
        kicker = kicker.with_labels(schedule_id=task.schedule_id)
        prepared = kicker.with_task_id(task.task_id or "-")._prepare_message(
            *task.args, **task.kwargs
        )
        message = self._broker.formatter.dumps(prepared)
        message.task_id = task.task_id or ""
        if task.time is not None and _ms(task.time) <= self._admin.clock.now_ms():
            # As Taskiq's scheduler does.
            await kicker.kiq(*task.args, **task.kwargs)
            return
        await self._admin.schedules.create(
            Schedule(
                self._prefix + task.schedule_id,
                self._topic,
                message.message,
                topic_of(task.task_name),
                task.task_id,
                self._broker.properties_of(message),
                owner=owner,
                **_when(task),
            ),
            replace=True,
        )

    def _task(self, kept: KeptSchedule) -> ScheduledTask:
        plan, message = kept.schedule, self._broker.formatter.loads(kept.schedule.body)
        every = plan.interval_ms
        return ScheduledTask(
            task_name=message.task_name,
            labels=message.labels,
            args=message.args,
            kwargs=message.kwargs,
            task_id=plan.keys,
            schedule_id=kept.name.removeprefix(self._prefix),
            cron=plan.cron,
            cron_offset=plan.time_zone if plan.cron else None,
            time=None if plan.at_ms is None else datetime.fromtimestamp(plan.at_ms / 1000, UTC),
            interval=None if every is None else timedelta(milliseconds=every),
        )


def _of_label(
    task_name: str, labels: Mapping[str, Any], default_id: str, row: Mapping[str, Any]
) -> ScheduledTask:
    return ScheduledTask(
        task_name=task_name,
        labels={**labels, **row.get("labels", {})},
        schedule_id=row.get("schedule_id", default_id),
        args=row.get("args", []),
        kwargs=row.get("kwargs", {}),
        cron=row.get("cron"),
        cron_offset=row.get("cron_offset"),
        time=row.get("time"),
        interval=row.get("interval"),
    )


def _when(task: ScheduledTask) -> dict[str, Any]:
    """Return when it comes, as arguments of Schedule. Raises: ValueError."""
    if task.cron is not None:
        zone = task.cron_offset or "UTC"
        if isinstance(zone, timedelta):
            hours, rest = divmod(zone, timedelta(hours=1))
            if rest:
                raise ValueError(
                    f"the broker knows whole hours and names of time zones, not {zone}"
                )
            # The names of these zones count the other way.
            zone = f"Etc/GMT{-hours:+d}" if hours else "UTC"
        # Taskiq wants both days to match.
        return {"cron": task.cron, "all_match": True, "time_zone": zone}
    if task.interval is not None:
        every = task.interval
        seconds = every.total_seconds() if isinstance(every, timedelta) else every
        return {"interval_ms": int(seconds * 1000)}
    assert task.time is not None
    return {"at_ms": _ms(task.time)}


def _ms(at: datetime) -> int:
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
