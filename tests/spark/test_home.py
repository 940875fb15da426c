"""Spark's Python processes find PySpark where pip has installed it, and do not compile it from a zip."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from pocketmq.spark.home import without_zip
from tests.spark.conftest import CHILD_ENV, need_java
from tests.store.bulk_stores import Message, WrittenStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTALLED = Path(pyspark.__file__).parent

# tests.spark.matrix gives other versions by PYTHONPATH.
pytestmark = pytest.mark.skipif(
    str(INSTALLED.parent) != sysconfig.get_paths()["purelib"], reason="not installed by pip"
)


@pytest.mark.slow
def test_processes_of_a_session_import_what_is_compiled(spark: "SparkSession") -> None:
    def where(_: int) -> list[str]:
        import py4j
        import pyspark

        return [pyspark.__file__, py4j.__file__]

    (found,) = spark.sparkContext.parallelize([0], 1).map(where).collect()
    assert found == [str(INSTALLED.with_name(n) / "__init__.py") for n in ("pyspark", "py4j")]
    assert "SPARK_HOME" not in os.environ
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.python.daemon.module") == "pocketmq.spark.daemon"
    linux = sys.platform == "linux"
    assert (conf.get("spark.python.unix.domain.socket.enabled") == "true") == linux


_LIMITED = """
import os, sys
from pocketmq.spark import session
conf = {
    "spark.driver.extraJavaOptions": os.environ["SHORT_LIVED_JVM"], "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": sys.argv[2],
}
spark = session("local[1]", conf=conf | dict(option.split("=") for option in sys.argv[3:]))
spark.sparkContext.setLogLevel("OFF")
spark.read.format("pocketmq").load(sys.argv[1]).select("queueOffset", "body").show(3)
print(spark.conf.get("spark.python.unix.domain.socket.enabled"))
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize("unix", ["false", "true"])
def test_show_of_a_few_rows_prints_these_alone(tmp_path: Path, unix: str) -> None:
    """Spark closes the socket of the process that reads on: PySpark's daemon tells of it in 20 lines."""
    need_java()
    store = WrittenStore(tmp_path / "broker-a" / "store")
    store.add(Message(body=bytes(100_000)) for _ in range(200))
    answer = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(store.root), unix],
        capture_output=True,
        text=True,
        check=True,
        env=CHILD_ENV,
    )
    assert "BrokenPipeError" not in answer.stderr
    assert "Traceback" not in answer.stderr
    assert "only showing top 3 rows" in answer.stdout
    # What the caller sets has its way.
    assert answer.stdout.split()[-1] == unix


def test_a_home_has_all_but_the_zips_and_goes_with_its_process() -> None:
    code = (
        "import os\nfrom pocketmq.spark.home import without_zip\n"
        "with without_zip(has_us=True):\n    home = os.environ['SPARK_HOME']\n"
        "    print(home, *sorted(os.listdir(home)))\nassert 'SPARK_HOME' not in os.environ\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "SPARK_HOME"}
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=env | {"PYSPARK_PYTHON": sys.executable},
    )
    home, *parts = answer.stdout.split()
    assert parts == sorted(
        ["conf", *(p.name for p in INSTALLED.iterdir() if p.name not in ("python", "conf"))]
    )
    assert not Path(home).exists()
    assert (INSTALLED / "jars").is_dir()


def test_other_homes_and_interpreters_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with without_zip(has_us=True):
        assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with without_zip(has_us=True):
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"
