"""Files of messages that another program wrote: a sentence names what is wrong, before anything is stored."""

import json
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.message_files import read_messages

GOOD: dict[str, Any] = {"topic": "T", "body": "añ\u2028", "properties": {"TAGS": "a\tb"}}


def test_a_message_of_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    path.write_text(json.dumps(GOOD) + "\n\n" + json.dumps({"bodyBase64": "eA=="}) + "\n")
    assert read_messages(str(path)) == [
        {"topic": "T", "body": "añ\u2028".encode(), "properties": {"TAGS": "a\tb"}},
        {"topic": "", "body": b"x", "properties": {}},
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"a":' * 100_000,
        '{"topic":"T","body":' + "9" * 5_000 + "}",
        '{"topic":"T","bodyBase64":"!"}',
        '[{"topic":"T"}]',
        "[1]",
        # What no record holds.
        json.dumps({**GOOD, "topic": "\ud800"}),
        json.dumps({**GOOD, "body": "\ud800"}),
        json.dumps({**GOOD, "properties": {"a": "\udfff"}}),
        # A property behind the end of another: DELAY is one of those that are not restored.
        json.dumps({**GOOD, "properties": {"a": "b\x02DELAY\x013"}}),
        json.dumps({**GOOD, "properties": {"a\x01b\x02DELAY": "3"}}),
    ],
    ids=lambda text: text[:40],
)
def test_an_invalid_line_is_reported_before_anything_is_stored(tmp_path: Path, text: str) -> None:
    path = tmp_path / "messages"
    path.write_text(json.dumps(GOOD) + "\n" + text if text[0] == "{" else text)
    with pytest.raises(CannotBegin, match=r"is not a message|contains neither JSON"):
        read_messages(str(path))
