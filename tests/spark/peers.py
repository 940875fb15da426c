"""Packages that the tests run us with and that our own environment does not have, installed once beside it.

    .peers/pyspark-4.0    (or $POCKETMQ_PEERS) the oldest PySpark that is supported, before ours on the path
    .peers/connect-4.3.0  what pyspark[connect] needs: gRPC and pandas, 150 MB that no other test wants
    .peers/frames         pandas, DuckDB and Polars

Each is installed without what it depends on: numpy, pyarrow and py4j are those of the environment.
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

REPOSITORY = Path(__file__).parents[2]
OLDEST = "4.0.*"
_CONNECT = (
    "grpcio>=1.76",
    "grpcio-status>=1.76",
    "googleapis-common-protos>=1.71",
    "protobuf>=6",
)


_PANDAS = ("pandas>=2.2", "python-dateutil>=2.9", "six>=1.16", "tzdata")
_FRAMES = ("duckdb>=1.1", "polars>=1.30", "polars-runtime-32", *_PANDAS)


class PeerMissing(Exception):
    """pip could not install a peer; its text says why."""


def oldest_pyspark(version: str = OLDEST) -> Path:
    """The folder of a PySpark version. Raises: PeerMissing."""
    return _installed(f"pyspark-{version.rstrip('.*')}", (f"pyspark=={version}",))


def connect_packages() -> Path:
    """The folder of what Spark Connect needs. Raises: PeerMissing."""
    return _installed(f"connect-{pyspark.__version__}", (*_CONNECT, *_PANDAS))


def frame_packages() -> Path:
    """The folder of pandas, DuckDB and Polars. Raises: PeerMissing."""
    return _installed("frames", _FRAMES)


def or_missing(exception: PeerMissing) -> None:
    """Skips at home, fails in CI."""
    if os.environ.get("CI"):
        pytest.fail(str(exception))
    pytest.skip(str(exception))


def _installed(name: str, packages: tuple[str, ...]) -> Path:
    cache = Path(os.environ.get("POCKETMQ_PEERS") or REPOSITORY / ".peers")
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / name
    done = folder / ".done"
    if done.exists():
        return folder
    with (cache / "python.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return folder
        command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        command += ["--no-deps", "--upgrade", "--target", str(folder), *packages]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode:
            reason = (answer.stderr.strip().splitlines() or ["no message"])[-1]
            raise PeerMissing(f"pip cannot install {', '.join(packages)}: {reason}")
        done.touch()
    return folder
