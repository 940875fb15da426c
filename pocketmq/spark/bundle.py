"""The part of PocketMQ that executors need, as one zip: python -m pocketmq.spark.bundle pocketmq-spark.zip

    spark-submit --py-files pocketmq-spark.zip job.py
    in a job:       spark.sparkContext.addPyFile("pocketmq-spark.zip")
    Spark Connect:  spark.addArtifacts("pocketmq-spark.zip", pyfile=True)

The zip holds codec, record layout, decoder, blocking client and source; Spark takes no .whl here. Executors
need numpy and pyarrow beside it, and nothing else of ours.
"""

import sys
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

# pocketmq.remoting whole but for what needs an event loop.
_ASYNC = {f"pocketmq/remoting/transport/{name}.py" for name in ("client", "connection", "server")}
_EPOCH = (1980, 1, 1, 0, 0, 0)


def members() -> dict[str, bytes]:
    """Return path in the zip -> content."""
    found = {"pocketmq/__init__.py": files("pocketmq").joinpath("__init__.py").read_bytes()}
    for package in ("remoting", "model", "files", "bulk", "spark"):
        found.update(_modules(f"pocketmq/{package}", files(f"pocketmq.{package}")))
    found.update(_modules("pyspark_pocketmq", files("pyspark_pocketmq")))
    return {path: found[path] for path in sorted(found) if path not in _ASYNC}


def _modules(folder: str, place: Traversable) -> Iterator[tuple[str, bytes]]:
    for each in place.iterdir():
        path = f"{folder}/{each.name}"
        if each.is_dir():
            yield from _modules(path, each)
        elif each.name.endswith(".py"):
            yield path, each.read_bytes()


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
