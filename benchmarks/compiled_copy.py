"""A copy of the sources with their hot modules compiled, for brokers beside those of this checkout."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def compile_to(folder: Path) -> bool:
    """Make the copy; False, and said, where that cannot be done."""
    for name in ("pocketmq", "tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so"))
    shutil.copy2(ROOT / "pyproject.toml", folder)
    command = [sys.executable, str(folder / "tools" / "compiled.py"), "--in-place"]
    if subprocess.run(command, check=False).returncode:
        print("the compiled form is not measured: see above", file=sys.stderr)
        return False
    return True
