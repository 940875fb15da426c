"""Sending without a network: queue choice, attempts, fault tolerance, batches, ids, signatures, names."""

import datetime
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.client.errors import (
    AnswerTimeout,
    BrokerBusy,
    BrokerFailed,
    ConnectionBroken,
    IllegalGroup,
    IllegalMessage,
    IllegalTopic,
    MessageIllegal,
    MessageTooLarge,
    NoPermission,
    SendFailed,
    SendOutcomeUnknown,
    TopicNotExist,
    Unauthorised,
    Unreachable,
    all_attempts_failed,
    refusal,
)
from pocketmq.client.network.config import parse_name_servers
from pocketmq.client.network.heartbeat import ConsumeFromWhere, MessageModel
from pocketmq.client.network.namespace import (
    check_group,
    check_send_topic,
    check_topic,
    with_namespace,
    without_namespace,
)
from pocketmq.client.network.route import (
    NoQueueToSendTo,
    QueueData,
    TopicPublishInfo,
    TopicRoute,
)
from pocketmq.client.options import ClientOptions, PushConsumerOptions
from pocketmq.client.producer import Producer, delayed, queue_index
from pocketmq.client.send import batch
from pocketmq.client.send.fault_strategy import FaultStrategy
from pocketmq.client.send.retries import SendAttempts, may_retry
from pocketmq.model import unique_key
from pocketmq.model.message import Message, Property
from pocketmq.model.message_codec import properties_to_dict
from pocketmq.model.record import decode_batch
from pocketmq.model.tables import BrokerData
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.credentials import Credentials
from pocketmq.remoting.errors import IllegalArgument, PocketMQError


def route(**queues: int) -> TopicRoute:
    return TopicRoute(
        tuple(QueueData(name, count, count, 6) for name, count in sorted(queues.items())),
        tuple(BrokerData(name, "c", {0: f"{name}:1"}) for name in sorted(queues)),
    )


def info(**queues: int) -> TopicPublishInfo:
    return TopicPublishInfo.of("T", route(**queues), 0)


def strategy(clock: ManualClock, *, enabled: bool = False) -> FaultStrategy:
    return FaultStrategy(clock, lambda: 0, enabled=enabled)


# ------------------------------------------------------------ which queue


def test_queues_are_taken_in_turn() -> None:
    """S82: round robin over all queues of all brokers, from where the random start lies."""
    topic = info(a=2, b=2)
    topic.next_index = 3
    taken = [topic.take() for _ in range(5)]
    assert [(queue.broker_name, queue.queue_id) for queue in taken] == [
        ("b", 1),
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]


def test_sends_avoid_queues_without_master_or_permission() -> None:
    """S37: publish queues need permission W and a master, subscribe queues permission R."""
    mixed = TopicRoute(
        (
            QueueData("a", 2, 2, 6),
            QueueData("b", 2, 2, 4),
            QueueData("c", 2, 2, 2),
            QueueData("d", 1, 1, 6),
        ),
        (
            BrokerData("a", "c", {0: "a:1"}),
            BrokerData("b", "c", {0: "b:1"}),
            BrokerData("c", "c", {0: "c:1"}),
            BrokerData("d", "c", {1: "slave:1"}),
        ),
    )
    assert {queue.broker_name for queue in mixed.publish_queues("T")} == {"a", "c"}
    assert {queue.broker_name for queue in mixed.subscribe_queues("T")} == {"a", "b", "d"}
    empty = TopicPublishInfo.of("T", TopicRoute(), 0)
    with pytest.raises(NoQueueToSendTo):
        empty.take()


def test_an_order_topic_has_the_queues_of_its_configuration() -> None:
    ordered = TopicRoute(route(a=4, b=4).queues, route(a=4, b=4).brokers, "a:2;b:1")
    assert [(q.broker_name, q.queue_id) for q in ordered.publish_queues("T")] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
    ]


