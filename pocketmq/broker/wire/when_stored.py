"""Responses that wait until their content is safe: rows (broker.stored_table) or the log (durability.py)."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from pocketmq.broker.durability import Durability
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.store.side_tasks import SURVIVED

Saved = asyncio.Future[None]
# At once, or when something is done.
Answer = RemotingCommand | Coroutine[Any, Any, RemotingCommand]


def when_stored(request: RemotingCommand, answer: RemotingCommand, saved: Saved | None) -> Answer:
    """Return the response to a request that changed rows; saved: StoredTable.stored()."""
    return answer if saved is None else answered(request, answer, saved)


async def answered(
    request: RemotingCommand, answer: RemotingCommand, saved: Saved
) -> RemotingCommand:
    """Return the response once the rows are on disk, or the error if the change was undone."""
    try:
        await asyncio.shield(saved)
    except SURVIVED as error:
        return request.answer(ResponseCode.SYSTEM_ERROR, f"cannot save the change: {error}")
    return answer


def when_kept(
    request: RemotingCommand, answer: RemotingCommand, durability: Durability, end: int | None
) -> Answer:
    """Return the response now, or once the log is safe up to `end`; None: nothing was stored."""
    if end is None or not durability.waits or request.is_oneway:
        return answer
    return _kept(request, answer, durability, end)


async def _kept(
    request: RemotingCommand, answer: RemotingCommand, durability: Durability, end: int
) -> RemotingCommand:
    code = await durability.kept(end)
    if code is ResponseCode.SUCCESS:
        return answer
    return request.answer(code, "the message is stored, but not yet flushed or replicated")


async def when_tried(answer: RemotingCommand, saves: Iterable[Saved]) -> RemotingCommand:
    """Return the response once the rows were saved or failed to: they stay, and are saved again later."""
    await asyncio.wait(saves)
    return answer
