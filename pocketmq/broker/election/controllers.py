"""Controllers: a broker's requests to the controller that leads. Source: BrokerOuterAPI, ReplicasManager,
RocketMQ 5.5.0.

1. Any listed controller says who leads (1005); requests go there until one fails or is answered with
   NOT_LEADER.
2. After a request without an answer the connection is closed, so that it cannot be carried out after the
   requests that follow.
"""

from typing import Any, NamedTuple

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.election.verdict import Elected, set_of, verdict_of
from pocketmq.remoting import admin_headers as ah
from pocketmq.remoting import fastjson
from pocketmq.remoting.address_list import split_addresses
from pocketmq.remoting.admin_headers import BrokerHeartbeatHeader
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import PocketMQError, RemotingError
from pocketmq.remoting.header import Header
from pocketmq.remoting.java_number import number
from pocketmq.remoting.transport.client import RemotingClient

_C, _R = RequestCode, ResponseCode
_TIMEOUT_MS = 3_000


class NoController(PocketMQError):
    """No controller answers, or none leads."""


class Controllers:
    """Asks for one broker."""

    def __init__(self, config: BrokerConfig, clock: Clock, client: RemotingClient) -> None:
        self._config = config
        self._clock = clock
        self._client = client
        self.leader = ""

    @property
    def addresses(self) -> list[str]:
        return split_addresses(self._config.controller_addr)

    async def ask(
        self, code: RequestCode, header: Header | None, body: bytes = b""
    ) -> RemotingCommand:
        """Ask the controller that leads. Raises: NoController."""
        leader, ext = self.leader or await self._find(), {} if header is None else header.ext()
        try:
            answer = await self._client.invoke(
                leader, RemotingCommand(code, ext, body), _TIMEOUT_MS, signed=False
            )
        except (OSError, RemotingError) as error:
            self.leader = ""
            self._client.close_address(leader)
            raise NoController(f"the controller {leader} does not answer: {error}") from error
        if answer.code == _R.NOT_LEADER:
            self.leader = ""
            raise NoController(f"the controller {leader} does not lead any more")
        return answer

    async def _find(self) -> str:
        """Return who leads (invariant 1). Raises: NoController."""
        why = "controllerAddr is empty"
        for address in self.addresses:
            try:
                answer = await self._client.invoke(
                    address,
                    RemotingCommand(_C.CONTROLLER_GET_METADATA_INFO),
                    _TIMEOUT_MS,
                    signed=False,
                )
                found = ah.ControllerMetadataHeader.parse(answer.ext)
            except (OSError, PocketMQError) as error:
                why = f"{address}: {error}"
                continue
            if found.controller_leader_address:
                self.leader = found.controller_leader_address
                return self.leader
            why = f"{address}: no controller leads"
        raise NoController(f"no controller ({why})")

    async def beat(self, address: str, header: BrokerHeartbeatHeader) -> None:
        """Send a heartbeat. Raises: RemotingError, OSError."""
        await self._client.oneway(address, RemotingCommand(_C.BROKER_HEARTBEAT, header.ext()))

    # ------------------------------------------------------------ questions

    @property
    def _names(self) -> tuple[str, str]:
        return self._config.broker_cluster_name, self._config.broker_name

    async def next_id(self) -> int:
        """Return the id to apply for. Raises: NoController, PocketMQError."""
        answer = await self.ask(_C.CONTROLLER_GET_NEXT_BROKER_ID, ah.SetNameHeader(*self._names))
        _check(answer)
        return ah.NextBrokerIdHeader.parse(answer.ext).next_broker_id

    async def apply_id(self, broker_id: int, check_code: str) -> bool:
        """Apply for an id. Returns: False if another broker has it. Raises: NoController, PocketMQError."""
        header = ah.ApplyBrokerIdHeader(*self._names, broker_id, check_code)
        answer = await self.ask(_C.CONTROLLER_APPLY_BROKER_ID, header)
        if answer.code == _R.BROKER_ID_INVALID:
            return False
        _check(answer)
        return True

    async def register(self, broker_id: int, address: str) -> None:
        """Tell this broker's address. Raises: NoController, PocketMQError."""
        header = ah.RegisterReplicaHeader(*self._names, broker_id, address, self._clock.now_ms())
        _check(await self.ask(_C.CONTROLLER_REGISTER_BROKER, header))

    async def who_leads(self) -> Elected | None:
        """Return the verdict; None: the controller does not know the name. Raises: as above."""
        header = ah.ReplicaInfoHeader(self._config.broker_name)
        answer = await self.ask(_C.CONTROLLER_GET_REPLICA_INFO, header)
        if answer.code == _R.BROKER_METADATA_NOT_EXIST:
            return None
        _check(answer)
        return verdict_of(answer)

    async def replicas(self) -> dict[int, "ReplicaRow"]:
        """Return the brokers of this name; empty if the controller has none yet. Raises: as above."""
        name = self._config.broker_name
        answer = await self.ask(_C.CONTROLLER_GET_SYNC_STATE_DATA, None, fastjson.dumps([name]))
        _check(answer)
        try:
            row = fastjson.loads(answer.body)["replicasInfoTable"].get(name)
            rows = [] if row is None else [*row["inSyncReplicas"], *row["notInSyncReplicas"]]
            return {
                number(each["brokerId"]): ReplicaRow(
                    str(each["brokerAddress"]), each.get("alive") is True
                )
                for each in rows
            }
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ControllerSaysNo(
                "the controller does not tell the brokers of this name"
            ) from error

    async def log_of(self, address: str) -> "LogOfReplica | None":
        """Ask a broker of this name for its log; None: no answer, so it may have everything."""
        try:
            epochs = await self._told(address, _C.GET_BROKER_EPOCH_CACHE)
            entries = epochs["epochList"]
            status = await self._told(address, _C.GET_BROKER_HA_STATUS)
            # RocketMQ's tells no election.
            return LogOfReplica(
                status.get("election", {}).get("mayLack") is True,
                number(entries[-1]["epoch"]) if entries else -1,
                number(epochs["maxOffset"]),
            )
        except (OSError, PocketMQError, AttributeError, LookupError, TypeError, ValueError):
            return None

    async def _told(self, address: str, code: RequestCode) -> Any:
        answer = await self._client.invoke(
            address, RemotingCommand(code), _TIMEOUT_MS, signed=False
        )
        _check(answer)
        return fastjson.loads(answer.body)

    async def elect(self, broker_id: int, *, designated: bool) -> Elected:
        """Have a master elected: this broker or another; designated: this one or none. Raises: as above."""
        header = ah.ElectMasterHeader(*self._names, broker_id, designated, self._clock.now_ms())
        answer = await self.ask(_C.CONTROLLER_ELECT_MASTER, header)
        if answer.code != _R.MASTER_STILL_EXIST:
            _check(answer)
        return verdict_of(answer)

    async def alter(
        self, broker_id: int, master_epoch: int, members: frozenset[int], epoch: int
    ) -> tuple[ResponseCode | int, frozenset[int], int]:
        """Ask for another set in sync. Returns: code, set, its epoch. Raises: NoController."""
        header = ah.AlterSyncStateSetHeader(
            self._config.broker_name, broker_id, master_epoch, self._clock.now_ms()
        )
        body = fastjson.dumps({"syncStateSet": sorted(members), "syncStateSetEpoch": epoch})
        answer = await self.ask(_C.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)
        if answer.code != _R.SUCCESS:
            return answer.code, frozenset(), 0
        return answer.code, *set_of(answer.body)


class ReplicaRow(NamedTuple):
    """A broker as the controller knows it; alive: it sends heartbeats."""

    address: str
    alive: bool


class LogOfReplica(NamedTuple):
    """What a broker says of its log; may_lack: see lapse.py. epoch: its last, -1: none."""

    may_lack: bool
    epoch: int
    end: int

    @property
    def extent(self) -> tuple[int, int]:
        """Return what the logs of a set are compared by."""
        return self.epoch, self.end


class ControllerSaysNo(PocketMQError):
    """A refusal of the controller."""


def _check(answer: RemotingCommand) -> None:
    """Raises: ControllerSaysNo unless the answer is a success."""
    if answer.code != _R.SUCCESS:
        raise ControllerSaysNo(
            f"the controller refuses: {answer.code} {answer.remark or ''}".strip()
        )
