"""/metrics, /health and /ready over HTTP: on the console, and on RocketMQ's metrics port."""

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pocketmq.broker.figures.metrics_config import MetricsConfig
from pocketmq.console.metrics.port import MetricsPort
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.testing import InProcess, ServerProcess
from tests.console.console_peer import site


def names(text: bytes) -> set[str]:
    return {
        sample.name
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


# ---------------------------------------------------------------- on the console


async def test_the_console_serves_figures_and_health(tmp_path: Path) -> None:
    """/metrics with RocketMQ 5's names, /health and /ready."""
    async with site(tmp_path) as found:
        http_ = found.user.http
        metrics = await http_.get("/metrics")
        assert metrics.status_code == 200
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert {"rocketmq_broker_permission", "pocketmq_store_writable"} <= names(metrics.content)
        for path in ("/health", "/ready"):
            answer = await http_.get(path)
            assert answer.status_code == 200
            assert answer.json()["status"] == "ok"
            assert answer.headers["cache-control"] == "no-store"
        found.brokers["b"].config.broker_permission = 0
        answer = await http_.get("/ready")
        assert answer.status_code == 503
        assert "brokerPermission" in answer.json()["reasons"][0]
        assert (await http_.get("/health")).status_code == 200


async def test_a_login_guards_metrics_but_not_health(
    tmp_path: Path,
) -> None:
    """A collector names itself by HTTP's basic authentication; who restarts needs no password."""
    login = {"user": "anna", "password": "secret"}
    async with site(tmp_path, console=login) as found:
        http_ = found.user.http
        refused = await http_.get("/metrics")
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Basic")
        assert (await http_.get("/metrics", auth=("anna", "wrong"))).status_code == 401
        assert (await http_.get("/metrics", auth=("anna", "secret"))).status_code == 200
        for header in ("Basic", "Basic !", "Basic " + "YQ==", "Bearer x"):
            answer = await http_.get("/metrics", headers={"Authorization": header})
            assert answer.status_code == 401
        assert (await http_.get("/health")).status_code == 200
        assert (await http_.get("/ready")).status_code == 200


# ---------------------------------------------------------------- on a port of its own


@pytest.fixture(scope="module")
def process() -> Iterator[ServerProcess]:
    """`pocketmq up` as a user runs it who has RocketMQ 5's metrics settings in his broker.conf."""
    config = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}
    with ServerProcess(config) as server:
        yield server


def address(process: ServerProcess) -> str:
    """Its metrics port, from the ready line."""
    return process.ready["metrics"].removeprefix("http://").removesuffix("/metrics")


def test_rocketmqs_setting_opens_a_port_for_prometheus(process: ServerProcess) -> None:
    """conventions: exporter type PROM, port 5557 by default."""
    process.send("T", "x")
    connection = http.client.HTTPConnection(address(process), timeout=60)
    for path, wanted in (("/metrics", 200), ("/health", 200), ("/ready", 200), ("/no", 404)):
        # All over one connection, as a collector does it.
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == wanted
        if path == "/metrics":
            assert "rocketmq_messages_in_total" in names(body)
        else:
            assert json.loads(body)
    connection.request("HEAD", "/metrics")
    answer = connection.getresponse()
    assert int(answer.headers["content-length"]) > 1000
    assert answer.read() == b""
    connection.close()


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /metrics HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nx: " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET /metrics HTTP/1.0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n",
    ],
    ids=["post", "tls", "short", "long", "http-1.0", "close"],
)
def test_whatever_is_no_request_for_more_is_answered_and_closed(
    process: ServerProcess, request_: bytes
) -> None:
    host, _, port = address(process).rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(request_)
        answer = b""
        try:
            while data := connection.recv(65_536):
                answer += data
        except ConnectionResetError:
            # It had not read all of what we sent.
            pass
    assert answer.startswith(b"HTTP/1.1 ")


async def test_leaving_the_port_ends_connections_that_are_open() -> None:
    with InProcess() as server:
        config = MetricsConfig(exporter_type="PROM", prom_exporter_port=0)
        async with MetricsPort(config, "127.0.0.1", (server.running,)) as port:
            host, _, number = port.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(number))
            writer.write(b"GET /health HTTP/1.1\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        async with asyncio.timeout(60):
            await reader.read()
        writer.close()


def test_what_rocketmq_has_and_we_do_not_refuses_to_start() -> None:
    with pytest.raises(IllegalArgument, match="use OTLP_HTTP, OTLP_GRPC, or PROM"):
        MetricsConfig(exporter_type="LOG")
