"""An operator's work in the console, in Chromium: groups, settings, delays, traces, key-value table."""

import re
import time

import pytest

from pocketmq.cli.app import run
from tests.console.browser import Browser
from tests.console.conftest import GROUP, TOPIC, Mixed, Stage, make_topic
from tests.interop.driver import message
from tests.kit.waiting import until

# Set up first, so that its queues move on (after 15 s of long polling) before the last test looks.
pytestmark = pytest.mark.usefixtures("leaving")


def test_a_group_is_made_given_a_mode_and_deleted(browser: Browser, mixed: Mixed) -> None:
    """S92 and the three modes: the dialog explains each, the confirmation says what follows."""
    browser.open("/groups")
    rows = browser.wait_for_rows(
        "Consumer groups", lambda rows: any(row[0] == GROUP for row in rows)
    )
    assert next(row for row in rows if row[0] == GROUP)[2:5] == [
        "Members differ",
        "compatible",
        "2",
    ]
    browser.click("Create a group")
    browser.fill("name", "calm")
    browser.fill("retryMaxTimes", "3")
    browser.dialog("Create")
    browser.wait_for_rows("Consumer groups", lambda rows: any(row[0] == "calm" for row in rows))
    browser.click("calm")
    browser.wait_for("No member of this group is online", 'PushConsumer("calm"')
    browser.click("Mode")
    browser.wait_for("A second, different subscription is refused.")
    browser.choose("mode", "isolate")
    browser.dialog("Continue …")
    browser.wait_for("Group 'calm' is compatible now.")
    browser.dialog("Change")
    browser.wait_for("The mode was set")
    browser.run_until("return document.querySelector('.figures').innerText.includes('isolate')")
    browser.click("Configuration")
    browser.wait_for("Retries before a message becomes a dead letter")
    assert "3" in browser.find(".facts").text.split()
    browser.click("Delete")
    browser.dialog("Delete")
    browser.wait_for("Group calm was deleted")
    browser.wait_for_rows("Consumer groups", lambda rows: all(row[0] != "calm" for row in rows))


@pytest.mark.usefixtures("mixed")
def test_the_balance_of_a_mixed_group_leads_to_what_was_lost(browser: Browser) -> None:
    """From the group to its books, to the lost ranges, to the messages; no way back while members differ."""
    browser.open(f"/group?name={GROUP}")
    browser.click("Balance")
    rows = browser.wait_for_rows("Losses by hour", lambda rows: len(rows) > 0)
    assert {(row[2], row[3], *row[5:]) for row in rows} == {
        (TOPIC, "Discarded by the member", "tagA", "tagB")
    }
    browser.click("Give lost ones back")
    browser.wait_for("subscribe differently", f"pocketmq group mode {GROUP} isolate")
    said = re.search(r"Lost (\d+)", str(browser.find("svg.sum").get_attribute("aria-label")))
    # How many depends on what members have pulled by now, and on what other tests sent.
    assert said is not None
    assert int(said[1]) > 0
    browser.click(said[1], within="table tr:has(.tag.bad)")
    browser.wait_for("Messages in state Lost")
    browser.click(TOPIC, within="main section:nth-of-type(2) tbody")
    browser.wait_for("B0")
    assert [each.partition("- ")[2][:24] for each in browser.errors()] == [
        "Failed to load resource:"
    ]


