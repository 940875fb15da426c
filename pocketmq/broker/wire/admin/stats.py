"""Figures of the broker: GET_BROKER_RUNTIME_INFO, VIEW_BROKER_STATS_DATA. Source: AdminBrokerProcessor,
StoreStatsService, RunningStats, RocketMQ 4.9.7; wire.md 2.9.

Tools parse these texts: every rate is three numbers joined by blanks, from the first second on, and the
count of transferred messages appears under 4.x's and 5.x's spelling of its name. Figures of thread pools,
which PocketMQ does not have, are 0.
"""

from collections.abc import Callable

from pocketmq.broker.figures.consumed import GROUP_CONSUMED_NUMS, Consumed
from pocketmq.broker.figures.stats import BrokerStats
from pocketmq.broker.health import Health, check_store
from pocketmq.broker.node import Node
from pocketmq.broker.services import Services
from pocketmq.broker.wire.admin.answers import json_answer
from pocketmq.model.names import SCHEDULE_TOPIC, is_users_topic
from pocketmq.model.record import read_record
from pocketmq.remoting.admin_headers import ViewBrokerStatsDataHeader
from pocketmq.remoting.codes import OUR_VERSION, RequestCode, ResponseCode, release, version_name
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.store import MessageStore

_POOLS = ("send", "pull", "query", "litePull", "ack")
# The buckets of putMessageDistributeTime behind "[<=0ms]" and "[0~10ms]".
_SLOW_BUCKETS = (
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)

_NOT_KEPT = {"avgpt": 0.0, "sum": 0, "tps": 0.0}


