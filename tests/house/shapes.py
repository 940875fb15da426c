"""Ratchets of structure: circles of imports, wide classes, halves of objects, full folders, equal names."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.house.trees import walk

ROOT = Path(__file__).parents[2]
ATTRIBUTES_MAX = 20
FILES_MAX = 20
BLOCKING_TWINS = "pocketmq.client.sync.clients"
# Settings: a section of them is a class of its own.
_ABSTRACT = {
    "ABC",
    "Enum",
    "IntEnum",
    "IntFlag",
    "NamedTuple",
    "Protocol",
    "Settings",
    "StrEnum",
    "TypedDict",
}

# Calls that ask about a class and make none.
_QUESTIONS = {"cast", "isinstance", "issubclass"}

Modules = Mapping[str, tuple[Path, str, ast.Module]]


def imported(tree: ast.Module, known: Modules) -> Iterator[str]:
    """Modules that a module names in imports of any kind: lazy ones, and those for type checkers, too."""
    for node in walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                whole = f"{node.module}.{each.name}"
                yield whole if whole in known else node.module
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def circles(known: Modules) -> dict[str, int]:
    """Groups of modules that import each other, by their first name, with their number."""
    edges = {
        # A package's __init__ lends the names of its modules: from there no arrow leads down.
        name: set()
        if path.name == "__init__.py"
        else {each for each in imported(tree, known) if each in known and each != name}
        for name, (path, _, tree) in known.items()
    }
    return {min(each): len(each) for each in _tangles(edges) if len(each) > 1}


def _tangles(edges: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Strongly connected components: Tarjan's algorithm, with a stack of its own in place of recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = len(index)
        open_.append(root)
        while work:
            name, others = work[-1]
            for other in others:
                if other not in index:
                    index[other] = low[other] = len(index)
                    open_.append(other)
                    work.append((other, iter(sorted(edges[other]))))
                    break
                if other in open_:
                    low[name] = min(low[name], index[other])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[name])
                if low[name] == index[name]:
                    at = open_.index(name)
                    yield open_[at:]
                    del open_[at:]


def _classes(known: Modules) -> Iterator[tuple[str, ast.ClassDef]]:
    for module, (_, _, tree) in known.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                yield module, node


def wide_classes(known: Modules) -> dict[str, int]:
    """Classes whose methods set more attributes of their object than ATTRIBUTES_MAX."""
    found = {}
    for module, node in _classes(known):
        names = {
            each.attr
            for each in ast.walk(node)
            if isinstance(each, ast.Attribute)
            and isinstance(each.ctx, ast.Store)
            and isinstance(each.value, ast.Name)
            and each.value.id == "self"
        }
        if len(names) > ATTRIBUTES_MAX:
            found[f"{module}:{node.name}"] = len(names)
    return found


def halves(known: Modules) -> dict[str, int]:
    """Bases with one subclass, in another module, and no object of their own: one thing in two files.

    A class that is handed over in a call, to be made there, has objects.
    """
    homes: dict[str, list[tuple[str, ast.ClassDef]]] = defaultdict(list)
    for module, node in _classes(known):
        homes[node.name].append((module, node))
    heirs: dict[tuple[str, str], set[str]] = defaultdict(set)
    made: set[str] = set()
    for _, _, tree in known.values():
        for each in walk(tree):
            if isinstance(each, ast.Call):
                called = ast.unparse(each.func)
                made.add(called.partition(".")[0])
                made.add(called.rpartition(".")[2])
                if called not in _QUESTIONS:
                    made |= {arg.id for arg in each.args if isinstance(arg, ast.Name)}
    for module, node in _classes(known):
        _, _, tree = known[module]
        for base in node.bases:
            name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
            for home, _ in homes.get(name, []):
                if home == module or name in _named(tree, home):
                    heirs[home, name].add(f"{module}:{node.name}")
    found = {}
    for (home, name), by in heirs.items():
        apart = len(by) == 1 and not next(iter(by)).startswith(f"{home}:")
        if apart and name not in made and not _is_abstract(homes[name], home):
            found[f"{home}:{name}"] = 1
    return found


def _is_abstract(homes: list[tuple[str, ast.ClassDef]], home: str) -> bool:
    """Return whether the class is of a kind that is made to have no object."""
    bases = [ast.unparse(base) for module, node in homes if module == home for base in node.bases]
    return any(base.partition("[")[0] in _ABSTRACT for base in bases)


def _named(tree: ast.Module, home: str) -> set[str]:
    return {
        each.name
        for node in walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == home
        for each in node.names
    }


def full_folders(known: Modules) -> dict[str, int]:
    """Folders with more modules than FILES_MAX, besides the __init__."""
    count = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for path, _, _ in known.values()
        if path.name != "__init__.py"
    )
    return {folder: size for folder, size in count.items() if size > FILES_MAX}


def equal_names(known: Modules) -> dict[str, int]:
    """Public classes of one name in several modules; each needs a noun of its room.

    The blocking clients have the names of the clients that they wrap, by design: one name in every manual.
    An integration is named as its framework names such a class: its names count within it.
    """
    count = Counter(
        ".".join([*module.split(".")[2:3], node.name])
        if module.startswith("pocketmq.integrations.")
        else node.name
        for module, node in _classes(known)
        if not node.name.startswith("_") and module != BLOCKING_TWINS
    )
    return {name: size for name, size in count.items() if size > 1}
