"""What a plan asks brokers for: everything at once, and no more than it needs."""

import socket
import threading
from collections import Counter

from tests.interop.brokers import RunningBroker
from tests.spark.broker_topics import make_topic, send, wait_readable
from tests.spark.cutting_proxy import CuttingProxy

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.frames import FrameDecoder
from pocketmq.remoting.headers import GetMaxOffsetHeader
from pocketmq.spark.broker_client import Access, BrokerClient, BrokerQueue
from pocketmq.spark.broker_pull import PullSettings
from pocketmq.spark.broker_reader import BrokerBounds, BrokerReader, _Asked
from pocketmq.spark.columns import projection_of, schema_of
from pocketmq.spark.options import parse_options

SETTINGS = PullSettings("TOOLS_CONSUMER", "*", "TAG", 32)


def test_many_requests_are_under_way_together() -> None:
    """The server answers when it has all 200, last one first: who waits for each answer waits for ever."""
    server = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{server.getsockname()[1]}"

    def serve() -> None:
        near, _ = server.accept()
        frames = FrameDecoder()
        requests: list[RemotingCommand] = []
        with near:
            while len(requests) < 200:
                requests += [decode(f) for f in frames.feed(near.recv(65536))]
            for request in reversed(requests):
                ext = {"offset": (request.ext or {})["queueId"]}
                near.sendall(encode(request.answer(ResponseCode.SUCCESS, ext=ext)))

    thread = threading.Thread(target=serve)
    thread.start()
    with server, BrokerClient(Access("")) as client:
        headers = [GetMaxOffsetHeader(topic="T", queue_id=i) for i in range(200)]
        answers = client.many([(address, RequestCode.GET_MAX_OFFSET, h) for h in headers])
        thread.join()
    assert [(a.ext or {})["offset"] for a in answers] == [str(i) for i in range(200)]


def test_an_idle_plan_asks_each_queue_for_its_end_only(broker: RunningBroker) -> None:
    topic = make_topic(broker, 4)
    send(broker, topic, 8)
    wait_readable(broker, topic, 8)
    cuts = iter(["", "answer"])
    with (
        CuttingProxy(broker.address, lambda _: next(cuts, "")) as proxy,
        BrokerClient(Access(broker.namesrv)) as client,
    ):
        queues = [
            BrokerQueue(q.topic, q.broker_name, proxy.address, q.queue_id)
            for q in client.queues(topic, Perm.READ)
        ]
        asked = _Asked(client, queues, SETTINGS)
        bounds = [BrokerBounds(asked, q) for q in queues]
        assert [b.max_offset for b in bounds] == [2] * 4
        # The connection broke once, and only what was not answered was asked again.
        assert proxy.cuts == 1
        assert {r.code for r in proxy.passed} == {RequestCode.GET_MAX_OFFSET}
        proxy.passed.clear()
        assert [b.min_offset for b in bounds] == [0] * 4
        assert all(91 < b.mean_size() < 400 for b in bounds)
    assert Counter(r.code for r in proxy.passed) == {
        RequestCode.GET_MIN_OFFSET: 4,
        RequestCode.PULL_MESSAGE: 4,
    }


def test_routes_of_many_topics_are_those_of_each(broker: RunningBroker) -> None:
    topics = [make_topic(broker, n) for n in (1, 2, 3)]
    with BrokerClient(Access(broker.namesrv)) as client:
        found = client.queues_of([*topics, "NoSuchTopic"], Perm.READ)
        assert found == {t: client.queues(t, Perm.READ) for t in [*topics, "NoSuchTopic"]}
    assert [len(q) for q in found.values()] == [1, 2, 3, 0]


def test_as_many_tasks_as_can_run_or_as_queues_have_data(broker: RunningBroker) -> None:
    """Unless minPartitions says otherwise."""
    topic = make_topic(broker, 4)
    send(broker, topic, 3)
    wait_readable(broker, topic, 3)

    def tasks(cores: int, **given: str) -> int:
        options = parse_options({"nameServer": broker.namesrv, "subscribe": topic} | given)
        projection = projection_of(schema_of(""), "")
        return len(BrokerReader(options, projection, cores).partitions())

    assert [tasks(cores) for cores in (1, 2, 8)] == [1, 2, 3]
    assert tasks(1, minPartitions="2") == 2
