"""The hot modules stay such that mypyc compiles them from the same sources."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_each_compiled_module_exists_and_is_named_once() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        compiled = tomllib.load(file)["tool"]["pocketmq"]["compiled"]
    modules = compiled["modules"]
    assert len(set(modules)) == len(modules)
    for name in modules:
        assert (ROOT / name).is_file(), name
        assert name.split("/")[0] in compiled["roots"]


@pytest.mark.slow
def test_mypyc_takes_them() -> None:
    """Without the C compiler: what it would say of the code, it says before."""
    command = [sys.executable, str(ROOT / "tools" / "compiled.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
