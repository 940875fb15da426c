"""Users of the brokers at the console: what each kind may ask for, attacks on the login, the audit page."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pocketmq.admin import Admin, GroupConfig
from pocketmq.console.api.routes import ROUTES
from pocketmq.console.users.sight import UserRole, sight_of
from pocketmq.remoting.credentials import Credentials
from tests.console.console_peer import Site, User, browser, site
from tests.kit.waiting import until_async

RECORDED = Path(__file__).with_name("users.txt")
SECRET, BOSS = "secret-words", "boss"
USERS: dict[str, list[tuple[str, list[str]]]] = {
    "nothing": [],
    "viewer": [(f"{kind}:*", ["Get", "List"]) for kind in ("Cluster", "Topic", "Group")],
    "owner": [("Topic:mine", ["All"]), ("Group:mine", ["All"])],
}
SETTINGS: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": json.dumps({"username": BOSS, "password": SECRET}),
}


def lines(rights: list[tuple[str, list[str]]], decision: str = "Allow") -> list[dict[str, Any]]:
    entries = [
        {"resource": name, "actions": actions, "decision": decision} for name, actions in rights
    ]
    return [{"policyType": "Custom", "entries": entries}]


@dataclass(frozen=True)
class Guarded:
    """A site with users; admin signs as a super user at the broker of this address."""

    site: Site
    admin: Admin
    address: str


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    """Two topics, two groups, and users with rights in one of each."""
    own = Credentials(BOSS, SECRET)
    async with (
        site(tmp_path, credentials=own, **SETTINGS) as running,
        Admin(name_server=running.name_server, credentials=own) as admin,
    ):
        address = (await admin.site.masters())[0].address
        for name, rights in USERS.items():
            await admin.users.create(address, name, {"password": SECRET})
            if rights:
                await admin.users.put_policies(address, name, lines(rights))
        for name in ("mine", "yours"):
            await admin.topics.create(name, queues=1)
            await admin.groups.create(GroupConfig(name))
        yield Guarded(running, admin, address)


async def entered(running: Guarded, stack: AsyncExitStack, name: str) -> User:
    user = await stack.enter_async_context(browser(running.site.console))
    await user.open()
    answer = await user.call("POST", "/login", {"user": name, "password": SECRET})
    assert answer.status == 200, answer.json
    user.token = answer.json["csrfToken"]
    return user


@pytest.fixture
async def people(guarded: Guarded) -> AsyncIterator[dict[str, User]]:
    async with AsyncExitStack() as stack:
        yield {name: await entered(guarded, stack, name) for name in (*USERS, BOSS)}


async def walk(user: User) -> dict[str, str]:
    """What each route but those of the login says to a user: yes, or the status of its refusal."""
    found = {}
    for route in ROUTES:
        if route.is_login:
            continue
        path = re.sub(r"{(topic|group)}", "yours", route.path)
        path = re.sub(r"{\w+}", "b", path)
        headers = {"X-CSRF-Token": user.token, "Content-Type": "application/json"}
        content = None if route.method == "GET" else b"{}"
        url = f"/api{path}?topic=yours" if path.startswith("/messages") else f"/api{path}"
        # A live answer has no end.
        async with user.http.stream(route.method, url, content=content, headers=headers) as answer:
            status = answer.status_code
        found[f"{route.method} {route.path}"] = str(status) if status in (401, 403) else "yes"
    return found


async def test_each_route_answers_each_kind_of_user_as_recorded(people: dict[str, User]) -> None:
    """Another's topic and group are asked for; a confirmation asked for is a yes."""
    found = {name: await walk(user) for name, user in people.items()}
    names = (*USERS, BOSS)
    rows = [
        ("", names),
        *((each, [found[name][each] for name in names]) for each in sorted(found[BOSS])),
    ]
    text = "".join(
        f"{route:<45}" + "".join(f"{said:<9}" for said in told).rstrip() + "\n"
        for route, told in rows
    )
    assert text == RECORDED.read_text("utf-8"), text


