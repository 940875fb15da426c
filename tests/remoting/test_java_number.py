"""Numbers that a peer wrote: those of Java, and no others."""

import pytest

from pocketmq.model.pop_receipt import Receipt
from pocketmq.model.recall_handle import RecallHandle
from pocketmq.model.tables import BrokerData, GroupConfig, TopicConfig
from pocketmq.remoting.errors import HeaderError, IllegalArgument
from pocketmq.remoting.headers import GetMaxOffsetHeader
from pocketmq.remoting.java_number import integer, long, number, property_number
from pocketmq.remoting.settings import Key

NOT_JAVAS = ["1_8", " 30", "30 ", "1_000", "3e1", "30.5", "", "+", "--1", "0x10", "1\n", "\u00b2"]


@pytest.mark.parametrize("text", NOT_JAVAS)
def test_what_java_refuses_is_refused(text: str) -> None:
    for parse in (integer, long, number):
        with pytest.raises(ValueError, match="number"):
            parse(text)
    assert property_number(text.encode()) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("007", 7), ("+5", 5), ("-5", -5), ("\u0663\u0660", 30), ("0" * 900 + "1", 1)],
)
def test_what_java_takes_is_taken(text: str, value: int) -> None:
    assert integer(text) == long(text) == number(text) == value
    assert property_number(text.encode()) == value


def test_sizes_are_javas() -> None:
    assert (integer("2147483647"), integer("-2147483648")) == ((1 << 31) - 1, -(1 << 31))
    assert (long(str((1 << 63) - 1)), long(str(-(1 << 63)))) == ((1 << 63) - 1, -(1 << 63))
    for parse, text in ((integer, "2147483648"), (long, str(1 << 63)), (long, "9" * 5_000)):
        with pytest.raises(ValueError, match=r"outside|1,000"):
            parse(text)
    assert number(1 << 40) == 1 << 40


@pytest.mark.parametrize("text", ["1_0", " 1", "1 "])
def test_headers_receipts_handles_and_json_take_no_others(text: str) -> None:
    with pytest.raises(HeaderError):
        GetMaxOffsetHeader.parse({"topic": "T", "queueId": text})
    with pytest.raises(HeaderError):
        Receipt.parse(f"{text} 2 3 4 0 b 0 0")
    with pytest.raises(HeaderError):
        Receipt.parse(f"1 2 3 4 0 b 0 {text.strip() if ' ' in text else text}_0")
    handle = RecallHandle("T", "b", 7, "k").encode()
    assert RecallHandle.decode(handle).due_ms == 7
    with pytest.raises(ValueError, match="number"):
        GroupConfig.from_json({"groupName": "g", "retryMaxTimes": text})
    with pytest.raises(ValueError, match="number"):
        BrokerData.from_json({"brokerName": "b", "brokerAddrs": {text: "a:1"}})
    with pytest.raises((ValueError, HeaderError)):
        TopicConfig.from_json({"topicName": "T", "readQueueNums": text})


@pytest.mark.parametrize(("kind", "default"), [(int, 1), (float, 1.0)])
def test_settings_take_no_underscores(kind: type, default: float) -> None:
    """Blanks around a value are not part of it: Java's Properties takes off those before it only."""
    key = Key("x", "x", kind, default, "")
    assert key.parse(" 30 ") == 30
    for text in ("1_000", "3 0"):
        with pytest.raises(IllegalArgument, match="must be a number"):
            key.parse(text)
