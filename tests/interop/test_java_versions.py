"""Other versions of the official Java client, of 4.3 to 5.3: what an application does every day."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.interop.brokers import make_broker
from tests.interop.conftest import BROKERS, or_missing
from tests.interop.toolchain import java, java_version

VERSIONS = (
    *("4.3.2", "4.4.0", "4.5.2", "4.6.1", "4.7.1", "4.8.0", "4.9.4"),
    *("5.0.0", "5.1.4", "5.3.3"),
)
# Netty of these years looks into java.nio.
_OPENED = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("sun.nio.ch", "java.nio", "jdk.internal.ref")
]


@pytest.mark.slow
@pytest.mark.parametrize("broker_kind", BROKERS)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_application_with_this_client_works(
    version: str, broker_kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Sends of all kinds, tags, SQL92, order, retry, delay, transactions and their check, a query."""
    if not request.config.getoption("--java-versions"):
        pytest.skip("ten more versions of the Java client: --java-versions")
    classes = or_missing(lambda: java_version(version))
    config = {
        "enablePropertyFilter": "true",
        "transactionTimeOut": 3_000,
        "transactionCheckInterval": 1_000,
    }
    command = [java(), "-Xmx256m", *_OPENED, "-cp", classes, "Daily"]
    with make_broker(broker_kind, tmp_path / "broker", config=config) as broker:
        done = subprocess.run(
            [*command, broker.namesrv, version.replace(".", "_")],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path)},
        )
    said = [line for line in done.stdout.splitlines() if line.startswith(("ok ", "FAIL "))]
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in said if line.startswith("FAIL ")] == []
    assert len(said) == 12