def test_a_topic_yet_to_be_created_has_four_queues() -> None:
    """S82: the smaller of the client's four and the template's eight."""
    assert len(route(a=8).limited_to(4).publish_queues("T")) == 4


def test_a_retry_goes_to_another_broker() -> None:
    """S82: the broker that has just failed is avoided, unless there is no other."""
    clock = ManualClock()
    chooser = strategy(clock)
    topic = info(a=4, b=1)
    assert chooser.choose(topic, "a").broker_name == "b"
    assert chooser.choose(info(a=2), "a").broker_name == "a"


def test_a_slow_broker_is_left_alone_for_a_while() -> None:
    """S82: with latency fault tolerance 600 ms cost half a minute, a failure ten minutes."""
    clock = ManualClock()
    chooser = strategy(clock, enabled=True)
    topic = info(a=2, b=2)
    chooser.update("a", 600, isolate=False)
    assert {chooser.choose(topic, None).broker_name for _ in range(8)} == {"b"}
    clock.advance_ms(30_000)
    assert {chooser.choose(topic, None).broker_name for _ in range(8)} == {"a", "b"}
    chooser.update("a", 10, isolate=True)
    clock.advance_ms(599_999)
    assert not chooser.is_available("a")
    clock.advance_ms(1)
    assert chooser.is_available("a")


def test_when_all_brokers_are_bad_the_better_one_is_taken() -> None:
    clock = ManualClock()
    chooser = strategy(clock, enabled=True)
    chooser.update("a", 5_000, isolate=True)
    chooser.update("b", 60, isolate=True)
    assert {chooser.choose(info(a=2, b=2), None).broker_name for _ in range(4)} == {"b"}


# ------------------------------------------------------------ attempts


def attempts(clock: ManualClock, **queues: int) -> SendAttempts:
    return SendAttempts(info(**queues), strategy(clock), clock, attempts_max=3, timeout_ms=3_000)


def test_a_lost_answer_of_sendonce_keeps_all_attempts_there() -> None:
    once = TopicPublishInfo.of("T", route(a=1, b=1), 0)
    once.once = frozenset("a")
    plan = SendAttempts(once, strategy(ManualClock()), ManualClock(), attempts_max=9, timeout_ms=9)
    # Nothing was sent: any broker may be next.
    assert plan.next_queue().broker_name == "a"
    assert plan.failed(Unreachable("x"))
    assert plan.next_queue().broker_name == "b"
    assert plan.failed(AnswerTimeout("x"))
    assert plan.next_queue().broker_name == "a"
    # It is not given up while it is silent, and not left once an answer was lost.
    assert not plan.may_repeat
    for error in (ConnectionBroken("x"), Unreachable("x"), AnswerTimeout("x")):
        assert plan.failed(error)
        assert plan.next_queue().broker_name == "a"
        assert not plan.elsewhere()