async def test_user_sees_and_does_what_its_policies_allow(
    guarded: Guarded, people: dict[str, User]
) -> None:
    owner, viewer, boss = people["owner"], people["viewer"], people[BOSS]
    roles = {name: (await user.open())["role"] for name, user in people.items()}
    assert roles == {"nothing": "look", "viewer": "look", "owner": "operate", BOSS: "administer"}
    listed = [each["topic"] for each in (await owner.read("/topics"))["items"]]
    assert listed == ["mine"]
    assert [each["group"] for each in (await owner.read("/groups"))["items"]] == ["mine"]
    seen = await owner.read("/overview")
    assert (seen["brokers"], seen["counts"]["topics"], seen["counts"]["groups"]) == ([], 1, 1)
    everything = await viewer.read("/overview")
    assert everything["counts"]["topics"] == 2
    found = await owner.read("/search", q="yours")
    assert (found["topics"], found["groups"]) == ([], [])

    await owner.do("PUT", "/topics/mine", {"readQueues": 2, "writeQueues": 2})
    refused = await owner.call("PUT", "/topics/other", {"readQueues": 2, "writeQueues": 2})
    assert (refused.status, refused.json["code"]) == (403, "FORBIDDEN")
    assert "User:owner has no permission to access Topic:other" in refused.json["error"]
    refused = await viewer.call("PUT", "/topics/mine", {"readQueues": 3, "writeQueues": 3})
    assert (refused.status, refused.json["code"]) == (403, "READ_ONLY")
    # Name servers know no users: what they keep is for super users.
    for method, path, body in (
        ("DELETE", "/groups/yours", None),
        ("DELETE", "/topics/yours", None),
        ("POST", "/groups/yours/skip", {"topic": "yours"}),
        ("PUT", "/brokers/b/settings", {"settings": {"traceOn": "true"}}),
        ("PUT", "/brokers/b/writable", {"writable": False}),
        ("POST", "/topics/yours/messages", {"body": "x"}),
    ):
        reply = await owner.call(method, path, body)
        if reply.status == 202:
            sent = {"X-Confirm": reply.json["confirm"]}
            reply = await owner.call(method, path, body, sent)
        assert reply.status in (403, 404), (path, reply.json)
    kv = {"namespace": "n", "key": "k", "value": "v"}
    assert (await owner.call("PUT", "/kv", kv)).status == 403
    assert (await owner.get("/audit")).status == 403

    rows = (await boss.read("/audit", user="owner"))["items"]
    acts = [(each["act"], each["resources"], each["outcome"]) for each in rows]
    made = "UPDATE_AND_CREATE_TOPIC"
    assert (made, {"topic": ["mine"]}, "done") in acts
    assert {each["user"] for each in rows} == {"owner"}
    assert any(each["outcome"] == "refused" for each in rows)
    page = await boss.read("/audit", act="create_topic", resource="MINE", size=1)
    assert [each["user"] for each in page["items"]] == ["owner"]
    rest = await boss.read("/audit", act="create_topic", resource="MINE", cursor=page["cursor"])
    assert [each["user"] for each in rest["items"]] == [BOSS]
    later = rows[0]["time"] + 1
    assert (await boss.read("/audit", user="owner", begin=later))["items"] == []
    assert (await boss.get("/audit", cursor="x")).status == 400


async def test_policies_and_users_of_the_access_page(people: dict[str, User]) -> None:
    (broker,) = (await people[BOSS].read("/acl"))["brokers"]
    users = {each["user"]: each for each in broker["users"]}
    assert users[BOSS]["admin"]
    assert not users["owner"]["admin"]
    assert [each["resource"] for each in users["owner"]["lines"]] == ["Topic:mine", "Group:mine"]
    assert SECRET not in json.dumps(broker)
    rows = (await people[BOSS].read("/acl/b/owner"))["items"]
    may = {(each["kind"], each["name"]): each["subscribe"] for each in rows}
    assert may["TOPIC", "mine"]
    assert may["GROUP", "mine"]
    assert not may["TOPIC", "yours"]
    assert not may["GROUP", "yours"]
    # Others may not read users: they are told why.
    (broker,) = (await people["owner"].read("/acl"))["brokers"]
    assert broker["error"]
    assert broker["users"] is None


