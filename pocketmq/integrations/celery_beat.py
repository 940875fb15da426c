"""Celery's periodic tasks, kept by the broker: no beat process is needed, and several send nothing twice.

    app.conf.beat_scheduler = "pocketmq.integrations.celery_beat:Scheduler"

With this setting each worker that starts, and `celery beat`, writes `beat_schedule` to the broker as
schedules; the broker sends the tasks.

1. A schedule's message is the task as Celery would send it, routed and serialized by Celery itself, but for
   what differs each time: its id is made of the message's id when it is received (kombu/firing.py).
2. What is the same stays as it is; what is no more in `beat_schedule` is deleted, if an app of this name
   made it.
"""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pocketmq.remoting.lazy_names import without_extra

try:
    from celery import beat
    from celery.schedules import crontab, schedule
except ModuleNotFoundError as missing:
    raise without_extra("pocketmq.integrations.celery_beat", missing, "celery") from None

from pocketmq.admin.schedules import Schedule
from pocketmq.integrations.kombu import envelope
from pocketmq.integrations.kombu.channel import Channel
from pocketmq.integrations.kombu.firing import EXPIRES
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

_DAYS = range(7)


class EntryIllegal(ValueError):
    """An entry that the broker cannot keep; the text says why."""


class _CatchingChannel(Channel):
    """A channel that stores nothing: it keeps what is published. caught: queues and messages."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.caught: list[tuple[str, dict[str, Any]]] = []

    def _put(self, queue: str, message: dict[str, Any], **options: Any) -> None:
        self.caught.append((queue, message))

    def _put_fanout(self, exchange: str, message: Any, routing_key: str, **options: Any) -> None:
        raise EntryIllegal(f"the exchange {exchange} is a fanout: schedules go to one queue")


class Scheduler(beat.Scheduler):
    """For `celery beat -S` and `beat_scheduler`. It sends nothing itself."""

    def setup_schedule(self) -> None:
        super().setup_schedule()
        write_schedules(self.app, self.schedule)

    def tick(self, *args: Any, **options: Any) -> float:
        return float(self.max_interval)


def keep_schedules(app: Any) -> None:
    """Have the broker keep `beat_schedule`; called by each worker that is ready."""
    try:
        Scheduler(app)
    except (PocketMQError, OSError) as error:
        log.error("beat_schedule is not written to the broker reason=%s", error)


def write_schedules(app: Any, entries: Mapping[str, Any]) -> None:
    """Make the broker's schedules those of an app. Raises: PocketMQError."""
    owner = f"celery {app.main}"
    with app.connection_for_write() as connection:
        channel = _CatchingChannel(connection.connection)
        connection.connection.channels.append(channel)
        wanted = {}
        for name, entry in entries.items():
            try:
                made = _schedule(app, channel, f"celery.{app.main}.{name}", entry, owner)
                wanted[made.name] = made
                channel.link.call(channel.link.admin.schedules.create(made, replace=True))
            except (EntryIllegal, PocketMQError) as error:
                log.error("the periodic task %s is not sent: %s", name, error)
        kept = channel.link.call(channel.link.admin.schedules.list(owner=owner))
        for each in kept:
            if (
                each.name not in wanted
                and each.name.removeprefix(f"celery.{app.main}.") not in entries
            ):
                channel.link.call(channel.link.admin.schedules.delete(each.name))
                log.info(
                    "deleted the schedule of a periodic task that is no more name=%s", each.name
                )


def _schedule(app: Any, channel: _CatchingChannel, name: str, entry: Any, owner: str) -> Schedule:
    """Return an entry as a schedule. Raises: EntryIllegal."""
    queue, payload = _message(app, channel, name, entry)
    kind = channel.link.call(channel.link.kind(queue))
    if kind.is_transient:
        raise EntryIllegal(f"the queue {queue} lives only as long as a process")
    priority = None
    if kind.priorities:
        priority = min(int(payload["properties"].get("priority") or 0), kind.priorities - 1)
    message = envelope.pack(kind.topic, payload, envelope.DueTime(None, None), priority=priority)
    return Schedule(
        name,
        kind.topic,
        message.body,
        message.tags,
        properties={} if priority is None else {envelope.PRIORITY: str(priority)},
        owner=owner,
        **when(app, entry.schedule),
    )


def _message(
    app: Any, channel: _CatchingChannel, name: str, entry: Any
) -> tuple[str, dict[str, Any]]:
    """Return queue and message of an entry, the same each time. Raises: EntryIllegal."""
    task, options = app.tasks.get(entry.task), dict(entry.options or {})
    # As Celery's own beat: options of the call before those of the task.
    options = {**(task._get_exec_options() if task is not None else {}), **options}
    for word in ("countdown", "eta"):
        if options.pop(word, None) is not None:
            raise EntryIllegal(f"the option {word} does not go with a schedule")
    expires = options.pop("expires", None)
    ignores = options.pop("ignore_result", getattr(task, "ignore_result", False))
    headers = {**(options.pop("headers", None) or {}), "celery_beat_task": True}
    if expires is not None:
        if isinstance(expires, datetime):
            raise EntryIllegal("expires is a number of seconds: each task has its own")
        headers[EXPIRES] = float(expires)
    del channel.caught[:]
    # No result is waited for here: with ignore_result the backend is left alone.
    app.send_task(
        entry.task,
        beat._evaluate_entry_args(entry.args),
        beat._evaluate_entry_kwargs(entry.kwargs),
        producer=app.amqp.Producer(channel, auto_declare=False),
        **{**options, "task_id": name, "retry": False, "ignore_result": True, "headers": headers},
    )
    if len(channel.caught) != 1:
        raise EntryIllegal(f"it goes to {len(channel.caught)} queues, not to one")
    [(queue, payload)] = channel.caught
    payload["headers"].update(ignore_result=bool(ignores), origin="pocketmq", id=None, root_id=None)
    for word in ("delivery_tag", "reply_to", "correlation_id"):
        payload["properties"].pop(word, None)
    return queue, payload


def when(app: Any, given: Any) -> dict[str, Any]:
    """Return when a schedule of Celery's comes, as arguments of Schedule. Raises: EntryIllegal."""
    if isinstance(given, crontab):
        zone = getattr(app.timezone, "key", None) or str(app.timezone)
        return {"cron": cron_of(given), "all_match": True, "time_zone": zone}
    if type(given) is schedule:
        return {"interval_ms": round(given.run_every.total_seconds() * 1000)}
    raise EntryIllegal(f"the broker knows crontab and intervals, not {given!r}")


def cron_of(given: crontab) -> str:
    """Return the five fields; Celery wants both days to match.

    >>> cron_of(crontab(minute="*/15", hour="8-17", day_of_week="mon-fri"))
    '*/15 8,9,10,11,12,13,14,15,16,17 * * 1,2,3,4,5'
    """
    return " ".join(
        (
            _field(given._orig_minute, given.minute, range(60)),
            _field(given._orig_hour, given.hour, range(24)),
            _field(given._orig_day_of_month, given.day_of_month, range(1, 32)),
            _field(given._orig_month_of_year, given.month_of_year, range(1, 13)),
            _field(given._orig_day_of_week, given.day_of_week, _DAYS),
        )
    )


def _field(text: Any, values: set[int], whole: range) -> str:
    if values == set(whole):
        return "*"
    # It says how the field follows a clock that is changed.
    if isinstance(text, str) and text.startswith("*/") and text[2:].isdigit():
        return text
    return ",".join(map(str, sorted(values)))
