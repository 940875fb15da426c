"""Holds what `--json` printed against the table of its keys, tools/json_keys.py."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from tools.json_keys import COMMANDS, SERVERS

SPELLING = re.compile(r"[a-z][a-zA-Z0-9]*")


def checked(words: Sequence[str], value: Any) -> Any:
    """Return what a command printed; its keys are those of the table, in one spelling.

    A key that the table does not mark with `?` may be missing only where its object is.
    """
    table = {**COMMANDS, **SERVERS}
    path = " ".join(words[:2]) if " ".join(words[:2]) in table else words[0]
    keys = table[path]
    known = {key.removesuffix("?") for key in keys}
    found = set(_places(value, known))
    assert found <= known, f"{path}: not in tools/json_keys.py: {sorted(found - known)}"
    inside = {place.rpartition(".")[0] for place in found}
    needed = {key for key in keys if not key.endswith("?") and key.rpartition(".")[0] in inside}
    assert needed <= found, f"{path}: missing: {sorted(needed - found)}"
    wrong = misspelt(value, known)
    assert not wrong, f"{path}: not camelCase: {wrong}"
    return value


def misspelt(value: Any, known: set[str]) -> list[str]:
    """Return the keys that are not camelCase, but for those of objects that `known` has as KEY{}."""
    places = {place for place in _places(value, known) if not place.endswith("{}")}
    names = {re.sub(r"\[\]|\{\*\}", "", place.rpartition(".")[2]) for place in places}
    return sorted(name for name in names - {"", "-"} if not SPELLING.fullmatch(name))


def _places(value: Any, known: set[str]) -> Iterator[str]:
    if isinstance(value, list):
        if not all(isinstance(each, dict) for each in value) or "[]" in known:
            yield "[]"
        for each in value:
            if isinstance(each, dict):
                yield from _keys(each, "[]", known)
    elif known == {"{}"}:
        yield "{}"
    else:
        root = "-" if any(place.startswith("-.") for place in known) else "{}"
        yield from _keys(value, root, known)


def _keys(row: dict[str, Any], at: str, known: set[str]) -> Iterator[str]:
    for key, value in row.items():
        place = f"{at}.{key}"
        if f"{place}{{}}" in known:
            yield f"{place}{{}}"
        elif f"{place}{{*}}" in known:
            yield f"{place}{{*}}"
            assert all(map(SPELLING.fullmatch, value)), f"{place}: {sorted(value)}"
        elif isinstance(value, dict):
            yield place
            yield from _keys(value, place, known)
        elif f"{place}[]" in known or (value and _are_objects(value)):
            yield f"{place}[]"
            for each in value:
                yield from _keys(each, f"{place}[]", known)
        else:
            yield place


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)
