"""The public face of the clients: what it is, and that the blocking twin has all of it.

python -m tests.client.test_api        writes api.txt anew, after a wanted change
"""

import inspect
import re
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_type

import pytest

from pocketmq.client import (
    LitePullConsumer,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PullResult,
    PushConsumer,
    SendResult,
    SimpleConsumer,
    TransactionProducer,
    TransactionResult,
    sync,
)
from pocketmq.client.options import GroupOptions, takes

API = Path(__file__).parent / "api.txt"
CLIENTS = (
    Producer,
    TransactionProducer,
    PushConsumer,
    PullConsumer,
    LitePullConsumer,
    SimpleConsumer,
)
# What only makes sense where a program awaits, and what a blocking program has in its place.
ONLY_ASYNC = {"submit"}
ONLY_BLOCKING = {"begin_send", "messages"}


def public(kind: type) -> dict[str, Any]:
    """The public methods of a class, and how it is made."""
    found = {name: getattr(kind, name) for name in sorted(dir(kind)) if not name.startswith("_")}
    return {"__init__": kind, **{name: each for name, each in found.items() if callable(each)}}


def lines(kind: type) -> Iterator[str]:
    for name, each in public(kind).items():
        waits = "async " if inspect.iscoroutinefunction(each) else ""
        place = f"{'sync ' if '.sync' in kind.__module__ else ''}{kind.__name__}"
        text = f"{waits}{place}.{name}{inspect.signature(each)}"
        # Names without their modules, objects without their addresses.
        yield re.sub(r" at 0x[0-9a-f]+", "", re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text))


def api() -> str:
    kinds = [*CLIENTS, *(getattr(sync, kind.__name__) for kind in CLIENTS)]
    return "\n".join(line for kind in kinds for line in lines(kind)) + "\n"


def test_the_public_face_is_the_recorded_one() -> None:
    """A changed line is a change that users notice: write it anew only with one in the changelog."""
    assert api().splitlines() == API.read_text().splitlines(), "python -m tests.client.test_api"


def test_a_star_takes_the_names_of_the_client() -> None:
    """It took none, without a word."""
    names: dict[str, Any] = {}
    exec("from pocketmq import *", names)
    assert names["Producer"] is Producer


@pytest.mark.parametrize("kind", CLIENTS, ids=lambda kind: kind.__name__)
def test_blocking_clients_have_the_same_methods_and_arguments(kind: type) -> None:
    twin = public(getattr(sync, kind.__name__))
    assert public(kind).keys() - ONLY_ASYNC == twin.keys() - ONLY_BLOCKING
    for name, each in public(kind).items():
        if name in twin and name != "shutdown":
            assert inspect.signature(twin[name]).parameters == inspect.signature(each).parameters
            assert not inspect.iscoroutinefunction(twin[name])


def test_a_constructor_names_the_option_that_was_meant() -> None:
    """Both kinds refuse what they do not know before anything is asked for."""

    class Told:
        @takes(GroupOptions)
        def __init__(self, options: GroupOptions) -> None:
            self.options = options

    assert Told("g", name_server="a:1").options.group == "g"
    with pytest.raises(TypeError, match="did you mean 'retry_times'"):
        Producer("g", name_server="a:1", retry_time=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="did you mean 'retry_times'"):
        sync.Producer("g", name_server="a:1", retry_time=3)  # type: ignore[call-arg]


if TYPE_CHECKING:

    def types_of_the_twin(
        producer: sync.Producer,
        transactions: sync.TransactionProducer,
        consumer: sync.PushConsumer,
        puller: sync.PullConsumer,
        lite: sync.LitePullConsumer,
        message: MessageExt,
        queue: MessageQueue,
    ) -> None:
        """Read by type checkers only: a twin's method returns what its original is awaited for."""
        assert_type(producer.send(message, queue=queue, timeout_ms=1), SendResult)
        assert_type(producer.send_batch([message]), list[SendResult])
        assert_type(producer.begin_send(message), Future[SendResult])
        assert_type(producer.request(message), MessageExt)
        assert_type(transactions.send_in_transaction(message, lambda _: ...), TransactionResult)  # type: ignore[arg-type, return-value]
        assert_type(consumer.assignment(), list[MessageQueue])
        assert_type(consumer.committed(queue), int | None)
        assert_type(puller.pull(queue, 0, count_max=1), PullResult)
        assert_type(lite.poll(timeout_ms=1), list[MessageExt])
        assert_type(lite.messages(), Iterator[MessageExt])
        producer.send(b"no message")  # type: ignore[arg-type]
        consumer.subscribe(expresion="*")  # type: ignore[call-arg]
        sync.Producer("g", retries=1)  # type: ignore[call-arg]


if __name__ == "__main__":
    API.write_text(api())
