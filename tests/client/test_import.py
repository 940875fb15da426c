"""Importing the client is quick: counted in modules, since a clock on a busy machine proves nothing."""

import subprocess
import sys

import pytest

_COUNT = "import sys; before = set(sys.modules)\n{}\nprint(len(set(sys.modules) - before))"


@pytest.mark.parametrize(
    ("statement", "most"),
    [
        # Names are loaded when they are used; this is the standard library's share.
        ("import pocketmq.client", 45),
        ("from pocketmq.client import Message, Producer, PushConsumer, LitePullConsumer", 260),
    ],
    ids=["package", "clients"],
)
def test_an_import_loads_few_modules(statement: str, most: int) -> None:
    """Import under 150 ms. What needs a running client (codecs of headers, routes) comes later."""
    command = [sys.executable, "-I", "-c", _COUNT.format(statement)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(run.stdout) <= most
