"""Replication: GET_BROKER_HA_STATUS (HARuntimeInfo, RocketMQ 5.3.3), and our own codes."""

import logging
from typing import TYPE_CHECKING, Any

from pocketmq.broker.delivery.record import DeliveryRecord
from pocketmq.broker.delivery.record_copy import Held, next_part
from pocketmq.broker.ha.config import ASYNC_MASTER, SYNC_MASTER
from pocketmq.broker.ha.replication import Replication
from pocketmq.broker.pop.service import PopService
from pocketmq.broker.refused import Refused
from pocketmq.broker.wire.admin.answers import json_answer
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.requests import (
    ChangeRoleHeader,
    FollowHeader,
    GetDeliveriesHeader,
    GetDeliveriesResponseHeader,
    IntroduceHeader,
    PocketRequestCode,
)
from pocketmq.remoting.transport.connection import Connection, Handler

if TYPE_CHECKING:
    # Under a controller it is loaded already, and else not needed.
    from pocketmq.broker.election.replication import ElectedReplication

log = logging.getLogger(__name__)


class ReplicasProcessor:
    """Handlers of the eight codes."""

    def __init__(
        self, replication: Replication, pop: PopService, deliveries: DeliveryRecord
    ) -> None:
        self._replication = replication
        self._pop = pop
        self._deliveries = deliveries

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_HA_STATUS: self.get_status,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.get_epochs,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self.role_changed,
            PocketRequestCode.CHANGE_ROLE: self.change_role,
            PocketRequestCode.GET_REPLICA_TABLES: self.get_tables,
            PocketRequestCode.GET_DELIVERIES: self.get_deliveries,
            PocketRequestCode.INTRODUCE: self.introduce,
            PocketRequestCode.FOLLOW: self.follow,
        }

    def introduce(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = IntroduceHeader.parse(request.ext)
        try:
            shown = self._replication.introductions.introduce(header, connection)
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        return request.answer(ResponseCode.SUCCESS, ext=shown.ext())

    def follow(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = FollowHeader.parse(request.ext)
        try:
            shown = self._replication.introductions.follow(header, connection)
        except Refused as refused:
            log.warning(
                "a slave's proof is refused peer=%s reason=%s", connection.peer, refused.remark
            )
            return request.answer(refused.code, refused.remark)
        return request.answer(ResponseCode.SUCCESS, ext=shown.ext())

    def get_status(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return json_answer(
            request, {**self._replication.status(), "popped": len(self._pop.log.state)}
        )

    def get_epochs(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        elected = self._elected()
        if elected is None:
            return request.answer(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode")
        return json_answer(request, elected.epoch_cache())

    def role_changed(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        elected = self._elected()
        if elected is not None:
            elected.notified()
        return request.answer(ResponseCode.SUCCESS)

    def _elected(self) -> "ElectedReplication | None":
        found: Any = self._replication
        return found if found.is_elected else None

    def get_tables(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return json_answer(request, self._replication.copied.ours.to_json())

    def get_deliveries(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = GetDeliveriesHeader.parse(request.ext)
        has = Held(header.size, header.ending, header.before, header.sums)
        self._deliveries.settle()
        try:
            part, data = next_part(self._deliveries.files, has)
        except OSError as error:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"cannot read the record: {error}")
        ext = GetDeliveriesResponseHeader(part).ext()
        return request.answer(ResponseCode.SUCCESS, ext=ext, body=data)

    async def change_role(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = ChangeRoleHeader.parse(request.ext)
        role = header.role or ASYNC_MASTER
        if role not in (ASYNC_MASTER, SYNC_MASTER):
            raise HeaderError(f"a master's role is ASYNC_MASTER or SYNC_MASTER, not {role!r}")
        replication = self._replication
        acts: dict[str, Any] = {
            "begin": lambda: replication.handover.begin(connection),
            "hold": lambda: replication.handover.hold(connection),
            "hand-to": lambda: replication.handover.hand_to(
                header.target or "", header.new_broker_id or 1
            ),
            "end": lambda: replication.handover.end(),
            "undo": lambda: replication.handover.undo(),
            "promote": lambda: replication.promote(role, force=bool(header.force)),
            "demote": lambda: replication.demote(header.new_broker_id or 1),
            "resync": replication.resync,
        }
        if header.act not in acts:
            raise HeaderError(f"there is no act {header.act!r}, use {', '.join(acts)}")
        try:
            await acts[header.act]()
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        return request.answer(ResponseCode.SUCCESS)