def test_direct_consumption_and_running_info_of_a_member(browser: Browser, stage: Stage) -> None:
    """Consume directly and running info, with an official client at the other end."""
    make_topic(stage.broker, "hand", queues=1)
    member = stage.members.push_consumer(
        stage.broker.namesrv,
        "hands",
        "hand",
        settings={"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"},
    )
    producer = stage.members.producer(stage.broker.namesrv, "handers")
    [sent] = producer.send(message("hand", b"\x00\xff", keys="raw"))
    member.wait(1)
    browser.open(f"/message?id={sent.msg_id}&topic=hand")
    browser.wait_for("000000  00 ff")
    browser.wait_for_rows("What became of it", lambda rows: rows[0][0] == "hands")
    browser.click("Hand to a member")
    browser.dialog("Continue …")
    browser.find("dialog[open] [name='clientId']")
    browser.dialog("Continue …")
    browser.dialog("Hand to a member")
    browser.wait_for("The member answered CR_SUCCESS")
    member.wait(2)

    browser.open("/group?name=hands")
    browser.wait_for("There is one member")
    browser.click("Running info")
    browser.wait_for("PROP_CLIENT_VERSION", "Threads", "ConsumeMessageThread")
    browser.dialog("Close")
    browser.open("/producers")
    browser.wait_for_rows("Producers", lambda rows: any(row[1] == "handers" for row in rows))


def test_a_delayed_message_is_seen_until_its_time(browser: Browser, stage: Stage) -> None:
    """Sent by hand at level 18; its level counts it and tells when it is due and where it goes. And one
    with a time of its own, in the timer's list."""
    make_topic(stage.broker, "later", queues=1)
    producer = stage.members.producer(stage.broker.namesrv, "delayers")
    due_ms = int(time.time() * 1_000) + 3_600_000
    [timed] = producer.send(message("later", "x", system={"TIMER_DELIVER_MS": str(due_ms)}))
    browser.open("/topic?name=later")
    browser.click("Send a message")
    browser.fill("delayLevel", "18")
    browser.dialog("Send a message")
    browser.wait_for("Stored at")
    browser.open("/delays")
    browser.wait_for_rows("Delayed messages", lambda rows: ["18", "2 h", "1"] in rows)
    rows = browser.wait_for_rows(
        "Next messages with a time of their own",
        lambda rows: [row[:2] for row in rows] == [[timed.msg_id, "later"]],
    )
    assert rows[0][3].startswith("in ")
    browser.click("18")
    [row] = browser.wait_for_rows("Delayed messages", lambda rows: len(rows) == 1)
    assert row[7] == "later"
    assert row[8].startswith("in ")
    due = time.mktime(time.strptime(row[6], "%Y-%m-%d %H:%M:%S"))
    stored = time.mktime(time.strptime(row[4], "%Y-%m-%d %H:%M:%S"))
    assert abs(due - stored - 7_200) <= 1
    # The one with a time of its own is a link to its record, and is taken back.
    browser.open("/delays")
    browser.click(timed.msg_id)
    browser.wait_for("TIMER_DELIVER_MS", str(due_ms))
    browser.wait_for("It is due ", "Then it goes to topic later")
    browser.open("/delays")
    browser.click("Take back")
    browser.wait_for("no group will receive it")
    browser.dialog("Take back")
    browser.wait_for("The message was taken back")
    browser.run_until("return !document.body.innerText.includes('Next messages with a time')")


def test_a_schedule_is_paused_and_deleted(browser: Browser, stage: Stage) -> None:
    make_topic(stage.broker, "daily")
    created = ["schedule", "create", "evening", "daily", "hello", "--cron", "0 18 * * *"]
    assert run([*created, "--zone", "Asia/Tokyo", "--namesrv", stage.broker.namesrv]) == 0
    browser.open("/schedules")
    [row] = browser.wait_for_rows("Schedules", lambda rows: len(rows) == 1)
    assert row[:3] == ["evening", "daily", "0 18 * * * Asia/Tokyo"]
    assert row[4].startswith("in ")
    browser.click("Pause")
    browser.wait_for("will send nothing until it is resumed")
    browser.dialog("Pause")
    browser.wait_for_rows("Schedules", lambda rows: rows[0][3] == "paused")
    browser.click("Delete")
    browser.dialog("Delete")
    browser.wait_for("No schedules")


