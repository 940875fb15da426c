"""What the console shows over time, in Chromium: charts of past days, ages, alarms."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from selenium.webdriver.common.action_chains import ActionChains

from pocketmq.remoting.codes import RequestCode
from tests.console.browser import Browser
from tests.console.conftest import GROUP, TOPIC, Mixed, Stage, console_of, make_topic
from tests.console.looks import ACCESSIBILITY
from tests.interop.asking import ask
from tests.interop.brokers import PocketBroker
from tests.interop.driver import message
from tests.kit.waiting import until


def query(browser: Browser) -> dict[str, list[str]]:
    return parse_qs(urlsplit(browser.driver.current_url).query)


def times_of(browser: Browser, title: str, *, wanted: Callable[[list[str]], object]) -> list[str]:
    """The times in the table beside a chart, which is folded, once `wanted` holds."""
    script = """
        const table = [...document.querySelectorAll('figure table')]
          .find((each) => each.caption.textContent === arguments[0]);
        return table ? [...table.tBodies[0].rows].map((row) => row.cells[0].textContent) : [];
    """
    found: list[str] = []

    def state() -> bool:
        found[:] = browser.run(script, title)
        return bool(wanted(found))

    until(state, f"figures of {title!r}")
    return found


def test_charts_show_the_week_before_this_run_and_zoom(
    browser: Browser, stage: Stage, mixed: Mixed, picture_folder: Path
) -> None:
    """A choice of spans, zoom by drawing, a span by two dates; the address keeps it."""
    browser.open("/")
    browser.click("7 d")
    title = "Messages per second"
    week = times_of(
        browser, title, wanted=lambda times: times and len(times[0]) == len("01-31 08:30")
    )
    assert len(week) == 10

    def is_earlier(times: list[str]) -> bool:
        """With their days, and not those that end now."""
        return len(times) == 10 and "-" in times[0] and times[0] != week[0]

    assert query(browser) == {"range": ["7d"]}
    assert browser.find("[aria-pressed='true']").text == "7 d"
    browser.picture(picture_folder / "overview-week.png")

    chart = browser.find("svg.zoomed")
    width = chart.size["width"]
    ActionChains(browser.driver).move_to_element_with_offset(
        chart, -width // 4, 0
    ).click_and_hold().move_by_offset(width // 4, 0).release().perform()
    browser.run_until("return location.search.includes('from=')")
    found = query(browser)
    day_ms = 86_400_000
    span_ms = int(found["until"][0]) - int(found["from"][0])
    assert 1.2 * day_ms < span_ms < 2.3 * day_ms
    times_of(browser, title, wanted=is_earlier)

    browser.click("1 h")
    browser.run_until("return location.search === ''")
    # The fields for two dates are unfolded since the zoom.
    browser.find("input[name='from']")
    browser.run(
        """
        const at = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 19);
        document.querySelector('[name=from]').value = at(Date.now() - 2 * 86400000);
        document.querySelector('[name=until]').value = at(Date.now() - 86400000);
        """
    )
    browser.click("Show")
    browser.run_until("return location.search.includes('until=')")
    times_of(browser, title, wanted=is_earlier)


def test_topics_and_groups_have_charts_of_their_own(browser: Browser, mixed: Mixed) -> None:
    browser.open(f"/group?name={GROUP}&range=7d")
    for title in (
        "Messages that wait",
        "Messages out per second",
        "How long the next message has waited",
    ):
        times_of(browser, title, wanted=lambda times: len(times) == 10)
    browser.open(f"/topic?name={TOPIC}")
    for title in ("Messages per second", "Messages that wait, all groups together"):
        times_of(browser, title, wanted=len)


def make_group_at(address: str, group: str, topic: str, offset: int) -> None:
    """A group that has consumed queue 0 up to an offset."""
    body = json.dumps({"groupName": group}).encode()
    assert ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0
    place = {"topic": topic, "queueId": "0", "consumerGroup": group, "commitOffset": str(offset)}
    assert ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, place).code == 0


def is_order(browser: Browser, caption: str, letters: str) -> bool:
    """Whether the names in the first column end with these letters, row by row."""
    return "".join(row[0][-1] for row in browser.rows(caption)) == letters


def test_lists_are_sorted_by_a_press_and_end_with_totals(browser: Browser, stage: Stage) -> None:
    """The group that is furthest behind comes first; a second press turns the order, a third ends it."""
    make_topic(stage.broker, "sorted", queues=1)
    producer = stage.members.producer(stage.broker.namesrv, "sorters")
    for _ in range(3):
        producer.send(message("sorted", "x"))
    for group, offset in (("sorted-a", 2), ("sorted-b", 0), ("sorted-c", 1)):
        make_group_at(stage.broker.address, group, "sorted", offset)
    browser.open("/groups?q=sorted-")
    lags = {"sorted-a": "1", "sorted-b": "3", "sorted-c": "2"}
    caption = "Consumer groups"
    browser.wait_for_rows(caption, lambda rows: {row[0]: row[6] for row in rows} == lags)
    # Totals and order are those of the sampler, which comes to the new groups in its turn.
    total = "return document.querySelector('tfoot').innerText"
    until(lambda: browser.run(total).split() == ["Total", "of", "3", "0", "6", "0"], "the totals")
    for state, order in (("descending", "bca"), ("ascending", "acb"), ("none", "abc")):
        browser.find("th:nth-of-type(7) button").click()
        browser.find(f"th:nth-of-type(7)[aria-sort='{state}']")
        until(partial(is_order, browser, caption, order), f"{state}: {order}")
    assert browser.run("return document.querySelectorAll('th[aria-sort=none]').length") == 4
    browser.open("/topics?q=sorted")
    browser.wait_for_rows("Topics", lambda rows: rows[0][:1] + rows[0][4:5] == ["sorted", "6"])


def test_running_info_is_in_words(browser: Browser, mixed: Mixed, picture_folder: Path) -> None:
    """What is fetched and not finished, ages instead of milliseconds since 1970."""
    browser.open(f"/group?name={GROUP}")
    browser.click("Running info")
    rows = browser.wait_for_rows(
        "Queues", lambda rows: any(row[0].startswith(f"{TOPIC} ") for row in rows)
    )
    row = next(row for row in rows if row[0].startswith(f"{TOPIC} "))
    assert row[1] == "nothing"
    assert row[3].endswith(" ago")
    assert row[5].startswith("reads")
    [started] = [row[1] for row in browser.rows("Properties") if row[0].endswith("START_TIMESTAMP")]
    assert started.endswith(" ago")
    browser.picture(picture_folder / "running-info.png", height_max=900)
    browser.dialog("Close")


def test_alarms_that_hold_are_shown_with_their_reasons(
    browser: Browser, mixed: Mixed, picture_folder: Path
) -> None:
    """A rule that holds, one that does not, and a web hook without a server."""
    browser.open("/alarms")
    rows = browser.wait_for_rows("Alarms that hold now", len)
    assert rows[0][:4] == ["members differ", GROUP, "raised", "Members differ"]
    rules = browser.rows("Rules")
    assert [row[0] for row in rules] == ["members differ", "no reader"]
    assert rules[1][2:5] == [
        "more than 10,000 messages behind\nthe next message has waited longer than 10 min\n"
        "fewer than 1 members online",
        "1 min",
        "never",
    ]
    rows = browser.wait_for_rows("Latest notices", lambda rows: "cannot reach" in rows[0][4])
    assert rows[0][2] == "raised"
    browser.picture(picture_folder / "alarms.png")


ACCOUNTS = """
accounts:
- {accessKey: operator, secretKey: operator-secret, admin: true}
- {accessKey: billing, secretKey: billing-secret, defaultTopicPerm: DENY, topicPerms: [invoices=PUB]}
"""


def test_accounts_are_shown_with_what_each_may_do(
    browser: Browser, tmp_path: Path, picture_folder: Path
) -> None:
    """Who is an administrator, what is listed, and what follows for each topic; no secrets."""
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    config = {
        "aclEnable": "true",
        "aclFile": accounts,
        "consolePort": 0,
        "consoleAccessKey": "operator",
        "consoleSecretKey": "operator-secret",
    }
    with PocketBroker(tmp_path / "broker", config=config) as broker:
        address = console_of(broker)
        browser.driver.get(f"{address}/topics")
        browser.click("Create a topic")
        browser.fill("name", "invoices")
        browser.dialog("Create")
        browser.wait_for_rows("Topics", lambda rows: any(row[0] == "invoices" for row in rows))
        browser.click("Access", "nav")
        rows = browser.wait_for_rows("Accounts", lambda rows: len(rows) == 2)
        assert rows[0][:2] == ["operator", "Administrator"]
        assert rows[0][3:] == ["all: publish and subscribe", "all: subscribe"]
        assert rows[1][3].splitlines() == ["invoices: publish", "all others: nothing"]
        assert "secret" not in browser.text.replace("secrets are not shown", "")
        assert browser.run(ACCESSIBILITY) == []
        browser.click("billing")
        rows = browser.wait_for_rows(
            "Rights", lambda rows: any(row[0] == "invoices" for row in rows)
        )
        assert next(row for row in rows if row[0] == "invoices")[2:] == ["yes", "no"]
        assert browser.run(ACCESSIBILITY) == []
        browser.picture(picture_folder / "account.png")
        assert "PocketMQ 0." in browser.find("#version").text
