"""Views: elections of masters by a controller, for all user interfaces."""

from collections.abc import Iterable, Mapping
from typing import Any


def elections_of(statuses: Iterable[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the elections that brokers tell of, the newest first: who led since when, after what pause.

    statuses: names of brokers, each with its answer to GET_BROKER_HA_STATUS. The elected
    broker alone says how long it had heard nothing of the earlier master.
    """
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for name, status in statuses:
        told = status.get("election") or {}
        for one in told.get("history", ()):
            key = name, one["masterEpoch"]
            is_elected = one.get("masterId") == told["ownId"]
            if key not in rows or is_elected:
                rows[key] = {
                    "broker": name,
                    "epoch": one["masterEpoch"],
                    "time": one["atMs"],
                    "masterId": one.get("masterId"),
                    "master": one["masterAddress"],
                    "gapMs": one["gapMs"] if is_elected else None,
                }
    return sorted(rows.values(), key=lambda row: (row["time"], row["epoch"]), reverse=True)
