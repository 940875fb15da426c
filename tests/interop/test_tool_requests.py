"""rocketmq-dashboard and rocketmq-exporter: every request of theirs is answered as they need it.

The table is tool_requests.py; the judge of the table is the real broker 4.9.7 (--reference).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pocketmq.model.message_codec import parse_offset_msg_id
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.fastjson import ObjectKey
from tests.interop.asking import ask, ask_json
from tests.interop.brokers import RunningBroker
from tests.interop.conftest import Shared
from tests.interop.driver import message
from tests.interop.tool_requests import (
    NAMESRV,
    ROWS,
    RUNTIME_INTEGERS,
    RUNTIME_NUMBERS,
    RUNTIME_RATES,
    RUNTIME_TEXTS,
    Row,
)
from tests.kit.waiting import until

TOPIC, GROUP, SENDERS, KEY = "ToolRequests", "tool_requests", "tool_senders", "order-4711"


@dataclass(frozen=True)
class Site:
    """A broker with what the tools look at; words: what is put in for the words in capitals."""

    broker: RunningBroker
    words: dict[str, str]

    def fill(self, text: str) -> str:
        return re.sub(r"\b[A-Z_]{3,}\b", lambda word: self.words.get(word[0], word[0]), text)


@pytest.fixture(scope="module")
def site(broker: RunningBroker, shared: Shared) -> Iterator[Site]:
    """One topic with messages, an official consumer and producer that stay online."""
    tool = shared.mqadmin("4.9.7")
    made = tool.at(broker.namesrv)(
        "updateTopic", "-b", broker.address, "-t", TOPIC, "-r", 2, "-w", 2, "-p", 6
    )
    assert "create topic to" in made.out, made
    with shared.java("4.9.8-JSON").session() as java:
        producer = java.producer(broker.namesrv, SENDERS)
        sent = [producer.send(message(TOPIC, f"m{n}", tags="A", keys=KEY))[0] for n in range(8)]
        consumer = java.push_consumer(
            broker.namesrv,
            GROUP,
            {TOPIC: "A"},
            settings={"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"},
        )
        consumer.wait(8)
        ask_consumer = {"consumerGroup": GROUP}
        [member] = until(
            lambda: ask_json(
                broker.address, RequestCode.GET_CONSUMER_CONNECTION_LIST, ask_consumer
            )["connectionSet"],
            "the consumer to be online",
        )
        until(lambda: _has_owners(broker), "the consumer's offsets at the broker")
        until(lambda: _is_known(broker), "the producer's heartbeat")
        words = {
            "TOPIC": TOPIC,
            "GROUP": GROUP,
            "SENDERS": SENDERS,
            "KEY": KEY,
            "CLUSTER": broker.cluster,
            "NAME": broker.broker_name,
            "CLIENT": member["clientId"],
            "MSG_ID": sent[0].msg_id,
            "OFFSET_ID": sent[0].offset_msg_id,
            "POSITION": str(parse_offset_msg_id(sent[0].offset_msg_id)[1]),
        }
        yield Site(broker, words)


def _has_owners(broker: RunningBroker) -> bool:
    """The consumer has committed (every 5 s), so that GROUP has offsets of both queues."""
    stats = ask_json(
        broker.address, RequestCode.GET_CONSUME_STATS, {"consumerGroup": GROUP, "topic": TOPIC}
    )
    return all(row["consumerOffset"] > 0 for row in stats["offsetTable"].values())


def _is_known(broker: RunningBroker) -> bool:
    found = ask_json(
        broker.address, RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": SENDERS}
    )
    return bool(found["connectionSet"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.call)
def test_each_request_of_dashboard_and_exporter_is_answered(row: Row, site: Site) -> None:
    """S86 to S89: success with everything that they read, or RocketMQ's own code."""
    answer = ask(
        site.broker.namesrv if row.target == NAMESRV else site.broker.address,
        row.code,
        {name: site.fill(value) for name, value in row.fields.items()},
        site.fill(row.body).encode() if not row.body.startswith("{") else row.body.encode(),
    )
    wanted = row.wants
    if site.broker.kind == "rocketmq" and row.at_497 is not None:
        wanted = row.at_497
    assert ResponseCode(answer.code) is wanted, answer.remark
    if wanted is not ResponseCode.SUCCESS:
        assert answer.remark
        return
    for name in row.headers:
        assert (answer.ext or {}).get(name), f"{name} is not in the header {answer.ext}"
    if row.reads:
        body = fastjson.loads(bytes(answer.body))
        for path in row.reads:
            assert_readable(body, [site.fill(step) for step in path.split(".")], path)


