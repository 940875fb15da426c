"""What another program sends is no envelope: it must reach a worker, and not end it."""

import pytest

pytest.importorskip("kombu")

from pocketmq.integrations.kombu import envelope
from pocketmq.model.message import MessageExt

HEADS = [
    b"[" * 100_000,
    b"\xff",
    b"[]",
    b'{"properties": []}',
    *(
        b'{"properties": {}, "of": {"__type__": %s, "__value__": %s}}' % each
        for each in (
            (b'"uuid"', b'{"hex": 5}'),
            (b'"uuid"', b"5"),
            (b'"decimal"', b'"none"'),
            (b'"datetime"', b"5"),
            (b'"base64"', b"5"),
            (b"[]", b"5"),
        )
    ),
    b'{"properties": {}, "expires_at_ms": "soon"}',
    b'{"properties": {}, "deliver_at_ms": []}',
    b'{"properties": {}, "headers": [1]}',
    b'{"properties": {"delivery_info": 1}}',
]


@pytest.mark.parametrize("head", HEADS)
def test_a_message_of_another_program_is_taken_as_foreign(head: bytes) -> None:
    message = MessageExt("T", head + b"\nbody")
    with pytest.raises(ValueError, match="was not sent by kombu"):
        envelope.unpack(message)
    payload = envelope.foreign(message)
    assert payload["body"] == message.body
    assert not envelope.is_expired(payload, message, None, 1)
    assert not envelope.is_to_wait(payload, 1)
