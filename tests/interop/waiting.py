"""Waiting for a state that another process reaches."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    state: Callable[[], T],
    what: str,
    within_s: float = 60,
    *,
    ignoring: type[Exception] = LookupError,
) -> T:
    """The first true value of `state()`, asked ten times a second.

    `within_s` is patience, not a measure. An AssertionError or an error of class `ignoring` from
    `state` counts as "not yet". Raises: TimeoutError that names `what` and the last value or error.
    """
    end = time.monotonic() + within_s
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
        time.sleep(0.1)
