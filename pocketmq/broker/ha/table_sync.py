"""TableSync: the master's tables, copied to its slave. Source: SlaveSynchronize, RocketMQ 4.9.7, 5.3.3.

    21 topics            whole table, if its version differs; one with messages goes if the master has none
    201 groups           whole table, if its version differs
    43 offsets           the larger one wins; a smaller one where the master was set back since the last round
    45 delay offsets     as they are
    60 timers            the progress of the master's timers; 5.x
    402 request modes    as they are; 5.x
    900005               what only PocketMQ has beside its log: `PocketState`
    900014               the delivery record
    202 ends of queues   of those whose messages had all expired: emptied_queues.py

43, 45, 60 and 900005 say how far the master was: they are taken once the log is here that the master had
then. Progress that is ahead of it would lose, were this broker promoted now, what the master has handed out
or delivered and not sent here: the check point of a pop, the copy of a message that was sent back, of a
delayed or half message. Progress that is behind repeats it. Two things do not wait: locks, since the log
does not speak of them, and a group's first offset, since without one the group would begin at the end. Of a
new group the offset is taken that it began with at the master; an Apache master does not tell that one, so
there it is the offset that the group has now.

Requests that the master does not know (4.9: 402, 60) are repeated all the same: it may be replaced.
Not copied: compiled filters, since consumers send their expressions to slaves, too.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pocketmq.broker.groups.starts import SEPARATOR
from pocketmq.broker.ha.config import HaConfig
from pocketmq.broker.ha.copied_state import CopiedState
from pocketmq.broker.ha.deliveries import copy_deliveries
from pocketmq.broker.ha.emptied_queues import EmptiedQueues
from pocketmq.broker.ha.introduction import DialledMaster, Introducer, own_credentials
from pocketmq.broker.ha.received_tables import (
    MasterRefused,
    is_known,
    levels,
    long,
    offset_rows,
    queue_ends,
    readable,
    timer_check,
)
from pocketmq.broker.ha.received_tables import groups as groups_told
from pocketmq.broker.ha.received_tables import offsets as offsets_told
from pocketmq.broker.ha.received_tables import topics as topics_told
from pocketmq.broker.ha.tail import Ends
from pocketmq.broker.nameservers.registration import Registration
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Tables
from pocketmq.model.names import SYSTEM_GROUP_PREFIX
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import PocketRequestCode
from pocketmq.remoting.settings import parse_properties
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.store import MessageStore
from pocketmq.store.side_tasks import in_thread
from pocketmq.store.timer.check import TimerCheck

log = logging.getLogger(__name__)

_TIMEOUT_MS = 3_000
# Looks whether this log has reached the end that the master's log had when it reported its progress.
_LOOKS_MAX = 100
_LOOK_S = 0.01
# Questions to the master whether it has the queues of a topic that its table lacks.
_ASKED_MAX = 3
_C = RequestCode


class Master:
    """The master as reached over remoting; addresses are the last known ones."""

    def __init__(
        self, config: HaConfig, registration: Registration, client: RemotingClient
    ) -> None:
        self._config = config
        self._registration = registration
        self._client = client
        credentials = own_credentials(config)
        self._introducer = None if credentials is None else Introducer(credentials, client)
        # The master that was asked last, if this broker has an account.
        self._met: DialledMaster | None = None
        self._address = ""
        self._ha_address = ""

    @property
    def address(self) -> str:
        found = self._config.master_address or self._registration.master_address
        self._address = found or self._address
        return self._address

    @property
    def ha_address(self) -> str:
        if self._config.ha_master_address:
            return self._config.ha_master_address
        if self._met is not None and self._met.proved:
            # A name server may give the right master and another port for slaves.
            return self._met.ha_address
        self._ha_address = self._registration.master_ha_address or self._ha_address
        return self._ha_address

    def look_again(self) -> None:
        """Ask the name servers for the master."""
        self._met = None
        self._registration.ask_again()

    async def _may_sign(self, address: str) -> bool:
        """Return True if requests to `address` may be signed (introduction.py). Raises: as `ask`."""
        if self._introducer is None or address == self._config.master_address:
            return True
        if self._met is None or self._met.address != address:
            self._met = await self._introducer.meet(address)
        return self._met.proved

    async def ticket(self) -> int | None:
        """Return what opens one connection to its HA port; None if that takes none. Raises: as `ask`."""
        if self._introducer is None:
            return None
        self._met = met = await self._introducer.meet(self.address)
        return await self._introducer.ticket(met) if met.proved else None

    async def ask(
        self, code: RequestCode | PocketRequestCode, ext: dict[str, str] | None = None
    ) -> RemotingCommand:
        """Send a request to the master. Raises: MasterRefused, PocketMQError, OSError."""
        if not self.address:
            raise MasterRefused("the name server knows no master of this name")
        address = self.address
        signed = await self._may_sign(address)
        answer = await self._client.invoke(
            address, RemotingCommand(code, ext or {}), _TIMEOUT_MS, signed=signed
        )
        if answer.code != ResponseCode.SUCCESS:
            why = f"the master {address} refuses {code.name}: {answer.code} {answer.remark}"
            if not signed and self._met is not None:
                why += (
                    ". It was asked without a signature: a name server gave its address, and it did not "
                    f"prove that it knows the account ({self._met.why}). If the address is right, set "
                    f"masterAddress={address}"
                )
            raise MasterRefused(why)
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
        with readable("the ends of the master's log"):
            return Ends(long(table["commitLogMinOffset"]), long(table["commitLogMaxOffset"]))

    async def end(self) -> int:
        """Return where its log ends, by a cheap request if it is of 5.x. Raises: as `ends`."""
        try:
            status = await self.json(_C.GET_BROKER_HA_STATUS)
            return long(status["masterCommitLogMaxOffset"])
        except (MasterRefused, LookupError, TypeError, ValueError):
            # 4.9 knows no such question.
            return (await self.ends()).high

    async def max_offset(self, topic: str, queue_id: int) -> int:
        """Return where its queue ends, 0 if it has none. Raises: MasterRefused, PocketMQError, OSError."""
        answer = await self.ask(_C.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
        return long((answer.ext or {})["offset"])

    async def ends_of(self, topic: str) -> dict[int, int]:
        """Return where a topic's queues end. Raises: MasterRefused, PocketMQError, OSError."""
        answer = await self.ask(_C.GET_TOPIC_STATS_INFO, {"topic": topic})
        with readable(f"the queues of {topic}"):
            return queue_ends(fastjson.loads(answer.body))

    async def settings(self) -> dict[str, str]:
        """Return its broker.conf. Raises: MasterRefused, PocketMQError, OSError."""
        answer = await self.ask(_C.GET_BROKER_CONFIG)
        return parse_properties(bytes(answer.body).decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class MasterProgress:
    """How far a master was; end: where its log ended soon after. check: None with 4.9; ours: empty with any
    Apache broker.
    """

    offsets: Any
    delay: Any
    check: TimerCheck | None
    ours: Mapping[str, Any]
    end: int


class TableSync:
    """Copies the master's state, round by round."""

    def __init__(
        self, node: Node, tables: Tables, store: MessageStore, copied: CopiedState, master: Master
    ) -> None:
        self._events = node.events
        self._monotonic_ms = node.clock.monotonic_ms
        self._now_ms = node.clock.now_ms
        self._tables = tables
        self._store = store
        self.copied = copied
        self._master = master
        self._emptied = EmptiedQueues(store, tables.topics)
        # The master's last offsets, to recognise one that was set back.
        self._said: dict[str, dict[int, int]] = {}
        # What waits for the log.
        self._ahead: MasterProgress | None = None
        # Topics that the master's table lacks while this broker has their queues: how often to ask it again.
        self._let_go_of: dict[str, int] = {}
        # Where this log ended when the master was last asked for its topics: those that began later are not
        # in the table.
        self.topics_as_of = store.commit_log_max_position
        # When the last round ended, monotonic, and how many did.
        self.round_ms = 0
        self.rounds = 0

    async def round(self) -> None:
        """Copy everything once. Raises: MasterRefused, PocketMQError, OSError."""
        end = self._store.commit_log_max_position
        self._take_topics(await self._master.json(_C.GET_ALL_TOPIC_CONFIG))
        self.topics_as_of = end
        self._take_groups(await self._master.json(_C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        await self._take_progress()
        await self._take_newer()
        await self._emptied.round(self._master, self._arrives)
        await copy_deliveries(self.copied.deliveries, self._master.ask)
        for topic in list(self._let_go_of):
            await self._let_go(topic)
        self.round_ms = self._monotonic_ms()
        self.rounds += 1

    async def _take_progress(self) -> None:
        """Copy 43, 45, 60 and 900005; what the log is too far behind for waits for the next round."""
        ahead = self._ahead
        # A master whose log ends before that is another one.
        if ahead is None or await self._master.end() < ahead.end:
            ahead = self._ahead = await self._progress()
        if await self._arrives(ahead.end):
            self._ahead = None
            self._take_offsets(ahead, is_here=True)
            await self._take_delay(ahead.delay)
            if ahead.check is not None:
                await self.copied.timer.follow(ahead.check)
            if ahead.ours:
                with readable():
                    self.copied.ours.take_progress(ahead.ours)
        else:
            # Groups may have begun since that report.
            self._take_offsets(await self._progress(), is_here=False)

    async def _progress(self) -> MasterProgress:
        """Ask for it; the end of the log comes last."""
        master = self._master
        offsets = await master.json(_C.GET_ALL_CONSUMER_OFFSET)
        delay = await master.json(_C.GET_ALL_DELAY_OFFSET)
        try:
            data = bytes((await master.ask(_C.GET_TIMER_CHECK_POINT)).body)
        except MasterRefused:
            data = b""
        check = timer_check(data, self._now_ms())
        try:
            ours = await master.json(PocketRequestCode.GET_REPLICA_TABLES) or {}
        except MasterRefused:
            ours = {}
        if ours:
            with readable():
                self.copied.ours.take_locks(ours)
        return MasterProgress(offsets, delay, check, ours, await master.end())

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
        self.topics_as_of = min(self.topics_as_of, self._store.commit_log_max_position)
        self._tables.cut_offsets(self._store.next_offset)

    # ------------------------------------------------------------ tables

    def _take_topics(self, data: Any) -> None:
        topics = self._tables.topics
        if is_known(data, topics.data_version.to_json()):
            return
        rows = topics_told(data)
        gone = topics.topics.keys() - rows.keys() - topics.system_topics
        for name in topics.system_topics & topics.topics.keys() - rows.keys():
            rows[name] = topics.topics[name]
        for name in rows:
            self._let_go_of.pop(name, None)
        for name in gone:
            if self._ends_of(name):
                # Until it is sure that the master has deleted it: `_let_go`.
                rows[name] = topics.topics[name]
        topics.take_all(rows, data.get("dataVersion"))
        self._events.topics_changed(list(rows.values()))
        self._let_go_of.update(dict.fromkeys(gone, _ASKED_MAX))

    async def _let_go(self, topic: str) -> None:
        """Delete a topic that the master's table lacks, if the master has deleted its queues, too.

        A master that has lost its table of topics, or of RocketMQ was elected with an older one, still has
        the queues, and continues them with the next send. If the topic is recreated, Following begins its
        queues anew. A master that deletes a topic removes the name before the queues, so it is asked more
        than once.
        """
        ends = self._ends_of(topic)
        asks_left = self._let_go_of.pop(topic) - 1
        if not ends:
            self._forget_topic(topic)
            return
        queue_id = max(ends, key=lambda each: ends[each])
        try:
            end = await self._master.max_offset(topic, queue_id)
        except (MasterRefused, KeyError, ValueError) as error:
            log.warning("kept a topic that the master lacks topic=%s why=%s", topic, error)
            return
        # Messages that arrived during the question belong to a topic that was recreated.
        if not end and ends == self._ends_of(topic):
            log.warning("deleted a topic that the master has deleted topic=%s", topic)
            self._store.delete_topic(topic)
            self._forget_topic(topic)
        elif asks_left:
            self._let_go_of[topic] = asks_left
        else:
            log.warning("kept a topic that the master has forgotten topic=%s", topic)

    def _forget_topic(self, topic: str) -> None:
        if self._tables.topics.get(topic) is not None:
            self._tables.topics.put(topic, None, keep=True)

    def _ends_of(self, topic: str) -> dict[int, int]:
        return {
            queue_id: self._store.next_offset(topic, queue_id)
            for _, queue_id in self._store.queues(topic)
        }

    def _take_groups(self, data: Any) -> None:
        groups = self._tables.groups
        if is_known(data, groups.data_version.to_json()):
            return
        rows = groups_told(data)
        groups.take_all(rows, data.get("dataVersion"))

    def _take_offsets(self, progress: MasterProgress, *, is_here: bool) -> None:
        with readable("the offsets of the master"):
            said = offsets_told(progress.offsets)
        with readable():
            starts = None if is_here else offset_rows(progress.ours.get("starts") or {})
        offsets = self._tables.offsets
        before = self._said
        if not before:
            # Offsets that were set back at the master, or deleted, before this broker's first look.
            deleted = {topic for topic, _ in self._store.deleted.names()}
            before = {
                key: dict(queues)
                for key, queues in offsets.offsets.items()
                if key in said or key.partition(SEPARATOR)[0] in deleted
            }
        take_offsets(offsets.offsets, said, before, starts)
        offsets.dirty = True
        self._said = said

    async def _take_delay(self, data: Any) -> None:
        delay = self.copied.delay
        with readable("the delay offsets of the master"):
            delay.offsets.update(levels(data))
        await in_thread(delay.save)

    async def _take_newer(self) -> None:
        """Copy what only 5.x masters have."""
        try:
            modes = await self._master.json(_C.GET_ALL_MESSAGE_REQUEST_MODE)
        except MasterRefused:
            return
        request_modes = self._tables.request_modes
        with readable("the request modes of the master"):
            request_modes.from_json(modes)
        request_modes.persist_soon()


def take_offsets(
    own: dict[str, dict[int, int]],
    master: Mapping[str, Mapping[int, int]],
    before: Mapping[str, Mapping[int, int]],
    starts: Mapping[str, Mapping[int, int]] | None = None,
) -> None:
    """Merge the master's offsets into `own`; before: those of the last round.

    starts: set while the log is not here: what `own` has only goes back, and what is new there begins where
    it began at the master. The broker's own groups wait: without an offset they skip nothing.

    >>> own = {"T@g": {0: 9, 1: 9, 2: 9}, "T@old": {0: 1}}
    >>> take_offsets(own, {"T@g": {0: 7, 1: 12, 2: 3}}, {"T@g": {0: 7, 2: 9}, "T@old": {0: 1}})
    >>> own
    {'T@g': {0: 9, 1: 12, 2: 3}}
    >>> take_offsets(own, {"T@g": {0: 10, 3: 7}, "T@new": {0: 5}}, {}, {"T@g": {3: 1}})
    >>> own
    {'T@g': {0: 9, 1: 12, 2: 3, 3: 1}, 'T@new': {0: 5}}
    """
    for key, queues in master.items():
        if starts is not None and key.partition(SEPARATOR)[2].startswith(SYSTEM_GROUP_PREFIX):
            continue
        mine, last = own.setdefault(key, {}), before.get(key, {})
        for queue_id, offset in queues.items():
            known = mine.get(queue_id, -1)
            if offset <= known:
                if offset < last.get(queue_id, offset):
                    mine[queue_id] = offset
            elif starts is None:
                mine[queue_id] = offset
            elif known < 0:
                mine[queue_id] = min(offset, starts.get(key, {}).get(queue_id, offset))
    for key in before.keys() - master.keys():
        own.pop(key, None)
