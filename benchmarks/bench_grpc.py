"""The gRPC port beside the real proxy 5.5.0 in local mode. Run: python -m benchmarks.bench_grpc

Each server is a process of its own; this process is the load: HTTP/2 frames made before, 128-byte bodies, a
fixed number of calls in flight on one connection. Sends, then a backlog that is received and acknowledged in
batches of 32; then sends by the official Java SDK 5.2.0 in threads. Processor time of the server, memory and
start. The servers take turns, the best round counts. A call that the server cancels or refuses, as the proxy
does on a slow machine, is counted as failed, and printed; it is in no rate.
"""

import argparse
import contextlib
import json
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import raw_load
from benchmarks.grpc_calls import (
    GROUP,
    HEAD,
    QUEUES,
    TOPIC,
    Calls,
    ack_request,
    frame,
    frames,
    messages,
    receive_request,
    send_request,
)
from benchmarks.meter import anonymous_mb, cpu_seconds, machine
from pocketmq.grpc.http2.frames import Flag, FrameType
from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import Code
from pocketmq.model.tables import GroupConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from tests.interop import sdks
from tests.interop.brokers import PocketBroker, RunningBroker
from tests.interop.driver import Driver, PeerError
from tests.interop.grpc_places import ProxyProcess
from tests.interop.sdks import Sdk
from tests.kit.ports import free_ports

_OK: bytes = classes["SendMessageResponse"](status={"code": Code.OK}).SerializeToString()[2:]
"""What the answer of a call that is well holds: the status without its text."""


FAILURES_MAX = 1_000
_OF_CALLS = (FrameType.DATA, FrameType.HEADERS, FrameType.RST_STREAM)
_NO_ERROR = bytes(4)


class CallFailed(Exception):
    """One call got no good answer; the connection stays."""


class Connection(Calls):
    """One connection that makes calls, and hands out the answers of those that are whole."""

    def __init__(self, address: str) -> None:
        super().__init__()
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(self.opening())
        self._rest = b""
        self._bodies: dict[int, bytes] = {}
        self._lasting = 0

    def close(self) -> None:
        self._socket.close()

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def settle(self, command: bytes) -> None:
        """Begin a Telemetry call, which lasts, with a client's settings; its end is no answer."""
        self.write(self.call(self.headers("Telemetry"), command, ended=False))
        self._lasting = self.stream_id

    def answers(self) -> Iterator[tuple[int, bytes]]:
        """(stream, data) of each call that ends, as they come, without end. No data: it was cancelled."""
        while True:
            read = self._socket.recv(1 << 18)
            if not read:
                raise ConnectionError("the server has ended the connection")
            data, at = self._rest + read, 0
            for kind, flags, stream_id, payload in frames(data):
                at += HEAD.size + len(payload)
                if kind == FrameType.PING and not flags & Flag.ACK:
                    self.write(frame(FrameType.PING, Flag.ACK, 0, payload))
                elif kind == FrameType.SETTINGS and not flags & Flag.ACK:
                    self.write(frame(FrameType.SETTINGS, Flag.ACK, 0))
                elif kind == FrameType.GOAWAY:
                    raise ConnectionError(f"the server gave up: {payload!r}")
                if stream_id == self._lasting or kind not in _OF_CALLS:
                    continue
                if kind == FrameType.DATA:
                    self._bodies[stream_id] = self._bodies.get(stream_id, b"") + payload
                is_cancelled = kind == FrameType.RST_STREAM and payload != _NO_ERROR
                if is_cancelled or (kind != FrameType.RST_STREAM and flags & Flag.END_STREAM):
                    body = self._bodies.pop(stream_id, b"")
                    # A caller that wants no more than this answer does not come back here.
                    self._rest = data[at:]
                    yield stream_id, b"" if is_cancelled else body
            self._rest = data[at:]

    def ask(self, name: str, request: Any) -> list[bytes]:
        """One call, and its answer's messages. Raises: CallFailed."""
        self.write(self.call(self.headers(name), request.SerializeToString()))
        _, data = next(self.answers())
        if not data:
            raise CallFailed(name)
        return list(messages(data))


