"""Every request code has a handler or a written refusal."""

from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.not_served import NOT_SERVED
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.namesrv.processors import NameServerProcessors
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.clock import ManualClock, SystemClock
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.headers import REQUEST_HEADERS
from pocketmq.store import StoreConfig


async def test_every_request_code_is_served_or_refused_in_words(tmp_path: Path) -> None:
    """An unknown code gets RocketMQ's answer for one, not silence (issue 3 part 4)."""
    config = BrokerConfig(broker_name="a", listen_port=0)
    store = StoreConfig(store_path_root_dir=str(tmp_path))
    async with (
        Broker(config, store, clock=SystemClock()) as broker,
        RemotingClient({}, SystemClock()) as client,
    ):
        for code in RequestCode:
            answer = await client.invoke(broker.address, RemotingCommand(code, {}), 30_000)
            known = answer.code != 3
            assert known != (code in NOT_SERVED), code.name
            if not known:
                assert answer.remark == f" request type {code} not supported"
        answer = await client.invoke(broker.address, RemotingCommand(31_999), 30_000)
        assert (answer.code, answer.remark) == (3, " request type 31999 not supported")


def test_what_the_broker_leaves_to_a_name_server_ours_serves() -> None:
    server = NameServer(NamesrvConfig(), ManualClock())
    served = NameServerProcessors(server.routes, server.kv_config, server.config).handlers().keys()
    left = {code for code, why in NOT_SERVED.items() if "name server" in why}
    assert served == left


@pytest.mark.parametrize("code", sorted(NOT_SERVED))
def test_a_refusal_says_why(code: RequestCode) -> None:
    assert len(NOT_SERVED[code]) > 20


def test_no_header_is_declared_for_a_number_that_does_not_exist() -> None:
    assert REQUEST_HEADERS.keys() <= set(RequestCode)