async def test_changed_policies_and_users_hold_in_open_sessions(
    guarded: Guarded, people: dict[str, User]
) -> None:
    admin, address = guarded.admin, guarded.address
    owner, viewer = people["owner"], people["viewer"]
    await owner.do("PUT", "/topics/mine", {"readQueues": 1, "writeQueues": 1})
    await admin.users.delete_policy(address, "owner", "Custom", "Topic:mine")
    # The broker decides at once, the lists follow.
    changed = await owner.call("DELETE", "/topics/mine")
    confirm = {"X-Confirm": changed.json.get("confirm", "")}
    assert (await owner.call("DELETE", "/topics/mine", headers=confirm)).status == 403
    assert "mine" in await guarded.admin.topics.names()

    async def unseen() -> bool:
        return not (await owner.read("/topics"))["items"]

    await until_async(unseen)
    # One who gets a right sees it without another log-in.
    await admin.users.put_policies(address, "owner", lines([("Topic:yours", ["Get"])]))

    async def seen() -> bool:
        listed = [each["topic"] for each in (await owner.read("/topics"))["items"]]
        return listed == ["yours"]

    await until_async(seen)
    await admin.users.update(address, "owner", {"userStatus": "disable"})
    await admin.users.update(address, "viewer", {"password": "another-word"})

    async def out() -> bool:
        answers = [(await each.get("/topics")).status for each in (owner, viewer)]
        return answers == [401, 401]

    await until_async(out)
    assert (await owner.open())["user"] is None
    answer = await owner.call("POST", "/login", {"user": "owner", "password": SECRET})
    assert answer.status == 401


async def test_live_figures_end_with_the_session(guarded: Guarded, people: dict[str, User]) -> None:
    viewer = people["viewer"]
    async with viewer.http.stream("GET", "/api/live") as answer:
        events = answer.aiter_lines()
        assert (await anext(events)).startswith("event: overview")
        await viewer.call("POST", "/logout")
        rest = [line async for line in events]
    # What was on its way, and the end.
    assert len([line for line in rest if line.startswith("event:")]) <= 2
    assert (await viewer.get("/overview")).status == 401


async def test_attacks_on_the_login_are_refused(guarded: Guarded, people: dict[str, User]) -> None:
    """A cookie from before, after, forged; other methods' paths; a token of another session."""
    owner = people["owner"]
    port = owner.http.base_url.port
    async with browser(guarded.site.console) as stranger:
        before = await stranger.open()
        [fixed] = stranger.http.cookies.values()
        answer = await stranger.call("POST", "/login", {"user": "owner", "password": SECRET})
        assert answer.status == 200
        [cookie] = stranger.http.cookies.values()
        assert cookie != fixed
        assert answer.json["csrfToken"] != before["csrfToken"]
        # Who knows the cookie of before the login is a stranger still.
        stranger.http.cookies.clear()
        headers = {"Cookie": f"pocketmq_{port}={fixed}"}
        assert (await stranger.call("GET", "/topics", headers=headers)).status == 401
        # Another name in the cookie makes it no session.
        body, _, mac = cookie.partition(".")
        forged = json.loads(bytes.fromhex(body)) | {"user": BOSS}
        for made in (json.dumps(forged).encode().hex() + "." + mac, body + ".", body):
            headers = {"Cookie": f"pocketmq_{port}={made}"}
            assert (await stranger.call("GET", "/topics", headers=headers)).status == 401
        # A token of another session, and none.
        headers = {"Cookie": f"pocketmq_{port}={cookie}"}
        for token in (owner.token, before["csrfToken"], ""):
            sent = headers | {"X-CSRF-Token": token}
            reply = await stranger.call("DELETE", "/topics/mine", headers=sent)
            assert (reply.status, reply.json["code"]) == (403, "CSRF")
        # After the log-out the cookie opens nothing.
        sent = headers | {"X-CSRF-Token": answer.json["csrfToken"]}
        assert (await stranger.call("POST", "/logout", headers=sent)).status == 200
        stranger.http.cookies.clear()
        assert (await stranger.call("GET", "/topics", headers=headers)).status == 401
    for path in (
        *("/api/topics/%79ours", "/api/x/../topics/yours", "/api//topics/yours"),
        *("/api/topics/yours/", "/API/topics/yours", "/api/topics/./yours", "/api/topics/yours%3F"),
        *("/api/topics/%2e%2e/topics/yours", "/api/groups/yours", "/api/groups/%79ours/balance"),
    ):
        page = await owner.http.get(path)
        assert page.status_code in (307, 403, 404), path
        assert b"maxOffset" not in page.content, path
    # /metrics has no part for one user.
    assert (await owner.http.get("/metrics")).status_code == 403
    assert (await owner.http.get("/metrics", auth=("viewer", SECRET))).status_code == 200
    assert (await owner.http.get("/metrics", auth=("viewer", "no"))).status_code == 401


