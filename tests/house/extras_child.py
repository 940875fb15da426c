"""Run one statement with the packages of some extras only: `extras_child.py EXTRAS STATEMENT [WORD]...`.

Packages that pyproject.toml does not name for these extras, and that none of the named ones needs, cannot be
imported, as in an environment into which `pip install ".[EXTRAS]"` has put them alone.
"""

import importlib.metadata
import importlib.util
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]


def names(requirements: Sequence[str]) -> Iterator[str]:
    """Distributions of requirements that hold here and belong to no extra."""
    for requirement in requirements:
        name, _, marker = requirement.partition(";")
        if "extra ==" not in marker:
            yield re.split(r"[ \[<>=!~(]", name.strip())[0].lower().replace("_", "-")


def closure(extras: Sequence[str]) -> set[str]:
    """Every distribution that these extras bring."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    waiting = list(names(project["dependencies"]))
    chosen = list(extras)
    # Longer while it is looked at: extras bring others.
    for extra in chosen:
        for requirement in project["optional-dependencies"][extra]:
            if ours := re.match(r"pocketmq\[([\w,-]+)\]", requirement):
                chosen += ours[1].split(",")
            else:
                waiting += names([requirement])
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        try:
            waiting += names(importlib.metadata.requires(name) or ())
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


class OnlyThese:
    """A finder of modules that does not see those of other distributions."""

    def __init__(self, finder: Any, hidden: set[str]) -> None:
        self._finder = finder
        self._hidden = hidden

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] in self._hidden:
            return None
        found: ModuleSpec | None = self._finder.find_spec(name, path, target)
        return found


def hidden(allowed: set[str]) -> set[str]:
    """Modules of distributions that are not allowed."""
    return {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if module != "pocketmq"
        and not any(owner.lower().replace("_", "-") in allowed for owner in owners)
    }


if __name__ == "__main__":
    chosen, statement, *sys.argv[1:] = sys.argv[1:]
    without = hidden(closure([each for each in chosen.split(",") if each]))
    sys.meta_path[:] = [OnlyThese(finder, without) for finder in sys.meta_path]
    exec(compile(statement, "<statement>", "exec"))
