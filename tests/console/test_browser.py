"""The console in headless Chromium: what a person does, and experiment E3 on its four screens."""

from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from tests.console.browser import Browser
from tests.console.conftest import GROUP, TOPIC, Mixed, Stage, make_topic
from tests.kit.waiting import until

HOSTILE = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"

pytestmark = pytest.mark.usefixtures("mixed")


def test_a_user_creates_a_topic_sends_and_sees_the_verdict(browser: Browser, stage: Stage) -> None:
    """S86, S88: create, send, find by time and key, body in three forms, properties, delete."""
    browser.open("/topics")
    browser.click("Create a topic")
    browser.fill("name", "orders")
    browser.fill("writeQueues", "4")
    browser.fill("readQueues", "4")
    browser.dialog("Create")
    browser.wait_for_rows("Topics", lambda rows: any(row[0] == "orders" for row in rows))

    browser.click("orders")
    browser.wait_for("The topic holds no message", "pocketmq message send orders")
    browser.click("Send a message")
    browser.fill(
        "body", '{"id": 12345678901234567890, "note": "' + HOSTILE.replace('"', "'") + '"}'
    )
    browser.fill("tag", "new")
    browser.fill("keys", "k-1 k-2")
    browser.fill("properties", "colour=red; note=" + HOSTILE.replace("=", ":").replace(";", ""))
    browser.dialog("Send a message")
    browser.wait_for("Stored at broker-a")
    browser.wait_for_rows("Queues", lambda rows: sum(int(row[4]) for row in rows) == 1)

    browser.click("Messages")
    [row] = browser.wait_for_rows("Messages", lambda rows: len(rows) == 1)
    exported = browser.find("a[download]").get_attribute("href") or ""
    assert exported.endswith("/api/messages/export?topic=orders")
    assert row[1:3] == ["new", "k-1 k-2"]
    assert HOSTILE.replace('"', "'")[:40] in row[5]
    browser.click("By key")
    browser.fill("key", "k-2", "main")
    browser.click("Search")
    browser.wait_for_rows("Messages", lambda rows: len(rows) == 1)
    browser.click(row[0])
    browser.wait_for("No group consumes this topic", "colour", "red")
    body = browser.find("#body")
    assert body.text.splitlines()[1] == '  "id": 12345678901234567890,'
    browser.click("Hex")
    browser.wait_for("000000  7b 22 69 64 22")
    browser.click("Text")
    browser.wait_for('{"id": 12345678901234567890')
    assert browser.driver.title != "taken"

    browser.open("/topic?name=orders")
    browser.click("Delete")
    browser.wait_for("Topic 'orders' with 1 messages in 4 queues will be deleted")
    browser.dialog("Cancel")
    assert "orders" in browser.text
    browser.click("Delete")
    browser.dialog("Delete")
    browser.wait_for("Topic orders was deleted")
    browser.wait_for_rows("Topics", lambda rows: all(row[0] != "orders" for row in rows))


