"""format("pocketmq"): the entry that Spark calls. It parses options and picks a reader or writer.

Spark starts a Python process for many of these calls, so each imports only what it needs.
"""

import logging
import os
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pocketmq.remoting.errors import IllegalArgument, PocketMQError
from pocketmq.spark.given_options import check_use, is_table, parse_options, table_options
from pocketmq.spark.options import READ, STREAM, WRITE, Options
from pocketmq.spark.settled import sentence_first, settle

# Bodies that `bodySchema=infer` looks at.
_SAMPLED = 1000


@sentence_first
class PocketMQDataSource(DataSource):
    """RocketMQ stores and brokers as tables: spark.dataSource.register(PocketMQDataSource)."""

    #: Tasks that can run at once; set by setup(), since the processes that plan have no SparkContext.
    parallelism = 1
    #: Whether filters of a query are answered by the index: set by setup(), which explains the danger.
    push_filters = False
    #: Whether the driver runs on a terminal, which the processes that plan do not: setup() looks.
    on_terminal = False

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        _show_log()
        self._given = {str(k): str(v) for k, v in dict(options).items()}
        self._options = parse_options(self._given)

    @classmethod
    def name(cls) -> str:
        return "pocketmq"

    def schema(self) -> StructType:
        from pocketmq.spark.columns import schema_of, with_options

        settle()
        found = schema_of(self._options.columns, self._body(None))
        if not is_table(self._given):
            return found
        # Spark asks a table of its catalog to be read without the options that it was created with.
        return with_options(found, table_options(self._given))

    def _use(self, schema: StructType, use: str) -> None:
        """Read a table's options from its schema, if it is read by name. Raises: IllegalArgument."""
        # Spark may have made this object in another process.
        _show_log()
        if not self._given:
            from pocketmq.spark.columns import options_in

            self._given = options_in(schema)
            self._options = parse_options(self._given)
        check_use(self._given, use)

    def reader(self, schema: StructType) -> Any:
        self._use(schema, READ)
        from pocketmq.spark.columns import projection_of

        projection = projection_of(schema, self._options.columns, self._body(schema))
        if _reads_files(self._options):
            from pocketmq.spark.file_reader import FileReader

            settle()
            return FileReader(
                self._options,
                projection,
                self._cores(),
                pushes=self.push_filters,
                on_terminal=self.on_terminal,
            )
        from pocketmq.spark.brokers.reader import BrokerReader

        settle()
        options = _with_name_server(self._options)
        return BrokerReader(options, projection, self._cores(), pushes=self.push_filters)

    def streamReader(self, schema: StructType) -> Any:
        try:
            return self._stream(schema)
        except PocketMQError as error:
            from pocketmq.spark.stream import RefusedStream

            return RefusedStream(error)

    def _stream(self, schema: StructType) -> Any:
        self._use(schema, STREAM)
        from pocketmq.spark.columns import projection_of

        projection = projection_of(schema, self._options.columns, self._body(schema))
        if _reads_files(self._options):
            from pocketmq.spark.file_stream import make_file_stream

            return make_file_stream(self._options, projection)
        from pocketmq.spark.brokers.stream import make_broker_stream

        return make_broker_stream(_with_name_server(self._options), projection, self._cores())

    def _body(self, schema: StructType | None) -> Any:
        """Return the columns of bodies; None without option bodySchema. schema: that Spark asks for.

        Raises: IllegalArgument.
        """
        text, on_error = self._options.body_schema.strip(), self._options.body_errors
        if not text:
            return None
        if self._options.columns.strip().lower() == "kafka":
            raise IllegalArgument("bodySchema and columns=kafka do not go together")
        if text == "infer" and schema is not None:
            from pocketmq.spark.columns import body_of_schema

            return body_of_schema(schema, on_error)
        from pocketmq.bulk.bodies.columns import BodyColumns

        files = _reads_files(self._options)
        return BodyColumns.of(text, on_error, self._sample if files else None)

    def _sample(self) -> Any:
        """Return the first bodies of the stores."""
        from pocketmq import bulk

        options = self._options
        rows = bulk.scan(
            options.store_paths,
            columns="body",
            topics=options.topics,
            topic_pattern=options.subscribe_pattern or None,
            broker_name=options.broker_names,
        )
        found = next(iter(rows), None)
        count = 0 if found is None else min(found.num_rows, _SAMPLED)
        logging.getLogger("pocketmq.spark").info("body_schema inferred from bodies=%d", count)
        return (found or rows.schema.empty_table()).column("body").slice(0, count)

    def _cores(self) -> int:
        """Return how many tasks a read has at least; minPartitions overrides it."""
        return 1 if self._options.min_partitions else self.parallelism

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        self._use(schema, WRITE)
        if overwrite:
            raise IllegalArgument(
                'a topic cannot be overwritten: use df.write.format("pocketmq").mode("append")'
            )
        from pocketmq.spark.write.sink import make_writer

        return make_writer(_with_name_server(self._options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        self._use(schema, WRITE)
        if overwrite:
            raise IllegalArgument(
                'a topic cannot be overwritten: use .outputMode("append") or "update"'
            )
        from pocketmq.spark.write.sink import make_stream_writer

        return make_stream_writer(_with_name_server(self._options), schema)


def source_with(
    cores: int, *, push_filters: bool, on_terminal: bool = False
) -> type[PocketMQDataSource]:
    """Return the source that knows how many tasks can run at once; without a module, a class travels by
    value.
    """
    if cores == 1 and not push_filters and not on_terminal:
        return PocketMQDataSource
    values = {
        "parallelism": cores,
        "push_filters": push_filters,
        "on_terminal": on_terminal,
        "__module__": "__main__",
        "__doc__": PocketMQDataSource.__doc__,
    }
    return type("PocketMQDataSource", (PocketMQDataSource,), values)


def _show_log() -> None:
    """With POCKETMQ_LOG=INFO, log what is planned and pushed, on the driver's standard error.

    Spark calls us in separate processes, which the user's logging configuration does not reach.
    """
    level = os.environ.get("POCKETMQ_LOG", "").upper()
    log = logging.getLogger("pocketmq.spark")
    if level in ("DEBUG", "INFO") and not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(level)


def _reads_files(options: Options) -> bool:
    """Return True for files. Raises: IllegalArgument if it is not clear where to read."""
    if options.store_paths and options.name_server:
        raise IllegalArgument(
            "give either path (files) or nameServer (brokers), not both: load() without a path reads brokers"
        )
    if options.store_paths:
        return True
    if options.name_server or os.environ.get("NAMESRV_ADDR"):
        return False
    raise IllegalArgument(
        'nothing to read is named: load("/data/broker-a/store") reads files, option nameServer '
        '("host:9876", or the environment\'s NAMESRV_ADDR) reads brokers. A table of the catalog: CREATE '
        "TABLE t USING pocketmq OPTIONS (...) without a list of columns, of which Spark keeps no options"
    )


def _with_name_server(options: Options) -> Options:
    """Fill a missing nameServer from the environment. Raises: IllegalArgument."""
    if not options.name_server:
        options.name_server = os.environ.get("NAMESRV_ADDR", "")
    if not options.name_server:
        raise IllegalArgument('option nameServer is missing: "host:9876;host2:9876"')
    return options
