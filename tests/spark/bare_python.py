"""An interpreter with numpy, pyarrow and pyspark only: what executors of a foreign cluster have."""

import importlib.util
import sys
from pathlib import Path

_PACKAGES = ("numpy", "pyarrow", "pyspark", "py4j")


def make(folder: Path) -> Path:
    """A script that runs this Python without site-packages but for links to those packages."""
    links = folder / "packages"
    links.mkdir(parents=True)
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        (links / name).symlink_to(package)
        libraries = package.with_name(f"{name}.libs")
        if libraries.is_dir():
            (links / libraries.name).symlink_to(libraries)
    script = folder / "python"
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH="{links}:$PYTHONPATH" exec {sys.executable} -S "$@"\n'
    )
    script.chmod(0o755)
    return script
