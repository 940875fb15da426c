"""Stage: what the browser tests look at: one broker with its console, official members, one browser.

The group of experiment E3 is set up first and left alone, so that its queues move on (after 15 s of long
polling) while other tests run.
"""

import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from pocketmq.console.time.history import SeriesKind
from pocketmq.console.time.history_file import kept_history
from tests.console.browser import Browser
from tests.interop import driver as drivers
from tests.interop.asking import make_topic_at
from tests.interop.brokers import PocketBroker
from tests.interop.conftest import or_missing
from tests.interop.driver import PushConsumer, Sent, Session
from tests.interop.test_group_experiments import Group, eight, make_last, send

TOPIC, GROUP = "articles", "reviewers"
# Delays as RocketMQ has them: the other tests' brokers shorten them.
CONFIG = {
    "consolePort": 0,
    "groupGuardGraceTime": 1_000,
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
}
# No server listens at port 1.
RULES = f'''
[[alarm]]
name = "members differ"
group = "{GROUP[:6]}*"
symptoms = ["GROUP_DIFFERS"]
url = "http://127.0.0.1:1/hook"

[[alarm]]
name = "no reader"
group = "unread-*"
lag = 10_000
waiting_s = 600
members = 1
for_s = 60
url = "http://127.0.0.1:1/hook"
'''
PICTURES = Path(__file__).parents[2] / "docs" / "screenshots"


@dataclass(frozen=True)
class Stage:
    """console: its address; members: an official Java client."""

    broker: PocketBroker
    console: str
    members: Session


@dataclass(frozen=True)
class Mixed:
    """A group as in E3: A asks for tagA, B, the last one, for tagB; sent: B0 to B7."""

    topic: str
    name: str
    group: Group
    first: PushConsumer
    second: PushConsumer
    sent: list[Sent]


def console_of(broker: PocketBroker) -> str:
    words = broker.process.wait_for_line("ready").split()
    return next(word.partition("=")[2] for word in words if word.startswith("console="))


def remember_a_week(folder: Path) -> None:
    """Figures of the last seven days up to three hours ago, as an earlier run of the console kept them."""
    now_ms = time.time_ns() // 1_000_000
    with kept_history(str(folder), 3_000) as history:
        for minutes in range(7 * 24 * 60, 3 * 60, -30):
            at_ms = now_ms - minutes * 60_000
            day = math.sin(at_ms / 86_400_000 * 2 * math.pi)
            busy = {"in": 400 + 300 * day, "out": 390 + 280 * day}
            late = max(0.0, 5_000 * day - 3_000)
            history.add(
                at_ms,
                {
                    SeriesKind.CLUSTER: {"cluster": {**busy, "lag": late, "latency": late * 9}},
                    SeriesKind.GROUPS: {
                        GROUP: {"lag": late, "out": busy["out"], "latency": late * 9}
                    },
                },
            )


def make_topic(broker: PocketBroker, topic: str, queues: int = 4) -> None:
    make_topic_at(broker.address, topic, queues)


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Skipped with a reason where Chromium or Java is missing; required where CI=true."""
    or_missing(Browser.check)
    folder = tmp_path_factory.mktemp("console")
    with ExitStack() as leave:
        remember_a_week(folder / "console")
        rules = folder / "alarms.toml"
        rules.write_text(RULES)
        config = {**CONFIG, "consoleFolder": folder / "console", "consoleAlarmFile": rules}
        broker = PocketBroker(folder / "broker", config=config)
        leave.enter_context(broker)
        java = or_missing(lambda: drivers.java_client("4.9.8", folder))
        leave.callback(java.close)
        members = leave.enter_context(java.session())
        yield Stage(broker, console_of(broker), members)


@pytest.fixture(scope="session")
def long_mixed(stage: Stage) -> Mixed:
    return mix(stage, TOPIC, GROUP)


@pytest.fixture
def mixed(long_mixed: Mixed) -> Mixed:
    """The group that every test may look at; none changes it.

    Its members heartbeat when they are told to only, and a broker forgets those of which it has heard
    nothing for two minutes.
    """
    long_mixed.first.heartbeat()
    long_mixed.second.heartbeat()
    make_last(long_mixed.group, long_mixed.second, TOPIC, "tagB")
    return long_mixed


@pytest.fixture(scope="module")
def leaving(stage: Stage) -> Mixed:
    """Another one, whose last subscriber a test lets go."""
    return mix(stage, "leavers", "leavers")


def mix(stage: Stage, topic: str, group: str) -> Mixed:
    """E3 up to the messages."""
    make_topic(stage.broker, topic)
    both = Group(stage.broker, stage.members, group)
    producer = both.producer()
    first = both.join("A", topic, "tagA")
    both.wait_until_shown({topic: {"tagA"}})
    second = both.join("B", topic, "tagB")
    both.wait_until_shared((first, {0, 1}), (second, {2, 3}))
    make_last(both, second, topic, "tagB")
    sent = send(producer, topic, "tagB", eight("B"))
    second.wait(4)
    return Mixed(topic, group, both, first, second, sent)


@pytest.fixture(scope="session")
def one_browser(stage: Stage) -> Iterator[Browser]:
    browser = Browser(stage.console)
    yield browser
    browser.close()


@pytest.fixture
def browser(one_browser: Browser) -> Iterator[Browser]:
    """The browser in English and light; the page must not have complained when the test is over."""
    one_browser.driver.get(f"{one_browser.base}/favicon.ico")
    one_browser.driver.delete_all_cookies()
    one_browser.errors()
    yield one_browser
    assert one_browser.errors() == []


@pytest.fixture(scope="session")
def screens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each page is kept as a picture, to be looked at: POCKETMQ_SCREENS, else pytest's own folder."""
    kept = os.environ.get("POCKETMQ_SCREENS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("screens")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def picture_folder(tmp_path: Path) -> Path:
    """docs/screenshots when POCKETMQ_SCREENSHOTS=yes, else a folder that goes away."""
    folder = PICTURES if os.environ.get("POCKETMQ_SCREENSHOTS") == "yes" else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    return folder
