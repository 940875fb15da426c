"""`pocketmq dlq resend`: what counts as sent reaches its group again, with its producer's properties."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.admin import Admin, GroupConfig
from pocketmq.cli.app import run
from pocketmq.cli.exits import CannotBegin
from pocketmq.client import ConsumeResult, Message, TransactionState
from pocketmq.client.sync import Producer, PushConsumer, SimpleConsumer, TransactionProducer
from tests.cli.machine_keys import checked
from tests.cli.servers import Server
from tests.kit.waiting import until

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = Server(
        tmp_path_factory.mktemp("site"),
        *("up", "--namesrv-port", "0", "--broker-port", "0", "--data", "store"),
    )
    yield server.ready()["namesrv"]
    server.kill()


@pytest.fixture
def ask(namesrv: str, capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(*words: str) -> Any:
        assert run([*words, "--namesrv", namesrv, "--json"]) == 0
        return checked(words, json.loads(capsys.readouterr().out))

    return asked


def _popped(consumer: SimpleConsumer) -> list[bytes]:
    found = consumer.receive(wait_ms=2_000)
    for message in found:
        consumer.ack(message)
    return [message.body for message in found]


@pytest.mark.parametrize("connected", [True, False], ids=["connected", "offline"])
def test_a_group_that_pops_gets_its_dead_letter_from_where_it_pops(
    connected: bool, ask: Ask, namesrv: str
) -> None:
    topic, group = f"Popped{connected}", f"pops_{connected}"
    ask("topic", "create", topic, "--queues", "1")
    ask("group", "create", group, "--retry-max", "0")
    with Producer("P", name_server=namesrv) as producer:
        producer.send(Message(topic, b"fails", keys="k"))
    with SimpleConsumer(group, name_server=namesrv, invisible_ms=1_000) as consumer:
        consumer.subscribe(topic)
        until(lambda: consumer.receive(wait_ms=500), "the message, which is not acknowledged")
        until(lambda: ask("dlq", "list", group), "its dead letter")
        if connected:
            (row,) = ask("dlq", "resend", group, "--all", "--yes")
            until(lambda: _popped(consumer) == [b"fails"], "the letter by a pop")
    if not connected:
        (row,) = ask("dlq", "resend", group, "--all", "--yes")
        with SimpleConsumer(group, name_server=namesrv) as consumer:
            consumer.subscribe(topic)
            until(lambda: _popped(consumer) == [b"fails"], "the letter by a pop")
    assert row["status"] == "SEND_OK"
    (letter,) = ask("dlq", "list", group)
    assert len(letter["sentAgain"]) == 1
    assert letter in ask("dlq", "list")
    # The broker knows the group by its name, and has made none of its topic's.
    assert f"{group}_{topic}" not in [each["group"] for each in ask("group", "list")]


def test_an_orderly_group_is_refused_with_the_way_to_go(ask: Ask, namesrv: str) -> None:
    """Its pops read no retry topic: a copy there would reach no consumer."""
    ask("topic", "create", "InTurn", "--queues", "1")
    ask("topic", "create", "%DLQ%orderly", "--queues", "1")
    config = GroupConfig("orderly", extra={"consumeMessageOrderly": True})
    asyncio.run(_create(namesrv, config))
    letter = ("message", "send", "%DLQ%orderly", "dead", "--property", "RETRY_TOPIC=InTurn")
    ask(*letter, "--property", "1ST_POP_TIME=1")
    with pytest.raises(CannotBegin, match="message import FILE --topic InTurn"):
        run(["dlq", "resend", "orderly", "--all", "--yes", "--namesrv", namesrv])


async def _create(namesrv: str, config: GroupConfig) -> None:
    async with Admin(name_server=namesrv) as admin:
        await admin.groups.create(config)


def test_a_dead_letter_comes_at_once_with_what_its_producer_gave_it(
    ask: Ask, namesrv: str, tmp_path: Path
) -> None:
    """Those of delayed messages and of transactions, too: they waited before they failed."""
    ask("topic", "create", "Kinds", "--queues", "1")
    soon = str(int(time.time() * 1000) + 200)
    extra = [{}, {"DELAY": "1"}, {"TIMER_DELAY_SEC": "1"}, {"TIMER_DELIVER_MS": soon}]
    with Producer("P", name_server=namesrv) as producer:
        for number, each in enumerate(extra):
            producer.send(Message("Kinds", b"%d" % number, properties={"own": "x"} | each))
    with TransactionProducer(
        "T", check=lambda message: TransactionState.COMMIT, name_server=namesrv
    ) as producer:
        half = Message("Kinds", b"4", properties={"own": "x"})
        producer.send_in_transaction(half, lambda message: TransactionState.COMMIT)
    fails, got = True, {}

    def listener(messages: list[Any], context: Any) -> ConsumeResult:
        if not fails:
            got.update({each.body: each.properties for each in messages})
        return ConsumeResult.RECONSUME_LATER if fails else ConsumeResult.SUCCESS

    with PushConsumer(
        "kinds", listener=listener, name_server=namesrv, max_reconsume_times=0
    ) as consumer:
        consumer.subscribe("Kinds")
        until(lambda: len(ask("dlq", "list", "kinds")) == 5, "five dead letters")
        fails = False
        assert len(ask("dlq", "resend", "kinds", "--all", "--yes")) == 5
        until(lambda: len(got) == 5, "all of them, again")
    assert {each["own"] for each in got.values()} == {"x"}
    steering = {"DELAY", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TRAN_MSG", "PGROUP"}
    assert not steering & {name for each in got.values() for name in each}
