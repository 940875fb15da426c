"""Each extra brings what its main job needs: nothing else can be imported while it does it."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.admin import Admin
from pocketmq.testing import InProcess

CHILD = Path(__file__).with_name("extras_child.py")
SEND = """
import asyncio, sys
from pocketmq.client import Message, Producer
async def main():
    async with Producer("P", name_server=sys.argv[1]) as producer:
        await producer.send(Message("T", b"x"))
asyncio.run(main())
"""
SERVE = """
import sys
from pocketmq.cli.__main__ import main
sys.exit(main(["up", "--namesrv-port", "0", "--broker-port", "0", "--data", sys.argv[1], *sys.argv[2:]]))
"""
SEND_TRACED = SEND.replace("sys.argv[1])", "sys.argv[1], otel=True)")
UNPACK = """
from pocketmq.model.message_codec import Compression, compress, decompress
for kind in (Compression.LZ4, Compression.ZSTD):
    assert decompress(compress(b"x" * 99, kind), kind << 8) == b"x" * 99
"""
PUSH = """
from pocketmq.broker.figures.metrics_config import OTLP, OTLP_GRPC, MetricsConfig
from pocketmq.console.metrics.push import exporter
for kind in (OTLP, OTLP_GRPC):
    exporter(MetricsConfig(exporter_type=kind)).shutdown()
"""
TEST = """
from pocketmq.testing import InProcess
with InProcess() as server:
    server.send("T", "x")
    assert [each.body for each in server.wait_for_messages("T", 1)] == [b"x"]
"""


def child(extras: str, statement: str, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, str(CHILD), extras, statement, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def server() -> Iterator[InProcess]:
    with InProcess() as running:
        yield running


@pytest.mark.parametrize(
    ("extras", "statement"),
    [
        ("", SEND),
        ("compress", UNPACK),
        ("otel", SEND_TRACED),
        ("broker,otel-grpc", PUSH),
        ("test", "import pytest" + TEST),
    ],
)
def test_what_the_extra_is_for_runs(server: InProcess, extras: str, statement: str) -> None:
    process = child(extras, statement, server.namesrv)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 0, error


@pytest.mark.parametrize("extras", ["broker", "broker,console"])
async def test_a_fresh_install_serves_tls_clients_at_both_ports(
    extras: str, tmp_path: Path
) -> None:
    """RocketMQ's servers do, out of the box, with a certificate of their own making."""
    process = child(extras, SERVE, str(tmp_path / "store"))
    try:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        ready = dict(word.split("=", 1) for word in line.split()[1:])
        assert ("console" in ready) == ("console" in extras)
        async with Admin(name_server=ready["namesrv"], tls=True) as admin:
            [broker] = await admin.brokers()
            assert (await admin.settings.runtime(broker.address))["brokerVersionDesc"]
    finally:
        process.kill()
        process.communicate()


SAY = """
import sys
for statement in sys.argv[1:]:
    try:
        exec(statement)
        print("nothing is missing")
    except Exception as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0])
"""
OTEL = """
import asyncio
from pocketmq.client import Producer
async def main():
    async with Producer("P", name_server="127.0.0.1:1", otel=True): pass
asyncio.run(main())
"""
AVRO = "from pocketmq.bulk.bodies.avro import AvroBodies as it; it({})"
PROTOBUF = "from pocketmq.bulk.bodies.protobuf import ProtobufBodies as it; it(b'', 'x')"
PACK = "from pocketmq.model.message_codec import Compression as c, compress as it; it(b'x', c."
# What a user names first of each subject: a statement, what is missing then, the extra that brings it.
ENTRIES = {
    "": [
        ("from pocketmq.testing import InProcess", "msgpack", "test"),
        ("from pocketmq.bulk import scan", "pyarrow", "spark"),
        ("from pocketmq.spark import PocketMQDataSource", "pyspark", "spark"),
        ("from pocketmq.spark import session; session()", "pyspark", "spark"),
        ("import pocketmq.integrations.celery", "kombu", "celery"),
        ("import pocketmq.integrations.kombu", "kombu", "celery"),
        ("import pocketmq.integrations.taskiq", "taskiq", "taskiq"),
        ("import pocketmq.integrations.celery_beat", "celery", "celery"),
        ("import pocketmq.integrations.celery_revoke", "celery", "celery"),
        ("import pocketmq.integrations.taskiq_schedules", "taskiq", "taskiq"),
        ("import pocketmq.integrations.dramatiq", "dramatiq", "dramatiq"),
        ("import pocketmq.integrations.faststream", "faststream", "faststream"),
        ("from pocketmq.client.codecs import MSGPACK; MSGPACK.encode(1)", "msgpack", "broker"),
        (f"{PACK}LZ4)", "lz4", "compress"),
        (f"{PACK}ZSTD)", "zstandard", "compress"),
        (OTEL, "opentelemetry", "otel"),
        ("import pocketmq.integrations.opentelemetry", "opentelemetry", "otel"),
        ("from pocketmq.backup.place import opened_place as it; it('s3://b')", "fsspec", "backup"),
    ],
    "spark": [(AVRO, "fastavro", "avro"), (PROTOBUF, "protobuf", "broker")],
}


@pytest.mark.parametrize("extras", ENTRIES)
def test_a_missing_extra_is_named(extras: str) -> None:
    """One line says which module is missing and which extra brings it."""
    entries = ENTRIES[extras]
    process = child(extras, SAY, *(statement for statement, _, _ in entries))
    said, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    for line, (statement, module, extra) in zip(said.splitlines(), entries, strict=True):
        assert f" needs {module}, which is not installed" in line, (statement, line)
        assert f"[{extra}]" in line, (statement, line)
