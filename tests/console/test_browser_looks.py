"""Every page of the console in both languages and both colours: sentences, names, headings, contrast."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.support.ui import Select

from pocketmq.console import pages
from pocketmq.console.languages import spoken
from tests.console.browser import Browser
from tests.console.conftest import GROUP, TOPIC, Mixed, Stage, console_of, make_topic
from tests.console.looks import (
    ACCESSIBILITY,
    ALL_RULES,
    AXE,
    COLOURS,
    CONTRAST,
    COVERING,
    SCROLLING,
    SENTENCES,
    TOO_WIDE,
)
from tests.interop import toolchain
from tests.interop.brokers import PocketBroker
from tests.interop.conftest import or_missing

UNITS = {"B", "KiB", "MiB", "GiB", "TiB", "ms", "s", "min", "h", "d"}
# Names of things stand in sentences of every language.
NAMES = {
    TOPIC,
    GROUP,
    "leavers",
    "accounts",
    "payments",
    "payers",
    "by",
    "keys",
    "DefaultCluster",
    "broker",
}
LONG = "Orders_of_a_department_with_a_name_that_nobody_will_ever_type_" + "x" * 60
DIALOGS = [
    ("/topics", "topic.create"),
    (f"/topic?name={TOPIC}", "send"),
    (f"/topic?name={TOPIC}", "change"),
    ("/groups", "group.create"),
    (f"/group?name={GROUP}", "mode"),
    (f"/group?name={GROUP}", "reset"),
    (f"/group?name={GROUP}", "running"),
    ("/name-server", "kv.add"),
    # Questions, in the words of the server.
    (f"/group?name={GROUP}", "delete"),
    (f"/topic?name={TOPIC}", "delete"),
]


def addresses(mixed: Mixed) -> list[str]:
    return [
        *(path for path, _, _ in pages.MENU),
        "/broker?name=broker-a",
        "/broker?name=broker-a&tab=settings",
        *(f"/topic?name={TOPIC}&tab={tab}" for tab in ("status", "consumers", "route", "config")),
        *(f"/group?name={GROUP}&tab={tab}" for tab in ("members", "queues", "config")),
        f"/balance?group={GROUP}",
        f"/balance?group={GROUP}&state=lost",
        f"/messages?topic={TOPIC}",
        "/messages?by=queue",
        f"/message?id={mixed.sent[0].msg_id}&topic={TOPIC}",
        f"/trace?id={mixed.sent[0].msg_id}",
        f"/topic?name={TOPIC}&tab=live",
        f"/messages?by=content&topic={TOPIC}&tag=tagB",
        f"/search?q={GROUP}",
        "/login",
        "/nowhere",
    ]


def keep(browser: Browser, screens: Path, language: str, address: str) -> None:
    """Keep a page as pictures, named by its address without what a message is called."""
    name = re.sub(r"id=\w+", "id", address).strip("/") or "overview"
    browser.pictures(screens, f"{re.sub(r'[^A-Za-z0-9]+', '-', name)[:60]}-{language}")


def choose(browser: Browser, name: str, value: str) -> None:
    """Choose a language or colours in the bar; a language draws the page anew."""
    browser.run("window.old = true")
    Select(browser.find(f"#{name}")).select_by_value(value)
    if name == "language":
        browser.run_until("return !window.old")
        browser.settle()


def forgive_the_missing_page(browser: Browser) -> None:
    """Chromium logs the 404 of /nowhere, and nothing else."""
    assert [each for each in browser.errors() if "/nowhere" not in each] == []


def foreign_words(text: str, allowed: set[str]) -> set[str]:
    """Latin words of a text that no sentence of the language holds."""
    return {word for word in re.findall(r"[A-Za-z]{2,}", text) if word not in allowed}


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core."""
    return or_missing(toolchain.axe_core).read_text(encoding="utf-8")


def violations(browser: Browser, axe: str, rules: list[str]) -> set[str]:
    """What axe-core finds on the page that is open, with its address."""
    browser.run(axe)
    return {f"{browser.driver.current_url}: {each}" for each in browser.run(AXE, rules)}


# Sentences that the server said in English and nothing stands for.
ENGLISH = """
return [...document.querySelectorAll('[lang=en]:not(html)')]
  .filter((each) => each.checkVisibility()).map((each) => each.innerText);
"""
SPOKEN = """
const place = new URL('spoken.js', document.querySelector('script[type=module]').src);
return import(place).then(({spoken}) => arguments[0].map((each) => spoken(each).outerHTML));
"""


