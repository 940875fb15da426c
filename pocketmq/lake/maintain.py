"""Upkeep of tables: small files merged, old snapshots expired, files that nothing names deleted."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketmq.lake.catalog import NAMESPACE, existing_tables
from pocketmq.lake.columns import table_name
from pocketmq.lake.compact import FEW, FULL_BYTES, compact
from pocketmq.lake.expire import UNNAMED_MS, delete_unnamed, expire, has_position

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass(frozen=True)
class Upkeep:
    """What to do; see compact.py and expire.py. keep_ms: age of a snapshot when it expires; None: never."""

    merge: bool = False
    keep_ms: int | None = None
    full_bytes: int = FULL_BYTES
    few: int = FEW
    unnamed_ms: int = UNNAMED_MS


@dataclass
class Maintained:
    """What was done. merged: small files; into: files in their place; expired: snapshots; deleted: files."""

    merged: int = 0
    into: int = 0
    expired: int = 0
    deleted: int = 0


def maintain(
    catalog: "Catalog", upkeep: Upkeep, topics: Iterable[str] = (), now_ms: int | None = None
) -> Maintained:
    """Maintain the tables of some topics, or all that `pocketmq lake` has written in the namespace."""
    done = Maintained()
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    wanted = {table_name(topic) for topic in topics}
    for name in existing_tables(catalog):
        if wanted and name not in wanted:
            continue
        table = catalog.load_table((NAMESPACE, name))
        if not has_position(table):
            continue
        if upkeep.merge:
            merged, into = compact(table, upkeep.full_bytes, upkeep.few)
            done.merged += merged
            done.into += into
        if upkeep.keep_ms is not None:
            done.expired += expire(table, now - upkeep.keep_ms)
            done.deleted += delete_unnamed(table, now - upkeep.unnamed_ms)
    return done
