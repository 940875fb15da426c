"""The overview: what is wrong first, folded, quiet on demand; figures in sight; a menu behind a button."""

import re
from collections.abc import Iterator

import pytest

from tests.console.browser import Browser
from tests.console.conftest import GROUP, TOPIC, Mixed

DIFFER = "members ask for different things"
# What the server would say of a site on which much is wrong.
MUCH = """
const warning = (kind, severity, subject, quiet = null) => ({kind, severity, subject, topic: null, quiet,
  text: `${kind} of ${subject}`, advice: 'do something', parameters: {}});
const list = [
  warning('BROKER_FAILS', 'error', 'b'),
  ...['g1', 'g2', 'g3', 'g4', 'g5'].map((each) => warning('MEMBER_STUCK', 'error', each)),
  ...['DEAD_LETTERS', 'FAILING', 'LAG', 'NOBODY_ONLINE', 'QUEUES_UNREAD']
    .map((each) => warning(each, 'warning', 'g')),
  warning('IDLE_MEMBERS', 'info', 'calm'), warning('LAG', 'warning', 'away', {until: null}),
];
const place = new URL('findings.js', document.querySelector('script[type=module]').src);
return import(place).then(({findings}) => {
  const shown = findings({session: {}}, list);
  document.querySelector('.findings').replaceWith(shown);
  return shown.innerText;
});
"""


@pytest.fixture
def small(browser: Browser) -> Iterator[Browser]:
    """The browser as a laptop of 1280 by 720 sees it; `narrow` makes a telephone of it."""
    yield sized(browser, 1_280, 720)
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def sized(browser: Browser, width: int, height: int) -> Browser:
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    return browser


def bottom(browser: Browser, css: str) -> float:
    script = "return document.querySelector(arguments[0]).getBoundingClientRect().bottom"
    return float(browser.run(script, css))


def test_findings_of_one_kind_are_folded_and_figures_in_sight(small: Browser, mixed: Mixed) -> None:
    small.open("/")
    small.wait_for(DIFFER)
    small.click("Pause", ".bar")
    lines = str(small.run(MUCH)).splitlines()
    assert lines[0].split() == ["Needs", "attention", "errors:", "6", "warnings:", "5"]
    assert "A member is stuck (5): g1, g2, g3 and 2 more" in " ".join(lines)
    text = "\n".join(lines)
    assert text.index("BROKER_FAILS of b") < text.index("stuck") < text.index("DEAD_LETTERS of g")
    assert lines[-3:] == ["2 more", "Notes: 1", "Dismissed or snoozed: 1"]
    # Behind a click, and there.
    assert "IDLE_MEMBERS of calm" not in text
    small.click("Notes: 1")
    small.wait_for("IDLE_MEMBERS of calm")
    small.click("Notes: 1")
    assert bottom(small, ".figures") <= 720
    small.click("Resume", ".bar")


def test_a_finding_is_dismissed_for_all_viewers_and_shown_again(
    browser: Browser, mixed: Mixed
) -> None:
    browser.open("/")
    browser.wait_for(DIFFER)
    # How many others there are depends on what the site has lived through.
    [errors] = re.findall(r"errors: \d+", browser.run("return document.body.innerText"))
    browser.click("Dismiss", ".findings")
    browser.wait_for("Dismissed or snoozed: 1")
    browser.driver.delete_all_cookies()
    browser.open("/")
    browser.wait_for("Dismissed or snoozed: 1")
    browser.click("Dismissed or snoozed: 1")
    browser.wait_for(DIFFER, "dismissed until it ends")
    browser.click("Show again", ".findings")
    browser.wait_for(errors)
    browser.click("Snooze 1 h", ".findings")
    browser.wait_for("Dismissed or snoozed: 1")
    browser.click("Dismissed or snoozed: 1")
    browser.wait_for("snoozed until")
    browser.click("Show again", ".findings")
    browser.wait_for(errors)


def test_on_a_telephone_the_menu_stands_behind_a_button(small: Browser, mixed: Mixed) -> None:
    sized(small, 375, 812)
    small.open("/")
    # The first word of the page, once 295 px below the top.
    assert bottom(small, "h1") < 110
    hidden = "return !document.getElementById('nav').checkVisibility()"
    assert small.run(hidden)
    small.click("Menu", ".bar")
    assert not small.run(hidden)
    small.click("Topics", "#nav")
    small.wait_for("Create a topic")
    assert small.run(hidden)


def test_groups_sort_by_health_and_topics_tell_what_they_hold(
    browser: Browser, mixed: Mixed
) -> None:
    browser.open("/groups")
    browser.wait_for_rows("Consumer groups", lambda rows: any("Sick" in row[1] for row in rows))
    browser.click("State")
    rows = browser.wait_for_rows("Consumer groups", lambda rows: "Sick" in rows[0][1])
    assert GROUP in {row[0] for row in rows if "Sick" in row[1]}
    assert "sort=health" in browser.driver.current_url
    browser.open("/topics")
    rows = browser.wait_for_rows(
        "Topics", lambda rows: any(row[0] == TOPIC and row[5] == "8" for row in rows)
    )
    [row] = [row for row in rows if row[0] == TOPIC]
    assert (row[6].endswith("KiB"), row[7]) == (True, "4")
    assert browser.run(
        "return [...document.querySelectorAll('td button')].every(({className}) => className === 'link')"
    )