def test_what_the_server_says_is_read_in_chinese(browser: Browser) -> None:
    """Whole, with its figures; sentences in sentences, too. What is unknown stays English, and marked."""
    browser.open("/")
    choose(browser, "language", "zh")
    lag, differ, unknown = browser.run(
        SPOKEN,
        [
            "12,500 messages behind, 15.0 in/s, 0.5 out/s: never empty at this rate",
            "members ask for different things: 1 x [a]; 2 x nothing; 2 queues lose messages",
            "Errno 111 <b>",
        ],
    )
    own, value = spoken("zh"), '<span translate="no">{}</span>'.format
    words = own["{count} behind, {in} in/s, {out} out/s: never empty at this rate"]
    count = own["{count} messages"].format(count=value("12,500"))
    said = words.format(**{"count": count, "in": value("15.0"), "out": value("0.5")})
    assert lag == f"<span>{said}</span>"
    loses = own["{queues} lose messages"].format(
        queues=own["{count} queues"].format(count=value("2"))
    )
    camps = f"{value('1 x [a]')}; {own['{count} x nothing'].format(count=value('2'))}; {loses}"
    assert (
        differ
        == f"<span>{own['members ask for different things: {camps}'].format(camps=camps)}</span>"
    )
    assert unknown == '<span lang="en" translate="no">Errno 111 &lt;b&gt;</span>'


@pytest.fixture
def chinese_words() -> set[str]:
    said = " ".join({**pages.sentences("zh"), **spoken("zh")}.values())
    return set(re.findall(r"[A-Za-z]+", said)) | UNITS | NAMES


def test_pages_and_dialogs_are_translated_and_legible_in_dark(
    browser: Browser,
    mixed: Mixed,
    chinese_words: set[str],
    screens: Path,
    picture_folder: Path,
    axe: str,
) -> None:
    """No sentence bypasses the tables; contrast and names hold in the dark, in Chinese."""
    browser.open("/")
    choose(browser, "theme", "dark")
    choose(browser, "language", "zh")
    assert browser.run("return document.documentElement.lang") == "zh"
    browser.wait_for("总览")
    ground = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", ground)[:3])) < 150
    browser.picture(picture_folder / "overview-dark-zh.png")
    found: set[str] = set()
    for address in addresses(mixed):
        browser.open(address)
        is_lost = pages.sentences("zh")["lost.title"] in browser.text
        assert is_lost == (address == "/nowhere"), address
        bypassing = {
            word for text in browser.run(SENTENCES) for word in foreign_words(text, chinese_words)
        }
        assert bypassing == set(), address
        assert browser.run(ENGLISH) == [], address
        assert browser.run(ACCESSIBILITY) == [], address
        assert browser.run(CONTRAST) == [], address
        found |= violations(browser, axe, COLOURS)
        keep(browser, screens, "zh", address)
    for address, key in DIALOGS:
        browser.open(address)
        browser.click(pages.sentences("zh")[key])
        browser.find("dialog[open]")
        bypassing = {
            word for text in browser.run(SENTENCES) for word in foreign_words(text, chinese_words)
        }
        assert bypassing == set(), (address, key)
        assert browser.run(ENGLISH) == [], (address, key)
        assert browser.run(ACCESSIBILITY) == [], (address, key)
        assert browser.run(CONTRAST) == [], (address, key)
        found |= violations(browser, axe, ALL_RULES)
    assert found == set()
    forgive_the_missing_page(browser)


def test_every_page_has_names_headings_and_contrast_in_the_light(
    browser: Browser, stage: Stage, mixed: Mixed, screens: Path, axe: str
) -> None:
    """English, light; on a narrow window nothing is wider than the page, on a telephone no table either."""
    make_topic(stage.broker, LONG)
    found: set[str] = set()
    for address in [*addresses(mixed), f"/topic?name={LONG}"]:
        browser.open(address)
        assert browser.run("return document.documentElement.lang") == "en"
        assert browser.run(ACCESSIBILITY) == [], address
        assert browser.run(CONTRAST) == [], address
        found |= violations(browser, axe, ALL_RULES)
        keep(browser, screens, "en", address)
        try:
            for width in (520, 375):
                screen = {"width": width, "height": 812, "deviceScaleFactor": 1, "mobile": True}
                browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
                assert browser.run(TOO_WIDE) == [], (address, width)
            assert browser.run(SCROLLING) == [], address
            assert browser.run(COVERING) == [], address
            assert browser.run(ACCESSIBILITY) == [], address
        finally:
            browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert found == set()
    forgive_the_missing_page(browser)


def test_a_long_name_hides_no_column(browser: Browser, stage: Stage) -> None:
    make_topic(stage.broker, LONG)
    browser.open("/topics")
    browser.wait_for(LONG)
    hidden = (
        "const [it] = document.querySelectorAll('.table'); return it.scrollWidth - it.clientWidth"
    )
    assert browser.run(hidden) <= 1


