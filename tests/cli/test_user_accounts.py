"""`pocketmq account` at a broker with users: the same commands, import, and which policy decides."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli import app
from pocketmq.cli.exits import CannotBegin
from tests.cli.conftest import SECRET

FILE = f"""
accounts:
  - {{accessKey: boss-too, secretKey: {SECRET}, admin: true}}
  - accessKey: imported
    secretKey: {SECRET}
    whiteRemoteAddress: 10.0.0.1
    defaultTopicPerm: SUB
    topicPerms: [T=PUB|SUB, secret=DENY]
    groupPerms: [g=SUB]
"""
Say = Callable[..., Any]


@pytest.fixture
def say(signed_site: str, capsys: pytest.CaptureFixture[str]) -> Say:
    def said(*words: str, code: int = 0) -> Any:
        assert app.run(["account", *words, "-n", signed_site, "--json"]) == code
        shown = capsys.readouterr()
        return shown.err if code else json.loads(shown.out)

    return said


def test_user_is_made_changed_explained_and_deleted(say: Say) -> None:
    say(
        "set", "app", "--secret", SECRET, "--topic", "T=PUB", "--topic", "U=SUB", "--group", "g=SUB"
    )
    say("set", "app", "--secret", SECRET, "--topic", "T=SUB")
    (row,) = (each for each in say("list") if each["accessKey"] == "app")
    assert (row["topicPerms"], row["groupPerms"], row["admin"]) == (["T=SUB"], ["g=SUB"], False)

    def explained(*words: str) -> tuple[bool, str]:
        (found,) = say("explain", *words)
        return found["allowed"], found["decidedBy"]

    assert explained("app", "Sub", "Topic:T") == (True, "Custom policy: Allow Sub on Topic:T")
    assert explained("app", "Pub", "Topic:T") == (False, "no policy fits")
    assert explained("operator", "delete", "topic:T") == (True, "a super user")
    with pytest.raises(CannotBegin, match="not one of"):
        say("explain", "app", "Fly", "Topic:T")
    with pytest.raises(CannotBegin, match="--addresses"):
        say("set", "app", "--secret", SECRET, "--addresses", "10.0.0.1")
    say("delete", "app", "--yes")
    assert "has no account" in say("delete", "app", "--yes", code=1)


def test_accounts_of_a_file_become_users(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(FILE, encoding="utf-8")
    first, again = (say("import", str(file), "--yes") for _ in range(2))
    assert [row["imported"] for row in first + again] == [True, True, False, False]
    rows = {each["accessKey"]: each for each in say("list")}
    assert rows["boss-too"]["mayAll"]
    imported = rows["imported"]
    assert imported["topicPerms"] == ["T=PUB|SUB", "secret=DENY"]
    assert (imported["defaultTopicPerm"], imported["groupPerms"]) == ("SUB", ["g=SUB"])
    (found,) = say("explain", "imported", "Sub", "Topic:any")
    assert found == {
        "broker": "a",
        "allowed": True,
        "decidedBy": "Default policy: Allow Sub on Topic:*",
    }
