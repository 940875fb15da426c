"""What executors need: the zip in an interpreter without us, and a run on several executor processes."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from pocketmq.spark.bundle import main, write_bundle
from pocketmq.spark.environment import JAVA_VERSIONS, java_problem
from pocketmq.spark.home import make_home
from tests.spark import bare_python
from tests.spark.conftest import CHILD_ENV, KILLS, need_java
from tests.store.bulk_stores import Message, WrittenStore

PLANNING = (
    "pocketmq.spark.source",
    "pocketmq.spark.file_reader",
    "pocketmq.spark.file_stream",
    "pocketmq.spark.brokers.reader",
    "pocketmq.spark.brokers.stream",
)
OTHERS = (
    "pocketmq.spark.write.sink",
    "pocketmq.spark.environment",
    "pyspark_pocketmq",
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "pocketmq-spark.zip"
    write_bundle(path)
    return path


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bare_python.make(tmp_path_factory.mktemp("bare"))


def run(python: Path, code: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [str(python), "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        # Python looks for modules in the folder where it starts, too.
        cwd=python.parent,
    )


def test_the_zip_is_all_that_an_executor_needs_beside_numpy_and_pyarrow(
    bundle: Path, bare: Path
) -> None:
    alone = run(bare, "import pocketmq")
    assert "No module named 'pocketmq'" in alone.stderr
    code = f"import sys; sys.path.insert(0, {str(bundle)!r})\n"
    # A process that plans a query decodes nothing, and pays for its imports each time.
    for names, left_out in (
        (PLANNING, ("pyarrow.compute",)),
        (OTHERS, ("asyncio", "pocketmq.broker")),
    ):
        code += "".join(f"import {name}\n" for name in names)
        code += f"print([m for m in {left_out} if m in sys.modules])\n"
    answer = run(bare, code)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == ["[]", "[]"]


def test_the_zip_reads_a_store(bundle: Path, bare: Path, tmp_path: Path) -> None:
    store = WrittenStore(tmp_path / "broker-a" / "store")
    store.add(Message(body=b"%d" % i) for i in range(10))
    code = (
        f"import sys; sys.path.insert(0, {str(bundle)!r})\n"
        "from pocketmq import bulk\n"
        f"print(bulk.scan({str(store.root)!r}).read_all().num_rows)"
    )
    answer = run(bare, code)
    assert answer.stdout.strip() == "10", answer.stderr


def test_the_zip_is_the_same_for_the_same_sources(bundle: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.zip"
    assert main([str(again)]) == 0
    assert again.read_bytes() == bundle.read_bytes()
    with zipfile.ZipFile(bundle) as archive:
        names = archive.namelist()
    assert {"pocketmq/__init__.py", "pocketmq/bulk/__init__.py"} <= set(names)
    assert not any(n.startswith("pocketmq/broker") for n in names)


def test_a_cluster_reads_several_brokers_stores_with_the_zip_alone(
    bundle: Path, bare: Path, tmp_path: Path
) -> None:
    """Local-cluster, two executors; stores of two brokers under one glob; Python processes, then executors
    are killed in a read."""
    need_java()
    for name in ("broker-a", "broker-b"):
        # More than fits between a process that reads and the JVM: it is killed before it has done all.
        store = WrittenStore(tmp_path / name / "store", log_file_size=1 << 22)
        store.add(Message(queue_id=i % 3, body=os.urandom(30_000)) for i in range(1000))
    out, killed = tmp_path / "out.json", tmp_path / "killed"
    killed.mkdir()
    child = Path(__file__).with_name("cluster_child.py")
    # Workers keep their logs in SPARK_HOME, which is no place of ours: a home of links takes them.
    home = tmp_path / "home"
    home.mkdir()
    make_home(home, Path(pyspark.__file__).parent)
    answer = subprocess.run(
        [
            sys.executable,
            str(child),
            str(bundle),
            str(out),
            str(tmp_path / "*" / "store"),
            str(killed),
            str(KILLS),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={k: v for k, v in CHILD_ENV.items() if k != "PYTHONPATH"}
        | {
            "PYSPARK_PYTHON": str(bare),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
        },
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    places = [
        [name, q, o]
        for name in ("broker-a", "broker-b")
        for q in range(3)
        for o in range(334 if q == 0 else 333)
    ]
    result = json.loads(out.read_text())
    assert result["executors"] == 2
    for what, times in (("workers", 20), ("elsewhere", KILLS)):
        assert sorted(row[:3] for row in result[what]) == places
        tried = {task: tries for *_, tries, task in result[what]}
        assert len(tried) >= 8
        assert sum(tried.values()) >= times
    # Each of them was another process.
    assert len({noted.name.partition("-")[2] for noted in killed.iterdir()}) == KILLS


def test_a_missing_java_is_one_line_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = java_problem()
    assert problem is not None
    assert "\n" not in problem
    assert f"Install Java {JAVA_VERSIONS[0]}" in problem
    reduced = tmp_path / "bin" / "java"
    reduced.parent.mkdir()
    reduced.write_text("#!/bin/sh\necho java.base@17.0.9\n")
    reduced.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    problem = java_problem()
    assert problem is not None
    assert "jdk.incubator.vector" in problem
    reduced.write_text("#!/bin/sh\necho java.base@11.0.1 jdk.incubator.vector@11.0.1\n")
    assert "version 11" in str(java_problem())
