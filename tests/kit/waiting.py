"""Waiting for a state: of another process, or of what runs in this one's event loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

PATIENCE_S = 120.0
"""How long a state may take on a slow machine. Patience, not a measure."""
_LOOK_S = 0.005


def until(
    state: Callable[[], T],
    what: str,
    within_s: float = PATIENCE_S,
    *,
    ignoring: type[Exception] = LookupError,
) -> T:
    """The first true value of `state()`, asked ten times a second and more often at first.

    `within_s` is patience, not a measure. An AssertionError or an error of class `ignoring` from
    `state` counts as "not yet". Raises: TimeoutError that names `what` and the last value or error.
    """
    end = time.monotonic() + within_s
    pause_s = 0.01
    while True:
        last: object
        try:
            value = state()
            if value:
                return value
            last = value
        except (AssertionError, ignoring) as error:
            last = error
        if time.monotonic() > end:
            raise TimeoutError(f"not within {within_s} s: {what}; at the end: {last!r}")
        time.sleep(pause_s)
        pause_s = min(0.1, pause_s * 1.5)


@overload
async def until_async(
    state: Callable[[], Awaitable[T]],
    what: str = "",
    within_s: float = PATIENCE_S,
    *,
    ignoring: type[Exception] = LookupError,
) -> T: ...
@overload
async def until_async(
    state: Callable[[], T],
    what: str = "",
    within_s: float = PATIENCE_S,
    *,
    ignoring: type[Exception] = LookupError,
) -> T: ...
async def until_async(
    state: Callable[[], Any],
    what: str = "",
    within_s: float = PATIENCE_S,
    *,
    ignoring: type[Exception] = LookupError,
) -> Any:
    """As `until`, without holding up the event loop; what `state` gives is awaited where it can be."""
    end = time.monotonic() + within_s
    while True:
        last: object
        try:
            found = state()
            value = await found if isinstance(found, Awaitable) else found
            if value:
                return value
            last = value
        except (AssertionError, ignoring) as error:
            last = error
        if time.monotonic() > end:
            raise TimeoutError(f"not within {within_s} s: {what or state}; at the end: {last!r}")
        await asyncio.sleep(_LOOK_S)
