"""A Spark Connect server in the JVM of the tests' session: another JVM costs 20 s of CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def connect_server(spark: "SparkSession") -> Iterator[str]:
    """Yields its address, sc://..."""
    context = spark.sparkContext
    package: Any = context._jvm
    for name in ("org", "apache", "spark", "sql", "connect", "service", "SparkConnectService$"):
        package = getattr(package, name)
    service = getattr(package, "MODULE$")
    service.start(context._jsc.sc())
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        service.stop(*(getattr(service, f"stop$default${n}")() for n in (1, 2)))
