"""write and writeStream to topics.

delivery     what it gives
atleastonce  every row is sent, some perhaps twice; a repeat has the same SPARK_ID (send.py, invariant 2)
ledger       also: a partition of a batch that was sent whole is not sent again if it holds the same rows
             (ledger.py). If a restart cuts the batch anew, it is sent, and the log says so; a crash
             between sending and recording still repeats
transaction  rows become half messages, which the driver's commit makes visible and its abort rolls back: a
             failed write shows nothing. A commit that fails in the middle raises, and what is visible by then
             stays so. A driver that dies before commit leaves half messages, which the broker gives up
"""

import logging
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pocketmq.remoting.errors import IllegalArgument
from pocketmq.spark.brokers.client import BrokerClient
from pocketmq.spark.brokers.connection import BrokerAccess
from pocketmq.spark.options import Options
from pocketmq.spark.retry import RetryPause
from pocketmq.spark.settled import sentence_first
from pocketmq.spark.write.end import HalfEnder
from pocketmq.spark.write.ledger import Ledger, rows_aside
from pocketmq.spark.write.rows import RowMessage, check_schema, outgoing
from pocketmq.spark.write.send import Half, TaskSender, WriteFailed

_log = logging.getLogger("pocketmq.spark")

# PySpark 4.0 has none.
_StreamArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", None)


@dataclass
class TaskCommit(WriterCommitMessage):
    """What a task reports to the driver.

    skipped: the ledger had all of its rows. halves: half messages to end. repeated: rows that went out again
    since no answer had come. cut_anew: the ledger had other rows under the partition's number.
    """

    partition: int
    sent: int
    skipped: bool
    halves: list[Half]
    repeated: int = 0
    cut_anew: bool = False


class _Core:
    """Shared by all four writers; they differ in how rows come in."""

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.delivery == "transaction" and not options.group:
            raise IllegalArgument("delivery=transaction needs option group, the producer group")
        check_schema(schema, options.topic, options.queue_selector)
        self.options = options
        self.batch_bytes = options.send_batch_bytes()
        self.access = BrokerAccess.of(options)
        self.group = options.group or "SPARK_PRODUCER"
        # A batch write has no query id: this one is made in the driver and goes to all tasks.
        self.job = uuid.uuid4().hex
        with BrokerClient(BrokerAccess.of(options, planning=True)) as client:
            is_ledger = options.delivery == "ledger"
            if is_ledger and not options.topic:
                raise IllegalArgument("delivery=ledger needs option topic, which holds the ledger")
            if options.topic:
                # The ledger is at the broker of the first queue, which must not change in the middle.
                client.writable(options.topic, create=not is_ledger)

    def write_rows(self, rows: Iterator[dict[str, Any]]) -> TaskCommit:
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        query = context.getLocalProperty("sql.streaming.queryId") or self.job
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        messages = (outgoing(row, self.options.topic) for row in rows)
        with BrokerClient(self.access) as client:
            if self.options.delivery != "ledger":
                return self._send(client, messages, query, batch, partition)
            ledger = Ledger(client, self.options.topic, query)
            noted = ledger.noted(partition, batch)
            if noted is None:
                return self._send(client, messages, query, batch, partition, ledger)
            with rows_aside(messages) as (tally, aside):
                if tally.note(batch) == noted:
                    return TaskCommit(partition, 0, True, [])
                _log.warning(
                    "partition_cut_anew query=%s batch=%d partition=%d rows=%d; the ledger has other "
                    "rows under this number, so these are sent, and some may be in the topic twice",
                    query,
                    batch,
                    partition,
                    tally.rows,
                )
                sent = self._send(client, aside, query, batch, partition, ledger)
                sent.cut_anew = True
                return sent

    def _send(
        self,
        client: BrokerClient,
        messages: Iterable[RowMessage],
        query: str,
        batch: int,
        partition: int,
        ledger: Ledger | None = None,
    ) -> TaskCommit:
        """Send the rows of a task, then note them."""
        sender = TaskSender(
            client,
            self.group,
            f"{query}/{batch}/{partition}",
            self.options.queue_selector,
            self.batch_bytes,
            half=self.options.delivery == "transaction",
        )
        for message in messages:
            sender.send(message)
        sender.finish()
        if ledger is not None:
            ledger.write(partition, sender.tally.note(batch))
        return TaskCommit(partition, sender.sent, False, sender.halves, sender.repeated)

    def end(self, messages: list[Any], *, commit: bool) -> int:
        """End the half messages of a write; count what tasks reported. Returns: messages sent.

        Raises: WriteFailed if a commit is not carried out for all of them.
        """
        reports = [m for m in messages if m is not None]
        halves = [half for m in reports for half in m.halves]
        if halves:
            with BrokerClient(self.access) as client:
                patience = RetryPause(self.options.retry_timeout_ms)
                ender = HalfEnder(client, self.group, commit=commit, patience=patience)
                ended = ender.end(halves)
            failed = ended.refused + ended.unknown
            if failed:
                half, error = failed[0]
                what = "made visible" if commit else "rolled back"
                text = (
                    f"of {len(halves)} messages, {ended.done} were {what}, {len(ended.refused)} "
                    f"were refused, and of {len(ended.unknown)} the outcome is unknown; the first "
                    f"is {half.msg_id} of topic {half.topic}: {error}"
                )
                if commit:
                    raise WriteFailed(text) from error
                # The broker gives up half messages that no producer ends.
                _log.warning("rollback_incomplete %s", text)
        return sum(m.sent for m in reports)

    def log_abort(self, messages: list[Any], sent: int) -> None:
        failed = sum(1 for m in messages if m is None)
        _log.warning(
            "write_aborted tasks_failed=%d tasks_done=%d messages_sent_by_those_done=%d %s",
            failed,
            len(messages) - failed,
            sent,
            "and rolled back"
            if self.options.delivery == "transaction"
            else "and stay sent; a failed task's own count is in its error",
        )


