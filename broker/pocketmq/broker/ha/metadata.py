"""Metadata: the master's tables, copied to its slave. Source: SlaveSynchronize, RocketMQ 4.9.7, 5.3.3.

    21 topics            whole table, if its version differs; queues of deleted topics are deleted, too
    201 groups           whole table, if its version differs
    43 offsets           the larger one wins; a smaller one where the master was set back since the last round
    45 delay offsets     as they are
    60 timers            the progress of the master's timers; 5.x
    402 request modes    as they are; 5.x
    900005               what only PocketMQ has beside its log: `Ours`

43, 45 and 60 say how far the master was: they are taken once the log is here that the master had then.
Progress that is ahead of it would lose, were this broker promoted now, what the master has handed out or
delivered and not sent here: the check point of a pop, the copy of a delayed or half message. Progress that
is behind repeats it. Only a group that is new here, or was set back, does not wait for long.

Requests that the master does not know (4.9: 402, 60) are repeated all the same: it may be replaced.
Not copied: compiled filters, since consumers send their expressions to slaves, too; and the delivery record,
which a promoted broker starts afresh.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pocketmq.broker.config_manager import in_thread
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.groups.isolate import IsolatedGroups
from pocketmq.broker.groups.rebalance_lock import RebalanceLock
from pocketmq.broker.ha.config import HaConfig
from pocketmq.broker.ha.tail import Ends
from pocketmq.broker.parts import Node, Tables
from pocketmq.broker.pop.order_info import ConsumerOrderInfo
from pocketmq.broker.registration import Registration
from pocketmq.remoting import fastjson
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.credentials import Credentials
from pocketmq.remoting.errors import IllegalArgument, PocketMQError
from pocketmq.remoting.requests import PocketRequestCode
from pocketmq.remoting.settings import parse_properties
from pocketmq.remoting.tables import GroupConfig, TopicConfig
from pocketmq.store import DelayService, MessageStore
from pocketmq.store.timer.check import TimerCheck
from pocketmq.store.timer.service import TimerService

log = logging.getLogger(__name__)

_TIMEOUT_MS = 3_000
# For what the master's log had when it told of its progress.
_LOOKS_MAX = 100
_LOOK_S = 0.01
_C = RequestCode


def signer(config: HaConfig) -> Callable[[RemotingCommand], None] | None:
    """Return what signs the broker's own requests; None: they are not signed. Raises: IllegalArgument."""
    text = config.inner_client_authentication_credentials
    if not text:
        return None
    try:
        data = json.loads(text)
        return Credentials(str(data["accessKey"]), str(data["secretKey"])).sign
    except (KeyError, TypeError, ValueError) as error:
        raise IllegalArgument(
            'innerClientAuthenticationCredentials must be {"accessKey": ..., "secretKey": ...}, and '
            f"cannot be read: {type(error).__name__}"
        ) from None


class MasterRefused(PocketMQError):
    """The master refused a slave's request."""


