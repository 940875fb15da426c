"""Connections of one process share a link; each asks whether the cluster is there."""

import pytest
from kombu import Connection

import pocketmq.integrations.kombu  # noqa: F401 - the alias of the transport
from pocketmq.remoting.errors import PocketMQError
from pocketmq.testing import InProcess


def test_no_connection_is_made_while_the_cluster_is_down() -> None:
    """Made at once, it would fail at its first use: kombu would try again without a pause, for ever."""
    server = InProcess()
    with server:
        first, other, late = [Connection(f"pocketmq://{server.namesrv}") for _ in range(3)]
        first.connect()
        other.connect()
    with pytest.raises(PocketMQError) as refused:
        late.transport.establish_connection()
    assert isinstance(refused.value, late.recoverable_connection_errors)
    for each in (first, other):
        each.release()
