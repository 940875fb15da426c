"""Frames that read only what a query uses. Spark does not tell a Python source which columns a query uses: a
frame of 23 columns decodes 23. Here the query is analysed first, and the frame has only the columns it names.
The index answers its conditions on topics, queues, offsets, times, tags and keys.

    from pocketmq.spark import read

    messages = read(spark, "/data/*/store", subscribe="Orders")
    messages.where("tags = 'a'").select("queueId", "queueOffset").show()      # three columns
    messages.apply(lambda df: df.groupBy("tags").count()).show()              # one
    messages.sql("SELECT tags, sum(length(body)) FROM {messages} GROUP BY tags").show()

Spark Connect shows no plan: there the frame has the standard columns.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pocketmq.remoting.errors import IllegalArgument
from pocketmq.spark.analysed import Analysed
from pocketmq.spark.pushdown import Pushed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_log = logging.getLogger("pocketmq.spark")
_TEMPLATE = "_pocketmq_template"


def read(spark: "SparkSession", path: str = "", **options: Any) -> "PrunedMessages":
    """Return messages of stores (path) or brokers (nameServer), with format("pocketmq")'s options except
    columns.

    Raises: IllegalArgument.
    """
    if any(name.lower() == "columns" for name in options):
        raise IllegalArgument(
            "read() finds out which columns a query uses: leave out option columns"
        )
    if any(name.lower() == "bodyschema" for name in options):
        raise IllegalArgument(
            'read() does not look into bodies: use spark.read.format("pocketmq") with options bodySchema and '
            "columns"
        )
    return PrunedMessages(spark, path, {name: str(value) for name, value in options.items()})


class PrunedMessages:
    """The source of queries; every call except where() returns an ordinary frame."""

    def __init__(
        self,
        spark: "SparkSession",
        path: str,
        options: Mapping[str, str],
        conditions: "tuple[str | Column, ...]" = (),
    ) -> None:
        self._spark = spark
        self._path = path
        self._options = dict(options)
        self._conditions = conditions

    def where(self, condition: "str | Column") -> "PrunedMessages":
        """Return the messages that pass; the index answers what it can."""
        return PrunedMessages(
            self._spark, self._path, self._options, (*self._conditions, condition)
        )

    filter = where

    def select(self, *columns: "str | Column") -> "DataFrame":
        """Like DataFrame.select."""
        return self.apply(lambda frame: frame.select(*columns))

    def count(self) -> int:
        """Return the number of messages."""
        return int(self.apply(lambda frame: frame.groupBy().count()).collect()[0][0])

    def sql(self, query: str, **frames: Any) -> "DataFrame":
        """Return the result of a query that names the messages as {messages}; frames: its other names."""
        return self.apply(lambda frame: self._spark.sql(query, messages=frame, **frames))

    def apply(self, query: "Callable[[DataFrame], DataFrame]") -> "DataFrame":
        """Return query(frame), with a frame of the used columns. Called twice, it must run no job."""
        if not hasattr(self._spark, "_jsparkSession"):
            return self._filtered(query, self._loaded({}))
        plan = Analysed(self._filtered(query, _template(self._spark)))
        columns = ",".join(plan.columns)
        pushed = plan.pushed
        _log.info("pruned columns=%s", columns)
        given = {"columns": columns}
        if pushed != Pushed():
            given["conditions"] = pushed.as_text()
        return self._filtered(query, self._loaded(given))

    def _loaded(self, given: dict[str, str]) -> "DataFrame":
        reader = self._spark.read.format("pocketmq").options(**self._options, **given)
        return reader.load(self._path) if self._path else reader.load()

    def _filtered(
        self, query: "Callable[[DataFrame], DataFrame]", frame: "DataFrame"
    ) -> "DataFrame":
        for condition in self._conditions:
            frame = frame.where(condition)
        return query(frame)


def _template(spark: "SparkSession") -> "DataFrame":
    """Return a frame of all columns for analysing queries; created once per session, it opens nothing."""
    found: DataFrame | None = getattr(spark, _TEMPLATE, None)
    if found is None:
        from pocketmq.spark.columns import schema_of

        found = spark.createDataFrame([], schema_of("all"))
        setattr(spark, _TEMPLATE, found)
    return found
