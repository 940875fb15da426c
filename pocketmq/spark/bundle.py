"""The part of PocketMQ that executors need, as one zip: python -m pocketmq.spark.bundle pocketmq-spark.zip

    spark-submit --py-files pocketmq-spark.zip job.py
    in a job:       spark.sparkContext.addPyFile("pocketmq-spark.zip")
    Spark Connect:  spark.addArtifacts("pocketmq-spark.zip", pyfile=True)

The zip holds codec, record layout, decoder, blocking client and source; Spark takes no .whl here. Executors
need numpy and pyarrow beside it, and nothing else of ours.
"""

import sys
import zipfile
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

# pocketmq.remoting whole but for what needs an event loop.
_ASYNC = {"connection.py", "client.py", "server.py"}
_EPOCH = (1980, 1, 1, 0, 0, 0)


def members() -> dict[str, bytes]:
    """Return path in the zip -> content."""
    found = {"pocketmq/__init__.py": files("pocketmq").joinpath("__init__.py").read_bytes()}
    for package in ("remoting", "files", "bulk", "spark"):
        for source in sorted(_modules(package), key=lambda s: s.name):
            if _belongs(package, source.name):
                found[f"pocketmq/{package}/{source.name}"] = source.read_bytes()
    found["pyspark_pocketmq/__init__.py"] = (
        files("pyspark_pocketmq").joinpath("__init__.py").read_bytes()
    )
    return found


def _modules(package: str) -> list[Traversable]:
    return [s for s in files(f"pocketmq.{package}").iterdir() if s.name.endswith(".py")]


def _belongs(package: str, name: str) -> bool:
    return package != "remoting" or name not in _ASYNC


def write_bundle(path: Path) -> list[str]:
    """Write the zip, the same bytes for the same sources. Returns: the paths in it."""
    content = members()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return list(content)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not arguments[0].endswith(".zip"):
        sys.stderr.write("usage: python -m pocketmq.spark.bundle OUT.zip\n")
        return 2
    names = write_bundle(Path(arguments[0]))
    sys.stdout.write(f"{arguments[0]}: {len(names)} modules\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
