"""Views: a broker's own figures (GET_BROKER_RUNTIME_INFO), for all user interfaces."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pocketmq.admin.admin import Admin
from pocketmq.admin.types import ClusterBroker
from pocketmq.remoting.errors import PocketMQError

FIGURES = (
    "version",
    "release",
    "trouble",
    "in",
    "delivered",
    "inToday",
    "deliveredToday",
    "inYesterday",
    "deliveredYesterday",
    "diskRatio",
    "startedAt",
)


@dataclass(slots=True)
class BrokerView:
    """A broker as the name servers know it, with its figures; failure: why it did not report them."""

    broker: ClusterBroker
    runtime: dict[str, str]
    failure: PocketMQError | None = None

    @property
    def state(self) -> str:
        """Return `ok`, or why the broker does not serve; /health gives the same reasons."""
        return str(self.failure) if self.failure is not None else self.runtime.get("trouble", "ok")

    @property
    def findings(self) -> list[str]:
        """Return what an operator has to mend, though the broker serves."""
        return self.runtime.get("findings", "").splitlines()

    @property
    def version_text(self) -> str | None:
        """Return the broker's version: of PocketMQ its own, and the RocketMQ version that it speaks."""
        return version_text(self.figures)

    @property
    def figures(self) -> dict[str, Any]:
        """Return the fields that FIGURES names; None if the broker does not report them, or did not reply."""
        return dict.fromkeys(FIGURES) if self.failure is not None else figures_of(self.runtime)


async def broker_view(admin: Admin, broker: ClusterBroker) -> BrokerView:
    try:
        return BrokerView(broker, await admin.settings.runtime(broker.address))
    except PocketMQError as error:
        return BrokerView(broker, {}, error)


async def cluster_view(admin: Admin, cluster: str | None = None) -> list[BrokerView]:
    """View all brokers, or a cluster's, queried concurrently. Raises: IllegalArgument, RemotingError."""
    brokers = await admin.brokers(cluster)
    return await asyncio.gather(*(broker_view(admin, each) for each in brokers))


def figures_of(runtime: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields that FIGURES names; None if the broker does not report them.

    Rates are those of the last minute. in: messages of users' topics, as in admin.rates; an Apache broker's
    are of all topics, its own among them. delivered: what was pulled, consumed or not (RocketMQ's GET
    counters). Today and yesterday are RocketMQ's: all topics, and nothing from before the broker's start.
    """

    def number(name: str) -> int:
        return integer(runtime.get(name)) or 0

    ratio = _real(runtime.get("commitLogDiskRatio"))
    transferred = runtime.get("getTransferredTps") or runtime.get("getTransferedTps")
    return {
        "version": runtime.get("brokerVersionDesc"),
        "release": runtime.get("pocketmqVersion"),
        "trouble": runtime.get("trouble"),
        "in": _real(runtime.get("usersPutRate") or _of_minute(runtime.get("putTps"))) or 0.0,
        "delivered": _real(_of_minute(transferred)) or 0.0,
        "inToday": number("msgPutTotalTodayNow") - number("msgPutTotalTodayMorning"),
        "deliveredToday": number("msgGetTotalTodayNow") - number("msgGetTotalTodayMorning"),
        "inYesterday": number("msgPutTotalTodayMorning") - number("msgPutTotalYesterdayMorning"),
        "deliveredYesterday": number("msgGetTotalTodayMorning")
        - number("msgGetTotalYesterdayMorning"),
        "diskRatio": ratio if ratio is not None and ratio >= 0 else None,
        "startedAt": integer(runtime.get("bootTimestamp")),
    }


def version_text(figures: Mapping[str, Any]) -> str | None:
    """Return the version for people.

    >>> version_text({"version": "V4_9_7", "release": "0.1.0"})
    'PocketMQ 0.1.0, speaks V4_9_7'
    """
    release, version = figures["release"], figures["version"]
    return version if release is None else f"PocketMQ {release}, speaks {version}"


def _of_minute(text: str | None) -> str | None:
    """Return the second of RocketMQ's three rates: over 10, 60 and 600 s."""
    words = (text or "").split()
    return words[min(1, len(words) - 1)] if words else None


def integer(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def _real(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