class AdminStatsProcessor:
    """Handlers over the counters. delay_offsets: level -> next offset of the delay queues."""

    def __init__(
        self,
        node: Node,
        store: MessageStore,
        stats: BrokerStats,
        services: Services,
        consumed: Consumed,
        *,
        delay_offsets: Callable[[], dict[int, int]],
    ) -> None:
        self._config = node.config
        self._store = store
        self._stats = stats
        self._timer = services.timer
        self._consumed = consumed
        self._delay_offsets = delay_offsets
        self._schedules = services.schedules
        self._now_ms = node.clock.now_ms

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.get_runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.view_stats,
        }

    def view_stats(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = ViewBrokerStatsDataHeader.parse(request.ext)
        if header.stats_name == GROUP_CONSUMED_NUMS:
            return json_answer(request, self._consumed_windows(header.stats_key))
        found = self._stats.windows(header.stats_name, header.stats_key)
        if found is None:
            return request.answer(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        minute, hour, day = found
        content = {
            "statsDay": day.to_json(),
            "statsHour": hour.to_json(),
            "statsMinute": minute.to_json(),
        }
        return json_answer(request, content)

    def _consumed_windows(self, key: str) -> dict[str, dict[str, float]]:
        """Return a group's consumption of a topic over the last minute; zeros for one that did not move."""
        count, ms = self._consumed.in_minute(key)
        minute = {"avgpt": 0.0, "sum": count, "tps": count * 1_000 / ms}
        return {"statsDay": _NOT_KEPT, "statsHour": _NOT_KEPT, "statsMinute": minute}

    def get_runtime_info(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        table = {
            "brokerActive": "true",
            "brokerVersion": str(OUR_VERSION),
            "brokerVersionDesc": version_name(OUR_VERSION),
            # Ours: mqadmin brokerStatus prints every name.
            "pocketmqVersion": release(),
            "startAcceptSendRequestTimeStamp": str(
                self._config.start_accept_send_request_time_stamp
            ),
            **self._rates(),
            **self._puts_and_gets(),
            **self._log_numbers(),
            **self._delays(),
            **self._timers(),
            **self._pools(),
        }
        found = Health(self._config.broker_name, "")
        check_store(found, self._store)
        found.findings += self._schedules.findings()
        if not found.ok:
            # Ours: `pocketmq health`, `cluster list` and the console show it.
            table["trouble"] = "; ".join(found.reasons)
        if found.findings:
            table["findings"] = "\n".join(found.findings)
        return json_answer(request, {"table": table})

    def _rates(self) -> dict[str, str]:
        text = self._stats.rate_text
        transferred = text(lambda totals: totals.transferred)
        return {
            "getFoundTps": text(lambda totals: totals.found),
            "getMissTps": text(lambda totals: totals.miss),
            "getTotalTps": text(lambda totals: totals.found + totals.miss),
            "getTransferedTps": transferred,
            "getTransferredTps": transferred,
            "putTps": text(lambda totals: totals.put),
            # Ours: messages of users' topics over the last minute, the sum of what each topic tells.
            "usersPutRate": str(self._users_put_rate()),
        }

    def _users_put_rate(self) -> float:
        own = self._config.broker_name, self._config.broker_cluster_name
        stats = self._stats
        return sum(stats.topic_put_tps(each) for each in stats.put if is_users_topic(each, own))

    def _puts_and_gets(self) -> dict[str, str]:
        store, stats = self._store, self._stats
        slow = min(store.appends.put_slow_count, store.appends.put_count)
        # An append is a copy in memory: 0 ms, but for those that had to make a file.
        buckets = [f"[<=0ms]:{store.appends.put_count - slow}", f"[0~10ms]:{slow}"]
        buckets += [f"{name}:0" for name in _SLOW_BUCKETS]
        count = max(1, store.appends.put_count)
        return {
            "bootTimestamp": str(stats.boot_ms),
            "getMessageEntireTimeMax": "0",
            "msgGetTotalTodayMorning": str(stats.get_total_today_morning),
            "msgGetTotalTodayNow": str(store.reads.get_transferred_count),
            "msgGetTotalYesterdayMorning": str(stats.get_total_yesterday_morning),
            "msgPutTotalTodayMorning": str(stats.put_total_today_morning),
            "msgPutTotalTodayNow": str(store.appends.put_count),
            "msgPutTotalYesterdayMorning": str(stats.put_total_yesterday_morning),
            "putLatency99": "0.00",
            "putLatency999": "0.00",
            "putMessageAverageSize": str(store.appends.put_size / count),
            "putMessageDistributeTime": " ".join(buckets) + " ",
            "putMessageEntireTimeMax": "0",
            "putMessageFailedTimes": "0",
            "putMessageSizeTotal": str(store.appends.put_size),
            "putMessageTimesTotal": str(store.appends.put_count),
            "runtime": runtime_text(max(0, self._now_ms() - stats.boot_ms)),
        }

    def _log_numbers(self) -> dict[str, str]:
        store = self._store
        folder = store.config.store_path_root_dir
        use = str(store.disk_use)
        import shutil

        disk = shutil.disk_usage(folder)
        return {
            "commitLogDirCapacity": f"Total : {size_text(disk.total)}, Free : {size_text(disk.free)}.",
            "commitLogDiskRatio": use,
            "commitLogMaxOffset": str(store.commit_log_max_position),
            "commitLogMinOffset": str(store.commit_log_min_position),
            "consumeQueueDiskRatio": use,
            "dispatchBehindBytes": str(store.dispatch_behind_size),
            "dispatchMaxBuffer": "0",
            "earliestMessageTimeStamp": str(self._earliest_ms()),
            "pageCacheLockTimeMills": "0",
            "remainHowManyDataToFlush": size_text(store.flush_behind_size),
            "remainTransientStoreBufferNumbs": "0",
        }

    def _earliest_ms(self) -> int:
        record = self._store.record_at(self._store.commit_log_min_position)
        return -1 if record is None else read_record(record, check_crc=False).store_ms

    def _delays(self) -> dict[str, str]:
        offsets = self._delay_offsets()
        table: dict[str, str] = {}
        for level in range(1, len(self._store.delay_levels) + 1):
            end = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
            if end or level in offsets:
                table[f"scheduleMessageOffset_{level}"] = f"{offsets.get(level, 0)},{end}"
        return table

    def _pools(self) -> dict[str, str]:
        table = {"EndTransactionQueueSize": "0", "EndTransactionThreadPoolQueueCapacity": "0"}
        for name in _POOLS:
            table[f"{name}ThreadPoolQueueSize"] = "0"
            table[f"{name}ThreadPoolQueueCapacity"] = "0"
            table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        return table

    def _timers(self) -> dict[str, str]:
        timer = self._timer
        return {
            "timerCongestNum": str(sum(timer.pending.counts.values())),
            "timerDequeueTps": str(timer.flow.out_rate),
            "timerEnqueueTps": str(timer.flow.in_rate),
            "timerOffsetBehind": str(timer.offset_behind),
            "timerReadBehind": str(timer.behind_ms // 1000),
        }


def runtime_text(ms: int) -> str:
    """Format a duration as StoreStatsService does.

    >>> runtime_text(93_784_000)
    '[ 1 days, 2 hours, 3 minutes, 4 seconds ]'
    """
    seconds = ms // 1000
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    return f"[ {days} days, {hours % 24} hours, {minutes % 60} minutes, {seconds % 60} seconds ]"


def size_text(size: int) -> str:
    """Format a size as MixAll.humanReadableByteCount does, in steps of 1024.

    >>> size_text(512), size_text(1536), size_text(3 << 30)
    ('512 B', '1.5 KiB', '3.0 GiB')
    """
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for unit in "KMGTPE":
        value /= 1024
        if value < 1024 or unit == "E":
            break
    return f"{value:.1f} {unit}iB"
