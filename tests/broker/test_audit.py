"""The audit trail: acts and refusals are in it, once and without secrets; only the broker writes it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.access.denial_log import Denial
from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import properties_to_text
from pocketmq.model.names import AUDIT_TOPIC
from pocketmq.model.record import read_record
from pocketmq.remoting.codes import RequestCode as C
from tests.broker.serving import Peer, serving
from tests.broker.test_access import ACCOUNTS, HELD
from tests.broker.test_users import BOSS, SECRET, SETTINGS, USERS, ask, create

MADE = {"topic": "New", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1"}
MADE |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
SEND = {
    "producerGroup": "p",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
}
SEND |= {"sysFlag": "0", "bornTimestamp": "0", "flag": "0", "reconsumeTimes": "0"}
SHORT = {"a": "p", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "j": "0"}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path / "store", **SETTINGS) as running:
        yield running


def trail(broker: Broker) -> list[dict[str, Any]]:
    store, found = broker.parts.messages.store, []
    for offset in range(store.max_offset(AUDIT_TOPIC, 0)):
        (record,) = store.read(AUDIT_TOPIC, 0, offset, 1).buffers
        found.append(json.loads(bytes(read_record(record).body)))
    return found


def short(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["user"], row["act"], row["outcome"]


async def test_acts_and_refusals_are_recorded_without_secrets(broker: Broker, peer: Peer) -> None:
    await create(peer, "app", USERS["member"])
    await ask(peer, BOSS, C.UPDATE_AND_CREATE_TOPIC, MADE)
    await ask(peer, BOSS, C.UPDATE_AND_CREATE_TOPIC, {**MADE, "topic": "a b"})
    for _ in range(3):
        await ask(peer, "app", C.DELETE_TOPIC_IN_BROKER, {"topic": "New"})
    body = b"traceOn=true\nnothing=hidden-value"
    await peer.ask(C.UPDATE_BROKER_CONFIG, {}, body)
    # What clients do leaves nothing.
    await ask(peer, "app", C.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
    rows = trail(broker)
    assert [short(row) for row in rows] == [
        (BOSS, "AUTH_CREATE_USER", "done"),
        (BOSS, "AUTH_CREATE_ACL", "done"),
        (BOSS, "UPDATE_AND_CREATE_TOPIC", "done"),
        (BOSS, "UPDATE_AND_CREATE_TOPIC", "failed"),
        ("app", "DELETE_TOPIC_IN_BROKER", "refused"),
        ("", "UPDATE_BROKER_CONFIG", "refused"),
    ]
    assert rows[2]["resources"] == {"topic": ["New"]}
    assert SECRET not in json.dumps(rows)


async def test_change_of_settings_names_them_without_values(broker: Broker, peer: Peer) -> None:
    from tests.broker.signing import signed

    body = b"flushInterval=499"
    request = signed(C.UPDATE_BROKER_CONFIG, {}, body, key=BOSS, secret=SECRET)
    await peer.ask(C.UPDATE_BROKER_CONFIG, request.ext, body)
    assert [row["resources"] for row in trail(broker)] == [{"settings": ["flushInterval"]}]


@pytest.mark.parametrize("how", ["send", "v2", "batch", "half", "level", "time", "named", "reply"])
async def test_no_client_writes_the_trail(broker: Broker, peer: Peer, how: str) -> None:
    """Not even a super user, by whatever kind of send."""
    properties = {
        "half": {"TRAN_MSG": "true", "PGROUP": "p"},
        "level": {"DELAY": "1"},
        "time": {"TIMER_DELAY_MS": "1"},
        "named": {"REAL_TOPIC": AUDIT_TOPIC, "REAL_QID": "0", "INNER_MULTI_DISPATCH": AUDIT_TOPIC},
    }.get(how, {})
    text = properties_to_text(properties)
    topic = "T" if how == "named" else AUDIT_TOPIC
    fields = {**SEND, "topic": topic, "properties": text}
    abbreviated = {**SHORT, "b": topic, "i": text}
    code, ext = {
        "v2": (C.SEND_MESSAGE_V2, abbreviated),
        "batch": (C.SEND_BATCH_MESSAGE, {**abbreviated, "m": "true"}),
        "half": (C.SEND_MESSAGE, {**fields, "sysFlag": "4"}),
        "reply": (C.SEND_REPLY_MESSAGE, fields),
    }.get(how, (C.SEND_MESSAGE, fields))
    answer = await ask(peer, BOSS, code, ext, "x")
    assert how in ("named", "reply") or answer.code != 0
    assert broker.parts.messages.store.max_offset(AUDIT_TOPIC, 0) == 0


async def test_trail_can_be_read_but_not_removed(broker: Broker, peer: Peer) -> None:
    await create(peer, "app", USERS["everything"])
    pull = {**HELD, "topic": AUDIT_TOPIC, "consumerGroup": "auditors", "sysFlag": "4"}
    refused = await ask(peer, "app", C.PULL_MESSAGE, pull)
    assert refused.code == 16
    await ask(peer, BOSS, C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {"groupName": "auditors"})
    found = await ask(peer, BOSS, C.PULL_MESSAGE, pull)
    assert found.code == 0, found.remark
    deleted = await ask(peer, BOSS, C.DELETE_TOPIC_IN_BROKER, {"topic": AUDIT_TOPIC})
    changed = await ask(peer, BOSS, C.UPDATE_AND_CREATE_TOPIC, {**MADE, "topic": AUDIT_TOPIC})
    assert 0 not in (deleted.code, changed.code)


async def test_invented_refusals_do_not_fill_the_log(broker: Broker) -> None:
    accounts = broker.parts.node.accounts
    assert accounts is not None
    for number in range(500):
        accounts.denials.logged(Denial("x", "10.0.0.1:1", 10, f"no right to {number}"))
    assert len(trail(broker)) == 200


async def test_accounts_of_plain_acl_leave_the_same_trail(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS, encoding="utf-8")
    settings: dict[str, Any] = {"acl_enable": True, "acl_file": str(path)}
    async with serving(tmp_path / "store", **settings) as broker, await Peer.at(broker) as peer:
        account = {"accessKey": "newcomer", "secretKey": SECRET}
        await ask(peer, BOSS, C.UPDATE_AND_CREATE_ACL_CONFIG, account)
        rows = trail(broker)
        assert [short(row) for row in rows] == [(BOSS, "UPDATE_AND_CREATE_ACL_CONFIG", "done")]
        assert rows[0]["resources"] == {"accessKey": ["newcomer"]}
        assert SECRET not in json.dumps(rows)


async def test_broker_without_accounts_has_no_trail(tmp_path: Path) -> None:
    async with serving(tmp_path / "store") as broker, await Peer.at(broker) as peer:
        await peer.ask(C.UPDATE_AND_CREATE_TOPIC, MADE)
        assert AUDIT_TOPIC not in broker.parts.tables.topics.topics
