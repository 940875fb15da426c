"""Types of arguments: a wrong one is refused where it is given, with its name and what it takes.

Checked are plain types (text, numbers, switches, paths, enumerations, our own classes). What can be anything
with the right methods, such as a listener or a clock, is checked by its use.
"""

import types
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pocketmq.model.subscription import TAG
from pocketmq.remoting.errors import IllegalArgument

_WORDS: dict[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    type(None): "None",
    Path: "a path",
}
# As seconds these are the years 2001 to 2286, as ms January to April of 1970.
_SECONDS_MIN, _SECONDS_MAX = 10**9, 10**10
# Their values say what was written by mistake; others may be secret, or long.
_SHOWN = (str, int, float, bool, type(None))


def check_type(name: str, value: object, *kinds: type) -> None:
    """Check an argument against the types that it may have; bool is no int. Raises: IllegalArgument."""
    if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
        return
    given = type(value).__name__
    if isinstance(value, _SHOWN):
        given = f"{value!r:.80} ({given})"
    words = [_WORDS.get(kind, f"a {kind.__name__}") for kind in kinds]
    raise IllegalArgument(f"{name} must be {' or '.join(words)}, not {given}")


def check_types(options: object, kinds: Mapping[str, Any]) -> None:
    """Check the attributes of an object against their annotations. Raises: IllegalArgument."""
    for name, kind in kinds.items():
        allowed = _plain(kind)
        if allowed:
            check_type(name, getattr(options, name), *allowed)


def _plain(kind: Any) -> tuple[type, ...]:
    """Return the classes of an annotation; () if it is not made of plain types alone."""
    if hasattr(kind, "__metadata__"):
        kind = kind.__origin__
    if get_origin(kind) in (Union, types.UnionType):
        parts = [_plain(each) for each in get_args(kind)]
        return tuple(one for part in parts for one in part) if all(parts) else ()
    if not isinstance(kind, type) or get_origin(kind) or getattr(kind, "_is_protocol", False):
        return ()
    if issubclass(kind, Enum) and issubclass(kind, str):
        # RocketMQ's word does, too: the options that have one look at it.
        return ()
    return (kind,)


def check_expression(expression: object, expression_type: object = TAG) -> None:
    """Check the expression of a subscription. Raises: IllegalArgument."""
    if not isinstance(expression, str | None):
        tags = expression if isinstance(expression, list | tuple | set | frozenset) else ()
        wanted = " || ".join(map(str, tags)) or "tagA || tagB"
        raise IllegalArgument(
            f"the expression of a subscription must be text, not {type(expression).__name__}: "
            f"write {wanted!r}"
        )
    if expression_type == TAG and expression and "," in expression and "||" not in expression:
        wanted = " || ".join(tag.strip() for tag in expression.split(",") if tag.strip())
        raise IllegalArgument(
            f"the subscription {expression!r} names one tag with a comma in it, which no message has: "
            f"write {wanted!r} for any of several tags"
        )


def check_tags(tags: str) -> None:
    """Check the tag of a message: one that no subscription can name is refused. Raises: IllegalArgument."""
    if "||" in tags:
        raise IllegalArgument(
            f"a message has one tag, and || separates several in a subscription: {tags!r:.80} could not "
            "be subscribed to; more words about a message are its keys or properties"
        )
    if tags != tags.strip():
        raise IllegalArgument(
            f"the tag {tags!r:.80} begins or ends with a blank, or is blank; subscriptions drop such blanks, "
            f"so it could not be subscribed to: write {tags.strip()!r}"
        )


def check_time_ms(name: str, value: object) -> None:
    """Check a point in time, ms since 1970. Raises: IllegalArgument, also for one in seconds."""
    check_type(name, value, int)
    assert isinstance(value, int)
    if _SECONDS_MIN <= value < _SECONDS_MAX:
        raise IllegalArgument(
            f"{name} is in milliseconds since 1970; {value} looks like seconds: give {value}000"
        )
