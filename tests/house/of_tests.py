"""Ratchets of the tests' own form: long modules, long names of tests, private names of the product."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.house.trees import parsed, walk

ROOT = Path(__file__).parents[2]
MODULE_LINES_MAX = 500
NAME_LETTERS_MAX = 60


@cache
def _modules() -> dict[str, tuple[str, ast.Module]]:
    """Each module of the tests by its path."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        found[path.relative_to(ROOT).as_posix()] = parsed(path)
    return found


def long_modules() -> dict[str, int]:
    """Modules beyond the soft bound whose heads do not say why they are one noun ("One noun: ...")."""
    return {
        name: size
        for name, (text, tree) in _modules().items()
        if (size := len(text.splitlines())) > MODULE_LINES_MAX
        and "One noun: " not in (ast.get_docstring(tree) or "")
    }


def long_names() -> dict[str, int]:
    """Tests whose names have more letters than fit in a line of a report: subject, condition, outcome."""
    return {
        f"{name}:{node.name}": len(node.name)
        for name, (_, tree) in _modules().items()
        for node in walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and len(node.name) > NAME_LETTERS_MAX
    }


def _private(tree: ast.Module) -> Iterator[str]:
    """Private names of others: `object._name`, and imports from the product."""
    own = {
        node.attr
        for node in walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls")
    }
    for node in walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own:
            yield node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pocketmq"):
            yield from (each.name for each in node.names if _is_private(each.name))


# Python's own, and public: of a named tuple, and of os.
_PUBLIC = frozenset({"_asdict", "_fields", "_replace", "_exit"})


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in _PUBLIC


def private_names() -> dict[str, int]:
    """Uses of private names of the product, by file: a test of what it does outlives a change of how."""
    return {
        name: count
        for name, (_, tree) in _modules().items()
        if (count := sum(1 for _ in _private(tree)))
    }
