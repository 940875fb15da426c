"""What is given wrongly is refused where it is given, with the argument's name and what to write."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq import client
from pocketmq.client import (
    CallerError,
    Credentials,
    LitePullConsumer,
    Message,
    MessageTooLarge,
    PocketMQError,
    Producer,
    PushConsumer,
    SimpleConsumer,
    sync,
)
from pocketmq.client.argument_types import check_time_ms
from pocketmq.client.producer import delayed
from pocketmq.client.send.encode import Packer
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.frames import FRAME_SIZE_MAX
from pocketmq.testing import InProcess

SITE = "127.0.0.1:9876"


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (Producer, {"tls": "yes"}, "tls must be .* or True or False, not 'yes'"),
        (
            Producer,
            {"credentials": ("a", "secret")},
            "credentials must be a Credentials or None, not tuple",
        ),
        (Producer, {"retry_times": "x"}, "retry_times must be a whole number, not 'x'"),
        (Producer, {"retry_times": -1}, "retry_times must be at least 0"),
        (Producer, {"retry_times": True}, "retry_times must be a whole number, not True"),
        (Producer, {"send_timeout_ms": 0.5}, "send_timeout_ms must be a whole number, not 0.5"),
        (Producer, {"send_timeout_ms": 0}, "send_timeout_ms must be at least 1"),
        (Producer, {"compression": "LZ4"}, "compression must be a Compression, not 'LZ4'"),
        (Producer, {"trace": "no"}, "trace must be True or False"),
        (Producer, {"name_server": [SITE]}, "name_server must be text or None, not list"),
        (SimpleConsumer, {"invisible_ms": "1m"}, "invisible_ms must be a whole number"),
        (PushConsumer, {"orderly": 1}, "orderly must be True or False, not 1"),
        (PushConsumer, {"max_reconsume_times": -2}, "max_reconsume_times must be at least -1"),
        (LitePullConsumer, {"auto_commit": None}, "auto_commit must be True or False, not None"),
    ],
)
def test_an_option_of_another_type_or_range_is_refused_by_name(
    kind: Callable[..., Any], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(CallerError, match=said) as refused:
        kind("group", **{"name_server": SITE, **options})
    assert "secret" not in str(refused.value)


def test_options_of_the_right_types_are_taken() -> None:
    consumer = LitePullConsumer(
        "group",
        name_server=SITE,
        credentials=Credentials("a", "b"),
        tls=True,
        message_model="BROADCASTING",  # type: ignore[arg-type]
        offset_folder="offsets",
    )
    assert consumer.config.tls is True


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((b"x", "T"), "topic must be text, not b'x'"),
        (("T", "x"), "body must be bytes, not 'x'"),
        (("T", None), "body must be bytes, not None"),
        (("T", b"x", ["a"]), "tags must be text"),
        (("T", b"x", "a", 5), "keys must be text, not 5"),
    ],
)
def test_a_message_of_wrong_parts_is_refused_when_it_is_made(
    arguments: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(CallerError, match=said):
        Message(*arguments)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (["a", "b"], "must be text, not list: write 'a || b'"),
        (5, "must be text, not int: write 'tagA || tagB'"),
        ("a,b", "write 'a || b'"),
        ("a, b,", "write 'a || b'"),
        ("||", "names no tag"),
    ],
)
def test_an_expression_that_names_no_tags_is_refused(expression: Any, said: str) -> None:
    for kind in (PushConsumer, SimpleConsumer, LitePullConsumer):
        consumer: Any = kind("group", name_server=SITE)
        with pytest.raises(CallerError, match=said.replace("|", r"\|")):
            consumer.subscribe("T", expression)
    with pytest.raises(CallerError, match=said.replace("|", r"\|")):
        PushConsumer("group", name_server=SITE).on("T", expression)(lambda message: None)


def test_an_sql_condition_may_have_commas() -> None:
    PushConsumer("group", name_server=SITE).subscribe("T", "a in ('x', 'y')", "SQL92")


async def test_a_consumer_without_a_subscription_waits_for_nothing() -> None:
    consumer = PushConsumer("group", name_server=SITE, listener=lambda messages, context: None)
    with pytest.raises(CallerError, match="has no subscription"):
        await consumer.run_until_signal()


@pytest.mark.parametrize("tags", ["a || b", " a", "a ", " ", "\t"])
def test_a_tag_that_no_subscription_can_name_is_refused(tags: str) -> None:
    with pytest.raises(CallerError, match="could not be subscribed to"):
        _packer().pack(Message("T", b"x", tags=tags))


@pytest.mark.parametrize("tags", ["a", "a b", "a|b", ""])
def test_other_tags_travel(tags: str) -> None:
    assert f"TAGS\x01{tags}\x02" in _packer().pack(Message("T", b"x", tags=tags)).properties


@pytest.mark.parametrize("topic", [5, None, ["T"], b"T"])
def test_a_topic_that_is_no_text_is_refused(topic: Any) -> None:
    with pytest.raises(CallerError, match="the topic must be text"):
        PushConsumer("group", name_server=SITE).subscribe(topic)


def test_a_delivery_time_in_seconds_is_recognised() -> None:
    now = int(time.time())
    with pytest.raises(CallerError, match=f"looks like seconds: give {now}000"):
        delayed(Message("T", b"x"), None, now)
    check_time_ms("deliver_at_ms", now * 1000)
    with pytest.raises(CallerError, match="deliver_at_ms must be a whole number"):
        delayed(Message("T", b"x"), None, 1.5)  # type: ignore[arg-type]


def test_a_time_out_that_is_no_number_is_refused() -> None:
    """It was a TypeError from inside, and a coroutine that was never awaited."""
    text: Any = "3"
    with (
        InProcess() as server,
        sync.Producer("p", name_server=server.namesrv) as producer,
        sync.LitePullConsumer("g", name_server=server.namesrv) as consumer,
    ):
        calls: list[Callable[[], object]] = [
            lambda: producer.send(Message("T", b"x"), timeout_ms=text),
            lambda: producer.request(Message("T", b"x"), timeout_ms=text),
            lambda: consumer.poll(text),
        ]
        for call in calls:
            with pytest.raises(CallerError, match="timeout_ms must be a whole number or a number"):
                call()


def test_a_body_beyond_a_frame_is_refused_before_it_is_sent() -> None:
    body = bytes(FRAME_SIZE_MAX)
    packer = _packer(max_message_size=1 << 30, compress_over=1 << 31)
    with pytest.raises(MessageTooLarge, match="no frame of RocketMQ's protocol has room"):
        packer.pack(Message("T", body))
    # Packed it fits.
    assert _packer(max_message_size=1 << 30).pack(Message("T", body)).body_size == len(body)


def test_each_error_is_of_a_class_that_says_what_to_do() -> None:
    """CallerError, TransientError or OutcomeUnknown, as docs/client.md says."""
    kinds = (client.CallerError, client.TransientError, client.OutcomeUnknown)
    errors = [
        each
        for name in client.__all__
        if isinstance(each := getattr(client, name), type) and issubclass(each, PocketMQError)
    ]
    others = {each.__name__ for each in errors if not issubclass(each, kinds)}
    assert others <= {"PocketMQError", "RequestRefused", "BrokerRefused", "RemotingError"}


def _packer(**options: Any) -> Packer:
    config = Producer("group", name_server=SITE, **options).config
    return Packer("group", config, SystemClock(), "127.0.0.1")
