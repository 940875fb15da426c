"""What the console and the broker say in English to people: read from their sources, not from a list."""

import ast
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[2] / "pocketmq"
# Functions whose arguments of these places are sentences for people.
_SAYING = {"bad_request": (0, 1), "not_found": (0, 1), "ApiError": (2, 3), "confirm": (2,)}
VALUE = "42"
HOLE = re.compile(r"\{\w*\}")


def sentences_of_errors() -> dict[str, str]:
    """Return the API's errors, what to do about them, and what it asks a confirmation for -> where."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "console").rglob("*.py")):
        tree = ast.parse(path.read_text())
        for table in (each for each in tree.body if isinstance(each, ast.Assign | ast.AnnAssign)):
            # What an act will do, or a mode: sentences by their word.
            words = table.value.values if isinstance(table.value, ast.Dict) else []
            texts = [text for each in words for text in _texts(each) if text.endswith(".")]
            found |= {HOLE.sub(VALUE, text): str(path) for text in texts}
        for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            said = [call.args[at] for at in _SAYING.get(name, ()) if at < len(call.args)]
            for text in (text for each in said for text in _texts(each)):
                found[text] = f"{path.relative_to(ROOT)}:{call.lineno}"
    return found


def sentences_of_tracks() -> dict[str, str]:
    """Return the sentences of what became of a message -> where."""
    path = ROOT / "broker" / "delivery" / "track.py"
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            text = node.value.elts[1]
            found |= dict.fromkeys(_texts(text), f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def _texts(node: ast.expr) -> Iterator[str]:
    """Yield what an expression may say, with VALUE for what is only known when it runs."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str) and node.value:
            yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)
    elif isinstance(node, ast.JoinedStr):
        parts = [
            [part.value] if isinstance(part, ast.Constant) else [VALUE] for part in node.values
        ]
        yield from ("".join(map(str, each)) for each in product(*parts))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = [*_texts(node.left)] or [""], [*_texts(node.right)] or [""]
        yield from (a + b for a, b in product(left, right))
