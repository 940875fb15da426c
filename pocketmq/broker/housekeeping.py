"""Housekeeping: the broker's periodic work besides its requests.

Rates and changed tables, once a second; silent clients, every 10 s; offsets, every
flushConsumerOffsetInterval, once the log is flushed as far as they refer to it.
"""

import asyncio
import logging
from collections.abc import Callable

from pocketmq.broker.services import Parts
from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.model.data_version import DataVersion
from pocketmq.store import StoreError
from pocketmq.store.side_tasks import in_thread

log = logging.getLogger(__name__)

_TICK_MS = 1_000
HOUSEKEEPING_INTERVAL_MS = 10_000


class Housekeeping:
    """The task; also saves the tables when the broker stops."""

    def __init__(self, parts: Parts, tick: Callable[[], bool] | None) -> None:
        """tick: also called once a second, if requests are checked; it says if accounts lost rights."""
        self._parts = parts
        self._tick = tick
        # The version of the topics whose reserved times and sizes hold.
        self._reserved_at: DataVersion | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        node, tables, members = self._parts.node, self._parts.tables, self._parts.members
        pop = self._parts.services.pop
        attempt = self._parts.messages.store.side_tasks.attempt
        monotonic_ms = node.clock.monotonic_ms
        next_scan = monotonic_ms() + HOUSEKEEPING_INTERVAL_MS
        next_offsets = monotonic_ms() + node.config.flush_consumer_offset_interval
        while True:
            await asyncio.sleep(_TICK_MS / 1000)
            now = monotonic_ms()
            self._parts.messages.stats.tick()
            self._parts.messages.once.tick()
            tables.offsets.consumed.tick()
            with attempt("acl"):
                if self._tick is not None and self._tick():
                    node.events.rights_lost()
            with attempt("groups"):
                members.guard.tick()
                tables.isolated.tick(members.consumers.groups)
            with attempt("deliveries"):
                self._parts.messages.deliveries.tick()
                await self._fold()
            with attempt("housekeeping"):
                if now >= next_scan:
                    next_scan = now + HOUSEKEEPING_INTERVAL_MS
                    members.producers.scan()
                    members.consumers.scan()
                    members.locks.scan()
                    if tables.groups.is_nearly_full and node.role.leads:
                        self._delete_unused_groups()
            with attempt("metrics"):
                self._parts.lags.go_on()
            with attempt("lite-topics"):
                if node.role.leads:
                    self._parts.services.lite.tick()
            with attempt("topic-retention"):
                self._expire()
            with attempt("pop-log"):
                if node.role.leads:
                    pop.tick()
            for manager in (tables.filters, tables.isolated, tables.order_info, tables.wishes):
                await self._save(manager)
            if now >= next_offsets:
                next_offsets = now + node.config.flush_consumer_offset_interval
                await self.save_offsets()

    def _expire(self) -> None:
        """Expire messages beyond what their topics keep, as of the last change of the table."""
        store, topics = self._parts.messages.store, self._parts.tables.topics
        if self._reserved_at != topics.data_version:
            self._reserved_at = topics.data_version
            store.reserve(topics.reserved())
        if store.topic_retention is not None:
            store.topic_retention.tick()

    async def _fold(self) -> None:
        """Add up what a dropped file of the delivery record says."""
        files = self._parts.messages.deliveries.files
        if files.is_folded or files.is_copied:
            return
        # Loaded when it is needed: the broker starts faster.
        from pocketmq.broker.ledger.folding import fold

        offsets = {
            (group, topic, queue_id): offset
            for topic, group, queue_id, offset in self._parts.tables.offsets.rows()
        }
        now_ms = self._parts.node.clock.now_ms()
        await asyncio.to_thread(fold, files, offsets, now_ms)

    def _delete_unused_groups(self) -> None:
        # At no start: few brokers have so many.
        from pocketmq.broker.groups.unused_groups import delete_unused_groups

        parts = self._parts
        count = delete_unused_groups(parts.tables, parts.members.consumers, parts.messages.store)
        if count:
            log.warning(
                "deleted groups that were created by first use and never used count=%d", count
            )

    async def save_offsets(self) -> None:
        """Save changed offsets and schedules, once the disk has what they refer to."""
        await self._save(self._parts.tables.offsets, self._offsets_end)
        schedules = self._parts.tables.schedules
        await self._save(schedules, schedules.end)

    @property
    def _offsets_end(self) -> int:
        services = self._parts.services
        return max(services.pop.log.end, services.half.end)

    async def _save(self, manager: ConfigManager, position: int = 0) -> None:
        """Save a changed table, not before the log is on disk up to `position`."""
        if not manager.dirty:
            return
        write = manager.begin_save()
        store = self._parts.messages.store
        saved = False
        with store.side_tasks.attempt(manager.name):
            flushed = store.flushed(position)
            if flushed is not None:
                await asyncio.shield(flushed)
            await in_thread(write)
            saved = True
        if not saved:
            manager.dirty = True

    def save_all(self) -> None:
        """Save what changed: the broker stops."""
        tables, store = self._parts.tables, self._parts.messages.store
        self._parts.messages.lite.close()
        ends = {
            tables.offsets.name: self._offsets_end,
            tables.schedules.name: tables.schedules.end,
        }
        for manager in reversed(tables.managers):
            if manager.dirty:
                try:
                    end = ends.get(manager.name, 0)
                    if store.flushed_position < end:
                        # As in `save_offsets`: the power may go during the stop, too.
                        store.flush_now()
                    manager.persist()
                except (OSError, StoreError) as error:
                    log.error("cannot save a table while the broker stops reason=%s", error)
