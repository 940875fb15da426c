"""CREATE_SCHEDULE, CHANGE_SCHEDULE, GET_SCHEDULES. Ours; their behaviour: acts/schedules.py."""

import logging

from pocketmq.broker.acts.schedules import ScheduleActs
from pocketmq.broker.refused import Refused
from pocketmq.broker.services import Parts
from pocketmq.broker.wire.admin.answers import json_answer
from pocketmq.broker.wire.when_stored import Answer, when_kept
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import (
    ChangeScheduleHeader,
    CreateScheduleHeader,
    GetSchedulesHeader,
    PocketRequestCode,
)
from pocketmq.remoting.transport.connection import Connection, Handler

log = logging.getLogger(__name__)


def schedule_handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handlers."""
    durability = parts.messages.durability
    acts = ScheduleActs(parts.node, parts.tables, parts.messages, parts.services.schedules)

    def create(request: RemotingCommand, connection: Connection) -> Answer:
        header = CreateScheduleHeader.parse(request.ext)
        try:
            data = fastjson.loads(request.body)
        except ValueError:
            data = None
        try:
            row, end = acts.create(header.topic, header.name, data, replaces=bool(header.replace))
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        if end:
            log.info("schedule created name=%s by=%s", header.name, connection.peer)
        return when_kept(request, json_answer(request, row.to_json()), durability, end or None)

    def change(request: RemotingCommand, connection: Connection) -> Answer:
        header = ChangeScheduleHeader.parse(request.ext)
        try:
            end = acts.change(header.topic, header.name, header.act)
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        log.info("schedule changed %s by=%s", request.ext, connection.peer)
        return when_kept(request, request.answer(ResponseCode.SUCCESS), durability, end or None)

    def list_some(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = GetSchedulesHeader.parse(request.ext)
        found = acts.list(header.topic, header.name, header.owner)
        return json_answer(request, {"schedules": found})

    return {
        PocketRequestCode.CREATE_SCHEDULE: create,
        PocketRequestCode.CHANGE_SCHEDULE: change,
        PocketRequestCode.GET_SCHEDULES: list_some,
    }
