"""rocketmq-python-client 5.1.2: the official Python SDK of RocketMQ 5, over gRPC."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import or_missing
from tests.interop.toolchain import python_driver

from pocketmq.testing import PocketMQ
from pocketmq.testing.in_process import InProcess

TYPES = {
    "normal": "NORMAL",
    "fifo": "FIFO",
    "delay": "DELAY",
    "transaction": "TRANSACTION",
    "pushed": "NORMAL",
}
Scenario = Callable[[str], dict[str, Any]]


@pytest.fixture
def server() -> Iterator[PocketMQ]:
    config = {"transactionTimeOut": 1_000, "transactionCheckInterval": 1_000}
    with InProcess(config) as running:
        for topic, kind in TYPES.items():
            running.admin.topics.create(topic, queues=4, attributes=f"+message.type={kind}")
        yield running


@pytest.fixture
def scenario(server: PocketMQ, tmp_path: Path) -> Scenario:
    """Runs one of the driver's, and returns what it saw."""
    command = or_missing(python_driver)

    def run(name: str) -> dict[str, Any]:
        # Its log goes to the home of whoever runs it.
        done = subprocess.run(
            [*command, server.grpc, name],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run


def test_python_sends_all_kinds_and_receives_them(server: PocketMQ, scenario: Scenario) -> None:
    """What the SDK sent is there for classic clients, under the ids that it gave."""
    found = scenario("messages")
    (plain,) = found["normal"]
    assert (plain["body"], plain["tag"], plain["keys"]) == ("plain", "A", ["k1"])
    assert plain["properties"] == {"colour": "blue"}
    assert (plain["attempt"], plain["corrupted"]) == (1, False)
    assert [each["body"] for each in found["fifo"]] == ["0", "1", "2", "3"]
    assert {each["group"] for each in found["fifo"]} == {"order-1"}
    assert [each["body"] for each in found["delay"]] == ["later"]
    classic = server.messages("normal")
    assert {each.msg_id for each in classic} == set(found["ids"])


def test_a_transaction_is_committed_rolled_back_or_asked_about(scenario: Scenario) -> None:
    found = scenario("transactions")
    assert sorted(each["body"] for each in found["seen"]) == ["committed", "forgotten"]
    assert "forgotten" in found["asked"]


def test_a_push_consumer_gets_again_what_it_failed(scenario: Scenario) -> None:
    seen = [(each["body"], each["attempt"]) for each in scenario("push")["seen"]]
    assert sorted(seen) == [("once", 1), ("twice", 1), ("twice", 2)]
