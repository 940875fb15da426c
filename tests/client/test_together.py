"""together: order, bound, the first error, cancellation."""

import asyncio

import pytest

from pocketmq.client.network.gather import together


async def test_results_are_in_order_and_no_more_than_asked_run_at_once() -> None:
    running, most = 0, 0

    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(7 - number):
            await asyncio.sleep(0)
        running -= 1
        return 10 * number

    assert await together(work, range(7), at_once=3) == [0, 10, 20, 30, 40, 50, 60]
    assert most == 3
    assert await together(work, [], at_once=3) == []


async def test_the_first_error_is_raised_as_it_is_and_ends_the_others() -> None:
    begun: list[int] = []
    cancelled: list[int] = []

    async def work(number: int) -> None:
        begun.append(number)
        if number == 1:
            raise ValueError("one")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    with pytest.raises(ValueError, match="one"):
        await together(work, range(5), at_once=2)
    assert (begun, cancelled) == ([0, 1], [0])


async def test_who_is_cancelled_cancels_what_runs() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await together(work, range(9), at_once=4)
    assert sorted(ended) == [0, 1, 2, 3]
