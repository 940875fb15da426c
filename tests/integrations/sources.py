"""Source distributions whose tests judge an integration: fetched from the package index by name and version.

.peers/kombu-5.7.0    (or $POCKETMQ_PEERS) as installed here, with its folder `t/`
"""

import fcntl
import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def source_of(package: str) -> Path:
    """Return the folder of the source distribution of a package, in the version that is installed.

    It is fetched once. Without the index the test is skipped at home, and fails in CI.
    """
    name = f"{package}-{version(package)}"
    cache = Path(os.environ.get("POCKETMQ_PEERS") or REPOSITORY / ".peers")
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / name
    with (cache / "sources.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(package, name, cache)
    return folder


def _fetch(package: str, name: str, cache: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-build-isolation", "--no-binary", package, "-d", str(cache)]
    done = subprocess.run(
        [*command, f"{package}=={version(package)}"], capture_output=True, text=True
    )
    if done.returncode:
        text = f"cannot fetch the source of {name}: {done.stderr.strip().splitlines()[-1:]}"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
    archive = cache / f"{name}.tar.gz"
    with tarfile.open(archive) as tar:
        tar.extractall(cache / f"{name}.part", filter="data")
    (cache / f"{name}.part" / name).rename(cache / name)
    (cache / f"{name}.part").rmdir()
    archive.unlink()
