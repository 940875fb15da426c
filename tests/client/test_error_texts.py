"""What an error says: each thing once, the next step last, and nothing general beside what is particular."""

import logging

import pytest

from pocketmq.client import SendFailed
from pocketmq.client.errors import (
    AnswerTimeout,
    Attempt,
    BrokerNotServing,
    all_attempts_failed,
    from_remoting,
    refusal,
)
from pocketmq.console.metrics.page import health_page
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import ConnectFailed, RequestTimeout
from pocketmq.store.log import retention
from pocketmq.testing import InProcess
from tests.kit.waiting import until


def test_a_full_disk_is_explained_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "disk_use", lambda path: 0.95)
    with InProcess({"diskSpaceWarningLevelRatio": 0.9}) as server:
        server.clock.advance(60)
        until(lambda: health_page([server.running])[0] == 503, "the store to notice")
        for _ in range(2):
            with pytest.raises(SendFailed) as caught:
                server.send("T", "x")
    text = str(caught.value)
    assert text.count("is full") == 1
    assert text.count("free some space") == 1
    assert "see its log" not in text
    assert "one of the following reasons" not in text
    assert len(text) < 600
    assert len(caught.value.attempts) == 3
    retries = [each for each in caplog.records if "trying again" in each.getMessage()]
    assert sum(each.levelno >= logging.WARNING for each in retries) == 1


def test_advice_is_given_where_the_remark_has_none() -> None:
    bare = refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "I am going away", "b:1", "sending")
    assert isinstance(bare, BrokerNotServing)
    assert str(bare).endswith("see its log")
    general = "the message is illegal, maybe msg body or properties length not matched."
    for remark, advised in (general, True), ("TIMER_DELIVER_MS is 5 s too far ahead", False):
        error = refusal(ResponseCode.MESSAGE_ILLEGAL, remark, "b:1", "sending")
        assert ("Send a smaller body" in str(error)) == advised


def test_the_link_to_rocketmqs_faq_is_left_out() -> None:
    """Of the text, not of the remark, which programs read."""
    for link in (
        "http://rocketmq.apache.org/docs/faq/",
        "https://rocketmq.apache.org/docs/bestPractice/06FAQ",
    ):
        remark = f"topic[T] not exist, apply first please!\nSee {link} for further details."
        error = refusal(ResponseCode.TOPIC_NOT_EXIST, remark, "b:1", "pulling")
        assert "rocketmq.apache.org" not in str(error)
        assert "\n" not in str(error)
        assert error.remark == remark


def test_attempts_that_differ_are_all_told() -> None:
    late = from_remoting(
        RequestTimeout("b:1", "SEND", 100), "b:1", "sending to topic 'T', queue 0, by 'p'"
    )
    later = from_remoting(
        RequestTimeout("b:1", "SEND", 90), "b:1", "sending to topic 'T', queue 1, by 'p'"
    )
    down = from_remoting(
        ConnectFailed("c:1", "refused"), "c:1", "sending to topic 'T', queue 1, by 'p'"
    )
    attempts = [Attempt("b", 100, late), Attempt("c", 3, down), Attempt("b", 90, later)]
    assert isinstance(late, AnswerTimeout)
    text = str(all_attempts_failed("T", "p", attempts))
    assert "b 2 times in 190 ms: sending to topic 'T' by 'p'" in text
    assert "c after 3 ms" in text
    assert text.count("may have") == 1


def test_a_server_out_of_reach_ends_with_the_next_step() -> None:
    error = from_remoting(ConnectFailed("n:1", "refused"), "n:1", "looking up")
    assert str(error).endswith("pocketmq up")
