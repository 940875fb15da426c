"""Who may do what: signatures, accounts, permissions, addresses, and files that change."""

import json
import logging
import os
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from pocketmq.broker.access.acl import AccessDenied, PlainAccessValidator
from pocketmq.broker.access.address_pattern import AddressPattern
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.requests import REQUESTS, Right
from tests.broker.members import open_connection
from tests.broker.signing import signed

ACCOUNTS = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    admin: true
"""
PEER = "203.0.113.9:50000"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "plain_acl.yml"
    made.write_text(ACCOUNTS, encoding="utf-8")
    return made


@pytest.fixture
def validator(path: Path) -> PlainAccessValidator:
    return PlainAccessValidator(path)


@dataclass(eq=False)
class Caller:
    peer: str
    closed: bool = False

    def abort(self) -> None:
        self.closed = True


def check(
    validator: PlainAccessValidator, request: RemotingCommand, peer: str | Caller = PEER
) -> None:
    """As a broker does it that has no messages; a code that it does not know needs a signature."""
    row = REQUESTS.get(request.code)
    caller = Caller(peer) if isinstance(peer, str) else peer
    validator.check(request, caller, Right() if row is None else row.access, lambda _: None)


def send(topic: str, **how: str) -> RemotingCommand:
    return signed(RequestCode.SEND_MESSAGE_V2, {"a": "p", "b": topic}, b"hello", **how)


def test_the_signature_is_the_one_of_the_official_clients(validator: PlainAccessValidator) -> None:
    """wire.md 9: the known answer of AclSigner."""
    request = RemotingCommand(
        30,
        {
            "topic": "TopicTest",
            "queueId": "3",
            "AccessKey": "rocketmq2",
            "Signature": "TW8/P9vYIK/b1dEPiLvlMiXW94c=",
        },
        b"hello",
    )
    check(validator, request)
    request.body = b"hellp"
    with pytest.raises(AccessDenied, match=r"^Check signature failed for accessKey=rocketmq2$"):
        check(validator, request)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (RemotingCommand(11, {"topic": "topicB"}), "No accessKey is configured"),
        (RemotingCommand(9_999), "No accessKey is configured"),
        (send("topicB", key="Nobody77"), "No acl config for Nobody77"),
        (send("topicB", secret="87654321"), "Check signature failed for accessKey=RocketMQ"),
        (send("topicA"), "No default permission for topic:topicA"),
        (send("topicC"), "No default permission for topic:topicC"),
        (send("other"), "No default permission for topic:other"),
        (
            signed(RequestCode.SEND_BATCH_MESSAGE, {"a": "p", "b": "topicC"}, b"x"),
            "No default permission for topic:topicC",
        ),
        (
            signed(RequestCode.PULL_MESSAGE, {"topic": "topicC", "consumerGroup": "groupA"}),
            "No default permission for group:groupA",
        ),
        (
            signed(RequestCode.PEEK_MESSAGE, {"topic": "topicA", "consumerGroup": "anything"}),
            "No default permission for topic:topicA",
        ),
        (
            signed(RequestCode.BATCH_ACK_MESSAGE, {}, b'{"acks":[{"c":"groupA"}]}'),
            "No default permission for group:groupA",
        ),
        (
            # A handler would take it for a group of the name None.
            signed(RequestCode.BATCH_ACK_MESSAGE, {}, b'{"acks":[{"c":"groupB"},{"c":null}]}'),
            "acks.c of the request is not a name",
        ),
        (
            signed(RequestCode.LOCK_BATCH_MQ, {}, b'{"consumerGroup":["groupB"]}'),
            "consumerGroup of the request is not a name",
        ),
        (
            signed(RequestCode.HEART_BEAT, {}, b'{"consumerDataSet":[[{"groupName":"groupA"}]]}'),
            "consumerDataSet.groupName of the request is not a name",
        ),
        (
            signed(RequestCode.ACK_MESSAGE, {"topic": "topicC", "consumerGroup": "groupA"}),
            "No default permission for group:groupA",
        ),
        (
            # As the client does that could not send a message back: its group is no part of the request.
            signed(RequestCode.SEND_MESSAGE_V2, {"a": "groupB", "b": "%RETRY%groupA"}, b"x"),
            "No default permission for group:groupA",
        ),
        (
            signed(RequestCode.GET_MAX_OFFSET, {"topic": "topicA", "queueId": "0"}),
            "No default permission for topic:topicA",
        ),
        (
            signed(RequestCode.PULL_MESSAGE, {"topic": "topicC"}),
            "the request lacks consumerGroup",
        ),
        (
            signed(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "topicB"}),
            "Need admin permission for request code=17, but accessKey=RocketMQ is not",
        ),
        (
            signed(RequestCode.HEART_BEAT, {}, b"no json"),
            "cannot tell what the request is about",
        ),
    ],
)
def test_what_is_refused_and_in_which_words(
    validator: PlainAccessValidator, request_: RemotingCommand, says: str
) -> None:
    """The texts of PlainPermissionManager 4.9.7, which people search for."""
    with pytest.raises(AccessDenied, match=says):
        check(validator, request_)


def test_what_an_account_may_do_is_let_through(validator: PlainAccessValidator) -> None:
    """Listed permissions, the group's default, traces; everything for an administrator."""
    pull = {"topic": "topicC", "consumerGroup": "anything"}
    for request in (
        send("topicB"),
        send("RMQ_SYS_TRACE_TOPIC"),
        send("%RETRY%groupB"),
        signed(RequestCode.PULL_MESSAGE, pull),
        signed(RequestCode.LITE_PULL_MESSAGE, pull),
        signed(RequestCode.GET_MAX_OFFSET, {"topic": "topicC", "queueId": "0"}),
        signed(RequestCode.HEART_BEAT, {}, b'{"producerDataSet":[{"groupName":"p"}]}'),
        # Either side may leave the mark of a unique-key query out of the content.
        signed(12, {"topic": "topicC", "_UNIQUE_KEY_QUERY": "true"}),
        signed(12, {"topic": "topicC", "_UNIQUE_KEY_QUERY": "true"}, leave_out="_UNIQUE_KEY_QUERY"),
        # Go's client signs no token.
        signed(12, {"topic": "topicC", "SecurityToken": "t"}, leave_out="SecurityToken"),
    ):
        check(validator, request)
    for code in RequestCode:
        check(validator, signed(code, {"topic": "any"}, key="rocketmq2"))


