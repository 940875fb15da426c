"""What the real name servers answered, ours answers too: byte for byte where the body is a route."""

from collections.abc import Generator
from typing import Any

import pytest

from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.namesrv.kv_config import ORDER_TOPIC_CONFIG
from pocketmq.namesrv.processors import NameServerProcessors
from pocketmq.namesrv.registration_body import drained
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.transport.connection import Connection
from tests.namesrv.recordings import Exchange, exchanges, recordings

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
REGISTER = RequestCode.REGISTER_BROKER


class OneServer:
    """A name server's handlers without a socket."""

    def __init__(self) -> None:
        server = NameServer(NamesrvConfig(), ManualClock())
        self.handlers = NameServerProcessors(
            server.routes, server.kv_config, server.config, server.waiting.add
        ).handlers()
        self.kv_config = server.kv_config
        self.connection = Connection({}, spawn=lambda _: None, monotonic_ms=lambda: 0)

    def ask(self, request: RemotingCommand) -> RemotingCommand:
        reply = self.handlers[request.code](request, self.connection)
        if isinstance(reply, Generator):
            reply = drained(reply)
        assert isinstance(reply, RemotingCommand)
        return decode(encode(reply)[4:])


def registrations(name: str) -> list[Exchange]:
    found = [e for e in exchanges(name) if e.request.code == REGISTER and e.request.body]
    # The whole table is sent periodically; after a change only what changed.
    return sorted(found, key=lambda e: len(e.request.body))


@pytest.mark.parametrize("name", [n for n in recordings("b497") if registrations(n)])
def test_recorded_registrations_get_the_order_topics(name: str) -> None:
    compared = 0
    for exchange in registrations(name):
        if exchange.answer is None:
            continue
        server = OneServer()
        order = fastjson.loads(exchange.answer.body)["table"] if exchange.answer.body else {}
        for topic, value in order.items():
            server.kv_config.put(ORDER_TOPIC_CONFIG, topic, value)
        answer = server.ask(exchange.request)
        same_answer(answer, exchange.answer)
        assert bool(answer.body) == bool(order)
        if order:
            assert fastjson.loads(answer.body) == {"table": order}
        compared += 1
    assert compared


def same_answer(ours: RemotingCommand, theirs: RemotingCommand) -> None:
    assert ours.code == theirs.code
    assert ours.remark == theirs.remark
    assert ours.ext == theirs.ext
    assert ours.encoding == theirs.encoding


@pytest.mark.parametrize("name", [n for n in recordings("b497") if registrations(n)])
def test_recorded_route_requests_get_the_recorded_answers(
    name: str,
) -> None:
    """Routes in both JSON dialects, by the version of the client."""
    server = OneServer()
    for exchange in registrations(name):
        server.ask(exchange.request)
    compared = 0
    for exchange in exchanges(name):
        if exchange.request.code != ROUTE or exchange.answer is None:
            continue
        ours = server.ask(exchange.request)
        if exchange.answer.code == 0 or ours.code != 0:
            # A topic that is made later in the recording was unknown to them and is known to us.
            same_answer(ours, exchange.answer)
            if _same_queues(ours, exchange.answer):
                assert bytes(ours.body) == bytes(exchange.answer.body)
                compared += 1
    assert compared or not any(e.request.code == ROUTE for e in exchanges(name))


def _same_queues(ours: RemotingCommand, theirs: RemotingCommand) -> bool:
    """False where the topic was changed later in the recording."""
    if ours.code != 0:
        return True

    def queues(command: RemotingCommand) -> Any:
        return fastjson.loads(command.body)["queueDatas"]

    return bool(queues(ours) == queues(theirs))


@pytest.mark.parametrize("name", ["b497-mqadmin-cluster", "b497-mqadmin-topics"])
def test_recorded_mqadmin_requests_get_answers_of_the_shape(name: str) -> None:
    server = OneServer()
    for exchange in registrations(name):
        server.ask(exchange.request)
    server.kv_config.put(ORDER_TOPIC_CONFIG, "WtAdm", "golden-a:4")
    seen = set()
    for exchange in exchanges(name):
        if exchange.request.code in (REGISTER, ROUTE) or exchange.answer is None:
            continue
        ours = server.ask(exchange.request)
        assert ours.code == exchange.answer.code, exchange.name
        assert ours.remark == exchange.answer.remark
        assert (ours.ext or {}).keys() == (exchange.answer.ext or {}).keys()
        if exchange.request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            assert bytes(ours.body) == bytes(exchange.answer.body)
        elif exchange.answer.body and exchange.request.code != RequestCode.GET_NAMESRV_CONFIG:
            theirs = fastjson.loads(exchange.answer.body)
            mine = fastjson.loads(ours.body)
            assert mine.keys() == theirs.keys()
            assert set(mine["topicList"]) <= set(theirs["topicList"])
        seen.add(exchange.request.code)
    assert len(seen) >= 3


@pytest.mark.parametrize("name", [n for n in recordings("b550") if registrations(n)])
def test_registrations_of_a_5_5_broker_make_routes(name: str) -> None:
    server = OneServer()
    for exchange in registrations(name):
        assert server.ask(exchange.request).code == 0
    compared = 0
    for exchange in exchanges(name):
        if exchange.request.code != ROUTE or exchange.answer is None or exchange.answer.code:
            continue
        ours = server.ask(exchange.request)
        assert ours.code == 0, exchange.name
        theirs, mine = fastjson.loads(exchange.answer.body), fastjson.loads(ours.body)
        assert [d["brokerAddrs"] for d in mine["brokerDatas"]] == [
            d["brokerAddrs"] for d in theirs["brokerDatas"]
        ]
        compared += 1
    assert compared or not any(e.request.code == ROUTE for e in exchanges(name))
