"""Finds stores that hold the same messages under different broker names: each would be read twice.

Messages of two stores are the same only in files that both have. So for any two that share files, the first
record of the newest shared file is compared, as a store is recognized by its tasks (see StoreIdentity).
"""

import json
import logging
from collections.abc import Sequence
from itertools import combinations

from pocketmq.bulk.store import StoreSnapshot
from pocketmq.remoting.errors import IllegalArgument

_log = logging.getLogger(__name__)


def check_different(stores: Sequence[StoreSnapshot]) -> None:
    """Warn of equal stores if the user named them all. Raises: IllegalArgument if a name is a folder's."""
    for position in _probes(stores):
        groups: dict[bytes, list[StoreSnapshot]] = {}
        for store in stores:
            file = store.log_file_of(position)
            head = store.head(file) if file is not None and file.first == position else None
            if head is not None and any(head[:4]):
                groups.setdefault(head, []).append(store)
        for group in groups.values():
            _check_group(group, position)


def _probes(stores: Sequence[StoreSnapshot]) -> list[int]:
    """Return positions such that any two stores of different names that share files share one of these."""
    names = {store.root.broker_name for store in stores}
    if len(names) < 2:
        return []
    spans = [
        (store.log_start, found.first, store.root.broker_name)
        for store in stores
        if (found := store.identity()) is not None
    ]
    shared = sorted(
        (min(one[1], other[1]), max(one[0], other[0]))
        for one, other in combinations(spans, 2)
        if one[2] != other[2]
    )
    probes: list[int] = []
    for newest, oldest in shared:
        if oldest <= newest and (not probes or probes[-1] < oldest):
            probes.append(newest)
    return probes


def _check_group(group: Sequence[StoreSnapshot], position: int) -> None:
    roots = {store.root.broker_name: store.root for store in group}
    if len(roots) < 2:
        return
    who = " and ".join(f"{root.path} (broker {name!r})" for name, root in roots.items())
    if all(root.is_named for root in roots.values()):
        _log.warning(
            "same_messages position=%d stores=%s; the rows of each are read, as each has a name of its own",
            position,
            who,
        )
        return
    archive = next((store for store in group if store.is_archive), group[0])
    names = {s.root.path: archive.root.broker_name for s in group if s is not archive}
    raise IllegalArgument(
        f"{who} hold the same messages at position {position} of their logs, so these would be read twice. "
        "An archive and the live store of its broker are one table under one name, so set option brokerName "
        f"to {json.dumps(names)}; of two copies, or of a master's and a slave's store, give only one. To "
        "read each all the same, give each a name with option brokerName"
    )
