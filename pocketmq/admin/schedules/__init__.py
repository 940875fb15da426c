"""Schedules: messages that come again, kept by a broker of PocketMQ; `admin.schedules`."""

from pocketmq.admin.schedules.admin import ScheduleAdmin, UnknownSchedule
from pocketmq.admin.schedules.schedule import KeptSchedule
from pocketmq.model.schedule import Schedule

__all__ = ["KeptSchedule", "Schedule", "ScheduleAdmin", "UnknownSchedule"]
