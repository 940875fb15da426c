"""What the console shows over time, in Chromium: charts of days that are gone, ages, alarms."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from selenium.webdriver.common.action_chains import ActionChains
from tests.console.browser import Browser
from tests.console.conftest import GROUP, TOPIC, Mixed, Stage
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


def test_charts_show_a_week_before_this_run_and_a_part_of_it_closer(
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
    times_of(browser, title, wanted=lambda times: len(times) == 10 and times[0] < week[0])

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
    times_of(browser, title, wanted=lambda times: len(times) == 10 and times[0] < week[0])


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
