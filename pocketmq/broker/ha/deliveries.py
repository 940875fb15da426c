"""A slave copies its master's delivery record (delivery/record_copy.py)."""

from collections.abc import Awaitable, Callable

from pocketmq.books.record_file import RecordFiles
from pocketmq.broker.delivery.record_copy import held, take
from pocketmq.broker.ha.received_tables import MasterRefused
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import (
    GetDeliveriesHeader,
    GetDeliveriesResponseHeader,
    PocketRequestCode,
)

# Parts of one round; a slave that starts anew gets a record of any size in several rounds.
_PARTS_MAX = 64


async def copy_deliveries(
    files: RecordFiles,
    ask: Callable[[PocketRequestCode, dict[str, str] | None], Awaitable[RemotingCommand]],
) -> None:
    """Get what is missing. ask: as Master.ask. Raises: PocketMQError, OSError."""
    for _ in range(_PARTS_MAX):
        has = held(files)
        try:
            answer = await ask(PocketRequestCode.GET_DELIVERIES, GetDeliveriesHeader(*has).ext())
        except MasterRefused:
            # An Apache broker, or an older one.
            return
        header = GetDeliveriesResponseHeader.parse(answer.ext)
        if not take(files, header.part, bytes(answer.body), has):
            return
