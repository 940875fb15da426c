"""What the tests of sends read back."""

from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import parse_offset_msg_id
from pocketmq.model.record import read_record
from pocketmq.remoting.command import RemotingCommand


async def stored(broker: Broker, answer: RemotingCommand) -> Any:
    """The record that an answer's message id names."""
    assert answer.ext is not None
    _, position = parse_offset_msg_id(answer.ext["msgId"])
    found = broker.parts.messages.store.record_at(position)
    assert found is not None
    return read_record(found)