def assert_readable(value: Any, steps: list[str], path: str) -> None:
    """Everything that the path names is there; `*` names at least one thing."""
    if not steps:
        return
    step, rest = steps[0], steps[1:]
    if step == "*":
        found = list(value.values()) if isinstance(value, dict) else list(value)
        assert found, f"{path}: nothing to look at in {value}"
        if rest:
            # Of several kinds of things, as under names of groups, those that have it are looked at.
            deeper = [each for each in found if isinstance(each, dict) and rest[0] in _names(each)]
            if rest[0] == "*":
                deeper = found
            assert deeper, f"{path}: no {rest[0]} in {found}"
            for each in deeper:
                assert_readable(each, rest, path)
        return
    assert isinstance(value, dict), f"{path}: {value}"
    by_name = {_text(key): each for key, each in value.items()}
    assert step in by_name, f"{path}: no {step} in {sorted(by_name)}"
    assert_readable(by_name[step], rest, path)


def _names(value: dict[Any, Any]) -> set[str]:
    return {_text(key) for key in value}


def _text(key: Any) -> str:
    return "object" if isinstance(key, ObjectKey) else str(key)


def test_the_exporter_can_read_the_brokers_runtime_figures(site: Site) -> None:
    """It parses each of them, and one that is missing or malformed loses all of them."""
    table = ask_json(site.broker.address, RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    for name in RUNTIME_INTEGERS:
        int(table[name])
    for name in RUNTIME_NUMBERS:
        float(table[name])
    transferred = "getTransferredTps" if "getTransferredTps" in table else "getTransferedTps"
    for name in (*RUNTIME_RATES, transferred):
        assert 1 <= len([float(rate) for rate in table[name].split()]) <= 3
    for name in RUNTIME_TEXTS:
        assert table[name]
    float(table["remainHowManyDataToFlush"].split(" ")[0])
    levels = [value for name, value in table.items() if name.startswith("scheduleMessageOffset")]
    for value in levels:
        delivered, end = value.split(",")
        assert int(delivered) <= int(end)
    # "[<=0ms]:5 [0~10ms]:1 ...", which it splits at blanks and colons.
    spread = table["putMessageDistributeTime"]
    if spread != "null":
        parts = [part.split(":") for part in spread.split(" ") if ":" in part]
        assert len(parts) > 5
        for _, count in parts:
            int(count)
    # "Total : 98.4 GiB, Free : 51.2 GiB." by the places of its words.
    words = table["commitLogDirCapacity"].split(" ")
    for number, unit in ((words[2], words[3][:-1]), (words[6], words[7][:-1])):
        float(number)
        assert unit in ("B", "KiB", "MiB", "GiB", "TiB")


def test_the_messages_that_a_page_of_the_dashboard_shows_are_there(site: Site) -> None:
    """By key all eight of the topic, whole records one after the other."""
    from pocketmq.model.record import read_records

    answer = ask(
        site.broker.address,
        RequestCode.QUERY_MESSAGE,
        {
            "topic": TOPIC,
            "key": KEY,
            "maxNum": "64",
            "beginTimestamp": "0",
            "endTimestamp": "9223372036854775807",
        },
    )
    bodies = sorted(bytes(record.body) for record in read_records(bytes(answer.body)))
    assert bodies == [b"m%d" % n for n in range(8)]


def test_the_table_names_each_request_once() -> None:
    calls = [row.call for row in ROWS]
    assert len(calls) == len(set(calls))
