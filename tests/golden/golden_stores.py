"""The golden stores: unpacking an archive, reading its manifest."""

import gzip
import json
import tarfile
from functools import lru_cache
from pathlib import Path
from typing import Any

STORES = Path(__file__).parent / "data" / "stores"
NAMES = sorted(path.name.removesuffix(".tar.gz") for path in STORES.glob("*.tar.gz"))


def unpack(name: str, folder: Path) -> Path:
    """The store directory of archive `name`, with sparse files and file times restored."""
    with tarfile.open(STORES / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


@lru_cache(maxsize=2)
def manifest(name: str) -> Any:
    """What the broker that wrote the store serves from it (README.md of the stores)."""
    with gzip.open(STORES / f"{name}.manifest.json.gz") as file:
        return json.load(file)