def refused(code: int, remark: str = "") -> PocketMQError:
    return refusal(code, remark, "a:1", "sending")


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (Unreachable("x"), True),
        (AnswerTimeout("x"), True),
        (refused(ResponseCode.TOPIC_NOT_EXIST), True),
        (refused(ResponseCode.SERVICE_NOT_AVAILABLE), True),
        (refused(ResponseCode.SYSTEM_ERROR), True),
        (refused(ResponseCode.SYSTEM_BUSY), True),
        (refused(ResponseCode.NO_PERMISSION), True),
        (refused(ResponseCode.MESSAGE_ILLEGAL), False),
        (
            refused(ResponseCode.SYSTEM_ERROR, "org.apache.rocketmq.acl.common.AclException: no"),
            False,
        ),
        (IllegalMessage("x"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_only_what_another_broker_may_take_is_tried_again(
    error: PocketMQError, again: bool
) -> None:
    """S33: the set of codes of 5.x; a signature that is refused here is refused everywhere."""
    assert may_retry(error) is again


def test_attempts_end_with_their_number_or_their_time() -> None:
    clock = ManualClock()
    plan = attempts(clock, a=1, b=1)
    seen = []
    for _ in range(3):
        seen.append(plan.next_queue().broker_name)
        more = plan.failed(Unreachable("x"))
    assert seen == ["a", "b", "a"]
    assert not more
    late = attempts(clock, a=1)
    late.next_queue()
    clock.advance_ms(3_000)
    assert not late.failed(AnswerTimeout("x"))


def test_the_error_says_whether_a_message_may_be_stored() -> None:
    """E-tree: surely not stored can be sent again; perhaps stored only where twice does no harm."""
    clock = ManualClock()
    plan = attempts(clock, a=1, b=1)
    plan.next_queue()
    plan.failed(Unreachable("no route to host"))
    plan.next_queue()
    plan.failed(refused(ResponseCode.SYSTEM_BUSY))
    assert isinstance(all_attempts_failed("T", "g", plan.attempts), SendFailed)
    plan.next_queue()
    plan.failed(AnswerTimeout("slow"))
    error = all_attempts_failed("T", "g", plan.attempts)
    assert isinstance(error, SendOutcomeUnknown)
    for word in ("'T'", "'g'", "no route to host", "SYSTEM_BUSY (2)", "slow", "3 times"):
        assert word in str(error)


def test_a_refusal_names_code_broker_reason_and_the_next_step() -> None:
    error = refusal(17, "topic[T] not exist", "10.0.0.2:10911", "sending to topic 'T' by group 'g'")
    assert isinstance(error, TopicNotExist)
    for word in ("'T'", "'g'", "10.0.0.2:10911", "TOPIC_NOT_EXIST (17)", "pocketmq topic create"):
        assert word in str(error)
    assert isinstance(refusal(16, "denied", "a", "x"), NoPermission)
    assert isinstance(refusal(2, "busy", "a", "x"), BrokerBusy)
    assert isinstance(refusal(13, "", "a", "x"), MessageIllegal)
    assert isinstance(refusal(1, "oops", "a", "x"), BrokerFailed)
    assert isinstance(refusal(999, None, "a", "x"), BrokerFailed)
    assert isinstance(
        refusal(1, "…AclException: No accessKey is configured", "a", "x"), Unauthorised
    )


# ------------------------------------------------------------ batches


def test_a_batch_is_cut_into_as_few_requests_as_fit() -> None:
    messages = [Message("T", bytes(100)) for _ in range(10)]
    chunks = list(batch.split(messages, 400))
    assert [len(chunk) for chunk in chunks] == [3, 3, 3, 1]
    assert [message for chunk in chunks for message in chunk] == messages
    with pytest.raises(MessageTooLarge, match="a message of topic 'T' takes 122 bytes"):
        list(batch.split(messages, 121))


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=30), size_max=st.integers(330, 1_000)
)
def test_every_chunk_of_a_batch_fits_and_none_is_lost(sizes: list[int], size_max: int) -> None:
    messages = [Message("T", bytes(size), tags="t") for size in sizes]
    chunks = list(batch.split(messages, size_max))
    assert all(len(batch.encode(chunk)) <= size_max for chunk in chunks)
    members = [member for chunk in chunks for member in decode_batch(batch.encode(chunk))]
    assert [len(member.body) for member in members] == sizes
    assert properties_to_dict(members[0].properties) == {"TAGS": "t"}


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "at least one"),
        ([Message("A", b"x"), Message("B", b"x")], "one topic"),
        ([Message("A", b"x", properties={"DELAY": "3"})], "cannot be delayed"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
        (
            [Message("A", b"x"), Message("A", b"x", properties={"WAIT": "false"})],
            "wait for the store",
        ),
    ],
)
def test_what_cannot_be_a_batch_is_refused_before_it_is_sent(
    messages: list[Message], why: str
) -> None:
    with pytest.raises(IllegalMessage, match=why):
        batch.check_batch(messages)


