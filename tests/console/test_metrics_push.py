"""Figures for an OpenTelemetry collector, read back with OpenTelemetry's own messages."""

import importlib
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)

from pocketmq.broker.figures.metrics_config import OTLP, OTLP_GRPC, MetricsConfig
from pocketmq.console.metrics.push import MetricsPush, exporter
from pocketmq.testing import InProcess
from tests.cli.servers import Server


class Collector(HTTPServer):
    """Keeps what it is sent; status: what it answers."""

    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken: list[ExportMetricsServiceRequest] = []

    @property
    def config(self) -> MetricsConfig:
        url = f"http://127.0.0.1:{self.server_port}/v1/metrics"
        return MetricsConfig(exporter_type=OTLP, otlp_endpoint=url)

    def newest(self) -> dict[str, Any]:
        """Metrics by name."""
        [resource] = self.taken[-1].resource_metrics
        [scope] = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.taken.append(ExportMetricsServiceRequest.FromString(body))
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *words: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_collector_gets_the_figures_of_the_metrics_page(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    """Counters, gauges and histograms, with RocketMQ's names and labels; the last at the end."""
    with InProcess() as broker:
        broker.send("T", "x")

        config = collector.config

        async def push() -> None:
            async with MetricsPush(config, broker.running, exporter(config)) as pushed:
                assert await pushed.push()
                collector.status = 404
                assert not await pushed.push()
                collector.status = 200

        broker.call(push())
    assert len(collector.taken) == 3
    found = collector.newest()
    [point] = [
        each
        for each in found["rocketmq_messages_in_total"].sum.data_points
        if {"T"} & {label.value.string_value for label in each.attributes}
    ]
    assert point.as_double == 1 or point.as_int == 1
    assert point.start_time_unix_nano <= point.time_unix_nano
    [size] = found["rocketmq_message_size"].histogram.data_points
    assert (size.count, list(size.bucket_counts)) == (1, [1, 0, 0, 0, 0, 0, 0])
    assert found["rocketmq_topic_number"].gauge.data_points[0].attributes[0].key == "cluster"
    assert "did not accept them" in caplog.text


def test_brokers_send_their_figures_when_they_are_told_to(
    collector: Collector, tmp_path: Path
) -> None:
    """Each by itself, and the console that shows them all has them, too."""
    words = ["up", "--brokers", "2", "--namesrv-port", "0", "--broker-port", "0"]
    words += ["--console-port", "0"]
    for key, value in {
        "metricsExporterType": "OTLP_HTTP",
        "otlpEndpoint": collector.config.otlp_endpoint,
    }.items():
        words += ["--set", f"{key}={value}"]
    server = Server(tmp_path, *words)
    try:
        with urllib.request.urlopen(f"{server.ready()['console']}/metrics") as answer:
            page = answer.read().decode()
        assert len(set(re.findall('rocketmq_broker_permission.*node_id="([^"]*)"', page))) == 2
        assert server.stop() == 0
    finally:
        server.kill()
    assert "rocketmq_broker_permission" in collector.newest()
    senders = {
        attribute.value.string_value
        for taken in collector.taken
        for resource in taken.resource_metrics
        for attribute in resource.resource.attributes
        if attribute.key == "service.instance.id"
    }
    assert len(senders) == 2


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_collector_that_never_ends_its_answer_holds_nobody(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its head comes byte by byte, or its body is endless: the broker ends, and reads only so much."""
    monkeypatch.setattr("pocketmq.console.metrics.push._WITHIN_S", 0.2)
    is_over, sent = threading.Event(), 0

    def collect(listener: socket.socket) -> None:
        nonlocal sent
        piece = bytes(1 << 20) if answer.endswith(b"\r\n\r\n") else b"X"
        with suppress(OSError):
            while not is_over.is_set():
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.recv(1)
                    connection.sendall(answer)
                    while sent < 64 << 20 and not is_over.wait(0.001):
                        connection.sendall(piece)
                        sent += len(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener, InProcess() as broker:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/metrics"
        config = MetricsConfig(exporter_type=OTLP, otlp_endpoint=url)

        async def push() -> None:
            async with MetricsPush(config, broker.running, exporter(config)) as pushed:
                await pushed.push()

        thread = threading.Thread(target=collect, args=(listener,))
        thread.start()
        began_s = time.monotonic()
        broker.call(push())
        assert time.monotonic() - began_s < 10
        is_over.set()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert sent < 32 << 20


class _Service(MetricsServiceServicer):
    """A collector by gRPC, which keeps what it is sent."""

    def __init__(self) -> None:
        self.taken: list[ExportMetricsServiceRequest] = []

    def Export(
        self, request: ExportMetricsServiceRequest, context: object
    ) -> ExportMetricsServiceResponse:
        self.taken.append(request)
        return ExportMetricsServiceResponse()


def test_a_collector_gets_them_by_grpc() -> None:
    """RocketMQ's own way: metricsExporterType=OTLP_GRPC, metricsGrpcExporterTarget."""
    # By name: type checkers take `grpc` for the folder of that name.
    grpc: Any = importlib.import_module("grpc")
    service = _Service()
    server = grpc.server(ThreadPoolExecutor(1))
    add_MetricsServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    config = MetricsConfig(
        exporter_type=OTLP_GRPC,
        grpc_target=f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}",
    )
    server.start()
    try:
        with InProcess() as broker:

            async def push() -> None:
                async with MetricsPush(config, broker.running, exporter(config)) as pushed:
                    assert await pushed.push()

            broker.call(push())
    finally:
        server.stop(None).wait()
    names = {
        metric.name
        for resource in service.taken[0].resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert "rocketmq_broker_permission" in names
