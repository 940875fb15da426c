"""The servers' log: a flood of lines from one place of the code is cut, and says so."""

import logging

from pocketmq.cli.server_log import LINES_AT_ONCE, LineLimit
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
