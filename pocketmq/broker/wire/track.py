"""GET_MESSAGE_TRACK. Ours; its behaviour: acts/track.py."""

from functools import cache
from typing import TYPE_CHECKING

from pocketmq.broker.refused import Refused
from pocketmq.broker.wire.admin.answers import json_answer
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import GetMessageTrackHeader, PocketRequestCode
from pocketmq.remoting.transport.connection import Connection, Handler

if TYPE_CHECKING:
    from pocketmq.broker.acts.track import TrackActs
    from pocketmq.broker.services import Parts


def track_handlers(parts: "Parts") -> dict[int, Handler]:
    """Return the handler; what judges a message is loaded at the first question, not at every start."""

    @cache
    def acts() -> "TrackActs":
        from pocketmq.broker.acts.track import TrackActs

        return TrackActs(parts)

    async def track(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        try:
            found = await acts().track(GetMessageTrackHeader.parse(request.ext))
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        return json_answer(request, found)

    return {PocketRequestCode.GET_MESSAGE_TRACK: track}
