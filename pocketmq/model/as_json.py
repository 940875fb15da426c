"""The keys of JSON for programs: a dataclass's fields in camelCase; so do the commands and the console."""

from typing import Any


def camel_case(name: str) -> str:
    """Return a field's name as the key of an object for programs.

    >>> camel_case("side_files"), camel_case("bytes")
    ('sideFiles', 'bytes')
    """
    first, *more = name.split("_")
    return first + "".join(word.capitalize() for word in more)


def as_object(value: Any) -> Any:
    """Return dataclasses and named tuples, however deep, as objects with keys in camelCase."""
    # Both kinds name their fields; a command must not import dataclasses for it.
    names = getattr(value, "__dataclass_fields__", None) or getattr(value, "_fields", None)
    if names is None:
        return [as_object(each) for each in value] if isinstance(value, list) else value
    return {camel_case(name): as_object(getattr(value, name)) for name in names}