class Master:
    """The master as reached over remoting; addresses are the last known ones."""

    def __init__(
        self, config: HaConfig, registration: Registration, client: RemotingClient
    ) -> None:
        self._config = config
        self._registration = registration
        self._client = client
        self._address = ""
        self._ha_address = ""

    @property
    def address(self) -> str:
        self._address = self._registration.master_address or self._address
        return self._address

    @property
    def ha_address(self) -> str:
        found = self._config.ha_master_address or self._registration.master_ha_address
        self._ha_address = found or self._ha_address
        return self._ha_address

    def look_again(self) -> None:
        """Ask the name servers who is the master."""
        self._registration.ask_again()

    async def ask(self, code: RequestCode | PocketRequestCode) -> RemotingCommand:
        """Send a request to the master. Raises: MasterRefused, PocketMQError, OSError."""
        if not self.address:
            raise MasterRefused("the name server knows no master of this name")
        answer = await self._client.invoke(self.address, RemotingCommand(code, {}), _TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise MasterRefused(
                f"the master {self.address} refuses {code.name}: {answer.code} {answer.remark}"
            )
        return answer

    async def json(self, code: RequestCode | PocketRequestCode) -> Any:
        answer = await self.ask(code)
        return fastjson.loads(answer.body) if answer.body else None

    async def ends(self) -> Ends:
        """Return where its log begins and ends. Raises: MasterRefused, PocketMQError, OSError."""
        data = await self.json(_C.GET_BROKER_RUNTIME_INFO)
        table = data.get("table") if isinstance(data, Mapping) else None
        if not isinstance(table, Mapping) or "commitLogMaxOffset" not in table:
            raise MasterRefused(f"the master {self.address} does not say where its log ends")
        return Ends(int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"]))

    async def end(self) -> int:
        """Return where its log ends, by a cheap request if it is of 5.x. Raises: as `ends`."""
        try:
            status = await self.json(_C.GET_BROKER_HA_STATUS)
            return int(status["masterCommitLogMaxOffset"])
        except (MasterRefused, LookupError, TypeError):
            # 4.9 knows no such question.
            return (await self.ends()).high

    async def settings(self) -> dict[str, str]:
        """Return its broker.conf. Raises: MasterRefused, PocketMQError, OSError."""
        answer = await self.ask(_C.GET_BROKER_CONFIG)
        return parse_properties(bytes(answer.body).decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Ours:
    """State that only PocketMQ copies: isolated groups' sub-groups and offsets, orderly pops in flight, and
    queue locks.
    """

    isolated: IsolatedGroups
    order_info: ConsumerOrderInfo
    locks: RebalanceLock
    consumers: ConsumerManager

    def to_json(self) -> dict[str, Any]:
        return {
            "isolated": self.isolated.to_json(),
            "orderInfo": self.order_info.to_json(),
            "locks": self.locks.to_json(),
        }

    def take(self, data: Mapping[str, Any]) -> None:
        """Replace all of it by the master's. Raises: KeyError, TypeError, ValueError."""
        self.isolated.take(data["isolated"], self.consumers.groups)
        self.order_info.take(data["orderInfo"])
        self.locks.take(data["locks"])


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a master was; end: where its log ended soon after. check: None with 4.9."""

    offsets: Any
    delay: Any
    check: TimerCheck | None
    end: int


@dataclass(frozen=True, slots=True)
class Copied:
    """State copied besides the tables; delay and timer keep the master's progress themselves."""

    delay: DelayService
    timer: TimerService
    ours: Ours


class Metadata:
    """Copies the master's state, round by round."""

    def __init__(
        self, node: Node, tables: Tables, store: MessageStore, copied: Copied, master: Master
    ) -> None:
        self._events = node.events
        self._monotonic_ms = node.clock.monotonic_ms
        self._tables = tables
        self._store = store
        self._copied = copied
        self._master = master
        # What the master said last, to tell an offset that was set back.
        self._said: dict[str, dict[int, int]] = {}
        # What waits for the log.
        self._ahead: Progress | None = None
        # When the last round ended, monotonic, and how many did.
        self.round_ms = 0
        self.rounds = 0

    async def round(self) -> None:
        """Copy everything once. Raises: MasterRefused, PocketMQError, OSError."""
        self._take_topics(await self._master.json(_C.GET_ALL_TOPIC_CONFIG))
        self._take_groups(await self._master.json(_C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        await self._take_progress()
        await self._take_newer()
        self.round_ms = self._monotonic_ms()
        self.rounds += 1

    async def _take_progress(self) -> None:
        """Copy 43, 45 and 60; what the log is too far behind for waits for the next round."""
        ahead = self._ahead
        # A master whose log ends before that is another one.
        if ahead is None or await self._master.end() < ahead.end:
            ahead = self._ahead = await self._progress()
        is_here = await self._arrives(ahead.end)
        self._take_offsets(ahead.offsets, is_here)
        if is_here:
            self._ahead = None
            await self._take_delay(ahead.delay)
            if ahead.check is not None:
                await self._copied.timer.follow(ahead.check)

    async def _progress(self) -> Progress:
        """Ask for it; the end of the log comes last."""
        master = self._master
        offsets = await master.json(_C.GET_ALL_CONSUMER_OFFSET)
        delay = await master.json(_C.GET_ALL_DELAY_OFFSET)
        try:
            data = bytes((await master.ask(_C.GET_TIMER_CHECK_POINT)).body)
        except MasterRefused:
            data = b""
        check = TimerCheck.unpack(data) if len(data) >= 56 else None
        return Progress(offsets, delay, check, await master.end())

    async def _arrives(self, end: int) -> bool:
        """Return True if the log is here up to `end`, or comes soon."""
        for _ in range(_LOOKS_MAX):
            if self._store.commit_log_max_position >= end:
                return True
            await asyncio.sleep(_LOOK_S)
        return False

    def forget(self) -> None:
        """Forget the last round: the log was cut back, so offsets beyond its end are the master's again."""
        self._said, self._ahead = {}, None
        self._tables.cut_offsets(self._store.max_offset)

    # ------------------------------------------------------------ tables

    def _take_topics(self, data: Any) -> None:
        topics = self._tables.topics
        if _is_known(data, topics.data_version.to_json()):
            return
        rows = _rows(data, "topicConfigTable", TopicConfig.from_json)
        gone = topics.topics.keys() - rows.keys() - topics.system_topics
        for name in topics.system_topics & topics.topics.keys() - rows.keys():
            rows[name] = topics.topics[name]
        topics.take_all(rows, data.get("dataVersion"))
        for name in gone:
            log.warning("deleted a topic that the master has deleted topic=%s", name)
            self._store.delete_topic(name)
        self._events.topics_changed(list(rows.values()))

    def _take_groups(self, data: Any) -> None:
        groups = self._tables.groups
        if _is_known(data, groups.data_version.to_json()):
            return
        rows = _rows(data, "subscriptionGroupTable", GroupConfig.from_json)
        groups.take_all(rows, data.get("dataVersion"))

    def _take_offsets(self, data: Any, is_here: bool) -> None:
        table = data.get("offsetTable") if isinstance(data, Mapping) else None
        said = {
            str(key): {int(queue_id): int(offset) for queue_id, offset in queues.items()}
            for key, queues in (table or {}).items()
        }
        offsets = self._tables.offsets
        take_offsets(offsets.offsets, said, self._said, forward=is_here)
        offsets.dirty = True
        self._said = said

    async def _take_delay(self, data: Any) -> None:
        table = data.get("offsetTable") if isinstance(data, Mapping) else None
        delay = self._copied.delay
        delay.offsets.update({int(level): int(offset) for level, offset in (table or {}).items()})
        await in_thread(delay.save)

    async def _take_newer(self) -> None:
        """Copy what only 5.x masters have, and ours."""
        try:
            modes = await self._master.json(_C.GET_ALL_MESSAGE_REQUEST_MODE)
        except MasterRefused:
            return
        request_modes = self._tables.request_modes
        request_modes.from_json(modes)
        request_modes.persist_soon()
        try:
            ours = await self._master.json(PocketRequestCode.GET_REPLICA_TABLES)
        except MasterRefused:
            ours = None
        if ours is not None:
            try:
                self._copied.ours.take(ours)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise MasterRefused(f"cannot read the master's own tables: {error!r}") from error


def take_offsets(
    own: dict[str, dict[int, int]],
    master: Mapping[str, Mapping[int, int]],
    before: Mapping[str, Mapping[int, int]],
    *,
    forward: bool = True,
) -> None:
    """Merge the master's offsets into `own`; before: those of the last round.

    forward: False: what `own` has only goes back.

    >>> own = {"T@g": {0: 9, 1: 9, 2: 9}, "T@old": {0: 1}}
    >>> take_offsets(own, {"T@g": {0: 7, 1: 12, 2: 3}}, {"T@g": {0: 7, 2: 9}, "T@old": {0: 1}})
    >>> own
    {'T@g': {0: 9, 1: 12, 2: 3}}
    >>> take_offsets(own, {"T@g": {0: 10, 3: 1}, "T@new": {0: 5}}, {}, forward=False)
    >>> own
    {'T@g': {0: 9, 1: 12, 2: 3, 3: 1}, 'T@new': {0: 5}}
    """
    for key, queues in master.items():
        mine, last = own.setdefault(key, {}), before.get(key, {})
        for queue_id, offset in queues.items():
            known = mine.get(queue_id, -1)
            is_new = forward or known < 0
            if is_new if offset > known else offset < last.get(queue_id, offset):
                mine[queue_id] = offset
    for key in before.keys() - master.keys():
        own.pop(key, None)


def _is_known(data: Any, version: Mapping[str, int]) -> bool:
    """Return True if the master's table has the version that we have."""
    if not isinstance(data, Mapping):
        raise MasterRefused("a table of the master is not a JSON object")
    theirs = data.get("dataVersion")
    return isinstance(theirs, Mapping) and all(
        theirs.get(name) == value for name, value in version.items()
    )


def _rows(data: Mapping[str, Any], name: str, parse: Any) -> dict[str, Any]:
    table = data.get(name)
    if not isinstance(table, Mapping):
        raise MasterRefused(f"a table of the master lacks {name}")
    try:
        return {str(key): parse(row) for key, row in table.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MasterRefused(f"{name} of the master cannot be read: {error!r}") from error