def _counts(messages: list[Any]) -> str:
    reports = [m for m in messages if m is not None]
    repeated = sum(m.repeated for m in reports)
    in_ledger = sum(1 for m in reports if m.skipped)
    cut_anew = sum(1 for m in reports if m.cut_anew)
    return f"sent_again={repeated} partitions_in_ledger={in_ledger} partitions_cut_anew={cut_anew}"


@sentence_first
class BatchWriter(_Core, DataSourceArrowWriter):
    """df.write: rows come as Arrow batches."""

    def __init__(self, options: Options, schema: StructType) -> None:
        _Core.__init__(self, options, schema)

    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        return self.write_rows(row for batch in iterator for row in batch.to_pylist())

    def commit(self, messages: list[Any]) -> None:
        sent = self.end(messages, commit=True)
        _log.info("write_done job=%s messages_sent=%d %s", self.job, sent, _counts(messages))

    def abort(self, messages: list[Any]) -> None:
        self.log_abort(messages, self.end(messages, commit=False))


@sentence_first
class _StreamCore(_Core):
    def commit(self, messages: list[Any], batchId: int) -> None:
        sent = self.end(messages, commit=True)
        if any(m.cut_anew for m in messages if m is not None):
            _log.warning(
                "batch_cut_anew batch=%d; it ran before with other partitions, and rows that were sent then "
                "are in the topic twice",
                batchId,
            )
        _log.info("batch_done batch=%d messages_sent=%d %s", batchId, sent, _counts(messages))

    def abort(self, messages: list[Any], batchId: int) -> None:
        self.log_abort(messages, self.end(messages, commit=False))


@sentence_first
class RowStreamWriter(_StreamCore, DataSourceStreamWriter):
    """writeStream of PySpark 4.0: rows come as Row."""

    def __init__(self, options: Options, schema: StructType) -> None:
        _Core.__init__(self, options, schema)

    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        return self.write_rows(row.asDict() for row in iterator)


def make_writer(options: Options, schema: StructType) -> BatchWriter:
    """Return the writer of a batch. Raises: IllegalArgument, Refused, RemotingError before a task starts."""
    return BatchWriter(options, schema)


def make_stream_writer(options: Options, schema: StructType) -> Any:
    """Return the writer for one batch of a stream, for the running PySpark."""
    if _StreamArrowWriter is None:
        return RowStreamWriter(options, schema)
    return ArrowStreamWriter(options, schema)


if _StreamArrowWriter is not None:

    @sentence_first
    class ArrowStreamWriter(_StreamCore, _StreamArrowWriter):  # type: ignore[misc]
        """writeStream of PySpark 4.1 and newer: rows come as Arrow batches."""

        def __init__(self, options: Options, schema: StructType) -> None:
            _Core.__init__(self, options, schema)

        def write(self, iterator: Iterator[Any]) -> TaskCommit:
            return self.write_rows(row for batch in iterator for row in batch.to_pylist())