def test_a_sharding_key_goes_where_java_sends_it() -> None:
    """S33: String.hashCode's remainder made positive, as SelectMessageQueueByHash does."""
    assert [queue_index(key, 4) for key in ("a", "b", "order-1", "中文")] == [1, 2, 2, 2]
    # The hash of this word is the one that has no positive counterpart in 32 bits.
    assert queue_index("polygenelubricants", 3) == 2


def test_a_delay_is_a_level_or_a_time() -> None:
    message = Message("T", b"x", tags="t")
    assert delayed(message, 3, None).properties == {"TAGS": "t", Property.DELAY.value: "3"}
    assert delayed(message, None, 5).properties[Property.TIMER_DELIVER_MS.value] == "5"
    assert Property.DELAY.value not in message.properties
    for level in (0, 19):
        with pytest.raises(IllegalMessage, match="from 1 to 18"):
            delayed(message, level, None)


# ------------------------------------------------------------ ids


def test_a_unique_key_has_javas_parts() -> None:
    """S33: address, process, four bytes of this process, time since the month began, counter."""
    clock = ManualClock(1_795_246_220_978)
    keys = unique_key.UniqueKeys("192.168.1.10", clock, b"\x01\x02\x03\x04")
    first, second = keys.make(), keys.make()
    assert first.startswith(f"C0A8010A{os.getpid() & 0xFFFF:04X}01020304")
    assert len(first) == 32
    assert int(second[-4:], 16) == int(first[-4:], 16) + 1
    parts = unique_key.parse(first, clock.now_ms())
    assert (parts.ip, parts.near_ms) == ("192.168.1.10", clock.now_ms())


def test_a_unique_key_of_a_host_with_ipv6_is_longer() -> None:
    keys = unique_key.UniqueKeys("fe80::1", ManualClock(), b"abcd")
    assert len(keys.make()) == 56
    assert unique_key.parse(keys.make(), ManualClock().now_ms()).ip == "fe80::1"


def test_the_time_in_a_key_starts_anew_each_month() -> None:
    """The ids of a process that runs across the end of a month still grow within each month."""
    end = datetime.datetime(2026, 11, 30, 23, 59, 59, 999_000)
    clock = ManualClock(int(end.timestamp() * 1000))
    keys = unique_key.UniqueKeys("127.0.0.1", clock, b"abcd")
    before = int(keys.make()[20:28], 16)
    clock.advance_ms(1)
    assert before > 29 * 86_400_000
    assert int(keys.make()[20:28], 16) == 0


def test_keys_do_not_repeat() -> None:
    keys = unique_key.UniqueKeys("127.0.0.1", ManualClock())
    made = [keys.make() for _ in range(60_000)]
    assert len(set(made)) == len(made)


# ------------------------------------------------------------ signatures, names, options


def test_a_request_is_signed_as_the_official_clients_sign_it() -> None:
    """Known answers of wire.md 9: 4.9.7's, and 5.5.0's with one more field."""
    credentials = Credentials("rocketmq2", "12345678")
    command = RemotingCommand(30, {"topic": "TopicTest", "queueId": "3"}, b"hello")
    credentials.sign(command)
    assert command.ext is not None
    assert command.ext["Signature"] == "TW8/P9vYIK/b1dEPiLvlMiXW94c="
    credentials.sign(command)
    assert command.ext["Signature"] == "TW8/P9vYIK/b1dEPiLvlMiXW94c="
    command.ext["committed"] = "true"
    credentials.sign(command)
    assert command.ext["Signature"] == "yEKW4yO4NYjsbbA6+OSAGux7NWg="
    assert "12345678" not in repr(credentials)


