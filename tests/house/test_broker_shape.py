"""The broker keeps its shape: life apart from parts. Wide constructors and callbacks are ratchets."""

import ast
from pathlib import Path

ROOM = Path(__file__).parents[2] / "pocketmq" / "broker"
LINES_MAX, ATTRIBUTES_MAX = 300, 12


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


def test_no_module_of_wire_knows_what_mode_a_group_has() -> None:
    """They ask the group's policy."""
    for path in sorted((ROOM / "wire").glob("*.py")):
        text = path.read_text(encoding="utf-8").lower()
        assert "isolated" not in text, path.name
        assert "strictgroups" not in text, path.name
