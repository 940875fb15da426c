"""MemberReports: what the members of groups report of themselves, for the metrics of sick groups. Ours.

Only a member knows which queues it has, and since when it has finished no message. The broker asks it by
GET_CONSUMER_RUNNING_INFO, which every client since RocketMQ 3.1.8 answers.

1. Members are asked only while the metrics are scraped: one round after a scrape, at least INTERVAL_S after
   the last round. A scrape shows the round before it.
2. TOGETHER are asked at once, and the next ones after PAUSE_S, so thousands of members cost a few percent of
   a processor. Answers beyond SIZE_MAX are left out; the others are read in a thread.
3. A member that does not answer in time has no report; neither has one that speaks gRPC.
Owner: the broker, on its event loop.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pocketmq.broker.groups.client_channel import ClientChannel
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.model.queue_json import message_queue
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import RequestCode, ResponseCode, Version
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.headers import GetConsumerRunningInfoHeader
from pocketmq.remoting.java_number import number

if TYPE_CHECKING:
    from pocketmq.model.diagnosis import MemberFacts

INTERVAL_S = 10.0
TOGETHER = 16
PAUSE_S = 0.1
SIZE_MAX = 1 << 20
_TIMEOUT_MS = 3_000


@dataclass(frozen=True, slots=True)
class Report:
    """own: the member's queues of this broker, as (topic, queue id), with the offset that it keeps of each,
    -1 without one. facts counts them; of a topic of which it has none here, those elsewhere.
    """

    facts: "MemberFacts"
    own: Mapping[tuple[str, int], int] = field(default_factory=dict)


class MemberReports:
    """by_group: reports of the last round, by client id."""

    def __init__(self, broker_name: str, clock: Clock, consumers: ConsumerManager) -> None:
        self._broker_name = broker_name
        self._clock = clock
        self._consumers = consumers
        self._wanted = asyncio.Event()
        self.by_group: dict[str, dict[str, Report]] = {}

    def want(self) -> None:
        """Ask the members soon, for the next scrape."""
        self._wanted.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self._ask_all()
            await asyncio.sleep(INTERVAL_S)

    async def _ask_all(self) -> None:
        groups = self._consumers.groups
        for group in self.by_group.keys() - groups.keys():
            del self.by_group[group]
        for group in list(groups):
            self.by_group[group] = await self.of_group(group, PAUSE_S)

    async def of_group(self, group: str, pause_s: float = 0.0) -> dict[str, Report]:
        """Ask the members of a group now. Returns: by client id what those report that answer."""
        online = self._consumers.groups.get(group)
        found: dict[str, Report] = {}
        members = [] if online is None else list(online.channels.values())
        for at in range(0, len(members), TOGETHER):
            async with asyncio.TaskGroup() as tasks:
                for member in members[at : at + TOGETHER]:
                    tasks.create_task(
                        self._ask(group, member, found), name=f"report of {member.client_id}"
                    )
            await asyncio.sleep(pause_s)
        return found

    async def _ask(self, group: str, member: ClientChannel, found: dict[str, Report]) -> None:
        if member.version < Version.V3_1_8_SNAPSHOT:
            return
        header = GetConsumerRunningInfoHeader(group, member.client_id, False)
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        try:
            answer = await member.connection.ask(code, header.ext(), b"", _TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS:
                now_ms = self._clock.now_ms()
                found[member.client_id] = await asyncio.to_thread(
                    report_of, member.client_id, answer.body, self._broker_name, now_ms
                )
        except (PocketMQError, AttributeError, TypeError, ValueError):
            # It disconnected, or its answer cannot be read: without a report no symptom is concluded.
            return


def report_of(client_id: str, body: bytes, broker_name: str, now_ms: int) -> Report:
    """Read a ConsumerRunningInfo. Raises: FastjsonError, AttributeError, TypeError, ValueError."""
    # Only a broker whose metrics are read asks its members.
    from pocketmq.model.diagnosis import MemberFacts

    data: Mapping[str, Any] = fastjson.loads(body, size_max=SIZE_MAX)
    table = {message_queue(key): row for key, row in (data.get("mqTable") or {}).items()}
    here = {queue: row for queue, row in table.items() if queue.broker_name == broker_name}
    facts = MemberFacts.of(client_id, table, now_ms)
    return Report(
        replace(facts, queues={**(facts.queues or {}), **Counter(each.topic for each in here)}),
        {
            (queue.topic, queue.queue_id): number(row.get("commitOffset", -1))
            for queue, row in here.items()
        },
    )