def test_a_security_token_is_signed_too() -> None:
    command = RemotingCommand(30, {"b": "2"})
    Credentials("ak", "sk", "token").sign(command)
    assert command.ext is not None
    assert command.ext["SecurityToken"] == "token"
    expected = Credentials("ak", "sk").signature(
        {"AccessKey": "ak", "SecurityToken": "token", "b": "2"}, b""
    )
    assert command.ext["Signature"] == expected
    with pytest.raises(IllegalArgument):
        Credentials("", "x")


@pytest.mark.parametrize("bad", ["", "a b", "a/b", "a.b", "x" * 128, "tøpic"])
def test_an_illegal_topic_is_refused_before_anything_is_sent(bad: str) -> None:
    with pytest.raises(IllegalTopic):
        check_topic(bad)
    with pytest.raises(IllegalTopic):
        check_send_topic(bad)


def test_topics_of_the_system_take_no_messages() -> None:
    for name in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"):
        with pytest.raises(IllegalTopic, match="belongs to the system"):
            check_send_topic(name)
    assert check_topic("%RETRY%" + "g" * 200)


@pytest.mark.parametrize("bad", ["", " ", "a b", "g" * 256, "DEFAULT_PRODUCER", "a%b/c"])
def test_an_illegal_group_is_refused(bad: str) -> None:
    with pytest.raises(IllegalGroup):
        check_group(bad)


@settings(deadline=None)
@given(name=st.text("abcXYZ0_-", min_size=1), namespace=st.text("mnMN1", min_size=1))
def test_a_namespace_comes_off_as_it_was_put_on(name: str, namespace: str) -> None:
    for whole in (name, f"%RETRY%{name}", f"%DLQ%{name}"):
        wrapped = with_namespace(namespace, whole)
        assert without_namespace(namespace, wrapped) == whole
        assert with_namespace(namespace, wrapped) == wrapped
    assert with_namespace(namespace, "RMQ_SYS_TRACE_TOPIC") == "RMQ_SYS_TRACE_TOPIC"


def test_name_servers_are_read_from_text_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_name_servers("a:1; b:2;a:1") == ("a:1", "b:2")
    assert parse_name_servers("http://host") == ("host:9876",)
    for bad in ("host:", ":9876", "a:0", "a:65536", ";", "a:b"):
        with pytest.raises(IllegalArgument, match="name server"):
            parse_name_servers(bad)
    monkeypatch.setenv("NAMESRV_ADDR", "env:9")
    assert ClientOptions().name_servers == ("env:9",)
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(IllegalArgument, match="NAMESRV_ADDR"):
        parse_name_servers(None)


def test_a_consumer_takes_rocketmqs_words_for_how_it_begins() -> None:
    def begins(where: str) -> PushConsumerOptions:
        return PushConsumerOptions(
            name_server="a:1",
            group="g",
            consume_from_where=where,  # type: ignore[arg-type]
            message_model="BROADCASTING",  # type: ignore[arg-type]
        )

    found = begins("CONSUME_FROM_FIRST_OFFSET")
    assert found.consume_from_where is ConsumeFromWhere.FIRST_OFFSET
    assert found.message_model is MessageModel.BROADCASTING
    with pytest.raises(
        IllegalArgument, match="consume_from_where must be one of CONSUME_FROM_LAST"
    ):
        begins("FIRST")


def test_options_are_checked_when_the_client_is_made() -> None:
    with pytest.raises(IllegalArgument, match="header_encoding"):
        ClientOptions(name_server="a:1", header_encoding="XML")
    with pytest.raises(IllegalArgument, match="heartbeat_interval_ms"):
        ClientOptions(name_server="a:1", heartbeat_interval_ms=0)
    with pytest.raises(TypeError, match="did you mean 'namespace'"):
        Producer("g", name_server="a:1", namspace="x")  # type: ignore[call-arg]
    config = ClientOptions(name_server="127.0.0.1:1", unit_name="u")
    assert config.client_id("i") == "127.0.0.1@i@u"
