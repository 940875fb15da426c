"""A SPARK_HOME of links, in which Spark does not find PySpark as a zip.

Spark gives its Python processes PySpark as a zip, and Python keeps no compiled form of what is in a zip: each
new process compiles what it imports, 0.1 to 0.3 s of CPU. A first query starts seven of them, most of them
one after the other. Where pip has installed PySpark, the same modules lie beside the zip, compiled.
"""

import atexit
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOME = "SPARK_HOME"
# The folder of the zips. Spark looks for nothing else there.
_ZIPPED = "python"


@contextmanager
def without_zip() -> Iterator[None]:
    """A JVM that is started meanwhile has such a home, if Python processes find PySpark without the zip.

    The home is a temporary folder that goes with this process. A SPARK_HOME that is set stays what it is.
    """
    package = _installed()
    if package is None or os.environ.get(_HOME):
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="pocketmq-spark-home-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make_home(folder, package)
    os.environ[_HOME] = os.fspath(folder)
    try:
        yield
    finally:
        del os.environ[_HOME]


def make_home(folder: Path, package: Path) -> None:
    """Fill a folder with links to all that PySpark's package brings for Spark, but for the zips."""
    for part in package.iterdir():
        if part.name != _ZIPPED:
            (folder / part.name).symlink_to(part)


def _installed() -> Path | None:
    """Return the folder of PySpark if a process of this interpreter finds it there by itself; else None."""
    import pyspark

    package = Path(pyspark.__file__).parent
    paths = sysconfig.get_paths()
    found = os.fspath(package.parent) in (paths["purelib"], paths["platlib"])
    same = os.environ.get("PYSPARK_PYTHON") == sys.executable
    whole = (package / "jars").is_dir() and (package / "bin").is_dir()
    return package if os.name == "posix" and found and same and whole else None
