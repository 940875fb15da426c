"""Answers that wait until the rows which they speak of are on the disk (broker.stored_table)."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.store.side_tasks import SURVIVED

Saved = asyncio.Future[None]
# At once, or when something is done.
Answer = RemotingCommand | Coroutine[Any, Any, RemotingCommand]


def when_stored(request: RemotingCommand, answer: RemotingCommand, saved: Saved | None) -> Answer:
    """The answer to a request that has changed rows; saved: StoredTable.stored()."""
    return answer if saved is None else answered(request, answer, saved)


async def answered(
    request: RemotingCommand, answer: RemotingCommand, saved: Saved
) -> RemotingCommand:
    """The answer when the rows are on the disk, or why they are not and the change is undone."""
    try:
        await asyncio.shield(saved)
    except SURVIVED as error:
        return request.answer(ResponseCode.SYSTEM_ERROR, f"the change could not be saved: {error}")
    return answer


async def when_tried(answer: RemotingCommand, saves: Iterable[Saved]) -> RemotingCommand:
    """The answer when the rows are on the disk, or could not be: they stay, and are tried again."""
    await asyncio.wait(saves)
    return answer
