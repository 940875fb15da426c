"""The hot modules stay such that mypyc compiles them from the same sources."""

import ast
import importlib
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from pocketmq.cli.__main__ import version

ROOT = Path(__file__).parents[2]
_SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pocketmq"]["compiled"]
MODULES: list[str] = _SETTINGS["modules"]
ROOMS = sorted({name.split("/")[1] for name in MODULES})


def nodes() -> Iterator[tuple[str, ast.AST]]:
    """What stands in the compiled modules, with the module's name."""
    for name in MODULES:
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            yield name, node


def test_each_compiled_module_exists_and_is_named_once() -> None:
    assert len(set(MODULES)) == len(MODULES)
    for name in MODULES:
        assert (ROOT / name).is_file(), name


def test_each_of_them_can_be_imported_compiled() -> None:
    """mypyc and the C compiler take what fails when it is imported, and a broker imports some of it late."""
    if "(compiled)" not in version():
        pytest.skip("pure Python runs here: `make fast` compiles")
    for name in MODULES:
        module = importlib.import_module(".".join(Path(name).with_suffix("").parts))
        assert (module.__file__ or "").endswith(tuple(EXTENSION_SUFFIXES)), name


def test_nothing_refers_weakly_to_what_they_make() -> None:
    """Such references outlive the objects, whose memory is used again: a broker with accounts crashed so."""
    sources = [path for room in ROOMS for path in (ROOT / "pocketmq" / room).rglob("*.py")]
    assert len(sources) > 100
    assert [path.name for path in sources if "import weakref" in path.read_text()] == []
    assert [path.name for path in sources if "from weakref" in path.read_text()] == []


def test_their_exceptions_have_one_base() -> None:
    """A compiled class is an exception only by the first of its bases: raising any other is a SystemError."""
    assert [
        f"{name}:{node.lineno} {node.name}"
        for name, node in nodes()
        if isinstance(node, ast.ClassDef)
        and len(node.bases) > 1
        and any(ast.unparse(each).endswith(("Error", "Exception")) for each in node.bases)
    ] == []


def test_none_of_them_is_a_coroutine() -> None:
    """Cancelled, mypyc's warn from Python 3.12 on: where warnings are errors, a stop reported failures."""
    assert [
        f"{name}:{node.lineno} {node.name}"
        for name, node in nodes()
        if isinstance(node, ast.AsyncFunctionDef)
    ] == []


def test_no_class_body_names_its_own_methods() -> None:
    """A compiled class has none yet while its body runs: a table of handlers is a KeyError at import."""
    found = [
        f"{name}:{each.lineno} {each.id}"
        for name, node in nodes()
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
        for each in ast.walk(statement.value)
        if isinstance(each, ast.Name)
        and each.id in {method.name for method in node.body if isinstance(method, ast.FunctionDef)}
    ]
    assert found == []


def test_a_name_of_what_is_caught_has_one_class_in_a_function() -> None:
    """mypyc gives it the class of the first: the others are a TypeError when they are caught."""
    found = []
    for name, node in nodes():
        if not isinstance(node, ast.FunctionDef):
            continue
        classes: dict[str, set[str]] = {}
        for each in ast.walk(node):
            if isinstance(each, ast.ExceptHandler) and each.name and each.type:
                classes.setdefault(each.name, set()).add(ast.unparse(each.type))
        found += [f"{name}:{node.lineno} {each}" for each in classes if len(classes[each]) > 1]
    assert found == []


def test_no_lambda_has_as_many_arguments_as_are_given() -> None:
    """mypyc (2.4) makes C of such a lambda that no C compiler takes; a function is fine."""
    found = [
        f"{name}:{node.lineno}"
        for name, node in nodes()
        if isinstance(node, ast.Lambda) and (node.args.vararg or node.args.kwarg)
    ]
    assert found == []


@pytest.mark.slow
def test_mypyc_takes_them() -> None:
    """Without the C compiler: what it would say of the code, it says before."""
    command = [sys.executable, str(ROOT / "tools" / "compiled.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