@dataclass
class Figures:
    """Of one server; the best of its rounds."""

    start_s: float = 0.0
    idle_mb: float = 0.0
    loaded_mb: float = 0.0
    # By what was done: calls or messages a second, and µs of processor time for each.
    rates: dict[str, float] = field(default_factory=dict)
    prices_us: dict[str, float] = field(default_factory=dict)
    # Calls of all rounds that got no good answer.
    failures: Counter[str] = field(default_factory=Counter)

    def note(self, what: str, count: int, seconds: float, cpu_s: float) -> None:
        price_us = cpu_s / count * 1e6
        self.rates[what] = max(self.rates.get(what, 0.0), count / seconds)
        self.prices_us[what] = min(self.prices_us.get(what, price_us), price_us)


class Measured:
    """A server under load. pid: of the process that serves gRPC."""

    def __init__(self, name: str, broker: RunningBroker, address: str) -> None:
        self.name, self.broker, self.figures = name, broker, Figures()
        self._address = address

    @property
    def pid(self) -> int:
        return self.broker.process.pid

    def sends(self, count: int, in_flight: int) -> None:
        request, what = send_request(), f"send, {in_flight} in flight"
        with self._measured(what, count) as connection:
            headers = connection.headers("SendMessage")
            connection.write(b"".join(connection.call(headers, request) for _ in range(in_flight)))
            left, done = count - in_flight, 0
            for _, data in connection.answers():
                if _OK in data:
                    done += 1
                    if done == count:
                        return
                else:
                    self._failed(what)
                    left += 1
                if left:
                    left -= 1
                    connection.write(connection.call(headers, request))

    def official_sends(self, sdk: Driver, count: int, in_flight: int) -> None:
        """By the official SDK, as many threads as there are in flight."""
        message = {"topic": TOPIC, "body": "x" * 128}
        with Sdk(sdk, self._address) as clients:
            producer = clients.producer(TOPIC)
            producer.send(message)
            words = {"producer": producer.name, "messages": [message] * (count // in_flight)}
            what = f"send by the Java SDK, {in_flight} in flight"
            with self._counted(what, count):
                threads = [sdk.begin("send", **words) for _ in range(in_flight)]
                for each in threads:
                    try:
                        sdk.finish(each, within_s=600)
                    except PeerError as error:
                        # It ends its thread, whose sends are in the rate all the same.
                        self._failed(what, error)

    def backlog(self, count: int) -> None:
        """Receive and acknowledge what is there, in batches."""
        receive = receive_request(self.broker.broker_name)
        answer_of = classes["ReceiveMessageResponse"]
        with self._measured("receive + ack", count) as connection:
            got = 0
            while got < count:
                try:
                    found = map(answer_of.FromString, connection.ask("ReceiveMessage", receive))
                    ack = ack_request(found)
                    got += len(ack.entries)
                    if ack.entries:
                        [answer] = connection.ask("AckMessage", ack)
                        if classes["AckMessageResponse"].FromString(answer).status.code != Code.OK:
                            raise CallFailed("AckMessage")
                except CallFailed:
                    # More is there than is asked for, since sends of other loads are never received.
                    self._failed("receive + ack")

    def _failed(self, what: str, why: object = "cancelled or refused") -> None:
        """Count it; more of them than FAILURES_MAX are no measurement. Raises: LoadFailed."""
        self.figures.failures[what] += 1
        times = self.figures.failures[what]
        print(f"{self.name}: {what}: call failed, {why}; number {times}", flush=True)
        if times >= FAILURES_MAX:
            raise raw_load.LoadFailed(f"{times} calls of {self.name} failed: {what}")

    @contextlib.contextmanager
    def _measured(self, what: str, count: int) -> Iterator[Connection]:
        connection = Connection(self._address)
        try:
            # The proxy serves no client whose settings it does not know.
            settings = classes["Settings"](client_type=3, subscription={"group": {"name": GROUP}})
            settings.subscription.subscriptions.add(
                topic={"name": TOPIC}, expression={"type": 1, "expression": "*"}
            )
            command = classes["TelemetryCommand"](settings=settings).SerializeToString()
            connection.settle(command)
            time.sleep(0.5)
            with self._counted(what, count):
                yield connection
        finally:
            connection.close()

    @contextlib.contextmanager
    def _counted(self, what: str, count: int) -> Iterator[None]:
        cpu_s, began = cpu_seconds(self.pid), time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        self.figures.note(what, count, seconds, cpu_seconds(self.pid) - cpu_s)


def ours(folder: Path) -> tuple[RunningBroker, str]:
    [port] = free_ports(1)
    return PocketBroker(folder, config={"grpcServerPort": port}), f"127.0.0.1:{port}"


def proxy(folder: Path) -> tuple[RunningBroker, str]:
    # With the JVM's own compilers, which tests do without for a quick start.
    made = ProxyProcess(folder, heap="1g", jvm=())
    return made, f"127.0.0.1:{made.grpc_port}"


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--messages", type=int, default=100_000, help="of a round and of the backlog"
    )
    options.add_argument("--rounds", type=int, default=3, help="rounds after one to get warm")
    options.add_argument("--without-proxy", action="store_true")
    given = options.parse_args(arguments)
    print(machine())
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        servers = []
        kinds = (
            {"PocketMQ": ours} if given.without_proxy else {"PocketMQ": ours, "proxy 5.5.0": proxy}
        )
        for name, make in kinds.items():
            broker, address = make(Path(folder) / name.split()[0])
            began = time.perf_counter()
            stack.callback(broker.kill)
            broker.start()
            server = Measured(name, broker, address)
            server.figures.start_s = time.perf_counter() - began
            raw_load.create_topic(broker.address, TOPIC, QUEUES)
            group = json.dumps(GroupConfig(GROUP).to_json()).encode()
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            raw_load.call(broker.address, RemotingCommand(code, {}, group, opaque=1))
            server.figures.idle_mb = anonymous_mb(server.pid)
            servers.append(server)
        sdk = sdks.start("java", Path(folder) / "sdk", jvm=())
        stack.callback(sdk.close)
        for number in range(given.rounds + 1):
            for server in servers:
                if number == 1:
                    server.figures.rates.clear()
                    server.figures.prices_us.clear()
                server.sends(given.messages // 10, 1)
                server.sends(given.messages, 64)
                server.backlog(given.messages)
                server.official_sends(sdk, given.messages // 2, 16)
                server.figures.loaded_mb = anonymous_mb(server.pid)
        report(servers)


def report(servers: Sequence[Measured]) -> None:
    print(f"{'':38}" + "".join(f"{each.name:>16}" for each in servers))
    for what in servers[0].figures.rates:
        rates = "".join(f"{each.figures.rates[what]:>16,.0f}" for each in servers)
        prices = "".join(f"{each.figures.prices_us[what]:>16.1f}" for each in servers)
        print(f"{what + ', 1/s':38}{rates}\n{'  processor, us each':38}{prices}")
        if any(each.figures.failures[what] for each in servers):
            failures = "".join(f"{each.figures.failures[what]:>16,}" for each in servers)
            print(f"{'  failed calls, of all rounds':38}{failures}")
    for what, name in (
        ("start, s", "start_s"),
        ("idle, MB", "idle_mb"),
        ("loaded, MB", "loaded_mb"),
    ):
        print(f"{what:38}" + "".join(f"{getattr(each.figures, name):>16.1f}" for each in servers))


if __name__ == "__main__":
    main()
