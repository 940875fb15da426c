"""A listener that fails for each message says so once, and then how often."""

import logging

import pytest

from pocketmq.client.consume.listener_log import PAUSE_MS, ListenerLog
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.remoting.clock import ManualClock

QUEUE = MessageQueue("T", "b", 0)
MESSAGES = [MessageExt("T", b"x")]


def failure(text: str) -> Exception:
    try:
        raise ConnectionError(text)
    except ConnectionError as error:
        return error


def test_the_same_failure_is_told_whole_once_and_then_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    told = ListenerLog(logging.getLogger("listener"), "g", clock.monotonic_ms)
    for number in range(5_000):
        told.raised(failure(f"no database, try {number}"), QUEUE, MESSAGES)
        clock.advance_ms(4)
    assert len(caplog.records) == 1
    assert "ConnectionError('no database, try 0')" in caplog.records[0].getMessage()
    assert "Traceback" in caplog.text
    clock.advance_ms(PAUSE_MS)
    told.raised(failure("no database, the last"), QUEUE, MESSAGES)
    assert len(caplog.records) == 2
    assert "times=5000 seconds=80" in caplog.records[1].getMessage()


def test_another_failure_is_told_whole_too(caplog: pytest.LogCaptureFixture) -> None:
    told = ListenerLog(logging.getLogger("listener"), "g", ManualClock().monotonic_ms)
    told.raised(failure("one"), QUEUE, MESSAGES)
    told.raised(ValueError("other"), QUEUE, MESSAGES)
    told.raised(ValueError("other"), QUEUE, MESSAGES)
    assert len(caplog.records) == 2
