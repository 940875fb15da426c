"""Who may send what to a broker that checks signatures: every request code, one account after the other."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.broker.serving import Peer, serving
from tests.broker.signing import signed

from pocketmq.broker.broker import Broker
from pocketmq.remoting.codes import PocketRequestCode, RequestCode
from pocketmq.remoting.command import RemotingCommand

RECORDED = Path(__file__).with_name("access.txt")
ACCOUNTS = """
accounts:
  - {accessKey: nothing, secretKey: secret-words, defaultTopicPerm: DENY, defaultGroupPerm: DENY}
  - {accessKey: publisher, secretKey: secret-words, topicPerms: [T=PUB]}
  - {accessKey: subscriber, secretKey: secret-words, topicPerms: [T=SUB], groupPerms: [G=SUB]}
  - {accessKey: administrator, secretKey: secret-words, admin: true}
"""
NAMES = ("nothing", "publisher", "subscriber", "administrator")
DENIED = "org.apache.rocketmq.acl.common.AclException"
BODIES = {
    RequestCode.HEART_BEAT: {
        "clientID": "c",
        "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [{"topic": "T"}]}],
    },
    RequestCode.LOCK_BATCH_MQ: {"consumerGroup": "G", "mqSet": [{"topic": "T"}]},
    RequestCode.UNLOCK_BATCH_MQ: {"consumerGroup": "G", "mqSet": [{"topic": "T"}]},
    RequestCode.CHECK_CLIENT_CONFIG: {"group": "G", "subscriptionData": {"topic": "T"}},
    RequestCode.QUERY_ASSIGNMENT: {"consumerGroup": "G", "topic": "T"},
    RequestCode.BATCH_ACK_MESSAGE: {"acks": [{"c": "G", "t": "T"}]},
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS, encoding="utf-8")
    async with serving(tmp_path / "store", acl_enable=True, acl_file=str(path)) as running:
        yield running


async def ask(
    peer: Peer, account: str, code: int, ext: dict[str, str], body: bytes = b""
) -> RemotingCommand:
    request = signed(code, ext, body, key=account, secret="secret-words")
    return await peer.ask(code, request.ext, body)


def sample(code: int) -> tuple[dict[str, str], bytes]:
    """A request about topic T and group G, and nothing else that its handler could work with."""
    names = {"topic": "T", "b": "T", "a": "G", "group": "G", "consumerGroup": "G"}
    body = BODIES.get(RequestCode(code)) if code in set(RequestCode) else None
    return names, b"" if body is None else json.dumps(body).encode()


async def test_each_code_is_let_through_to_whom_the_recorded_table_says(
    broker: Broker, peer: Peer
) -> None:
    """What has no permission of its own is for administrators; the table is what a reviewer reads."""
    lines: list[str] = []
    for code in (*RequestCode, *PocketRequestCode):
        ext, body = sample(code)
        allowed: list[str] = []
        answer = await peer.ask(code, ext, body)
        assert (answer.remark or "").startswith(DENIED), f"{code.name} unsigned"
        for account in NAMES:
            answer = await ask(peer, account, code, ext, body)
            if not (answer.remark or "").startswith(DENIED):
                allowed.append("not served" if answer.code == 3 else account)
        who = "not served" if "not served" in allowed else ", ".join(allowed)
        lines.append(f"{int(code):6} {code.name:42} {who}".rstrip())
    table = "\n".join(lines) + "\n"
    assert table == RECORDED.read_text(encoding="utf-8"), table
