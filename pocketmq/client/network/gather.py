"""together: runs one coroutine per item, a limited number of them concurrently."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def together(
    work: Callable[[T], Awaitable[R]], items: Iterable[T], at_once: int = 32
) -> list[R]:
    """Run `work` with each item, at most `at_once` at a time; return the results in the items' order.

    Raises: the first error that `work` raised; what still runs then is cancelled, what has not begun never
    does.

    >>> async def double(number: int) -> int:
    ...     return 2 * number
    >>> asyncio.run(together(double, [1, 2, 3], at_once=2))
    [2, 4, 6]
    """
    asked = list(items)
    results: dict[int, R] = {}
    numbers = iter(range(len(asked)))
    name = getattr(work, "__qualname__", "together")

    async def turn() -> None:
        for number in numbers:
            results[number] = await work(asked[number])

    try:
        async with asyncio.TaskGroup() as tasks:
            for number in range(min(at_once, len(asked))):
                tasks.create_task(turn(), name=f"{name} {number}")
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return [results[number] for number in range(len(asked))]
