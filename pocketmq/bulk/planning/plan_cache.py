"""What a plan of some roots keeps for the next one, and the inspection of roots: in parallel where it waits
for disks or a network, one by one where it computes.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from pocketmq.bulk.fetch import LocalFolders
from pocketmq.bulk.offsets import LossRule, QueueKey
from pocketmq.bulk.partition import Topics
from pocketmq.bulk.planning.archived import Archive, ArchivedBounds, JoinedBounds, join
from pocketmq.bulk.planning.bounds import FileBounds
from pocketmq.bulk.planning.duplicate_stores import check_different
from pocketmq.bulk.planning.live_store import LiveStore
from pocketmq.bulk.store import Root, StoreSnapshot
from pocketmq.files.layout import Listed

_AT_A_TIME = 16
# A look that took so much longer than its work did wait; threads cost more than they bring on a warm disk.
_WAITS_RATIO = 3
_WAITS_S = 0.05


class ArchivedStore:
    """An archive and its queues, as its catalog was."""

    def __init__(self, store: StoreSnapshot, topics: Topics, loss: LossRule) -> None:
        self.store = store
        self.catalog: list[Listed] = store.catalog
        self.queues: list[ArchivedBounds] = list(Archive(store, topics.has).queues(loss))


# A store without queues is walked by the tasks; nothing is known of it.
Looked = LiveStore | ArchivedStore | StoreSnapshot


class CachedPlan:
    """State of one selection of topics."""

    def __init__(self) -> None:
        self._looked: dict[Root, Looked] = {}
        self._joined: dict[
            QueueKey, tuple[ArchivedBounds, FileBounds, JoinedBounds | FileBounds]
        ] = {}

    def look(
        self,
        roots: Sequence[Root],
        topics: Topics,
        loss: LossRule,
        say: Callable[[], None] = lambda: None,
    ) -> list[Looked]:
        """Inspect the stores as they are now; drop roots that are no longer wanted.

        say: called after each store, by several threads.
        Raises: NotAStore, IllegalArgument if two names stand for one store.
        """
        before = self._looked
        # A store whose inspection fails is inspected from scratch the next time.
        self._looked = {}

        def look(root: Root) -> Looked:
            found = _look(root, before.get(root), topics, loss)
            say()
            return found

        found = _each(roots, look)
        if before.keys() != set(roots):
            check_different([_store_of(one) for one in found])
        self._looked = dict(zip(roots, found, strict=True))
        return found

    def joined(self, archived: ArchivedBounds, live: FileBounds) -> JoinedBounds | FileBounds:
        """archived.join(), computed once per pair."""
        known = self._joined.get(live.key)
        if known is None or known[0] is not archived or known[1] is not live:
            known = self._joined[live.key] = (archived, live, join(archived, live))
        return known[2]


def _look(root: Root, known: Looked | None, topics: Topics, loss: LossRule) -> Looked:
    if isinstance(known, LiveStore) and not known.store.is_archive and known.store.has_queues():
        known.look_again(loss)
        return known
    store = StoreSnapshot(root)
    if store.is_archive:
        if isinstance(known, ArchivedStore) and known.catalog == store.catalog:
            return known
        return ArchivedStore(store, topics, loss)
    if store.log_files and not store.has_queues():
        return store
    live = LiveStore(store, topics)
    live.look(loss)
    return live


def _each(roots: Sequence[Root], look: Callable[[Root], Looked]) -> list[Looked]:
    if not roots:
        return []
    began, began_cpu = time.perf_counter(), time.thread_time()
    first = look(roots[0])
    took, worked = time.perf_counter() - began, time.thread_time() - began_cpu
    waits = took > _WAITS_S and took > _WAITS_RATIO * worked
    if len(roots) > 2 and (waits or not isinstance(_store_of(first).folders, LocalFolders)):
        with ThreadPoolExecutor(min(_AT_A_TIME, len(roots) - 1)) as pool:
            return [first, *pool.map(look, roots[1:])]
    return [first, *map(look, roots[1:])]


def _store_of(looked: Looked) -> StoreSnapshot:
    return looked if isinstance(looked, StoreSnapshot) else looked.store
