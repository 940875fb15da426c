"""ApiRequest: one API request as its handler sees it, and what a handler may return.

A handler is `async def handle(console, call)`; it returns a value for JSON, a Download or an EventStream, or
raises ApiError. Nothing here knows HTTP's bytes.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pocketmq.console.errors import ApiError, bad_request
from pocketmq.console.security import CONFIRM_MS, Security, Session
from pocketmq.remoting.errors import CarriedError
from pocketmq.remoting.java_number import long

SIZE_DEFAULT = 20
SIZE_MAX = 200
_INTEGER_MAX = 1 << 63
Row = TypeVar("Row")


class Fields:
    """The named values of a query or of a JSON body, read by type.

    Every getter raises ApiError 400 for a value of another type, and for a missing one without a default.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self._where = where

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) not in (None, "")

    def text(self, name: str, default: str | None = None) -> str:
        if name not in self:
            if default is None:
                raise bad_request(f"{name!r} is missing in the {self._where}")
            return default
        value = self.values[name]
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        return value

    def text_or_none(self, name: str) -> str | None:
        return self.text(name) if name in self else None

    def number(
        self, name: str, default: int | None = None, *, low: int = 0, high: int = _INTEGER_MAX
    ) -> int:
        if name not in self:
            if default is None:
                raise bad_request(f"{name!r} is missing in the {self._where}")
            return default
        value = self.values[name]
        if isinstance(value, str):
            try:
                value = long(value)
            except ValueError:
                raise self._wrong(name, "a whole number") from None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, "a whole number")
        if not low <= value <= high:
            raise bad_request(f"{name!r} in the {self._where} must be {low} to {high}, not {value}")
        return value

    def number_or_none(self, name: str, *, low: int = 0, high: int = _INTEGER_MAX) -> int | None:
        return self.number(name, low=low, high=high) if name in self else None

    def flag(self, name: str, default: bool = False) -> bool:
        if name not in self:
            return default
        value = self.values[name]
        if isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
            return value.lower() in ("true", "1")
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; in a query, one text with commas."""
        if name not in self:
            return []
        value = self.values[name]
        if isinstance(value, str):
            return [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._wrong(name, "a list of texts")
        return list(value)

    def table(self, name: str) -> dict[str, str]:
        """Return an object of texts; numbers and flags are converted as written in JSON."""
        if name not in self:
            return {}
        value = self.values[name]
        if not isinstance(value, Mapping):
            raise self._wrong(name, "an object of texts")
        found: dict[str, str] = {}
        for key, each in value.items():
            if isinstance(each, bool):
                found[str(key)] = str(each).lower()
            elif isinstance(each, str | int | float):
                found[str(key)] = str(each)
            else:
                raise self._wrong(f"{name}.{key}", "a text")
        return found

    def data(self, name: str, encoding: str) -> bytes:
        """Return the bytes of a text: in UTF-8, or base64."""
        text = self.text(name, "")
        if encoding == "text":
            return text.encode("utf-8")
        if encoding != "base64":
            raise bad_request(f"bodyEncoding is 'text' or 'base64', not {encoding!r}")
        try:
            return b64decode(text, validate=True)
        except Base64Error as error:
            raise bad_request(f"{name!r} is not base64: {error}") from error

    def _wrong(self, name: str, wanted: str) -> ApiError:
        return bad_request(f"{name!r} in the {self._where} must be {wanted}")


class ConfirmationNeeded(CarriedError):
    """Raised by ApiRequest.confirm; answered with 202."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content["action"])
        self.content = content


@dataclass(slots=True)
class ApiRequest:
    """One request. path: names in the path; identity: method, path, query and body, for a confirmation."""

    session: Session
    security: Security
    path: Mapping[str, str]
    query: Fields
    body: Fields
    peer: str
    identity: bytes = b""
    confirm_token: str | None = None
    new_session: Session | None = None
    done: list[str] = field(default_factory=list)

    @property
    def signer(self) -> str | None:
        """Return the user that signs requests to brokers; None if the console does."""
        return self.session.user if self.security.broker_users else None

    def confirm(
        self,
        action: str,
        parameters: Mapping[str, Any],
        will_do: str,
        steps: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Continue only at the second call; to be called before anything is changed.

        Raises: ConfirmationNeeded at the first call, ApiError 409 for a token that does not match.
        """
        if self.confirm_token is not None:
            self.security.confirmed(self.session, self.identity, self.confirm_token)
            self.did(action, parameters)
            return
        raise ConfirmationNeeded(
            {
                "confirm": self.security.ask(self.session, self.identity),
                "expiresInS": CONFIRM_MS // 1_000,
                "action": action,
                "parameters": dict(parameters),
                "willDo": will_do,
                "steps": [dict(step) for step in steps],
            }
        )

    def did(self, action: str, parameters: Mapping[str, Any]) -> None:
        """Record for the log what this call does."""
        shown = " ".join(f"{name}={value!r}" for name, value in parameters.items())
        self.done.append(f"action={action} {shown}".rstrip())

    def page(self) -> tuple[int, int]:
        """Return the number of the page, from 1, and its size."""
        return self.query.number("page", 1, low=1, high=1_000_000), self.size()

    def sorted(
        self, rows: Sequence[Row], figures: Mapping[str, Callable[[Row], float | None]]
    ) -> list[Row]:
        """Sort by the figure that `sort` names, with `desc` highest first; unknown values come last.

        Raises: ApiError 400 for another name. Without `sort` the rows keep their order.
        """
        by = self.query.text_or_none("sort")
        if by is None:
            return list(rows)
        if by not in figures:
            raise bad_request(f"sort is one of {', '.join(figures)}, not {by!r}")
        figure, sign = figures[by], -1 if self.query.flag("desc") else 1

        def place(row: Row) -> tuple[bool, float]:
            value = figure(row)
            return value is None, sign * (value or 0)

        return sorted(rows, key=place)

    def size(self) -> int:
        return self.query.number("size", SIZE_DEFAULT, low=1, high=SIZE_MAX)


@dataclass(frozen=True, slots=True)
class Download:
    """A file for download, saved as `name`."""

    name: str
    content_type: str
    chunks: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class EventStream:
    """Server-Sent Events, already in their text form."""

    events: AsyncIterator[bytes]


def total(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None without a known value.

    >>> total([1, None, 2]), total([None])
    (3, None)
    """
    known = [each for each in values if each is not None]
    return round(sum(known), 2) if known else None


def paged(items: Sequence[Any], page: int, size: int) -> dict[str, Any]:
    """Return one page of a list.

    >>> paged([1, 2, 3], 2, 2)
    {'items': [3], 'page': 2, 'size': 2, 'total': 3}
    """
    begin = (page - 1) * size
    return {
        "items": list(items[begin : begin + size]),
        "page": page,
        "size": size,
        "total": len(items),
    }
