"""The broker keeps its shape: life apart from parts, few arguments, nobody wired from outside."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOM = Path(__file__).parents[2] / "broker" / "pocketmq" / "broker"
MODULES = sorted(ROOM.rglob("*.py"))
ARGUMENTS_MAX = 6
LINES_MAX, ATTRIBUTES_MAX = 300, 12


def functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Each method with its class's name."""
    for found in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(found, ast.ClassDef):
            for each in found.body:
                if isinstance(each, ast.FunctionDef):
                    yield found.name, each


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOM)))
def test_a_constructor_takes_few_arguments(path: Path) -> None:
    for name, each in functions(path):
        if each.name == "__init__":
            count = len(each.args.args) + len(each.args.kwonlyargs) - 1
            assert count <= ARGUMENTS_MAX, f"{name} takes {count} arguments: see parts.py"


def test_broker_is_life_alone() -> None:
    text = (ROOM / "broker.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES_MAX
    attributes = {
        found.attr
        for found in ast.walk(ast.parse(text))
        if isinstance(found, ast.Attribute)
        and isinstance(found.ctx, ast.Store)
        and isinstance(found.value, ast.Name)
        and found.value.id == "self"
    }
    assert len(attributes) <= ATTRIBUTES_MAX, sorted(attributes)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOM)))
def test_nobody_sets_a_function_on_another_object(path: Path) -> None:
    """What a part tells others, it says by an event (events.py): `other.on_change = ...` is not done."""
    for found in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        targets = found.targets if isinstance(found, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Attribute) and target.attr.startswith(("on_", "call_")):
                assert isinstance(target.value, ast.Name), ast.unparse(found)
                assert target.value.id == "self", ast.unparse(found)


def test_no_module_of_wire_knows_what_mode_a_group_has() -> None:
    """They ask the group's policy."""
    for path in sorted((ROOM / "wire").glob("*.py")):
        text = path.read_text(encoding="utf-8").lower()
        assert "isolated" not in text, path.name
        assert "strictgroups" not in text, path.name