def test_a_traced_message_is_drawn_on_a_line_of_time(browser: Browser, stage: Stage) -> None:
    """What an official producer reports of its send."""
    make_topic(stage.broker, "traced", queues=1)
    producer = stage.members.producer(stage.broker.namesrv, "tracers", trace=True)
    [sent] = producer.send(message("traced", "hello", keys="t-1"))

    def shown() -> bool:
        browser.open(f"/trace?id={sent.msg_id}")
        return "On the line of time" in browser.text

    until(shown, "the trace of the message")
    [row] = browser.rows("Steps")
    assert row[:2] == ["Sent", "tracers"]
    assert row[5] == "success"
    assert browser.run("return document.querySelectorAll('.timeline rect').length") == 1


def test_settings_and_key_values_change_after_one_question(browser: Browser, mixed: Mixed) -> None:
    """What can be changed while the broker runs; a key is made, changed and deleted."""
    browser.open("/settings?only=yes&q=groupGuardGraceTime")
    [row] = browser.wait_for_rows("Settings", lambda rows: len(rows) == 1)
    assert row[:2] == ["groupGuardGraceTime", "1000 not the default"]
    browser.click("Change")
    browser.fill("value", "1500")
    browser.dialog("Continue …")
    browser.wait_for("groupGuardGraceTime from 1000 to 1500")
    browser.dialog("Do it")
    browser.wait_for_rows("Settings", lambda rows: rows[0][1].startswith("1500"))

    browser.open("/name-server")
    browser.click("Add an entry")
    browser.fill("key", "orders")
    browser.fill("value", "broker-a:4")
    browser.dialog("Create")
    browser.wait_for_rows(
        "Key-value table", lambda rows: [row[:2] for row in rows] == [["orders", "broker-a:4"]]
    )
    browser.click("Change")
    browser.fill("value", "broker-a:8")
    browser.dialog("Continue …")
    browser.dialog("Do it")
    browser.wait_for_rows("Key-value table", lambda rows: rows[0][1] == "broker-a:8")
    browser.click("Delete")
    browser.dialog("Delete")
    browser.wait_for("This namespace is empty")


def test_an_isolated_group_is_said_to_differ_and_to_lose_nothing(
    browser: Browser, stage: Stage
) -> None:
    """Two members with two tags: a sub-group each, and no word of a loss."""
    make_topic(stage.broker, "split")
    browser.open("/groups")
    browser.click("Create a group")
    browser.fill("name", "splitters")
    browser.dialog("Create")
    browser.wait_for("The group was saved")
    browser.open("/group?name=splitters")
    browser.click("Mode")
    browser.choose("mode", "isolate")
    browser.dialog("Continue …")
    browser.dialog("Change")
    browser.wait_for("The mode was set")
    for tags in ("tagA", "tagB"):
        stage.members.push_consumer(
            stage.broker.namesrv, "splitters", {"split": tags}, instance=f"splitters-{tags}"
        )
    browser.wait_for("The members subscribe differently, but the group is isolated: 2 sub-groups")
    rows = browser.wait_for_rows("Sub-groups (mode isolate)", lambda rows: len(rows) == 2)
    assert {row[2] for row in rows} == {"split tagA", "split tagB"}
    assert "differs from its own" not in browser.text
    assert "messages are lost" not in browser.text


def test_the_verdict_outlives_the_last_subscriber(browser: Browser, leaving: Mixed) -> None:
    """E3b: tagA is stored again, so RocketMQ says CONSUMED_BUT_FILTERED of what it called CONSUMED."""
    browser.open(f"/topic?name={leaving.topic}")
    browser.click("Consumers")
    browser.wait_for_rows(
        f"Queues of the topic in group {leaving.name}",
        lambda rows: [row[2:5] for row in rows] == [["2", "2", "0"]] * 4,
    )
    browser.open(f"/group?name={leaving.name}")
    browser.wait_for(f"The members subscribe {leaving.topic} differently")
    leaving.second.close()
    browser.wait_for("There is one member")
    browser.open(f"/message?id={leaving.sent[0].msg_id}&topic={leaving.topic}")
    [row] = browser.wait_for_rows("What became of it", lambda rows: len(rows) == 1)
    assert row[1].splitlines()[0] == "CONSUMED_BUT_FILTERED"
    assert row[2].splitlines()[1] == "DROPPED_BY_CLIENT"
