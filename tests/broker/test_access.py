"""Who may send what to a broker that checks signatures: every request code, one account after the other."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pocketmq.books.rows import EVENT
from pocketmq.broker.access.acl import PlainAccessValidator
from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import properties_to_text
from pocketmq.model.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from pocketmq.model.record import read_record
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import PocketRequestCode
from tests.broker.raw_slave import RawSlave, ticket
from tests.broker.serving import Peer, serving
from tests.broker.signing import signed

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
BODIES: dict[int, Any] = {
    RequestCode.HEART_BEAT: {
        "clientID": "c",
        "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [{"topic": "T"}]}],
    },
    RequestCode.LOCK_BATCH_MQ: {"consumerGroup": "G", "mqSet": [{"topic": "T"}]},
    RequestCode.UNLOCK_BATCH_MQ: {"consumerGroup": "G", "mqSet": [{"topic": "T"}]},
    RequestCode.CHECK_CLIENT_CONFIG: {"group": "G", "subscriptionData": {"topic": "T"}},
    RequestCode.QUERY_ASSIGNMENT: {"consumerGroup": "G", "topic": "T"},
    RequestCode.BATCH_ACK_MESSAGE: {"acks": [{"c": "G", "t": "T"}]},
    RequestCode.LITE_SUBSCRIPTION_CTL: {"subscriptionSet": [{"topic": "T", "group": "G"}]},
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


def put(broker: Broker, topic: str, **properties: str) -> str:
    """The position of a new message."""
    text = properties_to_text(properties).encode()
    return str(
        broker.parts.messages.put.put(topic, 0, b"x", text, born_host=bytes(8)).appended.position
    )


def put_half(broker: Broker, topic: str) -> str:
    """The position of a half message that is meant for a topic."""
    half = {"REAL_TOPIC": topic, "REAL_QID": "0", "PGROUP": "pg"}
    half["CHECK_IMMUNITY_TIME_IN_SECONDS"] = "0"
    return put(broker, TRANS_HALF_TOPIC, **half)


HELD = {"queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "6", "subVersion": "0"}
HELD |= {"commitOffset": "0", "suspendTimeoutMillis": "15000", "topic": "T", "consumerGroup": "G"}
HELD["subscription"] = "*"
READER = (
    "  - {accessKey: %s, secretKey: secret-words, topicPerms: [T=SUB%s], groupPerms: [G=SUB]}\n"
)


async def test_who_loses_an_account_loses_what_it_waits_for(
    broker: Broker, peer: Peer, tmp_path: Path
) -> None:
    """A pull that waited when its account was removed got the next message; a slave, the whole log."""
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS + READER % ("stays-here", "") + READER % ("goes-away", ""), "utf-8")
    accounts = broker.parts.node.accounts
    assert isinstance(accounts, PlainAccessValidator)
    accounts.tick()
    made = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1"}
    made |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    made_answer = await ask(peer, "administrator", RequestCode.UPDATE_AND_CREATE_TOPIC, made)
    assert made_answer.code == 0
    async with AsyncExitStack() as stack:
        stays, goes = [await stack.enter_async_context(await Peer.at(broker)) for _ in range(2)]
        for reader, key in ((stays, "stays-here"), (goes, "goes-away")):
            request = signed(RequestCode.PULL_MESSAGE, HELD, key=key, secret="secret-words")
            reader.send(RequestCode.PULL_MESSAGE, request.ext)
        await ask(peer, "administrator", RequestCode.GET_BROKER_CONFIG, {})
        slave = await stack.enter_async_context(await RawSlave.at(broker))
        slave.report(await ticket(peer, broker.address, "administrator", "secret-words"))
        slave.report(0)
        await slave.slice()
        without = [line for line in ACCOUNTS.splitlines() if "administrator" not in line]
        path.write_text("\n".join(without) + "\n" + READER % ("stays-here", ", U=PUB"), "utf-8")
        assert await goes.ended()
        assert await peer.ended()
        assert await slave.ended()
        put(broker, "T")
        answer = await stays.next()
        assert (answer.code, read_record(answer.body).topic) == (0, "T")


def is_denied(answer: RemotingCommand) -> bool:
    return (answer.remark or "").startswith(DENIED)


async def test_the_recorded_table_says_who_may_use_each_code(broker: Broker, peer: Peer) -> None:
    """What has no permission of its own is for administrators; the table is what a reviewer reads."""
    # About topic T and group G, and nothing else that a handler could work with.
    ext = dict.fromkeys(("topic", "b"), "T") | dict.fromkeys(("group", "consumerGroup", "a"), "G")
    ext |= {"offset": put(broker, "T"), "commitLogOffset": put_half(broker, "T")}
    lines: list[str] = []
    for code in (*RequestCode, *PocketRequestCode):
        body = json.dumps(BODIES[code]).encode() if code in BODIES else b""
        if code is RequestCode.NOTIFY_BROKER_ROLE_CHANGED:
            # A hint that any program may send: the controller is asked before it is believed.
            lines.append(f"{int(code):6} {code.name:42} a proof of its own")
            continue
        if code in (PocketRequestCode.INTRODUCE, PocketRequestCode.FOLLOW):
            lines.append(f"{int(code):6} {code.name:42} a proof of its own")
            continue
        assert is_denied(await peer.ask(code, ext, body)), f"{code.name} unsigned"
        allowed: list[str] = []
        answer = await peer.ask(code, ext, body)
        assert (answer.remark or "").startswith(DENIED), f"{code.name} unsigned"
        for account in NAMES:
            answer = await ask(peer, account, code, ext, body)
            if not is_denied(answer):
                allowed.append("not served" if answer.code == 3 else account)
        who = "not served" if "not served" in allowed else ", ".join(allowed)
        lines.append(f"{int(code):6} {code.name:42} {who}".rstrip())
    table = "\n".join(lines) + "\n"
    assert table == RECORDED.read_text(encoding="utf-8"), table


@pytest.mark.parametrize(
    ("topic", "properties", "readers"),
    [
        ("T", {}, ["subscriber", "administrator"]),
        ("T", {"DELAY": "1"}, ["subscriber", "administrator"]),
        ("%RETRY%G", {"RETRY_TOPIC": "T"}, ["subscriber", "administrator"]),
        ("%RETRY%G", {"RETRY_TOPIC": "Secrets"}, ["administrator"]),
        ("%RETRY%other", {"RETRY_TOPIC": "T"}, ["administrator"]),
        ("Secrets", {}, ["administrator"]),
        ("Secrets", {"DELAY": "1"}, ["administrator"]),
        (TRANS_HALF_TOPIC, {"REAL_TOPIC": "Secrets"}, ["administrator"]),
        (TRANS_OP_HALF_TOPIC, {}, ["administrator"]),
    ],
)
async def test_viewing_and_sending_back_need_rights_on_the_own_topic(
    broker: Broker, peer: Peer, topic: str, properties: dict[str, str], readers: list[str]
) -> None:
    """Its own is the topic that it was sent to, wherever it waits."""
    broker.parts.tables.groups.find("G")
    position = put(broker, topic, **properties)
    asks = {
        RequestCode.VIEW_MESSAGE_BY_ID: {"offset": position},
        RequestCode.CONSUMER_SEND_MSG_BACK: {"offset": position, "group": "G", "delayLevel": "0"},
    }
    for code, ext in asks.items():
        answers = {account: await ask(peer, account, code, ext) for account in NAMES}
        assert [account for account in NAMES if not is_denied(answers[account])] == readers
        assert {answers[account].code for account in readers} == {0}


@pytest.mark.parametrize("spelt", ["+{}", " {} ", "0{}", "0_{}", "-1", "none", ""])
async def test_a_position_is_read_as_its_handler_reads_it(
    broker: Broker, peer: Peer, spelt: str
) -> None:
    """A spelling that only one of the two understands would be a way around the rights."""
    ext = {"offset": spelt.format(put(broker, "Secrets"))}
    answer = await ask(peer, "subscriber", RequestCode.VIEW_MESSAGE_BY_ID, ext)
    assert (answer.code, bytes(answer.body)) == (1, b"")


@pytest.mark.parametrize(
    ("topic", "enders"),
    [
        ("T", ["publisher", "administrator"]),
        ("%RETRY%G", ["subscriber", "administrator"]),
        ("Secrets", ["administrator"]),
    ],
)
async def test_a_transaction_is_ended_with_the_right_to_its_topic(
    broker: Broker, peer: Peer, topic: str, enders: list[str]
) -> None:
    """Its half message names the topic, whatever the request says."""
    for account in NAMES:
        position = put_half(broker, topic)
        offset = broker.parts.messages.store.max_offset(TRANS_HALF_TOPIC, 0) - 1
        ext = {
            "commitLogOffset": position,
            "commitOrRollback": "8",
            "msgId": "id",
            "producerGroup": "pg",
            "topic": "T",
            "tranStateTableOffset": str(offset),
        }
        before = broker.parts.messages.store.max_offset(topic, 0)
        answer = await ask(peer, account, RequestCode.END_TRANSACTION, ext)
        assert is_denied(answer) == (account not in enders)
        assert broker.parts.messages.store.max_offset(topic, 0) - before == (account in enders)


async def test_a_client_id_is_taken_from_nobody_else(broker: Broker, peer: Peer) -> None:
    """Replies go to the client that has it: a stranger that named it got those of others."""
    hello = json.dumps({"clientID": "c", "producerDataSet": [{"groupName": "pg"}]}).encode()
    find = broker.parts.members.producers.find
    async with await Peer.at(broker) as stranger, await Peer.at(broker) as again:
        await ask(peer, "publisher", RequestCode.HEART_BEAT, {}, hello)
        owner = find("c")
        await ask(stranger, "nothing", RequestCode.HEART_BEAT, {}, hello)
        assert find("c") is owner
        await ask(again, "publisher", RequestCode.HEART_BEAT, {}, hello)
        assert find("c") not in (owner, None)


async def test_checks_go_only_to_producers_that_may_publish(broker: Broker, peer: Peer) -> None:
    """A check carries the half message: a client that names the group would read what others send."""
    hello = json.dumps({"clientID": "c", "producerDataSet": [{"groupName": "pg"}]}).encode()
    async with await Peer.at(broker) as stranger:
        for connection, account in ((stranger, "nothing"), (peer, "publisher")):
            assert (await ask(connection, account, RequestCode.HEART_BEAT, {}, hello)).code == 0
        for topic in ("T", "Secrets"):
            for _ in range(4):
                put_half(broker, topic)
        await broker.parts.services.check.check()
        for _ in range(4):
            asked = await peer.request(RequestCode.CHECK_TRANSACTION_STATE)
            assert read_record(asked.body).topic == "T"
        for connection, account in ((stranger, "nothing"), (peer, "publisher")):
            # Whatever came before this answer is kept: there is nothing.
            await ask(connection, account, RequestCode.HEART_BEAT, {}, hello)
            assert connection.early == []


async def test_the_record_says_which_account_moved_an_offset(broker: Broker) -> None:
    """A reset of a queue, an offset of its own, and a copy of a group's offsets."""
    broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
    broker.parts.tables.groups.update(GroupConfig("G"))
    for number in range(3):
        put(broker, "T", UNIQ_KEY=str(number))
    where = {"topic": "T", "queueId": "0"}
    moves: list[tuple[int, dict[str, str]]] = [
        (
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            {**where, "group": "G", "timestamp": "-1", "isForce": "true", "offset": "3"},
        ),
        (
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {**where, "consumerGroup": "G", "commitOffset": "1"},
        ),
        (
            RequestCode.CLONE_GROUP_OFFSET,
            {"srcGroup": "G", "destGroup": "copy", "topic": "T", "offline": "true"},
        ),
    ]
    async with await Peer.at(broker) as peer:
        for code, ext in moves:
            assert (await ask(peer, "administrator", code, ext)).code == 0
        for group, count in (("G", 2), ("copy", 1)):
            record = broker.parts.messages.deliveries
            record.settle()
            texts = [
                row[-2]
                for texts, row in record.files.rows()
                if row[0] == EVENT and texts[row[2]] == group
            ]
            told = [text for text in texts if "(account administrator)" in text]
            assert len(told) == count, texts
