"""Maps header fields to dataclasses by one rule: `queue_id` travels as `queueId`.

A field with a default is optional on the wire; None is left out. `wire("name")` gives a field another name.
Values: str, int, float, bool ("true" whatever its case). The hot requests (send, pull) read `ext` directly
instead.
"""

import dataclasses
from typing import Any, Self, dataclass_transform, get_args, get_type_hints

from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.java_number import OutOfRange, long


def wire(name: str, *, default: Any = dataclasses.MISSING) -> Any:
    """Declare a field whose wire name does not follow the rule."""
    return dataclasses.field(default=default, metadata={"wire": name})


def camel(name: str) -> str:
    """Convert `queue_id` to `queueId`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@dataclass_transform(field_specifiers=(wire,))
class Header:
    """Base of every header; subclasses are dataclasses with parse(ext) and ext(), made when first used.

    own: a request that only PocketMQ has refuses an invalid number. In RocketMQ's requests an invalid number
    in an optional field counts as absent, as in RocketMQ.
    """

    is_own = False

    def __init_subclass__(cls, own: bool = False) -> None:
        cls.is_own = own
        # Ninety classes, of which a client uses ten: a dataclass is made of each when it is first used.
        # One derived from another would find that one's __init__, so it is made at once.
        if cls.__base__ is not Header:
            _complete(cls)

    def __init__(self, *values: Any, **named: Any) -> None:
        """The first instance of a class makes its own __init__, which hides this one."""
        if type(self) is Header:
            raise TypeError("Header is a base: make an instance of a class that names its fields")
        _complete(type(self))
        type(self).__init__(self, *values, **named)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"

    @classmethod
    def parse(cls, ext: dict[str, str] | None) -> Self:
        """Parse the header from a command's `ext`; unknown fields are ignored.

        Raises: HeaderError naming the field that is missing or has the wrong type.
        """
        values: dict[str, Any] = {}
        ext = ext or {}
        for name, wire_name, kind, required in _plan(cls):
            text = ext.get(wire_name)
            if text is None:
                if required:
                    raise HeaderError(f"the request lacks the field {wire_name!r}")
                continue
            if kind is str:
                values[name] = text
            elif kind is bool:
                values[name] = text.lower() == "true"
            else:
                try:
                    values[name] = long(text) if kind is int else kind(text)
                except OutOfRange:
                    # A larger number could be kept here, but no RocketMQ broker could read it.
                    raise HeaderError(
                        f"the field {wire_name!r} is over 64 bits: {text[:100]!r}"
                    ) from None
                except ValueError:
                    if required or cls.is_own:
                        raise HeaderError(
                            f"the field {wire_name!r} is not a number: {text[:100]!r}"
                        ) from None
        return cls(**values)

    def ext(self) -> dict[str, str]:
        """Return the fields as text; None is left out."""
        found: dict[str, str] = {}
        for name, wire_name, kind, _ in _plan(type(self)):
            value = getattr(self, name)
            if value is None:
                continue
            found[wire_name] = str(value).lower() if kind is bool else str(value)
        return found


def _complete(cls: type[Header]) -> None:
    """Give a header the fields and the __init__ of a dataclass with its attributes.

    It changes nothing that it reads, so threads may do it at once: the last one's __init__ stays.
    """
    # What dataclass would compile for each of them stands in Header once, and a docstring of its making
    # costs as much as the rest.
    attributes: dict[str, Any] = {"__doc__": cls.__name__, "__module__": cls.__module__}
    kinds: dict[str, Any] = {}
    for each in reversed(cls.__mro__):
        if issubclass(each, Header):
            kinds |= each.__annotations__
            attributes |= {name: value for name, value in vars(each).items() if name in kinds}
    attributes |= {"__annotations__": kinds, "__qualname__": cls.__qualname__}
    made: Any = dataclasses.dataclass(type(cls.__name__, (), attributes), repr=False, eq=False)
    for name in ("__dataclass_fields__", "__init__"):
        setattr(cls, name, getattr(made, name))


_Plan = tuple[tuple[str, str, Any, bool], ...]
_plans: dict[Any, _Plan] = {}


def _plan(cls: type[Header]) -> _Plan:
    found = _plans.get(cls)
    if found is None:
        found = _plans[cls] = _make_plan(cls)
    return found


def _make_plan(cls: type[Header]) -> _Plan:
    if "__init__" not in vars(cls):
        _complete(cls)
    hints = get_type_hints(cls)
    plan = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        hint = hints[field.name]
        kind = next((arg for arg in get_args(hint) if arg is not type(None)), hint)
        required = field.default is dataclasses.MISSING
        plan.append((field.name, field.metadata.get("wire", camel(field.name)), kind, required))
    return tuple(plan)
