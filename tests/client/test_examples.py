"""The examples of web services, each run by its own server against a broker, from order to shipment."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
from tests.kit.waiting import until

from pocketmq.testing import InProcess

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[InProcess]:
    with InProcess() as running:
        yield running


@pytest.fixture(params=["fastapi_orders:app", "django_orders:application"])
def service(request: pytest.FixtureRequest, server: InProcess) -> Iterator[str]:
    """Its URL; told to end, it has left its group before it has ended."""
    options = ["--port", "0", "--lifespan", "on", "--app-dir", str(ROOT / "examples")]
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", *options, request.param],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **server.environment},
    )
    assert process.stderr is not None
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            found = re.search(r"running on (http://[0-9.:]+)", line)
            if found is not None:
                break
        else:
            pytest.fail("".join(lines))
        yield found[1]
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
        process.wait()
        assert "Application shutdown complete" in said
        assert "Traceback" not in said
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stderr.close()


def test_an_order_is_taken_sent_consumed_and_shipped(service: str, server: InProcess) -> None:
    order = json.dumps({"number": 4711, "state": "taken"}).encode()
    headers = {"content-type": "application/json"}
    asked = urllib.request.Request(f"{service}/orders", order, headers)
    with urllib.request.urlopen(asked) as answer:
        assert answer.status == 202
        assert json.load(answer)["message"]

    def state() -> object:
        try:
            with urllib.request.urlopen(f"{service}/orders/4711") as answer:
                return json.load(answer)["state"]
        except HTTPError as error:
            error.close()
            return "not yet"

    until(lambda: state() == "shipped", "the order is shipped")
