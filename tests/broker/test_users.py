"""A broker with users and policies: who may send which code beside RocketMQ 5.5.0; changes, their file."""

import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.access.users.policy import UserPolicies
from pocketmq.broker.access.users.table import Users, UserTable
from pocketmq.broker.access.users.user import User
from pocketmq.broker.access.users.validator import UserAccess
from pocketmq.broker.broker import Broker
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.requests import PocketRequestCode
from tests.broker.pairs import copied, pair
from tests.broker.serving import Peer, serving
from tests.broker.signing import signed
from tests.broker.test_access import BODIES, put, put_half

OURS = Path(__file__).with_name("users.txt")
REAL = Path(__file__).with_name("users_550.txt")
SECRET = "secret-words"
BOSS = "administrator"
USERS: dict[str, list[tuple[str, list[str]]]] = {
    "nothing": [],
    "member": [("Topic:T", ["Pub", "Sub"]), ("Group:G", ["Sub"])],
    "viewer": [(f"{kind}:*", ["Get", "List"]) for kind in ("Cluster", "Topic", "Group")],
    "owner": [("Topic:T", ["All"]), ("Group:G", ["All"])],
    "everything": [("*", ["All"])],
}
NAMES = ("", *USERS, BOSS)
FIELDS = (
    dict.fromkeys(("topic", "b"), "T")
    | dict.fromkeys(
        ("group", "consumerGroup", "a", "groupName", "srcGroup", "destGroup", "compareGroup"), "G"
    )
    | {"username": "x", "subject": "User:x"}
)
WORDS: dict[int, Any] = {
    **BODIES,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: {"topicConfigList": [{"topicName": "T"}]},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName": "G"},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"groupConfigList": [{"groupName": "G"}]},
}
# RocketMQ asks those that consume for Get, too.
LAXER = {
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.POLLING_INFO,
    # Answered by other servers, or a proof of its own instead of a signature.
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
}
UNSIGNED = {
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
    PocketRequestCode.INTRODUCE,
    PocketRequestCode.FOLLOW,
}
FIRST = json.dumps({"username": BOSS, "password": SECRET})
SETTINGS: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": FIRST,
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path / "store", **SETTINGS) as running:
        yield running


async def ask(
    peer: Peer, user: str, code: int, ext: dict[str, str], body: Any = None, *, secret: str = SECRET
) -> RemotingCommand:
    data = b"" if body is None else json.dumps(body).encode()
    if not user:
        return await peer.ask(code, ext, data)
    return await peer.ask(code, signed(code, ext, data, key=user, secret=secret).ext, data)


async def create(peer: Peer, name: str, lines: list[tuple[str, list[str]]]) -> None:
    user = {"password": SECRET}
    made = await ask(peer, BOSS, RequestCode.AUTH_CREATE_USER, {"username": name}, user)
    assert made.code == 0, made.remark
    if lines:
        rows = [{"resource": each, "actions": acts, "decision": "Allow"} for each, acts in lines]
        acl = {"policies": [{"policyType": "Custom", "entries": rows}]}
        subject = {"subject": f"User:{name}"}
        made = await ask(peer, BOSS, RequestCode.AUTH_CREATE_ACL, subject, acl)
        assert made.code == 0, made.remark


def is_refused(answer: RemotingCommand) -> bool:
    remark = answer.remark or ""
    refusals = ("no permission to access", "is for super users", "username cannot be null")
    return answer.code == 16 and any(each in remark for each in refusals)


async def test_walk_of_every_code_beside_rocketmq(broker: Broker, peer: Peer) -> None:
    """One column a user; + passes. RocketMQ lets any user send the codes it has no header class for."""
    real = {int(row[:6]): row.split()[2] for row in REAL.read_text("utf-8").splitlines()}
    for name, lines in USERS.items():
        await create(peer, name, lines)
    fields = FIELDS | {"offset": put(broker, "T"), "commitLogOffset": put_half(broker, "T")}
    table, laxer = "", set()
    for code in (*RequestCode, *PocketRequestCode):
        if code in UNSIGNED:
            continue
        marks = ""
        for name in NAMES:
            answer = await ask(peer, name, code, fields, WORDS.get(code))
            marks += "-" if is_refused(answer) else "n" if answer.code == 3 else "+"
        table += f"{int(code):6} {code.name:42} {marks} {real.get(code, '')}".rstrip() + "\n"
        if any(
            ours == "+" and theirs == "-"
            for ours, theirs in zip(marks, real.get(code, ""), strict=False)
        ):
            laxer.add(code)
    assert table == OURS.read_text("utf-8"), table
    assert laxer <= LAXER


async def test_wrong_signature_and_disabled_user_are_refused(broker: Broker, peer: Peer) -> None:
    await create(peer, "app", [("*", ["All"])])
    code, fields = RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}
    wrong = await ask(peer, "app", code, fields, secret="other-words")
    unknown = await ask(peer, "none", code, fields)
    assert [(each.code, each.remark) for each in (wrong, unknown)] == [
        (16, "check signature failed."),
        (16, "User:none is not found."),
    ]
    off = {"userStatus": "disable"}
    done = await ask(peer, BOSS, RequestCode.AUTH_UPDATE_USER, {"username": "app"}, off)
    assert done.code == 0
    refused = await ask(peer, "app", code, fields)
    assert (refused.code, refused.remark) == (16, "User:app is disabled.")


