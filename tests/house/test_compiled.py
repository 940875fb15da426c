"""The hot modules stay such that mypyc compiles them from the same sources."""

import ast
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


def test_nothing_refers_weakly_to_what_they_make() -> None:
    """Such references outlive the objects, whose memory is used again: a broker with accounts crashed so."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        roots = tomllib.load(file)["tool"]["pocketmq"]["compiled"]["roots"]
    sources = [path for root in roots for path in (ROOT / root / "pocketmq").rglob("*.py")]
    assert len(sources) > 100
    assert [path.name for path in sources if "import weakref" in path.read_text()] == []
    assert [path.name for path in sources if "from weakref" in path.read_text()] == []


def test_none_of_them_is_a_coroutine() -> None:
    """Cancelled, mypyc's warn from Python 3.12 on: where warnings are errors, a stop reported failures."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        modules = tomllib.load(file)["tool"]["pocketmq"]["compiled"]["modules"]
    assert [
        f"{name}:{node.lineno} {node.name}"
        for name in modules
        for node in ast.walk(ast.parse((ROOT / name).read_text()))
        if isinstance(node, ast.AsyncFunctionDef)
    ] == []


@pytest.mark.slow
def test_mypyc_takes_them() -> None:
    """Without the C compiler: what it would say of the code, it says before."""
    command = [sys.executable, str(ROOT / "tools" / "compiled.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
