"""DelayAdmin: messages that wait in the brokers, for a delay level or for a delivery time.

Counts come from every broker that knows the request (RocketMQ from 5.0 on); single messages only from
PocketMQ's own request 900003 (PocketRequestCode).
"""

from dataclasses import dataclass
from typing import Any

from pocketmq.admin.cluster import Cluster
from pocketmq.admin.settings import SettingsAdmin
from pocketmq.client.errors import RequestNotSupported
from pocketmq.model.names import TOOLS_GROUP
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.requests import GetTimersHeader, PocketRequestCode

_LEVEL_KEY = "scheduleMessageOffset_"
_DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class TimedMessage:
    """One waiting message. Times are ms since 1970; recall_handle cancels it (Producer.recall).

    offset_msg_id, keys: of the waiting record; empty if the broker does not report them.
    """

    broker: str
    topic: str
    queue_id: int
    msg_id: str
    deliver_ms: int
    store_ms: int
    store_size: int
    roll_times: int
    recall_handle: str
    offset_msg_id: str = ""
    keys: str = ""


@dataclass(frozen=True, slots=True)
class BrokerDelays:
    """The messages that wait in one broker.

    levels: delay level -> undelivered messages in its queue. counts: topic -> messages with a delivery
    time; None: the broker does not support these. messages: the next of them; None: it cannot list them.
    behind_ms: how late their delivery is. settled: the broker says that it has counted all that was sent.
    """

    broker: str
    levels: dict[int, int]
    counts: dict[str, int] | None = None
    messages: list[TimedMessage] | None = None
    behind_ms: int = 0
    settled: bool = False


@dataclass(frozen=True, slots=True)
class DelayLevel:
    """A delay level of one broker. begin, end: offsets in its queue of the waiting messages."""

    number: int
    name: str
    begin: int
    end: int

    @property
    def delay_ms(self) -> int:
        """Return the delay that its name states.

        >>> DelayLevel(2, "5s", 0, 0).delay_ms
        5000
        """
        return int(self.name[:-1]) * _UNITS_MS[self.name[-1]]

    @property
    def waiting(self) -> int:
        return self.end - self.begin


class DelayAdmin:
    """The operations of `admin.delays`."""

    def __init__(self, site: Cluster, settings: SettingsAdmin) -> None:
        self._site = site
        self._settings = settings

    async def levels(self, address: str) -> list[DelayLevel]:
        """Return the delay levels of the broker at `address`, from 1 on. Raises: RemotingError."""
        names = (await self._settings.broker(address)).get("messageDelayLevel", _DEFAULT_LEVELS)
        spans = _spans(await self._settings.runtime(address))
        return [
            DelayLevel(number, name, *spans.get(number, (0, 0)))
            for number, name in enumerate(names.split(), 1)
        ]

    async def list(
        self,
        topic: str | None = None,
        *,
        key: str | None = None,
        count: int = 32,
        cluster: str | None = None,
    ) -> list[BrokerDelays]:
        """Return what waits in each master, with up to `count` (1 to 1000) of the next messages (of one
        topic, with one key).

        Raises: RemotingError, IllegalArgument for an unknown cluster.
        """
        found = []
        for master in await self._site.masters(cluster):
            runtime = await self._settings.runtime(master.address)
            levels = {number: end - begin for number, (begin, end) in _spans(runtime).items()}
            try:
                answer = await self._site.api.requests.ask(
                    master.address,
                    PocketRequestCode.GET_TIMERS,
                    GetTimersHeader(topic, count, key),
                )
            except RequestNotSupported:
                counts = await self._counts(master.address)
                found.append(BrokerDelays(master.name, levels, counts))
                continue
            data = fastjson.loads(answer.body)
            found.append(
                BrokerDelays(
                    master.name,
                    levels,
                    {str(name): int(number) for name, number in data["counts"].items()},
                    [_timed(master.name, each) for each in data["messages"]],
                    int(data["behindMs"]),
                    settled=not data["offsetBehind"] and not data["counting"],
                )
            )
        return found

    async def recall(self, broker: str, topic: str, handle: str) -> str:
        """Cancel a message that waits for its delivery time; return its id.

        Raises: BrokerRefused if it is due or gone, or the broker does not support it; NoMaster.
        """
        [master, *_] = await self._site.masters(None, broker)
        return await self._site.api.recall(master.address, topic, TOOLS_GROUP, handle)

    async def _counts(self, address: str) -> dict[str, int] | None:
        try:
            answer = await self._site.api.requests.ask(address, RequestCode.GET_TIMER_METRICS)
        except RequestNotSupported:
            return None
        table = fastjson.loads(answer.body).get("timingCount") or {}
        return {str(topic): int(each["count"]) for topic, each in table.items()}


def _spans(runtime: dict[str, str]) -> dict[int, tuple[int, int]]:
    """Return the offsets of waiting messages by level: GET_BROKER_RUNTIME_INFO's `scheduleMessageOffset_3:
    "next,end"`.

    >>> _spans({"scheduleMessageOffset_3": "4,10", "bootTimestamp": "1"})
    {3: (4, 10)}
    """
    found = {}
    for key, value in runtime.items():
        if key.startswith(_LEVEL_KEY):
            done, _, end = value.partition(",")
            found[int(key.removeprefix(_LEVEL_KEY))] = int(done), max(int(done), int(end))
    return dict(sorted(found.items()))


def _timed(broker: str, each: dict[str, Any]) -> TimedMessage:
    return TimedMessage(
        broker,
        str(each["topic"]),
        int(each["queueId"]),
        str(each["msgId"]),
        int(each["deliverTimestamp"]),
        int(each["storeTimestamp"]),
        int(each["storeSize"]),
        int(each["rollTimes"]),
        str(each["recallHandle"]),
        str(each.get("offsetMsgId") or ""),
        str(each.get("keys") or ""),
    )
