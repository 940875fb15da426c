"""Every error of every room crosses a process, and is copied, as it is.

A worker's error that cannot be made again in the parent stops multiprocessing.Pool for ever, and breaks a
ProcessPoolExecutor.
"""

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

import pocketmq
from pocketmq.client.errors import Attempt, SendOutcomeUnknown
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RequestTimeout

# What a constructor takes, where "x" will not do.
_SAMPLES: dict[str, Any] = {
    "attempts": [Attempt("broker-a", 3, RequestTimeout("10.0.0.1:1", "SEND_MESSAGE", 5))],
    "code": ResponseCode.SYSTEM_ERROR,
    "content": {"action": "topic.delete"},
    "position": 1,
    "name_servers": ["10.0.0.1:9876"],
}


def _kinds() -> list[type[BaseException]]:
    for found in pkgutil.walk_packages(pocketmq.__path__, "pocketmq."):
        if not found.name.endswith("__main__"):
            try:
                importlib.import_module(found.name)
            except ImportError:
                continue  # of an extra that is not installed here
    return sorted(set(_below(BaseException)), key=lambda kind: (kind.__module__, kind.__qualname__))


def _below(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for each in type.__subclasses__(kind):
        if each.__module__.startswith("pocketmq."):
            yield each
        yield from _below(each)


def _made(kind: type[BaseException]) -> BaseException:
    if kind.__init__ in (Exception.__init__, ValueError.__init__, AssertionError.__init__):
        return kind("the text")
    wanted = [
        each
        for each in list(inspect.signature(kind).parameters.values())
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    ]
    positional = [_sample(each.name) for each in wanted if each.kind is not each.KEYWORD_ONLY]
    named = {each.name: _sample(each.name) for each in wanted if each.kind is each.KEYWORD_ONLY}
    return kind(*positional, **named)


def _sample(name: str) -> Any:
    return _SAMPLES.get(name, "x")


@pytest.mark.parametrize("kind", _kinds(), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_an_error_is_the_same_on_the_other_side(kind: type[BaseException]) -> None:
    error = _made(kind)
    error.add_note("as it was")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert (str(again), repr(again.args)) == (str(error), repr(error.args))
        assert {name: repr(value) for name, value in vars(again).items()} == {
            name: repr(value) for name, value in vars(error).items()
        }


def _fails() -> None:
    raise SendOutcomeUnknown("Orders", "shop", _SAMPLES["attempts"], "Look first")


def test_a_pools_parent_gets_the_workers_error() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        error = pool.submit(_fails).exception(60)
    assert isinstance(error, SendOutcomeUnknown)
    assert error.attempts[0].broker_name == "broker-a"
    assert isinstance(error.attempts[0].error, RequestTimeout)
