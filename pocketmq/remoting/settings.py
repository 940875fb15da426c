"""Configuration as data: a setting is declared once, with RocketMQ's name, default, range, unit and help.

    @dataclass
    class StoreConfig(Settings):
        flush_interval_ms: int = key(500, name="flushIntervalCommitLog", min=1, unit="ms", help="...")

`from_properties` reads the names used in `broker.conf`; the reference page of the documentation and `--help`
are generated from `keys()`.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pocketmq.remoting.errors import IllegalArgument, did_you_mean
from pocketmq.remoting.java_number import long

_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Key:
    """One setting's declaration. `runtime`: updateBrokerConfig may change it while running."""

    name: str
    attribute: str
    type: type
    default: Any
    help: str
    unit: str = ""
    min: int | float | None = None
    max: int | float | None = None
    choices: tuple[str, ...] = ()
    runtime: bool = False
    form: str = ""

    def parse(self, text: str) -> Any:
        """Parse `text`. Raises: IllegalArgument with the allowed values."""
        raw = text.strip()
        value: Any
        if self.type is bool:
            if raw.lower() not in ("true", "false"):
                raise IllegalArgument(f"{self.name} must be true or false, not {raw!r}")
            return raw.lower() == "true"
        if self.type is int or self.type is float:
            try:
                value = long(raw) if self.type is int else _real(raw)
            except ValueError:
                raise IllegalArgument(f"{self.name} must be a number, not {raw!r}") from None
            if (self.min is not None and value < self.min) or (
                self.max is not None and value > self.max
            ):
                low = "" if self.min is None else f" at least {self.min}"
                high = "" if self.max is None else f" at most {self.max}"
                unit = f" {self.unit}" if self.unit else ""
                raise IllegalArgument(f"{self.name} must be{low}{high}{unit}, not {raw}")
            return value
        if self.choices and raw not in self.choices:
            raise IllegalArgument(
                f"{self.name} must be one of {', '.join(self.choices)}, not {raw!r}"
            )
        if self.form and not re.fullmatch(self.form, raw):
            raise IllegalArgument(f"{self.name} cannot be {raw!r}: {self.help}")
        return raw

    def format(self, value: Any) -> str:
        """Format a value for a properties file."""
        return str(value).lower() if isinstance(value, bool) else str(value)


def _real(text: str) -> float:
    if "_" in text:
        raise ValueError(text)
    return float(text)


def key(
    default: Any,
    *,
    name: str,
    help: str,
    unit: str = "",
    min: int | float | None = None,
    max: int | float | None = None,
    choices: tuple[str, ...] = (),
    runtime: bool = False,
    form: str = "",
) -> Any:
    """Declare a setting in a Settings dataclass; `name` is RocketMQ's (or ours, in its spelling).

    form: a regular expression that a text must match; `help` says what that is.
    """
    return dataclasses.field(
        default=default,
        metadata={
            "name": name,
            "help": help,
            "unit": unit,
            "min": min,
            "max": max,
            "choices": choices,
            "runtime": runtime,
            "form": form,
        },
    )


@dataclass
class Settings:
    """Base of a group of settings. FIXED: why a setting cannot change while running, by its name."""

    FIXED: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def keys(cls) -> dict[str, Key]:
        """Return every setting of this group by its name in a properties file."""
        found: dict[str, Key] = {}
        for field in dataclasses.fields(cls):
            meta = field.metadata
            if "name" in meta:
                found[meta["name"]] = Key(
                    attribute=field.name, type=type(field.default), default=field.default, **meta
                )
        return found

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], **overrides: Any) -> Self:
        """Return settings from the `properties` that belong to this group; others are ignored.

        overrides: values by attribute name that take precedence; None means not given.
        """
        values = {
            known.attribute: known.parse(properties[name])
            for name, known in cls.keys().items()
            if name in properties
        }
        values.update({name: value for name, value in overrides.items() if value is not None})
        return cls(**values)

    def to_properties(self) -> dict[str, str]:
        """Return every setting by its name in a properties file."""
        return {name: k.format(getattr(self, k.attribute)) for name, k in self.keys().items()}

    def update(self, name: str, text: str) -> None:
        """Change one setting. Raises: IllegalArgument if unknown or out of range."""
        known = self.keys().get(name)
        if known is None:
            raise IllegalArgument(f"there is no setting {name!r}" + nearest(name, self.keys()))
        setattr(self, known.attribute, known.parse(text))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return what to say of an unknown name: that it is RocketMQ's, ` (did you mean 'x'?)`, or nothing."""
    if has_no_effect(name):
        return ": it is RocketMQ's, and has no effect in PocketMQ"
    return did_you_mean(name, known)


def has_no_effect(name: str) -> bool:
    """Return True for a setting of RocketMQ's that changes nothing here."""
    from pocketmq.remoting.rocketmq_settings import NO_EFFECT

    return name in NO_EFFECT


def parse_properties(text: str) -> dict[str, str]:
    """Parse Java's properties text: `key=value`, `key: value`, # and ! comments, a final backslash joins
    lines.

    Escapes: backslash t n r f, u + four hex digits, and any other character for itself.
    """
    found: dict[str, str] = {}
    pending = ""
    # Not splitlines(): Java ends a line by these alone.
    for raw in _LINE_END.split(text):
        line = pending + raw.lstrip(" \t\f") if pending else raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending = line[:-1]
            continue
        pending = ""
        _add_property(found, line)
    if pending:
        _add_property(found, pending)
    return found


def _add_property(found: dict[str, str], line: str) -> None:
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    name, rest = line[:at], line[at:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    if name:
        found[_unescape(name)] = _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char != "\\" or at + 1 == len(text):
            out.append(char)
            at += 1
            continue
        escape = text[at + 1]
        if escape == "u" and at + 6 <= len(text):
            try:
                out.append(chr(int(text[at + 2 : at + 6], 16)))
                at += 6
                continue
            except ValueError:
                pass
        out.append({"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(escape, escape))
        at += 2
    return "".join(out)


def format_properties(properties: Mapping[str, str]) -> str:
    """Return `key=value` lines, sorted, readable by Java's Properties.load."""
    return "".join(f"{name}={_escape(value)}\n" for name, value in sorted(properties.items()))


def _escape(value: str) -> str:
    value = (
        value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    return "\\" + value if value[:1] == " " else value
