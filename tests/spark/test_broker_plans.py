"""What a plan asks brokers for: everything at once, and no more than it needs."""

import json
import os
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import pytest

from pocketmq.model.record import MAGIC_V1, Record, write_record
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.frames import FrameDecoder
from pocketmq.remoting.headers import GetMaxOffsetHeader
from pocketmq.spark.brokers.client import BrokerClient, BrokerQueue
from pocketmq.spark.brokers.connection import BrokerAccess
from pocketmq.spark.brokers.pull import PullSettings
from pocketmq.spark.brokers.reader import BrokerBounds, BrokerReader, _Asked
from pocketmq.spark.columns import projection_of, schema_of
from pocketmq.spark.given_options import parse_options
from pocketmq.spark.write.rows import RowMessage
from pocketmq.spark.write.send import TaskSender
from tests.interop.brokers import RunningBroker
from tests.remoting.test_connection_limits import certificate
from tests.spark.broker_topics import make_topic, send, wait_readable
from tests.spark.cutting_proxy import CuttingProxy

SETTINGS = PullSettings("TOOLS_CONSUMER", "*", "TAG", 32)


TOPICS, QUEUES = 200, 8


class SlowSite:
    """A name server and broker with TOPICS x QUEUES queues of 100 messages, which answers in rounds.

    Only when it has as many requests as can be under way, last one first: who waits for each answer waits
    for ever.
    """

    def __init__(self, sizes: Iterable[int]) -> None:
        """sizes: requests of each round."""
        self._sizes = iter(sizes)
        self.rounds: list[str] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.close()
        self._thread.join()

    def _serve(self) -> None:
        near, _ = self._server.accept()
        frames = FrameDecoder()
        requests: list[RemotingCommand] = []
        with near:
            for size in self._sizes:
                while len(requests) < size:
                    data = near.recv(65536)
                    if not data:
                        return
                    requests += [decode(f) for f in frames.feed(data)]
                now, requests = requests[:size], requests[size:]
                (code,) = {RequestCode(r.code).name for r in now}
                self.rounds.append(code)
                near.sendall(b"".join(encode(self._answer(r)) for r in reversed(now)))
            near.recv(1)

    def _answer(self, request: RemotingCommand) -> RemotingCommand:
        ext: dict[str, str] = {}
        body = b""
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            queues = {
                "brokerName": "a",
                "readQueueNums": QUEUES,
                "writeQueueNums": QUEUES,
                "perm": 6,
            }
            broker = {"brokerName": "a", "cluster": "c", "brokerAddrs": {"0": self.address}}
            body = json.dumps({"queueDatas": [queues], "brokerDatas": [broker]}).encode()
        elif request.code == RequestCode.PULL_MESSAGE:
            asked = request.ext or {}
            first = int(asked["queueOffset"])
            behind = min(100, first + int(asked["maxMsgNums"]))
            body = b"".join(record_of(n, 1_000 * n) for n in range(first, behind))
            ext = {
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": str(behind),
                "minOffset": "0",
                "maxOffset": "100",
            }
        else:
            ext = {"offset": "0" if request.code == RequestCode.GET_MIN_OFFSET else "100"}
            if request.code in (
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                RequestCode.QUERY_CONSUMER_OFFSET,
            ):
                ext = {"offset": "40"}
        return request.answer(ResponseCode.SUCCESS, ext=ext, body=body)


