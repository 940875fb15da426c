"""Which lines of the acceptance list the tests show.

The list has a line for each mechanism that the three articles describe, S1 to S94, and one for each of their
experiments. A test names in its docstring what it shows (`S27`, `S28 to S31`, `E3b`); a line is covered when
a test that names it has passed.
"""

import re
from collections.abc import Iterable

LINES = (
    *(f"S{number}" for number in range(1, 95)),
    "E1",
    "E2a",
    "E2b",
    "E3",
    "E3b",
    "E3c",
    "E4",
)
_KNOWN = frozenset(LINES)
_NAME = re.compile(r"\b(?:S(\d{1,2})(?: ?(?:to|-|–|\.\.) ?S(\d{1,2}))?|(E[1-4][abc]?))\b")  # noqa: RUF001


def lines_named(text: str) -> list[str]:
    """The lines that a docstring names, in its order.

    >>> lines_named("S28 to S30, E3b: a queue in consumption (S64, S99)")
    ['S28', 'S29', 'S30', 'E3b', 'S64']
    """
    found: dict[str, None] = {}
    for first, last, experiment in _NAME.findall(text):
        names = [experiment]
        if first:
            names = [f"S{number}" for number in range(int(first), int(last or first) + 1)]
        found.update(dict.fromkeys(name for name in names if name in _KNOWN))
    return list(found)


def summary(covered: Iterable[str]) -> str:
    """One line: how many are covered, and which are not."""
    shown = _KNOWN & set(covered)
    missing = [name for name in LINES if name not in shown]
    text = f"acceptance: {len(shown)} of {len(LINES)} lines (S1-S94, E1-E4) shown by passed tests"
    return f"{text}; missing: {', '.join(missing)}" if missing else text
