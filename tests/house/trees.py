"""Modules as syntax trees, each parsed and walked once for all rules that look at it."""

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


@contextmanager
def many_objects() -> Iterator[None]:
    """Do not look for garbage where hundreds of trees are made: it takes two thirds of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@cache
def parsed(path: Path) -> tuple[str, ast.Module]:
    """Return the text of a module, and its tree."""
    text = path.read_text(encoding="utf-8")
    return text, ast.parse(text)


@cache
def walk(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Return all nodes of a module, in the order of ast.walk."""
    return tuple(ast.walk(tree))
