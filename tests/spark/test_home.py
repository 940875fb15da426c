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


def test_a_home_has_all_but_the_zips_and_goes_with_its_process() -> None:
    code = (
        "import os\nfrom pocketmq.spark.home import without_zip\n"
        "with without_zip():\n    home = os.environ['SPARK_HOME']\n"
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
    assert parts == sorted(p.name for p in INSTALLED.iterdir() if p.name != "python")
    assert not Path(home).exists()
    assert (INSTALLED / "jars").is_dir()


def test_other_homes_and_interpreters_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with without_zip():
        assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with without_zip():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"
