"""What may only shrink: long modules and functions, wide constructors, circles, stray literals.

    python -m tests.house.ratchets            prints what is new, has grown, or is listed too high
    python -m tests.house.ratchets --write    writes the list anew; only ever with smaller numbers

`offenders.toml` beside this file lists today's offenders with their sizes. A new offender, or one that has
grown, fails the test; so does one that has become better while the list still allows more.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.house import idioms, of_tests, shapes
from tests.house.trees import many_objects, parsed, walk

ROOT = Path(__file__).parents[2]
LISTED = Path(__file__).parent / "offenders.toml"
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
CONSTRUCTOR_ARGUMENTS_MAX = 6
NAMES_HOME = "pocketmq.model.names"
LAYOUT_HOME = "pocketmq.model.record"
# Parts of structs that only a stored record has.
_LAYOUT = re.compile(r"i{5}qqiq|iqi\b|8sq8s")

Offenders = dict[str, dict[str, int]]


@cache
def modules() -> dict[str, tuple[Path, str, ast.Module]]:
    """Each module of the product by its dotted name."""
    found: dict[str, tuple[Path, str, ast.Module]] = {}
    for path in sorted((ROOT / "pocketmq").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = (path, *parsed(path))
    return found


def long_modules() -> dict[str, int]:
    """Modules beyond the soft bound whose heads do not say why they are one noun ("One noun: ...")."""
    return {
        name: size
        for name, (_, text, tree) in modules().items()
        if (size := len(text.splitlines())) > MODULE_LINES_MAX
        and "One noun: " not in (ast.get_docstring(tree) or "")
    }


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    def walk(
        node: ast.AST, prefix: str
    ) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}{child.name}", child
                yield from walk(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, f"{prefix}{child.name}.")
            else:
                yield from walk(child, prefix)

    yield from walk(tree, "")


def long_functions() -> dict[str, int]:
    found: dict[str, int] = {}
    for module, (_, _, tree) in modules().items():
        for name, node in _definitions(tree):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES_MAX:
                found[f"{module}:{name}"] = size
    return found


def wide_constructors() -> dict[str, int]:
    """Constructors with more arguments than six besides self; options of public clients are listed, too."""
    found: dict[str, int] = {}
    for module, (_, _, tree) in modules().items():
        for name, node in _definitions(tree):
            if name.rpartition(".")[2] != "__init__":
                continue
            each = node.args
            count = len(each.posonlyargs) + len(each.args) + len(each.kwonlyargs) - 1
            if count > CONSTRUCTOR_ARGUMENTS_MAX:
                found[f"{module}:{name}"] = count
    return found


def circles() -> dict[str, int]:
    return shapes.circles(modules())


def wide_classes() -> dict[str, int]:
    return shapes.wide_classes(modules())


def halves() -> dict[str, int]:
    return shapes.halves(modules())


def full_folders() -> dict[str, int]:
    return shapes.full_folders(modules())


def equal_names() -> dict[str, int]:
    return shapes.equal_names(modules())


@cache
def _strings(tree: ast.Module) -> list[str]:
    """String literals that are no docstrings."""
    docstrings = {
        id(node.value)
        for node in walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    ]


def stray_names() -> dict[str, int]:
    """Modules that write a name of remoting.names again."""
    _, _, home = modules()[NAMES_HOME]
    names = {
        node.value.value
        for node in home.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and not node.value.value.startswith("\n")
    }
    found: dict[str, int] = {}
    for module, (_, _, tree) in modules().items():
        if module != NAMES_HOME:
            count = sum(
                1
                for text in _strings(tree)
                if text in names or text.startswith(("%RETRY%", "%DLQ%"))
            )
            if count:
                found[module] = count
    return found


def stray_layouts() -> dict[str, int]:
    """Modules that know a struct of the stored record besides remoting.record."""
    return {
        module: count
        for module, (_, _, tree) in modules().items()
        if module != LAYOUT_HOME
        and (count := sum(1 for text in _strings(tree) if _LAYOUT.search(text)))
    }


@cache
def _methods() -> frozenset[str]:
    """Names of functions that are nowhere a property, a field or an attribute."""
    called: set[str] = set()
    held: set[str] = set()
    for _, _, tree in modules().values():
        for node in walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                plain = not any("property" in ast.unparse(each) for each in node.decorator_list)
                (called if plain else held).add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                held.add(node.attr)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                held.add(node.target.id)
    return frozenset(called - held)


@cache
def _slots_of_callbacks() -> frozenset[str]:
    """Names of attributes that are declared to hold a function, and nowhere anything else."""
    functions: set[str] = set()
    others: set[str] = set()
    for _, _, tree in modules().values():
        for node in walk(tree):
            if isinstance(node, ast.AnnAssign):
                held = "Callable[" in ast.unparse(node.annotation)
                (functions if held else others).add(ast.unparse(node.target).rpartition(".")[2])
            elif isinstance(node, ast.Assign):
                others |= {
                    each.attr
                    for each in node.targets
                    if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self"
                }
    return frozenset(functions - others)


def outside_callbacks() -> dict[str, int]:
    """Modules that set a function on another object after its construction, or take it away again.

    An argument of the constructor says it instead, an event, or an object with a type.
    """
    found: dict[str, int] = {}
    for module, (_, _, tree) in modules().items():
        inner = {
            each.name
            for node in walk(tree)
            if not isinstance(node, ast.ClassDef)
            for each in ast.iter_child_nodes(node)
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        }

        def is_function(node: ast.expr, local: set[str] = inner) -> bool:
            return (
                isinstance(node, ast.Lambda)
                or (isinstance(node, ast.Attribute) and node.attr in _methods())
                or (isinstance(node, ast.Name) and node.id in local)
            )

        count = sum(
            1
            for node in walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Attribute)
            and (is_function(node.value) or target.attr in _slots_of_callbacks())
            and ast.unparse(target.value) not in ("self", "cls")
        )
        if count:
            found[module] = count
    return found


KINDS = {
    "callbacks-from-outside": outside_callbacks,
    "module-lines": long_modules,
    "function-lines": long_functions,
    "constructor-arguments": wide_constructors,
    "circles": circles,
    "class-attributes": wide_classes,
    "halves-of-objects": halves,
    "files-in-a-folder": full_folders,
    "classes-of-one-name": equal_names,
    "idioms-of-the-product": idioms.of_product,
    "idioms-of-tests": idioms.of_tests,
    "idioms-of-docs": idioms.of_docs,
    "lines-of-test-modules": of_tests.long_modules,
    "letters-of-test-names": of_tests.long_names,
    "private-names-in-tests": of_tests.private_names,
    "names-outside-their-home": stray_names,
    "layout-outside-its-home": stray_layouts,
}


def listed() -> Offenders:
    return tomllib.loads(LISTED.read_text(encoding="utf-8")) if LISTED.exists() else {}


def complaints(kind: str) -> list[str]:
    """What is wrong between today's offenders of a kind and the list."""
    with many_objects():
        today = KINDS[kind]()
    allowed = listed().get(kind, {})
    return [
        f"{name}: {size}, allowed is {allowed[name]}" if name in allowed else f"{name}: {size}, new"
        for name, size in today.items()
        if size > allowed.get(name, 0)
    ] + [
        f"{name}: {size} in the list, today {today.get(name, 0)}; run python -m tests.house.ratchets --write"
        for name, size in allowed.items()
        if size > today.get(name, 0)
    ]


def write() -> None:
    lines = ["# Written by `python -m tests.house.ratchets --write`; it may only shrink.\n"]
    for kind, today in KINDS.items():
        allowed = listed().get(kind, {})
        lines.append(f"\n[{kind}]\n")
        lines += [
            f'"{name}" = {min(size, allowed[name])}\n'
            for name, size in sorted(today().items())
            if name in allowed
        ]
    LISTED.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    for each in KINDS:
        for complaint in complaints(each):
            sys.stdout.write(f"{each}: {complaint}\n")
