"""`pocketmq group redeliver` with unmodified members: what they lost comes back once, to those that want it.

What each member processed is counted here, outside the broker; the books must say the same.
"""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count

import pytest

from pocketmq.admin import Admin
from pocketmq.books.origins import REDELIVERED
from pocketmq.client.errors import NoRoute
from pocketmq.model.balance import Balance
from tests.interop import sdks
from tests.interop.conftest import Shared, or_missing
from tests.interop.driver import Session, message
from tests.interop.grpc_places import Ours
from tests.interop.sdks import Sdk
from tests.kit.waiting import until

CLASSIC = ("java-4.9.8", "java-5.5.0", "go", "node")
FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
TAGS = "AB"
SENT = [f"{tag}{number}" for number in range(8) for tag in TAGS]
COPY = REDELIVERED.decode()
_NUMBERS = count(1)


@pytest.fixture(scope="module")
def served() -> Iterator[Ours]:
    with Ours({"isolateKeepTime": "0", "groupGuardGraceTime": "0"}) as running:
        yield running


@pytest.fixture
def group(served: Ours) -> str:
    """A group whose retry topic has a route before its members begin."""
    name = served.group_named(f"lossy{next(_NUMBERS)}")
    served.topic_named(f"%RETRY%{name}", "NORMAL")
    return name


@pytest.fixture
def session(request: pytest.FixtureRequest, shared: Shared) -> Iterator[Session]:
    kind, _, version = request.param.partition("-")
    if version:
        with shared.java(f"{version}-JSON").session() as made:
            yield made
    else:
        yield request.getfixturevalue(f"{kind}_client")


def books(served: Ours, group: str, topic: str) -> Balance:
    async def ask() -> Balance:
        async with Admin(name_server=served.server.namesrv) as admin:
            [told] = (await admin.balances.of_group(group, topic)).values()
            return told[0]

    return asyncio.run(ask())


def route(served: Ours, topic: str) -> bool:
    async def ask() -> bool:
        async with Admin(name_server=served.server.namesrv) as admin:
            return bool((await admin.topics.route(topic)).brokers)

    return asyncio.run(ask())


def numbers(found: Balance) -> dict[str, int]:
    assert found.difference == 0
    return {state.value: number for state, number in found.counts.items() if number}


def redeliver(served: Ours, group: str) -> "subprocess.CompletedProcess[str]":
    words = ["group", "redeliver", group, "--lost", "--yes", "--json", "-n", served.server.namesrv]
    return subprocess.run(
        [sys.executable, "-m", "pocketmq.cli", *words], capture_output=True, text=True, check=False
    )


def given(done: "subprocess.CompletedProcess[str]") -> dict[str, int]:
    assert done.returncode == 0, done
    [row] = json.loads(done.stdout)
    return {key: row[key] for key in ("given", "left", "unwanted", "deleted")}


def told(count: int) -> dict[str, int]:
    return {"given": count, "left": 0, "unwanted": 0, "deleted": 0}


def lose(served: Ours, group: str, topic: str) -> int:
    """Wait until the group has moved past all messages; return how many it lost."""

    def passed() -> int:
        found = numbers(books(served, group, topic))
        return found.get("consumed", 0) + found.get("lost", 0)

    until(lambda: passed() == len(SENT), "all are consumed or lost", within_s=120)
    lost = numbers(books(served, group, topic)).get("lost", 0)
    assert lost > 0
    return lost


def check(served: Ours, group: str, topic: str, lost: int, texts: Callable[[], list[str]]) -> None:
    """All are processed, each lost one was given once; nothing was stored for other groups."""
    until(lambda: set(texts()) == set(SENT), "all are processed", within_s=120)
    expected = {"redelivered": lost}
    if lost < len(SENT):
        expected["consumed"] = len(SENT) - lost
    until(lambda: numbers(books(served, group, topic)) == expected, f"{expected}", within_s=120)
    assert served.count(topic) == len(SENT)
    assert given(redeliver(served, group)) == told(0)


@pytest.mark.parametrize("session", CLASSIC, indirect=True)
def test_isolated_members_get_back_what_each_wanted(
    served: Ours, session: Session, group: str
) -> None:
    """They differ in mode compatible, where it is refused; isolated, each gets its own."""
    topic = served.topic("NORMAL")
    namesrv = served.server.namesrv
    for each in (topic, f"%RETRY%{group}"):
        # The Go client asks once.
        until(partial(route, served, each), "its route", ignoring=NoRoute)
    both = [
        session.push_consumer(namesrv, group, {topic: tag}, settings=FIRST, name=f"{group}-{tag}")
        for tag in TAGS
    ]
    consumers = served.server.running.parts.members.consumers
    until(lambda: (at := consumers.get(group)) and len(at.channels) == 2, "both are members")
    session.producer(namesrv, f"{group}-p").send(
        *(message(topic, each, tags=each[0]) for each in SENT)
    )
    lost = lose(served, group, topic)
    refused = redeliver(served, group)
    assert refused.returncode != 0
    assert f"pocketmq group mode {group} isolate" in refused.stderr
    served.group_named(group, attributes={"group.mode": "isolate"})
    assert given(redeliver(served, group)) == told(lost)

    def texts() -> list[str]:
        return [each.text for member in both for each in member.received]

    check(served, group, topic, lost, texts)
    # A queue that two members read while it moves is processed twice, or passed over by one: what was given
    # back is not.
    copies = [each.text for member in both for each in member.received if COPY in each.properties]
    assert (len(copies), len(set(copies))) == (lost, lost)
    for member, tag in zip(both, TAGS, strict=True):
        assert {each.text[0] for each in member.received} == {tag}
    other = session.push_consumer(namesrv, f"{group}-other", topic, settings=FIRST)
    assert sorted(each.text for each in other.wait(len(SENT))) == sorted(SENT)


@pytest.mark.parametrize("name", ["java", "python"])
def test_members_over_grpc_get_lost_ones_back_once_they_agree(
    served: Ours, shared: Shared, group: str, name: str
) -> None:
    """A receive takes its own tag of a queue, and passes what others want."""
    topic = served.topic("NORMAL")
    driver = or_missing(partial(sdks.start, name, shared.folder))
    with ExitStack() as leave:
        leave.callback(driver.close)
        texts: list[str] = []
        with Sdk(driver, served.grpc) as differ:
            both = [differ.push(group, {topic: tag}) for tag in TAGS]
            for member in both:
                member.until_started()
            differ.producer(topic).send(
                *({"topic": topic, "body": each, "tag": each[0]} for each in SENT)
            )
            lost = lose(served, group, topic)
            refused = redeliver(served, group)
            assert (refused.returncode != 0, "differently" in refused.stderr) == (True, True)
            texts += [text for member in both for text, _ in member.seen]
        consumers = served.server.running.parts.members.consumers
        until(lambda: not ((at := consumers.get(group)) and at.channels), "both have left")
        sdk = leave.enter_context(Sdk(driver, served.grpc))
        agreed = [sdk.push(group, {topic: "A || B"}) for _ in TAGS]
        for member in agreed:
            member.until_started()
        assert given(redeliver(served, group)) == told(lost)
        check(
            served,
            group,
            topic,
            lost,
            lambda: texts + [text for member in agreed for text, _ in member.seen],
        )
        seen = texts + [text for member in agreed for text, _ in member.seen]
        assert Counter(seen) == Counter(SENT)
