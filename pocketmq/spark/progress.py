"""Shows a stream's progress as a consumer group's offsets, so that consoles and alerts see its backlog.

Spark tells a source one batch late what it has finished, and never for the last batch of a run. The listener
sees each batch's end, including the last. Both are for dashboards only: the checkpoint remains authoritative.
"""

import json
import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from pocketmq.remoting.errors import IllegalArgument, PocketMQError
from pocketmq.spark.brokers.client import BrokerClient
from pocketmq.spark.brokers.connection import BrokerAccess
from pocketmq.spark.brokers.stream import commit_group
from pocketmq.spark.stream_offset import from_offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("pocketmq.spark")


class _Committer(StreamingQueryListener):
    def __init__(self, access: BrokerAccess, group: str, query_name: str | None) -> None:
        self._client = BrokerClient(access)
        self._group = group
        self._query_name = query_name

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        if self._query_name is not None and event.progress.name != self._query_name:
            return
        for source in event.progress.sources:
            try:
                offsets = from_offset(json.loads(source.endOffset))
                commit_group(self._client, self._group, offsets)
            except (IllegalArgument, ValueError, TypeError):
                continue  # another kind of source in the same query
            except PocketMQError as error:
                _log.warning("commit_progress_failed group=%s error=%s", self._group, error)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        self._client.close()


def commit_progress(
    spark: "SparkSession",
    name_server: str,
    group: str,
    *,
    query_name: str | None = None,
    access_key: str = "",
    secret_key: str = "",
) -> StreamingQueryListener:
    """Commit the end of each batch as the group's offsets from now on.

    query_name: only that query's. Returns: the listener, for spark.streams.removeListener().
    """
    listener = _Committer(
        BrokerAccess(name_server, access_key=access_key, secret_key=secret_key), group, query_name
    )
    spark.streams.addListener(listener)
    return listener
