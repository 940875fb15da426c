"""Searching and watching as a person does: the one box, by content, live."""

from tests.console.browser import Browser
from tests.console.conftest import GROUP, TOPIC, Mixed, Stage, make_topic


def test_the_box_in_the_bar_finds_names_and_keys(browser: Browser, mixed: Mixed) -> None:
    browser.open("/")
    browser.fill("q", "article", ".bar")
    browser.press("\n")
    browser.wait_for("Search", TOPIC, "Search in the messages of a topic")
    browser.fill("q", mixed.sent[3].msg_id, ".bar")
    browser.press("\n")
    [row] = browser.wait_for_rows("Messages", lambda rows: len(rows) == 1)
    assert row[0] == mixed.sent[3].msg_id
    browser.open(f"/search?q={GROUP[2:]}")
    browser.click(GROUP)
    browser.wait_for(f"The members subscribe {TOPIC} differently")


def test_messages_are_searched_by_content_and_watched_live(
    browser: Browser, stage: Stage, mixed: Mixed
) -> None:
    browser.open(f"/messages?by=content&topic={TOPIC}&tag=tagB&text=b3")
    browser.wait_for("8 messages looked at")
    rows = browser.rows("Messages") if "B3" in browser.text else []
    assert [row[5] for row in rows] == ["B3"]
    make_topic(stage.broker, "watched", queues=1)
    browser.open("/topic?name=watched&tab=live")
    browser.wait_for("No message yet")
    browser.click("Send a message")
    browser.fill("body", "seen at once")
    browser.dialog("Send a message")
    rows = browser.wait_for_rows("Messages as they arrive", lambda rows: len(rows) == 1)
    assert rows[0][5] == "seen at once"