async def test_connection_of_a_user_that_lost_rights_is_closed(broker: Broker, peer: Peer) -> None:
    users = broker.parts.node.accounts
    assert isinstance(users, UserAccess)
    await create(peer, "app", USERS["member"])
    async with await Peer.at(broker) as reader:
        code, fields = RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}
        assert not is_refused(await ask(reader, "app", code, fields))
        more = [{"resource": "Topic:U", "actions": ["Sub"], "decision": "Allow"}]
        acl = {"policies": [{"entries": more}]}
        subject = {"subject": "User:app"}
        await ask(peer, BOSS, RequestCode.AUTH_UPDATE_ACL, subject, acl)
        assert not users.tick()
        await ask(peer, BOSS, RequestCode.AUTH_DELETE_ACL, {**subject, "resource": "Topic:T"})
        assert users.tick()
        assert await reader.ended()


async def test_last_super_user_stays(broker: Broker, peer: Peer) -> None:
    ways = (
        (RequestCode.AUTH_DELETE_USER, None),
        (RequestCode.AUTH_UPDATE_USER, {"userType": "Normal"}),
        (RequestCode.AUTH_UPDATE_USER, {"userStatus": "disable"}),
    )
    for code, body in ways:
        answer = await ask(peer, BOSS, code, {"username": BOSS}, body)
        assert answer.code == 16
        assert "last enabled super user" in (answer.remark or "")


async def test_users_survive_and_their_file_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    async with serving(folder, **SETTINGS) as broker, await Peer.at(broker) as peer:
        await create(peer, "app", USERS["member"])
    path = folder / "config" / "users.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with serving(folder, **SETTINGS) as broker, await Peer.at(broker) as peer:
        acl = await ask(peer, BOSS, RequestCode.AUTH_GET_ACL, {"subject": "User:app"})
        assert json.loads(bytes(acl.body))["policies"][0]["entries"][0]["resource"] == "Topic:T"
    for text in ("", "{", "[]", '{"users": [{"username": "x"}]}', '{"users": [], "acls": [{}]}'):
        path.write_text(text, "utf-8")
        with pytest.raises(IllegalArgument, match="cannot read the users"):
            async with serving(folder, **SETTINGS):
                pass


@pytest.mark.parametrize(
    "wrong",
    [
        {"acl_enable": True},
        {"authentication_enabled": False},
        {"init_authentication_user": "{}"},
        {"init_authentication_user": '{"username": "a b", "password": "x"}'},
    ],
)
async def test_settings_that_contradict_keep_the_broker_from_starting(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with pytest.raises(IllegalArgument):
        async with serving(tmp_path / "store", **{**SETTINGS, **wrong}):
            pass


async def test_without_authorization_users_may_not_change_users(tmp_path: Path) -> None:
    settings = {**SETTINGS, "authorization_enabled": False}
    async with serving(tmp_path / "store", **settings) as broker, await Peer.at(broker) as peer:
        await create(peer, "app", [])
        config = await ask(peer, "app", RequestCode.GET_BROKER_CONFIG, {})
        users = await ask(peer, "app", RequestCode.AUTH_LIST_USER, {})
        tables = await ask(peer, "app", PocketRequestCode.GET_REPLICA_TABLES, {})
        assert (config.code, users.code, tables.code) == (0, 16, 16)


async def test_broker_without_users_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path / "store") as broker, await Peer.at(broker) as peer:
        answer = await ask(peer, "", RequestCode.AUTH_LIST_USER, {})
        assert answer.code == 3
        assert "authenticationEnabled" in (answer.remark or "")


def test_file_changed_by_hand_holds_and_a_broken_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    table = UserTable(path)
    table.create_user(User("app", "first"))
    other = UserTable(path)
    other.create_user(User("second", "words"))
    table.reload()
    assert set(table.state.users) == {"app", "second"}
    path.write_text("{", "utf-8")
    table.reload()
    assert set(table.state.users) == {"app", "second"}


def test_table_that_cannot_be_written_does_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = UserTable(tmp_path / "users.json")
    table.create_user(User("app", "first"))

    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("pocketmq.broker.access.users.table.replace_private", fail)
    with pytest.raises(OSError, match="no space"):
        table.create_user(User("late", "words"))
    assert set(table.state.users) == {"app"}


def test_password_is_in_no_text_of_a_user() -> None:
    state = Users({"app": User("app", "hidden-words")}, {"app": UserPolicies()})
    assert "hidden-words" not in repr(state)


async def test_slave_takes_the_users_of_its_master(tmp_path: Path) -> None:
    signs = json.dumps({"accessKey": BOSS, "secretKey": SECRET})
    more = {**SETTINGS, "inner_client_authentication_credentials": signs}
    async with pair(tmp_path) as brokers:
        master = await brokers.master(**more)
        async with await Peer.at(master) as peer:
            await create(peer, "app", USERS["member"])
        slave = await brokers.slave(**more)
        await copied(slave)
        ours, theirs = master.parts.node.users, slave.parts.node.users
        assert ours is not None
        assert theirs is not None
        assert theirs.state == ours.state
        async with await Peer.at(slave) as peer:
            refused = await ask(peer, "app", RequestCode.GET_MAX_OFFSET, {"topic": "U"})
            assert is_refused(refused)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"authorization_enabled": True}, "needs authenticationEnabled=true"),
        ({"authentication_enabled": True, "acl_enable": True}, "two ways to check signatures"),
    ],
)
async def test_a_guard_that_would_not_check_starts_no_broker(
    tmp_path: Path, settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(IllegalArgument, match=why):
        async with serving(tmp_path, **settings):
            pass
