"""Request and reply: a message that waits for another one (wire.md 2.5, 4.7).

The request carries CORRELATION_ID, REPLY_TO_CLIENT (the client id) and TTL. Its consumer makes the reply by
`reply_to` and sends it like any message; the broker pushes it to the requesting client over its connection.
Source: DefaultMQProducerImpl.request, MessageUtil, RequestFutureHolder, RocketMQ 4.9.7.
"""

import asyncio
import uuid
from dataclasses import replace

from pocketmq.client.errors import CallerError, OutcomeUnknown
from pocketmq.client.send.encode import REPLY
from pocketmq.client.send.engine import SendEngine
from pocketmq.model.message import Message, MessageExt, Property
from pocketmq.model.names import REPLY_SUFFIX


class ReplyTimeout(OutcomeUnknown):
    """The request was stored, but no reply arrived in time."""


class NoReplyWanted(CallerError):
    """The message to reply to is not a request."""


async def exchange(
    replies: "dict[str, asyncio.Future[Message]]",
    engine: SendEngine,
    message: Message,
    client_id: str,
    timeout_ms: int,
) -> MessageExt:
    """Send the request and wait for its reply. Raises: ReplyTimeout, and what sending raises."""
    correlation_id = str(uuid.uuid4())
    properties = {
        **message.properties,
        Property.CORRELATION_ID.value: correlation_id,
        Property.REPLY_TO_CLIENT.value: client_id,
        Property.TTL.value: str(timeout_ms),
    }
    outgoing = engine.outgoing(replace(message, properties=properties))
    waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    replies[correlation_id] = waiting
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await engine.send(outgoing, timeout_ms=timeout_ms)
            reply = await waiting
    except TimeoutError:
        raise ReplyTimeout(
            f"no reply to the request {outgoing.unique_key} to topic {message.topic!r} within "
            f"{timeout_ms} ms. Is a consumer of that topic running, and does it send reply_to(message, ...)?"
        ) from None
    finally:
        replies.pop(correlation_id, None)
    assert isinstance(reply, MessageExt)
    return reply


def reply_to(request: Message, body: bytes) -> Message:
    """Return the reply to a consumed request; send it with any producer. Raises: NoReplyWanted."""
    names = (
        Property.CLUSTER.value,
        Property.CORRELATION_ID.value,
        Property.REPLY_TO_CLIENT.value,
        Property.TTL.value,
    )
    missing = [name for name in names if name not in request.properties]
    if missing:
        raise NoReplyWanted(
            f"the message is not a request: it lacks {', '.join(missing)}. Only messages sent by "
            f"Producer.request can be answered"
        )
    cluster, correlation_id, client_id, ttl = (request.properties[name] for name in names)
    return Message(
        f"{cluster}{REPLY_SUFFIX}",
        body,
        properties={
            Property.MSG_TYPE.value: REPLY,
            Property.CORRELATION_ID.value: correlation_id,
            Property.REPLY_TO_CLIENT.value: client_id,
            Property.TTL.value: ttl,
        },
    )
