"""ScheduleAdmin: messages that come again, by cron or interval, held by a broker of PocketMQ.

    nightly = Schedule("nightly", "Reports", b"run", cron="0 3 * * *", time_zone="Europe/Berlin")
    await admin.schedules.create(nightly)

A schedule is kept by one master of its topic. Times are ms since 1970. The broker's rules: docs/schedules.md.
"""

import zlib

from pocketmq.admin.cluster import Cluster, NoMaster
from pocketmq.admin.schedules.schedule import KeptSchedule, kept
from pocketmq.admin.topics import TopicAdmin
from pocketmq.client.errors import CallerError, RequestNotSupported
from pocketmq.model.schedule import Schedule
from pocketmq.remoting import fastjson
from pocketmq.remoting.requests import (
    ChangeScheduleHeader,
    CreateScheduleHeader,
    GetSchedulesHeader,
    PocketRequestCode,
)


class UnknownSchedule(CallerError):
    """No broker has a schedule of that name."""


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
        return kept(broker, fastjson.loads(answer.body))

    async def list(
        self,
        topic: str | None = None,
        *,
        owner: str | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> _Listed:
        """Return schedules without their bodies, by name. Accounts but administrators' name a topic.

        Raises: RemotingError.
        """
        found = []
        for master in await self._site.masters(cluster, broker):
            found += await self._ask(master.name, master.address, topic, None, owner)
        return sorted(found, key=lambda each: (each.name, each.broker))

    async def get(self, name: str, topic: str | None = None) -> KeptSchedule:
        """Return one schedule with its body. topic: as in `list`. Raises: UnknownSchedule."""
        found = await self._found(topic, name)
        if found is None:
            raise UnknownSchedule(f"no broker has a schedule {name!r}. See: pocketmq schedule list")
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
        return [kept(broker, each) for each in fastjson.loads(answer.body)["schedules"]]

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
