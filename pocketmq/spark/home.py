"""A SPARK_HOME of links, in which Spark does not find PySpark as a zip, but some better defaults.

Spark gives its Python processes PySpark as a zip, and Python keeps no compiled form of what is in a zip: each
new process compiles what it imports, 0.1 to 0.3 s of CPU. A first query starts seven of them, most of them
one after the other. Where pip has installed PySpark, the same modules lie beside the zip, compiled.

Defaults come as a conf/spark-defaults.conf, so whatever else sets an option has its way: a session's builder,
or a SPARK_CONF_DIR, in place of that file.
"""

import atexit
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_HOME = "SPARK_HOME"
# The folder of the zips, where Spark looks for nothing else, and that of the defaults.
_ZIPPED, _CONF = "python", "conf"
_DAEMON = {"spark.python.daemon.module": "pocketmq.spark.daemon"}
# Bodies go to the JVM at less cost than by TCP; Spark 4.1 and newer. Elsewhere the path of a temporary folder
# may be too long for a socket.
_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"}


@contextmanager
def without_zip(*, has_us: bool) -> Iterator[None]:
    """A JVM that is started meanwhile has such a home, if Python processes find PySpark without the zip.

    The home is a temporary folder that goes with this process. A SPARK_HOME that is set stays what it is.
    has_us: whether a Python process of Spark's finds this package by itself, so that its daemon is used.
    """
    package = _installed()
    if package is None or os.environ.get(_HOME):
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="pocketmq-spark-home-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make_home(folder, package)
    write_defaults(
        folder, (_DAEMON if has_us else {}) | (_SOCKETS if sys.platform == "linux" else {})
    )
    os.environ[_HOME] = os.fspath(folder)
    try:
        yield
    finally:
        del os.environ[_HOME]


def make_home(folder: Path, package: Path) -> None:
    """Fill a folder with links to all that PySpark's package brings for Spark, but for the zips."""
    for part in package.iterdir():
        if part.name not in (_ZIPPED, _CONF):
            (folder / part.name).symlink_to(part)


def write_defaults(folder: Path, options: Mapping[str, str]) -> None:
    """Give a home defaults for Spark's options."""
    (folder / _CONF).mkdir()
    lines = (f"{name} {value}\n" for name, value in options.items())
    (folder / _CONF / "spark-defaults.conf").write_text("".join(lines), "utf-8")


def _installed() -> Path | None:
    """Return the folder of PySpark if a process of this interpreter finds it there by itself; else None."""
    import pyspark

    package = Path(pyspark.__file__).parent
    paths = sysconfig.get_paths()
    found = os.fspath(package.parent) in (paths["purelib"], paths["platlib"])
    same = os.environ.get("PYSPARK_PYTHON") == sys.executable
    whole = (package / "jars").is_dir() and (package / "bin").is_dir()
    return package if os.name == "posix" and found and same and whole else None