def test_dead_letters_are_seen_and_sent_again_to_their_group(
    browser: Browser, stage: Stage, picture_folder: Path
) -> None:
    """A group gives up three messages; two are chosen and come again; nothing else does."""
    make_topic(stage.broker, "payments")
    members = stage.members
    failing = members.push_consumer(
        stage.broker.namesrv,
        "accounts",
        "payments",
        settings={"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "maxReconsumeTimes": 0},
        result="later",
    )
    producer = members.producer(stage.broker.namesrv, "payers")
    for number in range(3):
        producer.send({"topic": "payments", "body64": "cGF5", "flag": 0, "keys": f"pay-{number}"})
    failing.wait(3)
    browser.open("/dead-letters")
    browser.wait_for("Dead letters")
    browser.open("/dead-letters?group=accounts")
    rows = browser.wait_for_rows("Dead letters", lambda rows: len(rows) == 3)
    assert {row[2] for row in rows} == {"pay-0", "pay-1", "pay-2"}
    assert {row[4] for row in rows} == {"payments"}
    # Why, how often, and whether it was sent again; one is found by its message id.
    assert all(row[5].startswith("failures: 1\n") for row in rows)
    assert all("it failed 1 time, which is the limit" in row[5] for row in rows)
    assert not any(row[6].startswith("sent again") for row in rows)
    wanted = rows[1][0].splitlines()[0]
    browser.fill("id", wanted, "main")
    browser.find("main form[role=search] button").click()
    browser.wait_for_rows("Dead letters", lambda found: [row[0] for row in found] == [rows[1][0]])
    browser.open("/dead-letters?group=accounts")
    browser.wait_for_rows("Dead letters", lambda found: len(found) == 3)
    failing.behave(result="success")
    for box in browser.driver.find_elements("css selector", "td input[type=checkbox]")[:2]:
        box.click()
    browser.click("Send again: 2")
    browser.dialog("Send again")
    browser.wait_for("Sent again: 2")
    failing.wait(5)
    assert [each.success for each in failing.consumed].count(True) == 2

    def marked() -> bool:
        browser.click("Refresh", ".bar")
        found = browser.rows("Dead letters")
        return [row[6].startswith("sent again") for row in found].count(True) == 2

    until(marked, "two letters are marked")
    boxes = browser.driver.find_elements("css selector", "td input[type=checkbox]")
    assert not any(box.is_selected() for box in boxes)
    browser.picture(picture_folder / "dead-letters.png")


def test_offsets_are_reset_after_the_dialog_has_shown_each_queue(
    browser: Browser, mixed: Mixed
) -> None:
    """A dangerous action says exactly what it will do, asks once, and Cancel does nothing."""
    browser.open(f"/group?name={GROUP}")
    browser.click("Reset offsets")
    browser.choose("to", "earliest")
    browser.dialog("Continue …")
    browser.wait_for(f"Group '{GROUP}' will continue elsewhere in topic '{TOPIC}'")
    rows = browser.rows("Before and after")
    assert [row[0] for row in rows] == [f"{TOPIC} broker-a {queue}" for queue in range(4)]
    assert {row[2] for row in rows} == {"0"}
    # The button that does it is not the one that Enter would press.
    assert browser.focused() == "Cancel"
    browser.press(Keys.ENTER)
    browser.wait_for("The members subscribe")
    assert "The offsets were set" not in browser.text


def test_refreshes_keep_focus_and_typing_and_can_be_paused(
    browser: Browser,
) -> None:
    """A fetch replaces what changed only; Pause leaves no timer running."""
    browser.open("/topics")
    field = browser.find("main input[type=search]")
    field.send_keys("artic")
    browser.wait_for_rows("Topics", lambda rows: [row[0] for row in rows] == [TOPIC])
    browser.run("window.old = document.querySelector('tbody tr')")
    before = browser.find("#updated").text
    browser.driver.execute_async_script(
        """
        const done = arguments[0], shown = document.getElementById('updated');
        new MutationObserver((_, watch) => { watch.disconnect(); done(); })
          .observe(shown, {childList: true, characterData: true, subtree: true});
        """
    )
    assert browser.find("#updated").text != before
    assert browser.focused() == "Filter topics"
    assert field.get_attribute("value") == "artic"
    assert browser.run("return window.old === document.querySelector('tbody tr')")

    browser.run(
        """
        const set = window.setTimeout, clear = window.clearTimeout;
        window.waiting = new Set();
        window.setTimeout = (call, ms) => {
          const id = set(() => { window.waiting.delete(id); call(); }, ms);
          if (ms >= 1000) window.waiting.add(id);
          return id;
        };
        window.clearTimeout = (id) => { window.waiting.delete(id); clear(id); };
        """
    )
    browser.click("Refresh", ".bar")
    browser.run_until("return window.waiting.size === 1")
    browser.click("Pause", ".bar")
    browser.run_until("return window.waiting.size === 0")
    assert browser.find("#pause").get_attribute("aria-pressed") == "true"
    browser.click("Resume", ".bar")
    browser.run_until("return window.waiting.size === 1")


def test_everything_is_reached_by_the_keyboard_alone(browser: Browser) -> None:
    """Skip link, menu, heading, dialog, back: the focus is always where a person expects it."""
    browser.open("/")
    browser.press(Keys.TAB)
    assert browser.focused() == "Skip to the page"
    browser.press(Keys.ENTER)
    browser.run_until("return document.activeElement.id === 'page'")
    browser.open("/")
    browser.tab_to("Topics")
    browser.press(Keys.ENTER)
    browser.run_until("return document.activeElement.localName === 'h1'")
    assert browser.focused() == "Topics"
    browser.tab_to("Create a topic")
    browser.press(Keys.ENTER)
    browser.find("dialog[open]")
    assert browser.focused() == "Name of the topic"
    browser.press(Keys.ESCAPE)
    browser.run_until("return !document.querySelector('dialog')")
    assert browser.focused() == "Create a topic"
    browser.press(Keys.ENTER)
    browser.find("dialog[open]")
    browser.press("by-keys", Keys.ENTER)
    browser.wait_for_rows("Topics", lambda rows: any(row[0] == "by-keys" for row in rows))
    assert browser.focused() == "Create a topic"


def test_the_pages_show_e3_on_four_screens_with_its_verdict(
    browser: Browser, mixed: Mixed, picture_folder: Path
) -> None:
    """E3, S85 to S89: subscriptions, queue status, owners and offsets, track CONSUMED; and who loses what."""
    # 1. The consumer's clients and subscription; beside it each member's own, and the verdict.
    browser.open(f"/group?name={GROUP}")
    rows = browser.wait_for_rows(
        "Members and subscriptions", lambda rows: len(rows) == 2 and "0, 1" in rows[0][3]
    )
    first, second = (row[0].split()[0] for row in rows)
    assert first.endswith("@reviewers-A")
    assert second.endswith("@reviewers-B")
    assert rows[0][1] == f"{TOPIC} tagA"
    assert rows[0][2].splitlines() == [f"{TOPIC} tagB", "differs from its own"]
    assert rows[1][1] == rows[1][2] == f"{TOPIC} tagB"
    assert [row[3] for row in rows] == [f"{TOPIC} broker-a: 0, 1", f"{TOPIC} broker-a: 2, 3"]
    browser.wait_for(f"The members subscribe {TOPIC} differently: messages are lost")
    browser.wait_for("filters every member's queues by tagB")
    # A queue's holder is known by its pulls: the ones that B took over show after its first.
    losses = [
        ["0, 1", first, "tagA", first],
        ["0, 1", first, "tagB", second],
        ["2, 3", second, "tagA", first],
    ]
    browser.wait_for_rows("What is lost now, queue by queue", lambda rows: sorted(rows) == losses)
    stored = browser.rows("Subscription stored for the group")
    assert [TOPIC, "tagB", "tagB", "TAG"] in [row[:4] for row in stored]
    browser.picture(picture_folder / "group-verdict.png", height_max=830)

    # 2. The topic's status: two messages in each queue.
    browser.open(f"/topic?name={TOPIC}")
    rows = browser.wait_for_rows("Queues", lambda rows: len(rows) == 4)
    assert [row[1:5] for row in rows] == [[str(queue), "0", "2", "2"] for queue in range(4)]

    # 3. Consumer manage: owner of each queue, offsets 2, nothing waits.
    browser.click("Consumers")
    rows = browser.wait_for_rows(
        f"Queues of the topic in group {GROUP}",
        lambda rows: [row[2:5] for row in rows] == [["2", "2", "0"]] * 4,
    )
    assert [row[1] for row in rows] == [first, first, second, second]
    browser.picture(picture_folder / "topic-consumers.png")

    # 4. The messages: all eight CONSUMED says RocketMQ; the verdict says which four were lost, and why.
    for number, sent in enumerate(mixed.sent):
        browser.open(f"/message?id={sent.msg_id}&topic={TOPIC}")
        [row] = browser.wait_for_rows("What became of it", lambda rows: len(rows) == 1)
        assert row[0] == GROUP
        assert row[1].splitlines()[0] == "CONSUMED"
        lost = number in (0, 1, 4, 5)
        assert row[2].splitlines() == (
            ["Lost: thrown away by the client", "DROPPED_BY_CLIENT"]
            if lost
            else ["Consumed", "CONSUMED"]
        )
        assert (first if lost else second) in row[3]
        if number == 0:
            browser.picture(picture_folder / "message-verdict.png")
            # For the front page of the repository.
            browser.picture(picture_folder / "verdict.png", height_max=450)

    # The overview warns, and leads to the group.
    browser.open("/")
    browser.wait_for("members ask for different things: 1 x [tagA]; 1 x [tagB]")
    browser.picture(picture_folder / "overview.png")
    browser.click(GROUP, ".note")
    browser.wait_for(f"The members subscribe {TOPIC} differently")