def test_addresses_that_are_listed_need_no_signature(validator: PlainAccessValidator) -> None:
    """The global list for anybody, an account's list for requests that name that account."""
    anything = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    check(validator, anything, "10.10.103.7:1")
    named = RemotingCommand(17, {"AccessKey": "rocketmq2"})
    check(validator, named, "192.168.1.200:1")
    for request, peer in ((anything, "10.10.104.7:1"), (named, "192.168.2.200:1")):
        with pytest.raises(AccessDenied):
            check(validator, request, peer)


@pytest.mark.parametrize(
    ("groups", "topics", "says"),
    [
        (["groupB"], ["topicC", "%RETRY%groupB"], None),
        (["groupB", "groupA"], ["topicC"], "group:groupA"),
        (["groupB"], ["topicC", "other"], "topic:other"),
        (["groupB"], ["topicC", "%RETRY%groupA"], "group:groupA"),
    ],
)
def test_a_heartbeat_needs_every_group_and_topic_in_it(
    validator: PlainAccessValidator, groups: list[str], topics: list[str], says: str | None
) -> None:
    subscriptions = [{"topic": topic} for topic in topics]
    consumers = [{"groupName": each, "subscriptionDataSet": subscriptions} for each in groups]
    body = json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()
    with nullcontext() if says is None else pytest.raises(AccessDenied, match=says):
        check(validator, signed(RequestCode.HEART_BEAT, {}, body))


@pytest.mark.parametrize(
    ("retries", "may"),
    [
        ("groupA_topicC", False),
        ("groupA+topicC", False),
        ("groupB+topicA", False),
        ("groupB+topicC", True),
        ("groupC_topicC", True),
    ],
)
def test_a_default_right_does_not_open_denied_pop_retry_topics(
    validator: PlainAccessValidator, retries: str, may: bool
) -> None:
    """They are a topic for each group and topic; by its name alone one might be that of another group."""
    topic = f"%RETRY%{retries}"
    for request in (
        signed(RequestCode.PULL_MESSAGE, {"topic": topic, "consumerGroup": "groupB"}),
        send(topic),
    ):
        with nullcontext() if may else pytest.raises(AccessDenied, match="group:group"):
            check(validator, request)


