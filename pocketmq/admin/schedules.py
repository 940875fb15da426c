"""ScheduleAdmin: messages that come again, by cron or interval, held by a broker of PocketMQ.

    nightly = Schedule("nightly", "Reports", b"run", cron="0 3 * * *", time_zone="Europe/Berlin")
    await admin.schedules.create(nightly)

A schedule is kept by one master of its topic. Times are ms since 1970. The broker's rules: docs/schedules.md.
"""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pocketmq.admin.cluster import Cluster, NoMaster
from pocketmq.admin.topics import TopicAdmin
from pocketmq.client.errors import RequestNotSupported
from pocketmq.remoting import fastjson
from pocketmq.remoting.requests import (
    ChangeScheduleHeader,
    CreateScheduleHeader,
    GetSchedulesHeader,
    PocketRequestCode,
)


class UnknownSchedule(LookupError):
    """No broker has a schedule of that name."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is sent when: one of cron, interval_ms and at_ms is set.

    time_zone: of cron. all_match: days of month and week must both match, not either. start_ms: nothing
    before; intervals are counted from there, else from 1970. until_ms: nothing after. missed: what is done
    about times that passed while the broker was down: "once", "all" or "skip". owner: a text by which a
    program finds its schedules.
    """

    name: str
    topic: str
    body: bytes = b""
    tags: str | None = None
    keys: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    cron: str | None = None
    all_match: bool = False
    interval_ms: int | None = None
    at_ms: int | None = None
    time_zone: str = "UTC"
    start_ms: int | None = None
    until_ms: int | None = None
    missed: str = "once"
    owner: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the plan as the broker takes it."""
        plan = {
            "body": base64.b64encode(self.body).decode(),
            "tags": self.tags,
            "keys": self.keys,
            "properties": dict(self.properties),
            "cron": self.cron,
            "allMatch": self.all_match,
            "intervalMs": self.interval_ms,
            "atMs": self.at_ms,
            "timeZone": self.time_zone,
            "startMs": self.start_ms,
            "untilMs": self.until_ms,
            "missed": self.missed,
            "owner": self.owner,
        }
        return {name: value for name, value in plan.items() if value is not None}


@dataclass(frozen=True, slots=True)
class KeptSchedule:
    """A schedule at its broker. next_ms: None while it is paused; last_ms: None before the first message.

    schedule.body is empty in lists; body_size says how large it is. fired: how often it was sent.
    """

    broker: str
    schedule: Schedule
    created_ms: int
    next_ms: int | None
    last_ms: int | None
    fired: int
    body_size: int

    @property
    def name(self) -> str:
        return self.schedule.name

    @property
    def is_paused(self) -> bool:
        return self.next_ms is None


_Listed = list[KeptSchedule]


class ScheduleAdmin:
    """The operations of `admin.schedules`."""

    def __init__(self, site: Cluster, topics: TopicAdmin) -> None:
        self._site = site
        self._topics = topics

    async def create(self, schedule: Schedule, *, replace: bool = False) -> KeptSchedule:
        """Have a schedule kept; one that is there already as it is stays as it is.

        replace: change the one of this name. Raises: BrokerRefused, which names what is wrong with it;
        NoRoute without the topic; RequestNotSupported by a broker of Apache's.
        """
        known = await self._found(schedule.topic, schedule.name)
        if known is None:
            broker, address = await self._home(schedule.topic, schedule.name)
        else:
            broker, address = known.broker, await self._address(known.broker)
        answer = await self._site.api.requests.ask(
            address,
            PocketRequestCode.CREATE_SCHEDULE,
            CreateScheduleHeader(schedule.topic, schedule.name, replace),
            body=fastjson.dumps(schedule.to_json()),
        )
        return _kept(broker, fastjson.loads(answer.body))

    async def list(
        self, topic: str | None = None, *, owner: str | None = None, cluster: str | None = None
    ) -> _Listed:
        """Return schedules without their bodies, by name. Accounts but administrators' name a topic.

        Raises: RemotingError.
        """
        found = []
        for master in await self._site.masters(cluster):
            found += await self._ask(master.name, master.address, topic, None, owner)
        return sorted(found, key=lambda each: (each.name, each.broker))

    async def get(self, name: str, topic: str | None = None) -> KeptSchedule:
        """Return one schedule with its body. topic: as in `list`. Raises: UnknownSchedule."""
        found = await self._found(topic, name)
        if found is None:
            raise UnknownSchedule(f"no broker has a schedule {name}")
        return found

    async def pause(self, name: str, topic: str | None = None) -> None:
        """Send nothing until it is resumed. Raises: UnknownSchedule, BrokerRefused."""
        await self._change(name, topic, "pause")

    async def resume(self, name: str, topic: str | None = None) -> None:
        """Continue with its next time; what was missed is not sent.

        Raises: UnknownSchedule, BrokerRefused.
        """
        await self._change(name, topic, "resume")

    async def delete(self, name: str, topic: str | None = None) -> None:
        """Forget it. Raises: UnknownSchedule, BrokerRefused."""
        await self._change(name, topic, "delete")

    async def _change(self, name: str, topic: str | None, act: str) -> None:
        known = await self.get(name, topic)
        await self._site.api.requests.ask(
            await self._address(known.broker),
            PocketRequestCode.CHANGE_SCHEDULE,
            ChangeScheduleHeader(known.schedule.topic, name, act),
        )

    async def _found(self, topic: str | None, name: str) -> KeptSchedule | None:
        for master in await self._site.masters():
            for each in await self._ask(master.name, master.address, topic, name, None):
                return each
        return None

    async def _ask(
        self, broker: str, address: str, topic: str | None, name: str | None, owner: str | None
    ) -> _Listed:
        try:
            answer = await self._site.api.requests.ask(
                address, PocketRequestCode.GET_SCHEDULES, GetSchedulesHeader(topic, name, owner)
            )
        except RequestNotSupported:
            # A broker of Apache's beside ours has none.
            return []
        return [_kept(broker, each) for each in fastjson.loads(answer.body)["schedules"]]

    async def _home(self, topic: str, name: str) -> tuple[str, str]:
        """Return the master that keeps a new schedule: the same for each who creates it now."""
        route = await self._topics.route(topic)
        masters = {each.name: each.address for each in await self._site.masters()}
        names = sorted(each.broker_name for each in route.brokers if each.broker_name in masters)
        if not names:
            raise NoMaster(f"no master has topic {topic}")
        chosen = names[zlib.crc32(name.encode()) % len(names)]
        return chosen, masters[chosen]

    async def _address(self, broker: str) -> str:
        [master, *_] = await self._site.masters(None, broker)
        return master.address


def _kept(broker: str, row: Mapping[str, Any]) -> KeptSchedule:
    body = base64.b64decode(row.get("body") or "")
    return KeptSchedule(
        broker,
        Schedule(
            row["name"],
            row["topic"],
            body,
            row.get("tags"),
            row.get("keys"),
            row.get("properties") or {},
            row.get("cron"),
            bool(row.get("allMatch")),
            row.get("intervalMs"),
            row.get("atMs"),
            row["timeZone"],
            row.get("startMs"),
            row.get("untilMs"),
            row["missed"],
            row.get("owner"),
        ),
        row["createdMs"],
        row.get("nextMs"),
        row.get("lastMs"),
        row["fired"],
        row.get("bodySize", len(body)),
    )