def record_of(offset: int, ms: int) -> bytes:
    host = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
    return write_record(
        Record(
            size=0, magic=MAGIC_V1, body_crc=0, queue_id=0, flag=0, queue_offset=offset, position=0,
            sys_flag=0, born_ms=ms, born_host=host, store_ms=ms, store_host=host, reconsume_times=0,
            prepared_offset=0, body=memoryview(b""), topic="T", properties=b"",
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "start", "asks"),
    [
        # Ends, starts, and a look at one message in the middle of each, for its size.
        ({}, 0, []),
        ({"startingOffsets": "group", "group": "G"}, 40, ["QUERY_CONSUMER_OFFSET"]),
        # The broker's answer, then that message and its neighbours.
        ({"startingTimestamp": "40000"}, 40, ["SEARCH_OFFSET_BY_TIMESTAMP", "PULL_MESSAGE"]),
    ],
    ids=["earliest", "group", "time"],
)
def test_a_plan_of_200_topics_waits_a_few_times(
    given: dict[str, str], start: int, asks: list[str]
) -> None:
    topics = ",".join(f"T{n}" for n in range(TOPICS))
    asks = [*asks, "GET_MAX_OFFSET", "GET_MIN_OFFSET", "PULL_MESSAGE"]
    with SlowSite([1, TOPICS - 1, *[TOPICS * QUEUES] * len(asks)]) as site:
        options = parse_options({"nameServer": site.address, "subscribe": topics} | given)
        found = BrokerReader(options, projection_of(schema_of(""), ""), 1).partitions()
    assert Counter(site.rounds) == Counter(["GET_ROUTEINFO_BY_TOPIC"] * 2 + asks)
    assert {one.start for p in found for one in p.value.ranges} == {start}


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_broker_that_waits_for_reads_causes_no_deadlock(
    secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both directions hold less than what is asked together."""
    connect = socket.create_connection

    def connect_narrowly(*given: Any, **more: Any) -> socket.socket:
        made = connect(*given, **more)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
        return made

    monkeypatch.setattr(socket, "create_connection", connect_narrowly)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if secure else None
    if context is not None:
        context.load_cert_chain(*certificate(tmp_path))
    body = bytes(4096)
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
    server.bind(("127.0.0.1", 0))
    server.listen()

    def serve() -> None:
        near = server.accept()[0]
        near = context.wrap_socket(near, server_side=True) if context is not None else near
        frames = FrameDecoder()
        with near:
            while data := near.recv(65536):
                for frame in frames.feed(data):
                    near.sendall(encode(decode(frame).answer(ResponseCode.SUCCESS, body=body)))

    thread = threading.Thread(target=serve)
    thread.start()
    address = f"127.0.0.1:{server.getsockname()[1]}"
    asked = (address, RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(topic="T" * 4096, queue_id=0))
    with server, BrokerClient(BrokerAccess(address, use_tls=secure)) as client:
        answers = client.many([asked] * 300)
    thread.join()
    assert [len(a.body) for a in answers] == [len(body)] * 300


def test_an_idle_plan_asks_each_queue_for_its_end_only(broker: RunningBroker) -> None:
    topic = make_topic(broker, 4)
    send(broker, topic, 8)
    wait_readable(broker, topic, 8)
    cuts = iter(["", "answer"])
    with (
        CuttingProxy(broker.address, lambda _: next(cuts, "")) as proxy,
        BrokerClient(BrokerAccess(broker.namesrv)) as client,
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


def test_the_mean_size_is_that_of_the_received_messages(broker: RunningBroker) -> None:
    """A broker gives fewer than it is asked for: partitions would be many times too large."""
    topic = make_topic(broker, 1)
    with BrokerClient(BrokerAccess(broker.namesrv)) as client:
        sender = TaskSender(client, "SparkTests", "q/0/0", "roundrobin", 4096)
        for _ in range(24):
            sender.send(RowMessage(topic, os.urandom(100_000), "", 0, None, None, False))
        sender.finish()
        wait_readable(broker, topic, 24)
        queues = client.queues(topic, Perm.READ)
        assert (
            100_000
            < BrokerBounds(_Asked(client, queues, SETTINGS), queues[0]).mean_size()
            < 101_000
        )


def test_routes_of_many_topics_are_those_of_each(broker: RunningBroker) -> None:
    topics = [make_topic(broker, n) for n in (1, 2, 3)]
    with BrokerClient(BrokerAccess(broker.namesrv)) as client:
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
