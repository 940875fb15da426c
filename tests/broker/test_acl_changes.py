"""What an administrator changes over the wire: mqadmin's updateAclConfig, deleteAclConfig and their kin."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from pocketmq.broker.broker import Broker
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from tests.broker.serving import Peer, body_of, serving
from tests.broker.signing import signed

SECRET = "secret-words"
ADMIN = "administrator"
ACCOUNTS = f"""
globalWhiteRemoteAddresses: []
accounts:
  - {{accessKey: {ADMIN}, secretKey: {SECRET}, admin: true}}
  - {{accessKey: 12345678, secretKey: {SECRET}, defaultGroupPerm: SUB, topicPerms: [T=SUB]}}
"""
MORE = f"accounts: [{{accessKey: in-the-folder, secretKey: {SECRET}}}]\n"
PUT = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
WHITE = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "plain_acl.yml"
    made.write_text(ACCOUNTS, encoding="utf-8")
    made.chmod(0o640)
    (tmp_path / "acl").mkdir()
    (tmp_path / "acl" / "more.yml").write_text(MORE, encoding="utf-8")
    return made


@pytest.fixture
async def broker(tmp_path: Path, path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path / "store", acl_enable=True, acl_file=str(path)) as running:
        yield running


def accounts_in(path: Path) -> list[dict[str, object]]:
    content: dict[str, list[dict[str, object]]] = yaml.safe_load(path.read_text("utf-8"))
    return content["accounts"]


def as_it_stands(path: Path) -> tuple[bytes, int]:
    """The file's bytes, and who may do what with it."""
    return path.read_bytes(), path.stat().st_mode & 0o777


async def ask(peer: Peer, code: int, key: str = ADMIN, **ext: str) -> RemotingCommand:
    return await peer.ask(code, signed(code, ext, b"", key=key, secret=SECRET).ext)


async def may_see(broker: Broker, key: str) -> bool:
    """Whether an account may ask for T's last offset, over a connection of its own."""
    async with await Peer.at(broker) as peer:
        code = RequestCode.GET_MAX_OFFSET
        answer = await ask(peer, code, key, topic="T", queueId="0")
        return "AclException" not in (answer.remark or "")


async def test_an_account_that_was_made_changed_and_deleted_is_so_at_once(
    broker: Broker, peer: Peer, path: Path
) -> None:
    assert not await may_see(broker, "made-here")
    given = {"accessKey": "made-here", "secretKey": SECRET, "admin": "false"}
    made = await ask(peer, PUT, **given, topicPerms="T=PUB|SUB,U=DENY", defaultTopicPerm="DENY")
    assert (made.code, await may_see(broker, "made-here")) == (0, True)
    kept = await ask(peer, PUT, **given, groupPerms="g=SUB")
    assert (kept.code, await may_see(broker, "made-here")) == (0, True)
    taken = await ask(peer, PUT, **given, topicPerms="U=SUB")
    assert (taken.code, await may_see(broker, "made-here")) == (0, False)
    account = accounts_in(path)[-1]
    perms = {"defaultTopicPerm": "DENY", "topicPerms": ["U=SUB"], "groupPerms": ["g=SUB"]}
    assert account == {**given, "admin": False, **perms}
    async with await Peer.at(broker) as member:
        await ask(member, RequestCode.GET_MAX_OFFSET, "made-here", topic="U", queueId="0")
        gone = await ask(peer, RequestCode.DELETE_ACL_CONFIG, accessKey="made-here")
        assert gone.code == 0
        assert await member.ended()
    again = await ask(peer, RequestCode.DELETE_ACL_CONFIG, accessKey="made-here")
    remark = "The accesskey[made-here] corresponding to accessConfig has been deleted failed."
    assert (again.code, again.remark) == (210, remark)
    assert as_it_stands(path)[1] == 0o640


async def test_a_change_goes_to_the_file_that_has_the_account(
    broker: Broker, peer: Peer, path: Path
) -> None:
    for key in ("in-the-folder", "12345678"):
        answer = await ask(peer, PUT, accessKey=key, secretKey=SECRET, topicPerms="T=PUB")
        assert answer.code == 0
    more = accounts_in(path.parent / "acl" / "more.yml")
    assert [each["topicPerms"] for each in more] == [["T=PUB"]]
    first = accounts_in(path)
    assert [each.get("topicPerms") for each in first] == [None, ["T=PUB"]]


async def test_what_no_broker_could_read_is_refused_and_not_written(
    broker: Broker, peer: Peer, path: Path
) -> None:
    before = as_it_stands(path)
    for key, secret, perms in (("short", SECRET, "T=SUB"), ("long-key", "", "T=SUB")):
        answer = await ask(peer, PUT, accessKey=key, secretKey=secret, topicPerms=perms)
        assert (answer.code, "7 characters" in (answer.remark or "")) == (209, True)
    answer = await ask(peer, PUT, accessKey="long-key", secretKey=SECRET, topicPerms="T")
    assert (answer.code, "NAME=DENY" in (answer.remark or "")) == (209, True)
    for ext in (
        {"globalWhiteAddrs": "1.2.3.4.5"},
        {"globalWhiteAddrs": "1.2.3.4", "aclFileFullPath": "/etc/passwd"},
    ):
        assert (await ask(peer, WHITE, **ext)).code == 211
    assert as_it_stands(path) == before


async def test_an_address_on_the_list_need_not_sign_and_each_change_has_a_version(
    broker: Broker, peer: Peer, path: Path
) -> None:
    answer = await ask(peer, WHITE, globalWhiteAddrs="10.9.8.*,127.0.0.1")
    assert answer.code == 0
    told = body_of(await peer.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, {}))
    assert told["globalWhiteAddrs"] == ["10.9.8.*", "127.0.0.1"]
    info = (await peer.ask(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, {})).ext or {}
    assert info["brokerAddr"] == broker.address
    # Who takes itself off the list is told so before it is sent away.
    assert (await ask(peer, WHITE, globalWhiteAddrs="10.9.8.*")).code == 0
    assert await peer.ended()
    versions = json.loads(info["allAclFileVersion"])
    assert [versions[str(path)]["counter"], len(versions)] == [1, 2]
    assert json.loads(info["version"]) == versions[str(path)]