@pytest.mark.parametrize(
    "name",
    [
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "rmq_sys_wheel_timer",
        "SCHEDULE_TOPIC_XXXX",
        "%RETRY%CID_RMQ_SYS_TRANS",
    ],
)
def test_no_default_opens_what_holds_the_messages_of_others(path: Path, name: str) -> None:
    """Delayed messages of any topic can be read there; who may is written down by name."""
    text = "accounts:\n  - {accessKey: RocketMQ, secretKey: '12345678', defaultTopicPerm: SUB"
    text += ", defaultGroupPerm: SUB"
    pull = signed(RequestCode.PULL_MESSAGE, {"topic": name, "consumerGroup": "g"})
    path.write_text(text + "}", encoding="utf-8")
    group = name.removeprefix("%RETRY%")
    kind = "topic" if group == name else "group"
    with pytest.raises(AccessDenied, match=f"{kind}:{group}"):
        check(PlainAccessValidator(path), pull)
    path.write_text(text + f", {kind}Perms: [{group}=SUB]}}", encoding="utf-8")
    check(PlainAccessValidator(path), pull)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("192.168.1.7", ["192.168.1.7", "::ffff:192.168.1.7"], ["192.168.1.70", "192.168.1.8"]),
        ("10.1.1.1,10.1.1.2", ["10.1.1.1", "10.1.1.2"], ["10.1.1.3"]),
        ("192.168.*.*", ["192.168.0.0", "192.168.255.1"], ["192.169.0.0"]),
        ("192.168.1-5.*", ["192.168.1.1", "192.168.5.9"], ["192.168.6.1", "192.168.0.1"]),
        ("192.168.1.{7,9}", ["192.168.1.7", "192.168.1.9"], ["192.168.1.8"]),
        ("*.*.*.*", ["1.2.3.4", "::1"], []),
        ("::1", ["::1", "[::1]", "0:0:0:0:0:0:0:1"], ["::2", "127.0.0.1"]),
        ("1050::5:600:300c:1-ff", ["1050::5:600:300c:20"], ["1050::5:600:300c:100"]),
        ("", [], ["127.0.0.1", ""]),
        ("127.0.0.1", ["127.0.0.1"], ["", "no address", "127.0.0.1.1"]),
    ],
)
def test_a_pattern_means_these_addresses(
    pattern: str, inside: list[str], outside: list[str]
) -> None:
    made = AddressPattern(pattern)
    assert [made.matches(address) for address in inside] == [True] * len(inside)
    assert [made.matches(address) for address in outside] == [False] * len(outside)


@pytest.mark.parametrize("bad", ["192.168.1", "1.2.3.256", "1.2.3.9-1", "1.2.3.x", "1.2.3.{4"])
def test_an_address_that_is_none_is_named(bad: str) -> None:
    with pytest.raises(IllegalArgument, match="in an ACL file is not an address"):
        AddressPattern(bad)


def test_the_same_denial_is_logged_once_and_counted(
    validator: PlainAccessValidator, caplog: pytest.LogCaptureFixture
) -> None:
    """A console without a key asks every few seconds; from another port after each lost connection."""
    guarded = validator.guarded(lambda *_: pytest.fail("let in"), None, lambda _: None)
    for number in range(3):
        connection = open_connection(ManualClock())
        connection.peer = f"203.0.113.9:{50_000 + number}"
        answer = guarded(RemotingCommand(RequestCode.GET_BROKER_CONFIG), connection)
        assert isinstance(answer, RemotingCommand)
        assert answer.code != 0
    [line] = caplog.messages
    assert line.endswith("reason='No accessKey is configured'; the same again is counted")
    for _ in range(60):
        validator.tick()
    assert caplog.messages[1].endswith("reason='No accessKey is configured' times=2")
    for _ in range(180):
        validator.tick()
    assert len(caplog.messages) == 2


