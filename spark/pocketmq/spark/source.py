"""format("pocketmq"): the entry that Spark calls. It parses options and picks a reader or writer.

Spark starts a Python process for many of these calls: what one does not need, it does not import.
"""

import os
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pocketmq.remoting.errors import IllegalArgument
from pocketmq.spark.options import READ, STREAM, WRITE, Options, check_use, parse_options


class PocketMQDataSource(DataSource):
    """RocketMQ stores and brokers as tables: spark.dataSource.register(PocketMQDataSource)."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._given = {str(k): str(v) for k, v in dict(options).items()}
        self._options = parse_options(self._given)

    @classmethod
    def name(cls) -> str:
        return "pocketmq"

    def schema(self) -> StructType:
        from pocketmq.spark.columns import schema_of

        return schema_of(self._options.columns)

    def reader(self, schema: StructType) -> Any:
        check_use(self._given, READ)
        from pocketmq.spark.columns import projection_of

        projection = projection_of(schema, self._options.columns)
        if _reads_files(self._options):
            from pocketmq.spark.file_reader import FileReader

            return FileReader(self._options, projection)
        from pocketmq.spark.broker_reader import BrokerReader

        return BrokerReader(_with_name_server(self._options), projection)

    def streamReader(self, schema: StructType) -> Any:
        check_use(self._given, STREAM)
        from pocketmq.spark.columns import projection_of

        projection = projection_of(schema, self._options.columns)
        if _reads_files(self._options):
            from pocketmq.spark.file_stream import make_file_stream

            return make_file_stream(self._options, projection)
        from pocketmq.spark.broker_stream import make_broker_stream

        return make_broker_stream(_with_name_server(self._options), projection)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        check_use(self._given, WRITE)
        if overwrite:
            raise IllegalArgument(
                'a topic cannot be overwritten: use df.write.format("pocketmq").mode("append")'
            )
        from pocketmq.spark.sink import make_writer

        return make_writer(_with_name_server(self._options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        check_use(self._given, WRITE)
        if overwrite:
            raise IllegalArgument(
                'a topic cannot be overwritten: use .outputMode("append") or "update"'
            )
        from pocketmq.spark.sink import make_stream_writer

        return make_stream_writer(_with_name_server(self._options), schema)


def _reads_files(options: Options) -> bool:
    """Raises: IllegalArgument when it is not clear where to read."""
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
        '("host:9876", or the environment\'s NAMESRV_ADDR) reads brokers'
    )


def _with_name_server(options: Options) -> Options:
    """The environment stands in for a missing nameServer. Raises: IllegalArgument."""
    if not options.name_server:
        options.name_server = os.environ.get("NAMESRV_ADDR", "")
    if not options.name_server:
        raise IllegalArgument('option nameServer is missing: "host:9876;host2:9876"')
    return options