async def test_wrong_passwords_are_counted_even_those_at_the_same_time(guarded: Guarded) -> None:
    async with browser(guarded.site.console) as user:
        await user.open()
        async with asyncio.TaskGroup() as tasks:
            tries = [
                tasks.create_task(
                    user.call("POST", "/login", {"user": BOSS, "password": str(each)})
                )
                for each in range(12)
            ]
        found = sorted(each.result().status for each in tries)
        assert found == [401] * 5 + [429] * 7
        right = await user.call("POST", "/login", {"user": BOSS, "password": SECRET})
        assert (right.status, "Retry-After".lower() in right.headers) == (429, True)


async def test_console_without_users_at_its_brokers_lets_no_name_in(tmp_path: Path) -> None:
    """A broker that checks nothing accepts each signature: it must not make a log-in of it."""
    async with site(tmp_path, console={"broker_users": True}) as running:
        answer = await running.user.call("POST", "/login", {"user": BOSS, "password": SECRET})
        assert (answer.status, answer.json["code"]) == (403, "FORBIDDEN")
        assert "no broker of this cluster checks users" in answer.json["error"]
        assert (await running.user.get("/topics")).status == 401


def test_sight_follows_lines_from_the_special_to_the_general() -> None:
    def sees(rights: list[tuple[str, list[str]]], *denied: tuple[str, list[str]]) -> Any:
        [held] = lines(rights) if rights else [{"policyType": "Custom", "entries": []}]
        held["entries"] += lines(list(denied), "Deny")[0]["entries"]
        return sight_of(False, [("DefaultCluster", [held])])

    looks = ("Cluster:*", ["Get"])
    sight = sees([looks], ("Topic:secret", ["All"]), ("Group:old", ["All"]))
    assert sight.cluster
    assert sight.role is UserRole.LOOK
    assert sight.topic("T")
    assert not sight.topic("secret")
    assert sight.group("g")
    assert not sight.group("old")
    assert not sight.topic("%RETRY%old")
    sight = sees([("Topic:order*", ["Sub"]), ("Group:g", ["Sub"])])
    assert not sight.cluster
    assert sight.topic("orders")
    assert not sight.topic("T")
    assert sight.topic("%DLQ%g")
    # All brokers must show it; a line for some addresses shows nothing.
    two = sight_of(False, [("c", [*lines([looks])]), ("c", [])])
    assert not two.cluster
    assert not two.topic("T")
    from_there = [{**lines([looks])[0]["entries"][0], "sourceIps": ["10.0.0.0/8"]}]
    assert not sight_of(False, [("c", [{"policyType": "Custom", "entries": from_there}])]).cluster
    assert sight_of(False, []).cluster is False
    assert sight_of(True, []).topic("x")
