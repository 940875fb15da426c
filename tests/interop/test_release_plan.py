"""`pocketmq subs plan` against what happens: the articles' E2 and E3 as releases, with official clients.

What the plan names is lost, delayed or dropped; what it does not name is consumed; in the order that it
advises nothing is lost. Brokers: ours, and with --reference the real one.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.admin import Admin
from pocketmq.admin.views.group import group_view
from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic
from tests.interop.driver import Session
from tests.interop.test_group_experiments import Group, eight, make_last, send, texts
from tests.kit.waiting import until


@pytest.fixture
def members(java_498: Session) -> Session:
    return java_498


def planned(
    broker: RunningBroker, group: str, asked: dict[str, str], folder: Path
) -> tuple[int, set[tuple[str, str, str]], list[str]]:
    """Exit code, (effect, topic, messages), steps."""
    first = "CONSUME_FROM_FIRST_OFFSET"
    file = folder / "subs.json"
    file.write_text(json.dumps([{"group": group, "from": first, "subscriptions": asked}]))
    words = ["subs", "plan", str(file), "-n", broker.namesrv, "--json"]
    ran = subprocess.run([sys.executable, "-m", "pocketmq.cli", *words], capture_output=True)
    [found] = json.loads(ran.stdout)
    rows = {(each["effect"], each["topic"], each["messages"]) for each in found["consequences"]}
    return ran.returncode, rows, found["steps"]


def until_known(broker: RunningBroker, group: str) -> None:
    """Until the site tells what each member asks: the plan's first look."""

    async def known() -> bool:
        async with Admin(name_server=broker.namesrv) as admin:
            view = await group_view(admin, group)
            return bool(view.members) and view.known == len(view.members)

    until(lambda: asyncio.run(known()), "each member has said what it asks")


def test_new_tags_lose_what_the_plan_says_none_in_its_order(
    broker: RunningBroker,
    members: Session,
    make_topic: MakeTopic,
    topic: str,
    group: str,
    tmp_path: Path,
) -> None:
    """E3 as a release: kept is in both versions, old only before, new only after."""
    make_topic(broker, topic)
    both = Group(broker, members, group)
    producer = both.producer()
    old = both.join("A", topic, "kept || old")
    both.wait_until_shared((old, {0, 1, 2, 3}))
    until_known(broker, group)
    code, effects, steps = planned(broker, group, {topic: "kept || new"}, tmp_path)
    assert code == 1
    assert effects == {("lost", topic, "new"), ("dropped", topic, "old")}
    assert steps[-1] == f"only then send new to {topic}"

    # Rolled out while new ones are sent already. What is kept comes last: it moves the offsets on.
    new = both.join("B", topic, "kept || new")
    both.wait_until_shared((old, {0, 1}), (new, {2, 3}))
    make_last(both, new, topic, "kept || new")
    for tag, bodies in (("new", eight("N")), ("old", eight("O")), ("kept", eight("K"))):
        send(producer, topic, tag, bodies)
    old.wait(4)
    new.wait(8)
    old.close()
    both.wait_until_shared((new, {0, 1, 2, 3}))
    send(producer, topic, "kept", ["behind0", "behind1"])
    new.wait(10)
    assert texts(old) == ["K0", "K1", "K4", "K5"]
    expected = ["K2", "K3", "K6", "K7", "N2", "N3", "N6", "N7", "behind0", "behind1"]
    assert texts(new) == expected

    # Messages of the next version are there already: without an old member beside it all are consumed.
    send(producer, topic, "next", ["early"])
    _, effects, steps = planned(broker, group, {topic: "next"}, tmp_path)
    assert effects == {("lost", topic, "next"), ("dropped", topic, "kept || new")}
    assert steps[-1] == "stop every old member, then start the new ones"
    new.close()
    send(producer, topic, "next", eight("X"))
    last = both.join("C", topic, "next")
    until(lambda: set(texts(last)) >= set(eight("X")), "all of the next version")


def test_a_new_topic_waits_until_the_old_members_left(
    broker: RunningBroker,
    members: Session,
    make_topic: MakeTopic,
    topic: str,
    group: str,
    tmp_path: Path,
) -> None:
    """E2 as a release: what half of the queues hold comes late, and is not lost."""
    before, after = f"{topic}_before", f"{topic}_after"
    for name in (before, after):
        make_topic(broker, name)
    both = Group(broker, members, group)
    producer = both.producer()
    old = both.join("A", before, "*")
    both.wait_until_shared((old, {0, 1, 2, 3}))
    until_known(broker, group)
    code, effects, _ = planned(broker, group, {after: "*"}, tmp_path)
    assert code == 1
    assert effects == {
        ("delayed", before, "all"),
        ("dropped", before, "everything"),
        ("delayed", after, "all"),
    }
    new = both.join("B", after, "*")
    both.wait_until_shared((old, {0, 1}), (new, {2, 3}))
    new.heartbeat()
    both.wait_until_shown({after: set()})
    send(producer, before, None, eight("b"))
    send(producer, after, None, eight("a"))
    new.wait(4)
    assert texts(new) == ["a2", "a3", "a6", "a7"]
    old.close()
    new.wait(8)
    assert (texts(old), texts(new)) == ([], eight("a"))
