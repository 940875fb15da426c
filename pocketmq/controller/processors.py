"""The controller's request handlers, one function per request code. Source: ControllerRequestProcessor,
RocketMQ 5.5.0; its codes are those of sets.py.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from pocketmq.controller.config import ControllerConfig
from pocketmq.controller.keeping import Keeper
from pocketmq.controller.living import Living
from pocketmq.controller.sets import ControllerRefused, ReplicaSet, ReplicaSets, not_leading
from pocketmq.remoting import admin_headers as ah
from pocketmq.remoting import fastjson
from pocketmq.remoting.admin_headers import BrokerHeartbeatHeader
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.java_number import long, number
from pocketmq.remoting.requests import AnsweringServer, complete
from pocketmq.remoting.serving.config_requests import changed, shown
from pocketmq.remoting.transport.connection import Connection, Handler

log = logging.getLogger(__name__)

_SUCCESS = ResponseCode.SUCCESS
_MEMBERS_MAX = 1_000
_Answer = Callable[[RemotingCommand, Connection], Awaitable[RemotingCommand]]


class Electing(Protocol):
    """What handlers need of the controller besides its tables: controller.Controller."""

    @property
    def group(self) -> str: ...
    @property
    def keeper(self) -> Keeper: ...

    async def elect(self, name: str, broker_id: int, *, designated: bool) -> ReplicaSet:
        """Elect a master, and notify the living brokers. Raises: ControllerRefused, OSError."""
        ...


class ControllerProcessors:
    """Handlers over the sets and the table of living brokers."""

    def __init__(
        self,
        sets: ReplicaSets,
        living: Living,
        electing: Electing,
        monotonic_ms: Callable[[], int],
        config: ControllerConfig,
    ) -> None:
        self._config = config
        self._sets = sets
        self._living = living
        self._electing = electing
        self._monotonic_ms = monotonic_ms

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        code = RequestCode
        table: dict[RequestCode, _Answer] = {
            code.CONTROLLER_GET_NEXT_BROKER_ID: self.get_next_id,
            code.CONTROLLER_APPLY_BROKER_ID: self.apply_id,
            code.CONTROLLER_REGISTER_BROKER: self.register,
            code.CONTROLLER_ELECT_MASTER: self.elect,
            code.CONTROLLER_GET_REPLICA_INFO: self.get_replica_info,
            code.CONTROLLER_ALTER_SYNC_STATE_SET: self.alter,
            code.CONTROLLER_GET_SYNC_STATE_DATA: self.get_sync_state_data,
            code.CLEAN_BROKER_DATA: self.clean,
        }
        guarded: dict[int, Handler] = {int(each): self._guarded(do) for each, do in table.items()}
        guarded[int(code.CONTROLLER_GET_METADATA_INFO)] = self.get_metadata
        guarded[int(code.BROKER_HEARTBEAT)] = self.heartbeat
        guarded[int(code.UPDATE_CONTROLLER_CONFIG)] = self.update_config
        guarded[int(code.GET_CONTROLLER_CONFIG)] = self.get_config
        return complete(AnsweringServer.CONTROLLER, guarded)

    def _guarded(self, do: _Answer) -> Handler:
        """Return a handler that answers while this controller leads, also what sets.py refuses."""

        async def handler(request: RemotingCommand, connection: Connection) -> RemotingCommand:
            try:
                if not self._electing.keeper.leads:
                    raise not_leading()
                return await do(request, connection)
            except ControllerRefused as refused:
                return request.answer(refused.code, refused.remark, ext={})
            except OSError as error:
                log.exception("the sets cannot be kept")
                return request.answer(ResponseCode.SYSTEM_ERROR, f"not saved: {error}", ext={})

        return handler

    # ------------------------------------------------------------ settings

    def update_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return changed(self._config, request, connection)

    def get_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return shown(self._config, request)

    # ------------------------------------------------------------ brokers

    def get_metadata(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        keeper = self._electing.keeper
        members = keeper.members
        leader = next((each for each in members if members[each] == keeper.leader), "")
        header = ah.ControllerMetadataHeader(
            group=self._electing.group,
            controller_leader_id=leader,
            controller_leader_address=keeper.leader,
            is_leader=keeper.leads,
            peers="".join(f"{each}:{address};" for each, address in sorted(members.items())),
        )
        return request.answer(_SUCCESS, ext=header.ext())

    async def get_next_id(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = ah.SetNameHeader.parse(request.ext)
        found = ah.NextBrokerIdHeader(
            header.cluster_name, header.broker_name, self._sets.next_id(header.broker_name)
        )
        return request.answer(_SUCCESS, ext=found.ext())

    async def apply_id(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = ah.ApplyBrokerIdHeader.parse(request.ext)
        await self._sets.apply_id(
            header.cluster_name,
            header.broker_name,
            header.applied_broker_id,
            header.register_check_code,
        )
        names = ah.SetNameHeader(header.cluster_name, header.broker_name)
        return request.answer(_SUCCESS, ext=names.ext())

    async def register(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = ah.RegisterReplicaHeader.parse(request.ext)
        self._check_alone(header.broker_name, header.broker_id, header.broker_address)
        found = await self._sets.register(
            header.cluster_name, header.broker_name, header.broker_id, header.broker_address
        )
        ext = ah.SetNameHeader(header.cluster_name, header.broker_name).ext()
        if found.master is not None and self._living.get(found.name, found.master) is not None:
            ext |= master_header(found).ext()
        return request.answer(_SUCCESS, ext=ext, body=set_body(found))

    def _check_alone(self, name: str, broker_id: int, address: str) -> None:
        """Refuse a broker whose id another one lives by (RocketMQ: in turns). Raises: ControllerRefused."""
        live = self._living.get(name, broker_id)
        if live is not None and live.address != address:
            raise ControllerRefused(
                ResponseCode.BROKER_NEED_TO_BE_REGISTERED,
                f"broker id {broker_id} of {name!r} is alive at {live.address}. If the store is a copy, "
                "remove its file brokerIdentity: its broker applies for another id then",
            )

    async def elect(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = ah.ElectMasterHeader.parse(request.ext)
        try:
            found = await self._electing.elect(
                header.broker_name, header.broker_id, designated=header.designate_elect
            )
        except ControllerRefused as refused:
            if refused.code is not ResponseCode.MASTER_STILL_EXIST:
                raise
            found = self._sets.get(header.broker_name)
            body = fastjson.dumps({"syncStateSet": sorted(found.in_sync)})
            return request.answer(refused.code, refused.remark, master_header(found).ext(), body)
        group = {
            "brokerAddrs": {str(n): each.address for n, each in found.replicas.items()},
            "brokerName": found.name,
            "cluster": found.cluster,
        }
        body = fastjson.dumps(
            {"brokerMemberGroup": group, "syncStateSet": sorted(found.in_sync)},
            quote_integer_keys=True,
        )
        return request.answer(_SUCCESS, ext=master_header(found).ext(), body=body)

    async def get_replica_info(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = ah.ReplicaInfoHeader.parse(request.ext)
        found = self._sets.get(header.broker_name)
        master = ah.MasterHeader(found.master, found.master_address, found.master_epoch)
        return request.answer(_SUCCESS, ext=master.ext(), body=set_body(found))

    async def alter(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = ah.AlterSyncStateSetHeader.parse(request.ext)
        name = header.broker_name
        in_sync, epoch = parse_set(request.body)
        found = await self._sets.alter(
            name,
            header.master_broker_id,
            header.master_epoch,
            in_sync,
            epoch,
            lambda n: self._living.get(name, n) is not None,
        )
        log.info("in sync name=%s brokers=%s epoch=%d", name, sorted(in_sync), found.in_sync_epoch)
        ext = ah.AlteredHeader(found.in_sync_epoch).ext()
        return request.answer(_SUCCESS, ext=ext, body=set_body(found))

    def heartbeat(self, request: RemotingCommand, connection: Connection) -> None:
        header = BrokerHeartbeatHeader.parse(request.ext)
        self._living.heard(header, connection, self._monotonic_ms())

    # ------------------------------------------------------------ tools

    async def get_sync_state_data(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        names = fastjson.loads_request(request.body) if request.body else []
        if not isinstance(names, list):
            raise HeaderError("the body is not a list of broker names")
        if not names:
            return request.answer(_SUCCESS)
        table = {
            each: self._row(self._sets.sets[each])
            for each in map(str, names[:_MEMBERS_MAX])
            if each in self._sets.sets
        }
        return request.answer(_SUCCESS, body=fastjson.dumps({"replicasInfoTable": table}))

    def _row(self, found: ReplicaSet) -> dict[str, Any]:
        def rows(ids: Iterable[int]) -> list[dict[str, Any]]:
            return [
                {
                    "alive": self._living.get(found.name, n) is not None,
                    "brokerAddress": found.replicas[n].address,
                    "brokerId": n,
                    "brokerName": found.name,
                }
                for n in sorted(ids)
            ]

        return {
            "inSyncReplicas": rows(found.in_sync & found.replicas.keys()),
            "masterAddress": found.master_address,
            "masterBrokerId": found.master,
            "masterEpoch": found.master_epoch,
            "notInSyncReplicas": rows(found.replicas.keys() - found.in_sync),
            "syncStateSetEpoch": found.in_sync_epoch,
        }

    async def clean(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = ah.CleanBrokerDataHeader.parse(request.ext)
        name = header.broker_name
        text = header.broker_controller_ids_to_clean or ""
        try:
            ids = [int(long(each)) for each in text.split(";") if each.strip()]
        except ValueError as error:
            raise ControllerRefused(
                ResponseCode.INVALID_CLEAN_BROKER_METADATA,
                f"brokerControllerIdsToClean is not `1;2`: {text[:100]!r}",
            ) from error
        await self._sets.clean(
            name,
            ids,
            lambda n: self._living.get(name, n) is not None,
            living=header.is_clean_living_broker,
        )
        return request.answer(_SUCCESS)


def master_header(found: ReplicaSet) -> ah.MasterHeader:
    """Return who leads a set."""
    return ah.MasterHeader(
        found.master, found.master_address, found.master_epoch, found.in_sync_epoch
    )


def set_body(found: ReplicaSet) -> bytes:
    """Encode who is in sync."""
    return fastjson.dumps(
        {"syncStateSet": sorted(found.in_sync), "syncStateSetEpoch": found.in_sync_epoch}
    )


def parse_set(body: bytes | bytearray | memoryview) -> tuple[frozenset[int], int]:
    """Parse who is in sync, and the epoch of that. Raises: HeaderError."""
    data = fastjson.loads_request(body)
    try:
        members = data["syncStateSet"]
        if len(members) > _MEMBERS_MAX:
            raise ValueError("too many")
        return frozenset(map(number, members)), number(data["syncStateSetEpoch"])
    except (KeyError, TypeError, ValueError) as error:
        raise HeaderError(f"the body is no SyncStateSet: {str(data)[:200]}") from error