def test_a_dialog_says_its_sentence_and_nothing_else(browser: Browser, stage: Stage) -> None:
    """What has no steps shows none, not their number."""
    make_topic(stage.broker, "short_lived")
    browser.open("/topic?name=short_lived")
    browser.click("Delete")
    browser.wait_for("Topic 'short_lived' with 0 messages")
    loose = """
        const nodes = [...document.querySelector('dialog .body').childNodes];
        return nodes.filter((each) => each.nodeType === Node.TEXT_NODE).map((each) => each.data);
    """
    assert browser.run(loose) == []
    browser.dialog("Cancel")


def test_each_page_asks_once_before_its_first_figures(browser: Browser, mixed: Mixed) -> None:
    """What comes first is one request of the page, beside who we are and charts: it is not a chain."""
    asked = """
        return performance.getEntriesByType('resource').map(({name}) => new URL(name).pathname)
          .filter((path) => path.startsWith('/api/') && !['/api/session', '/api/history'].includes(path));
    """
    for address, wanted in {
        "/topics": ["/api/topics"],
        "/groups": ["/api/groups"],
        "/cluster": ["/api/cluster"],
        f"/group?name={GROUP}": [f"/api/groups/{GROUP}"],
        f"/topic?name={TOPIC}": [f"/api/topics/{TOPIC}"],
        "/producers": ["/api/producers"],
        "/delays": ["/api/delays"],
        "/dead-letters": ["/api/dlq"],
    }.items():
        browser.open(address)
        assert sorted(set(browser.run(asked))) == wanted


@pytest.fixture
def guarded(stage: Stage, tmp_path: Path) -> Iterator[str]:
    """A second broker, whose users its console lets in."""
    ann = {"username": "ann", "password": "secret 1"}
    own = {"accessKey": "console", "secretKey": "secret 2"}
    config = {
        "consolePort": 0,
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps(ann),
        "innerClientAuthenticationCredentials": json.dumps(own),
    }
    with PocketBroker(tmp_path / "guarded", config=config) as broker:
        yield console_of(broker)


def test_a_login_hides_all_before_and_returns_to_the_page(
    browser: Browser, guarded: str, chinese_words: set[str], axe: str
) -> None:
    """Wrong password: said in words; right one: the page that was asked for; then out again.

    The pages of users and of the audit trail, which is not empty: in Chinese, with no finding of axe-core.
    """
    browser.driver.get(f"{guarded}/topics?q=x")
    browser.wait_for("Users of the brokers sign in here")
    browser.fill("user", "ann", "main")
    browser.fill("password", "wrong", "main")
    browser.click("Sign in", "main")
    browser.find(".wrong .note")
    assert browser.run(ACCESSIBILITY) == []
    browser.fill("password", "secret 1", "main")
    browser.click("Sign in", "main")
    browser.wait_for("Create a topic", "Nothing matches", "Administers")
    assert browser.driver.current_url == f"{guarded}/topics?q=x"
    choose(browser, "language", "zh")
    zh = pages.sentences("zh")
    for path, expected in (("acl", zh["acl.everything"]), ("audit", "UNREGISTER_CLIENT")):
        browser.driver.get(f"{guarded}/{path}")
        browser.wait_for(expected)
        known = chinese_words | {"ann"}
        words = (foreign_words(each, known) for each in browser.run(SENTENCES))
        assert set().union(*words) == set()
        assert browser.run(ENGLISH) == []
        assert violations(browser, axe, ALL_RULES) == set()
    browser.fill("user", "stranger", "main")
    browser.click(zh["search"], "main")
    browser.wait_for(zh["filter.none"])
    browser.click(zh["logout"].format(user="ann"), ".bar")
    browser.find("#password")
    refused = [each for each in browser.errors() if "401" not in each]
    assert refused == []


def test_an_open_console_is_read_only_and_reports_its_end(
    browser: Browser, stage: Stage, tmp_path: Path
) -> None:
    """Beyond loopback without a login every button that changes something is off, with the reason."""
    config = {"consolePort": 0, "consoleHost": "0.0.0.0"}
    with PocketBroker(tmp_path / "open", config=config) as broker:
        address = console_of(broker).replace("0.0.0.0", "127.0.0.1")
        browser.driver.get(f"{address}/topics")
        browser.wait_for("Read only", "No topic yet")
        buttons = browser.run(
            "return [...document.querySelectorAll('main button')].map((each) => [each.disabled, each.title])"
        )
        assert buttons == [[True, "This console is read-only"]] * 2
        assert browser.errors() == []
    browser.click("Refresh", ".bar")
    browser.wait_for("Lost connection to the console", "Is PocketMQ still running?", "No topic yet")
    assert all("ERR_CONNECTION_REFUSED" in each for each in browser.errors())
