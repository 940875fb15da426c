"""The servers' log: a flood of lines from one place of the code is cut, and says so."""

import io
import logging
import sys

import pytest

from pocketmq.cli.servers.server_log import LINES_AT_ONCE, LineLimit, start_logging
from pocketmq.remoting.clock import ManualClock


def test_each_place_writes_a_hundred_lines_and_then_one_a_second() -> None:
    clock = ManualClock()
    limit = LineLimit(clock.monotonic_ms)
    written: list[str] = []

    def line(place: int, number: int) -> None:
        record = logging.LogRecord(
            *("pocketmq", logging.WARNING, "send.py", place, "refused n=%d", (number,), None)
        )
        if limit.filter(record):
            written.append(record.getMessage())

    for number in range(10_000):
        line(1, number)
    assert written == [f"refused n={number}" for number in range(LINES_AT_ONCE)]
    line(2, 0)
    assert written.pop() == "refused n=0"
    written.clear()
    for second in range(5):
        clock.advance_ms(1_000)
        for _ in range(1_000):
            line(1, second)
    assert written == [
        "refused n=0 (and 9900 similar lines left out)",
        *(f"refused n={second} (and 999 similar lines left out)" for second in range(1, 5)),
    ]
    # After a quiet time there is room for as many as at first.
    clock.advance_ms(LINES_AT_ONCE * 1_000)
    written.clear()
    for number in range(LINES_AT_ONCE + 1):
        line(1, number)
    assert len(written) == LINES_AT_ONCE


def test_a_hostile_name_cannot_break_log_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor does it turn the direction of the text: an escape may be one character of Unicode, too."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    root.handlers = []
    hostile = "\r\x1b[2J\x85\x9b2J\u2028\u202e\u2066\n2026-11-21 12:00:00,123 INFO forged"
    try:
        start_logging("INFO")
        logging.getLogger("pocketmq").info("peer=%s end", hostile)
    finally:
        root.handlers, root.level = before, level
    [line, rest] = written.getvalue().splitlines()
    assert line.endswith(r"peer=\r\x1b[2J\x85\x9b2J\u2028\u202e\u2066")
    assert rest == "  2026-11-21 12:00:00,123 INFO forged end"