def test_a_changed_file_applies_at_the_next_tick_unless_broken(
    validator: PlainAccessValidator, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Invariants 3 and 4; files of the folder acl count, too."""
    request = send("topicA")

    def allowed() -> bool:
        try:
            check(validator, request)
        except AccessDenied:
            return False
        return True

    def write(file: Path, text: str, at_s: int) -> None:
        file.write_text(text, encoding="utf-8")
        os.utime(file, (at_s, at_s))
        validator.tick()

    assert not allowed()
    write(path, ACCOUNTS.replace("topicA=DENY", "topicA=PUB"), 1)
    assert allowed()
    with caplog.at_level(logging.ERROR, "pocketmq.broker.access.acl"):
        write(path, "accounts: [", 2)
        write(path, "accounts: [{accessKey: RocketMQ, secretKey: short}]", 3)
    assert "the old accounts stay" in caplog.text
    assert "7 characters or more" in caplog.text
    assert allowed()
    (path.parent / "acl").mkdir()
    write(path, "accounts: []", 4)
    assert not allowed()
    write(path.parent / "acl" / "more.yml", ACCOUNTS.replace("topicA=DENY", "topicA=PUB"), 5)
    assert allowed()


@pytest.mark.parametrize(
    ("change", "closes"),
    [
        (("topicB=PUB|SUB", "topicB=PUB"), True),
        (("topicC=SUB", "topicX=SUB"), True),
        (("groupB=PUB|SUB", "groupB=DENY"), True),
        (("defaultGroupPerm: SUB", "defaultGroupPerm: DENY"), True),
        (("secretKey: 12345678\n    whiteRemoteAddress:\n", "secretKey: 87654321\n"), True),
        (("accessKey: RocketMQ", "accessKey: SomebodyElse"), True),
        (("defaultTopicPerm: DENY", "defaultTopicPerm: PUB"), False),
        (("topicA=DENY", "topicA=PUB"), False),
        (("admin: true", "admin: false"), False),
        (("- 10.10.103.*", "- 10.10.103.7"), False),
    ],
)
def test_who_loses_a_right_loses_the_connection(
    validator: PlainAccessValidator, path: Path, change: tuple[str, str], closes: bool
) -> None:
    """What it waits for was asked with rights that it has lost; more rights end no connection."""
    caller, other = Caller(PEER), Caller("192.168.1.7:1")
    for _ in range(3):
        check(validator, send("topicB"), caller)
    check(validator, RemotingCommand(25, {"AccessKey": "rocketmq2"}), other)
    path.write_text(ACCOUNTS.replace(*change), encoding="utf-8")
    assert path.read_text("utf-8") != ACCOUNTS
    os.utime(path, (1, 1))
    assert validator.tick() is (closes or "admin" in change[0])
    assert caller.closed is closes
    assert other.closed is ("admin" in change[0])


def test_an_address_taken_off_the_list_loses_its_connections(
    validator: PlainAccessValidator, path: Path
) -> None:
    stays, goes = Caller("10.10.103.7:1"), Caller("10.10.103.8:1")
    for caller in (stays, goes):
        check(validator, RemotingCommand(25, {"AccessKey": "rocketmq2"}), caller)
    path.write_text(ACCOUNTS.replace("10.10.103.*", "10.10.103.7"), encoding="utf-8")
    os.utime(path, (1, 1))
    assert validator.tick()
    assert (stays.closed, goes.closed) == (False, True)


@pytest.mark.parametrize("body", [b"{a:[" + b"1," * 20_000 + b"]}", b"[" + b"1," * 150_000 + b"1]"])
def test_a_body_is_not_read_that_its_handler_would_not_read(
    validator: PlainAccessValidator, body: bytes
) -> None:
    """An account without a right held up everybody for seconds, with one request of 4 MB."""
    request = signed(RequestCode.HEART_BEAT, {}, body)
    with pytest.raises(AccessDenied, match=r"the limit is|is not plain JSON"):
        check(validator, request)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "needs a readable .*plain_acl.yml"),
        ("accounts: [", "needs a readable .*plain_acl.yml"),
        ("just words", "has no `accounts:`"),
        ("accounts: [{accessKey: RocketMQ}]", "need 7 characters or more"),
        ("accounts: [{accessKey: RocketMQ, secretKey: 12345678, topicPerms: [T]}]", "NAME=DENY"),
        ("globalWhiteRemoteAddresses: [1.2.3]", "3 numbers instead of 4"),
        ("accounts: [word]", "the ACL file"),
    ],
)
def test_an_ambiguous_access_file_prevents_the_start(
    tmp_path: Path, text: str | None, says: str
) -> None:
    """An open broker must not look like a closed one."""
    path = tmp_path / "plain_acl.yml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(IllegalArgument, match=says):
        PlainAccessValidator(path)


def test_the_keys_of_closed_connections_are_let_go(validator: PlainAccessValidator) -> None:
    """Of many that come and go, and not of those that are still there."""
    stays = open_connection(ManualClock())
    validator.note(stays, "first")
    for _ in range(2_000):
        goes = open_connection(ManualClock())
        validator.note(goes, "key")
        goes.closed = True
    validator.note(stays, "second")
    assert validator.callers.key_of[stays] == "second"
    assert len(validator.callers.key_of) <= 256
