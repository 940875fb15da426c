"""The examples run against a broker: programs, web services by their own server, and the example of tests."""

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

from pocketmq.cli.options import DEFAULT_NAMESRV
from pocketmq.testing import InProcess
from tests.kit.waiting import until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture(params=["fastapi_orders:app", "django_orders:application"])
def service(request: pytest.FixtureRequest, server: InProcess) -> Iterator[str]:
    """Its URL; told to end, it has left its group before it has ended."""
    options = ["--port", "0", "--lifespan", "on", "--app-dir", str(EXAMPLES)]
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


# ------------------------------------------------------------ programs


_PRINTS = {
    "first_producer.py": ["stored in queue "] * 3,
    "retry_and_dead_letters.py": [
        *(f"attempt {number} to pack a parcel" for number in (1, 2, 3)),
        "dead letter: a parcel without an address",
    ],
    "transactions.py": ["order 7 -> COMMIT", "order without money -> ROLLBACK"],
    "delays.py": ["recalled: tomorrow", "reminder after a second", "reminder after two"],
    "request_reply.py": ["1+2+3 = 6"],
    "once.py": ["entered order 1"],
}
"""How the lines of each program begin that ends by itself."""


def _environment(server: InProcess) -> dict[str, str]:
    return {**os.environ, **server.environment, "PYTHONUNBUFFERED": "1"}


def _lines(name: str, server: InProcess) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        env=_environment(server),
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", sorted(_PRINTS))
def test_a_program_prints_what_it_shows(name: str, server: InProcess) -> None:
    server.create_topic("Sums")
    lines = _lines(name, server)
    begins = [line[: len(begin)] for line, begin in zip(lines, _PRINTS[name], strict=True)]
    assert begins == _PRINTS[name]


def test_steps_of_each_order_stay_in_order(server: InProcess) -> None:
    lines = _lines("order.py", server)
    for order in ("order-7", "order-8"):
        steps = [line.split()[1] for line in lines if line.startswith(order)]
        assert steps == ["created", "paid", "shipped"]


def test_the_first_consumer_gets_what_the_first_producer_sent(server: InProcess) -> None:
    _lines("first_producer.py", server)
    with subprocess.Popen(
        [sys.executable, str(EXAMPLES / "first_consumer.py")],
        stdout=subprocess.PIPE,
        text=True,
        env=_environment(server),
    ) as process:
        assert process.stdout is not None
        waiting = {"Ann", "Bob", "Cleo"}
        for line in process.stdout:
            waiting.discard(line.split()[2])
            if not waiting:
                break
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert waiting == set()
    assert process.returncode == 0


def test_the_tests_of_the_example_pass() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(EXAMPLES / "test_orders.py")],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_each_example_has_its_command_and_an_index_entry() -> None:
    index = (EXAMPLES / "README.md").read_text("utf-8")
    for path in sorted(EXAMPLES.glob("*.py")):
        head = path.read_text("utf-8").split('"""')[1]
        service = path.stem in ("fastapi_orders", "django_orders")
        command = f" {path.stem}:app" if service else f" examples/{path.name}"
        assert command in head, path.name
        assert f"({path.name})" in index, path.name


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("[!st]*.py")), ids=lambda path: path.stem)
def test_an_example_finds_the_name_server_as_the_command_does(path: Path) -> None:
    """Its constructors run on import, or find the variable later."""
    clean = {name: text for name, text in os.environ.items() if name != "NAMESRV_ADDR"}
    code = f"import os, {path.stem}; print(os.environ['NAMESRV_ADDR'])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=EXAMPLES, env=clean, capture_output=True, text=True
    )
    assert done.stdout.split() == [DEFAULT_NAMESRV], done.stderr
    assert "NAMESRV_ADDR=" not in path.read_text()
