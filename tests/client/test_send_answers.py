"""Answers to sends whose numbers are none: a refusal, and nothing that ends the connection."""

import pytest

from pocketmq.client.send_result import send_result
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.message import MessageQueue


@pytest.mark.parametrize(
    "ext",
    [{"queueId": "x", "queueOffset": "1"}, {"queueId": "1", "queueOffset": "9" * 5000}],
    ids=["no number", "too long"],
)
def test_numbers_that_are_none_are_no_result(ext: dict[str, str]) -> None:
    assert send_result(RemotingCommand(0, ext, b""), "key", MessageQueue("T", "b", 0)) is None
