"""A firewall forgets every connection to the source in the middle of `pocketmq migrate --from`.

Each step goes on by new connections, or all is undone: the source leads again and takes sends.
"""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pocketmq.cli.migration.report import MigrationRefused
from pocketmq.client import Producer
from pocketmq.remoting.errors import PocketMQError
from tests.broker.pairs import end_of
from tests.cli.test_migrate import QUICK, STEPS, led_to, moving, stored
from tests.kit.forgetful_proxy import ForgetfulProxy
from tests.kit.waiting import until_async

HOST = "127.0.0.2"


@pytest.mark.parametrize("step", STEPS)
async def test_it_goes_on_or_leaves_the_source_as_it_was(tmp_path: Path, step: str) -> None:
    async with AsyncExitStack() as stack, moving(tmp_path) as way:
        master = way.brokers.master

        async def behind_proxies() -> object:
            """The source registers with addresses of proxies."""
            broker = await master(
                broker_ip1=HOST,
                ha_send_heartbeat_interval=200,
                ha_housekeeping_interval=1_000,
            )
            ports = [int(broker.address.rpartition(":")[2])]
            ports.append(int(broker.registration.identity.ha_address.rpartition(":")[2]))
            for port in ports:
                proxy = ForgetfulProxy(port, host=HOST, port=port)
                proxies.append(await stack.enter_async_context(proxy))
            return broker

        proxies: list[ForgetfulProxy] = []
        way.brokers.master = behind_proxies  # type: ignore[assignment,method-assign]
        inwards = await way.start()
        fired: list[str] = []

        def forget(line: str) -> None:
            if line.startswith(step) and not fired:
                fired.append(line)
                for proxy in proxies:
                    proxy.forget()

        way.at = forget
        is_moved = True
        try:
            await inwards.run()
        except (MigrationRefused, PocketMQError):
            is_moved = False
        assert fired
        leader = way.slave if is_moved else way.master
        await until_async(lambda: led_to(way.admin, leader))
        async with Producer("p", name_server=way.namesrv, **QUICK) as producer:
            before = end_of(leader)
            await stored(producer, b"after")
            assert end_of(leader) > before
        if not is_moved:
            assert way.master.config.start_accept_send_request_time_stamp == 0
