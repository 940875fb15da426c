"""Every frame that official clients and brokers exchanged decodes, re-encodes and has its header."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.model.message_codec import to_message
from pocketmq.model.record import read_records
from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import SerializeType, decode, encode
from pocketmq.remoting.frames import FrameDecoder
from pocketmq.remoting.requests import REQUESTS

WIRE = Path(__file__).parents[1] / "golden" / "data" / "wire"
FILES = sorted(WIRE.glob("*.jsonl.gz"))


def frames(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            if "frame" in entry:
                yield entry, base64.b64decode(entry["frame"])


def test_the_recorded_files_are_there() -> None:
    assert len(FILES) == 67


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_each_recorded_frame_decodes_and_encodes_to_itself(path: Path) -> None:
    """Binary headers byte for byte; JSON ones to the same command (Java's key order is its own)."""
    for entry, raw in frames(path):
        (frame,) = FrameDecoder().feed(raw)
        command = decode(frame)
        assert (command.code, command.opaque, command.flag) == (
            entry["code"],
            entry["opaque"],
            entry["flag"],
        )
        assert len(command.body) == entry["bodyLength"]
        again = encode(command)
        if command.encoding == SerializeType.ROCKETMQ:
            assert again == raw
        else:
            assert decode(again[4:]) == command


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_each_recorded_header_is_in_the_table(path: Path) -> None:
    """Each field that a class declares comes back as it was; no class lacks a field that clients send."""
    asked: dict[tuple[str, str, int], int] = {}
    for entry, raw in frames(path):
        command = decode(raw[4:])
        if command.is_response:
            code = asked.get((entry["conn"], entry["dir"], command.opaque))
            if code is None or command.code not in (0, 19, 20, 21):
                continue
            header_class = REQUESTS[code].answer
        else:
            code = command.code
            back = "s2c" if entry["dir"] == "c2s" else "c2s"
            asked[entry["conn"], back, command.opaque] = code
            header_class = REQUESTS[code].header
        if header_class is None:
            continue
        assert header_class.parse(command.ext).ext().items() <= (command.ext or {}).items()


def test_each_recorded_pull_body_decodes_with_its_checksums() -> None:
    count = 0
    for path in FILES:
        asked: dict[tuple[str, int], int] = {}
        for entry, raw in frames(path):
            command = decode(raw[4:])
            if not command.is_response:
                asked[entry["conn"], command.opaque] = command.code
            elif command.code == 0 and asked.get((entry["conn"], command.opaque)) in (11, 361, 33):
                for record in read_records(command.body):
                    message = to_message(record)
                    assert message.offset_msg_id[:8] == "7F000002"
                    count += 1
    assert count > 500


def test_each_recorded_heartbeat_gives_its_subscriptions_back() -> None:
    """S38, S39, S40: the fields of subscriptionDataSet, %RETRY%group among them."""
    seen: set[str] = set()
    for path in FILES:
        for _, raw in frames(path):
            command = decode(raw[4:])
            if command.code != RequestCode.HEART_BEAT or command.is_response:
                continue
            for consumer in json.loads(bytes(command.body))["consumerDataSet"]:
                for data in consumer["subscriptionDataSet"]:
                    subscription = SubscriptionData.from_json(data)
                    again = subscription.to_json()
                    assert again["topic"] == data["topic"]
                    assert set(again["codeSet"]) == {
                        int(code) for code in data.get("codeSet") or ()
                    }
                    assert set(again["tagsSet"]) == set(data.get("tagsSet") or ())
                    assert again["subVersion"] == data["subVersion"]
                    seen.add(data["topic"].partition("%")[2][:5] or "plain")
    assert "RETRY" in seen
    assert "plain" in seen
