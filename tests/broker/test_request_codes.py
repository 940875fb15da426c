"""Every request code has a handler or a written refusal."""

from dataclasses import astuple
from inspect import get_annotations
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import (
    REQUESTS,
    AnsweringServer,
    PocketRequestCode,
    RequestRow,
    complete,
)
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.store import StoreConfig

CODE = RequestCode
_USERS = range(CODE.AUTH_CREATE_USER, CODE.AUTH_LIST_ACL + 1)


def name(row: RequestRow) -> str:
    return row.code.name


async def test_every_request_code_is_served_or_refused_in_words(tmp_path: Path) -> None:
    """An unknown code gets RocketMQ's answer for one, not silence."""
    config = BrokerConfig(broker_name="a", listen_port=0)
    store = StoreConfig(store_path_root_dir=str(tmp_path))
    async with (
        Broker(config, store, clock=SystemClock()) as broker,
        RemotingClient({}, SystemClock()) as client,
    ):
        for code in REQUESTS:
            answer = await client.invoke(broker.address, RemotingCommand(code, {}), 30_000)
            known = answer.code != 3
            # Users and policies are there with authenticationEnabled only.
            is_ours = REQUESTS[code].server & AnsweringServer.BROKER and code not in _USERS
            assert known == bool(is_ours), RequestCode(code)
            if not known:
                unsupported = f" request type {code} not supported"
                without = "this broker has no users: start it with authenticationEnabled=true"
                says = without if code in _USERS else unsupported
                assert (answer.remark or "").startswith(says)
        answer = await client.invoke(broker.address, RemotingCommand(31_999), 30_000)
        assert (answer.code, answer.remark) == (3, " request type 31999 not supported")


@pytest.mark.parametrize("row", [row for row in REQUESTS.values() if not row.server], ids=name)
def test_a_refusal_says_why(row: RequestRow) -> None:
    assert len(row.why) > 20


def test_each_code_has_a_row() -> None:
    assert REQUESTS.keys() == {*RequestCode, *PocketRequestCode}


@pytest.mark.parametrize("row", [row for row in REQUESTS.values() if row.access], ids=name)
def test_an_access_names_fields_that_the_header_has(row: RequestRow) -> None:
    """A misspelt field would refuse everybody, or, where it is optional, let everybody in."""
    assert row.access is not None
    if row.access.in_body:
        return
    assert row.header is not None
    known = row.header(**dict.fromkeys(get_annotations(row.header), "1")).ext().keys()
    named = {field for field in astuple(row.access) if isinstance(field, str)}
    assert named <= known


@pytest.mark.parametrize("missing", [CODE.PULL_MESSAGE, CODE.GET_TIMER_METRICS])
def test_a_server_without_a_promised_handler_does_not_start(missing: RequestCode) -> None:
    promised = [code for code, row in REQUESTS.items() if row.server & AnsweringServer.BROKER]
    assert complete(AnsweringServer.BROKER, dict.fromkeys(promised)).keys() == set(promised)
    with pytest.raises(AssertionError, match=str(int(missing))):
        complete(AnsweringServer.BROKER, dict.fromkeys(set(promised) - {missing}))


def test_a_request_says_what_it_does() -> None:
    assert CODE.QUERY_CONSUMER_OFFSET.in_words("G") == "asking for the group's offset (G)"
    assert CODE.GET_BROKER_CONFIG.in_words() == "get broker config"
